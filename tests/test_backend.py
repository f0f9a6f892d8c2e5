"""What array libraries disagree on, and the error function: its accuracy for each dtype, against Python's own."""
import copy
import math
import os
import pathlib
import subprocess
import sys
import warnings

import numpy as np
import pytest

from minitorch_attn import backend
from minitorch_attn.backend import library_of, matrix_product, normal_cdf, row_max, to_device, to_host, xp
from tests.harness import draw

# Which library

def start(code, library):
    environment = {name: value for name, value in os.environ.items() if name != "MINITORCH_BACKEND"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**environment, **({"MINITORCH_BACKEND": library} if library is not None else {})})


@pytest.mark.parametrize("library, used", [(None, "numpy"), ("", "numpy"), ("numpy", "numpy"), ("NumPy", "numpy")])
def test_the_environment_names_the_library(library, used):
    got = start("import minitorch_attn as mt; print(mt.backend.xp.name, mt.ones(2).device)", library)
    assert got.stdout.split() == [used, "cpu"], got.stderr


def test_an_unknown_library_is_refused_with_the_known_ones():
    got = start("import minitorch_attn", "jax")
    assert got.stderr.strip().splitlines()[-1] == (
        "ValueError: MINITORCH_BACKEND says 'jax', but there is no array library 'jax' here; it can be numpy, cupy, "
        "dpnp")


def test_a_library_that_is_not_installed_is_named_with_how_to_install_it(monkeypatch):
    def nothing(name):
        raise ModuleNotFoundError("No module named 'cupy'", name="cupy")

    monkeypatch.setattr(backend.importlib, "import_module", nothing)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'minitorch_attn\[cupy\]'"):
        backend.load("cupy")


def test_a_library_without_a_device_says_so_and_leaves_the_one_in_use(monkeypatch):
    class NoDevice:
        @staticmethod
        def zeros(n):
            raise OSError("no CUDA-capable device is detected")

    monkeypatch.setattr(backend.importlib, "import_module", lambda name: NoDevice)
    before = xp.name, xp.module
    with pytest.raises(RuntimeError, match="cupy is installed, but cannot compute here: no CUDA-capable"):
        xp.use("cupy" if before[0] != "cupy" else "dpnp")
    assert (xp.name, xp.module) == before


@pytest.mark.parametrize("act, kind, words", [
    (lambda: backend.device("cpu:x"), RuntimeError, "number 0"),
    (lambda: backend.device("cpu:99"), RuntimeError, "number 0"),
    (lambda: backend.device("cpu", 1), RuntimeError, "'cpu' number 1 here: there is one"),
    (lambda: backend.device("cpu:"), RuntimeError, "number 0"),
    (lambda: backend.device("tpu"), RuntimeError, r'use_backend\("..."\) changes it'),
    (lambda: backend.load(["numpy"]), ValueError, "no array library"),
])
def test_what_there_is_not(act, kind, words):
    with pytest.raises(kind, match=words):
        act()


def test_another_device_is_to_be_had_by_another_library():
    other = "cupy" if xp.name != "cupy" else "dpnp"
    for name in (other, backend.DEVICE_KINDS[other]):
        with pytest.raises(RuntimeError, match=rf'use_backend\("{other}"\) changes it'):
            backend.device(name)


def test_the_array_library_can_be_copied():
    assert copy.copy(xp).name == xp.name


def test_no_operation_or_layer_asks_which_library_computes():
    package = pathlib.Path(backend.__file__).parent
    asking = [path.name for folder in ("ops", "nn", "optim", "models") for path in (package / folder).rglob("*.py")
              if "xp.name" in path.read_text(encoding="utf-8")]
    assert list((package / "ops").glob("*.py")) and not asking


# The helpers

def test_to_host_and_back():
    a = draw(3, 5).astype("f4")
    x = to_device(a)
    assert isinstance(x, xp.ndarray) and x.dtype == np.float32 and to_device(x) is x
    assert library_of(x) == xp.name and library_of(a) == "numpy"
    back = to_host(x[:, ::-2])
    assert isinstance(back, np.ndarray) and to_host(a) is a
    np.testing.assert_array_equal(back, a[:, ::-2])
    assert to_device([1, 2], np.dtype("f8")).dtype == np.float64
    backend.synchronize()


VIEWS = {
    "whole": (..., ...), "rows": (slice(0, 3), slice(2, 4)), "rows apart": (slice(0, 2), slice(2, 4)),
    "reversed": (slice(None, None, -1), slice(3, None)), "columns apart": ((..., 0), (..., 1)),
    "interleaved": ((..., slice(0, None, 2)), (..., slice(1, None, 2))), "empty": (slice(0, 0), slice(0, 0)),
    "steps": ((..., slice(0, None, 2)), (..., slice(2, None, 3))),
    "one entry": ((slice(3, 4), slice(4, 5)), (slice(3, None), slice(4, None, 2))),
}


@pytest.mark.parametrize("name", VIEWS)
def test_shares_memory(name):
    first, second = VIEWS[name]
    a = np.arange(5 * 7).reshape(5, 7)
    wanted = bool(set(a[first].reshape(-1).tolist()) & set(a[second].reshape(-1).tolist()))
    x = to_device(a)
    assert backend.shares_memory(x[first], x[second]) == wanted
    assert not backend.shares_memory(x[first], x.copy()[second])
    assert backend.shares_memory(a[first], a[second]) == wanted
    assert not backend.shares_memory(x[first], a.copy()[second])


def test_whole_memory():
    x = to_device(draw(5, 7))
    assert backend.whole_memory(x) is x
    parts = x[2:], x[:, 3], x.reshape(-1)[4:]
    for part in parts:
        whole = backend.whole_memory(part)
        assert backend.shares_memory(whole, x[0]) and backend.shares_memory(whole, x[4, 6:])


@pytest.mark.parametrize("offset, dims", [(0, (0, 1)), (2, (0, 1)), (-1, (2, 0)), (9, (1, 2))])
def test_diagonal_view_is_written_through(offset, dims):
    a = draw(3, 5, 4)
    x = to_device(a)
    y = backend.diagonal_view(x, offset, *dims)
    np.testing.assert_array_equal(to_host(y), np.diagonal(a, offset, *dims), strict=True)
    y[...] = 0
    wanted = a.copy()
    for where in np.ndindex(a.shape):
        if where[dims[1]] - where[dims[0]] == offset:
            wanted[where] = 0
    np.testing.assert_array_equal(to_host(x), wanted)


@pytest.mark.parametrize("kind", ["f4", "f8", "i8"])
@pytest.mark.parametrize("index, rows, width", [
    ([3, 0, 3, 3, 1], 5, (2, 3)), ([2] * 37, 3, (5,)), (list(range(7)), 7, (2,)), ([], 4, (3,)), ([1, 1], 2, ()),
    ([[4, 4, 2], [0, 4, 2]], 5, (7,)), ([0], 1, (0,))])
def test_add_rows(index, rows, width, kind):
    index = np.array(index, dtype="i8")
    target, values = (10 * draw(*shape, seed=i) for i, shape in enumerate([(rows, *width), (*index.shape, *width)]))
    target, values = target.astype(kind), values.astype(kind)
    wanted = target.astype("f8")
    for where in np.ndindex(index.shape):
        wanted[index[where]] += values[where]
    x = to_device(target)
    backend.add_rows(x, to_device(index), to_device(values))
    assert x.dtype == kind
    np.testing.assert_allclose(to_host(x), wanted, rtol=1e-5 if kind == "f4" else 1e-12, atol=1e-5)


def test_add_rows_keeps_what_is_not_finite_to_its_own_row():
    x = to_device(np.zeros((4, 1)))
    values = np.array([1, np.inf, 2, np.nan, 3, -np.inf, np.inf, 5])[:, None]
    backend.add_rows(x, to_device(np.array([0, 0, 1, 2, 1, 3, 0, 3])), to_device(values))
    np.testing.assert_array_equal(to_host(x)[:, 0], [np.inf, 5, np.nan, -np.inf])


@pytest.mark.parametrize("shape, index, values_shape", [
    ((7,), ([2, 2, 5, 2, 0, 5],), (6,)),
    ((7, 3), ([2, 2, 5, 2, 0, 5],), (6, 3)),
    ((7, 3), ([2, 2, 5, 2, 0, 5],), (6, 1)),
    ((7, 3), (slice(None), [1, 1, 0]), (3,)),
    ((7, 3, 5), ([[2, 2], [5, 2]], [[1, 1], [0, 1]]), (2, 2, 5)),
    ((7,), ([3] * 1000,), (1000,)),
    ((7,), ([],), (0,)),
    ((7,), ([2, 2],), ()),
    ((7,), ([2, 5],), (1, 2)),
    ((7, 3), ([2, 2, 5],), (1, 1, 3, 3)),
], ids=str)
def test_write_entries_leaves_the_last_of_several(shape, index, values_shape):
    index = tuple(np.array(i, "i8") if isinstance(i, list) else i for i in index)
    target, values = draw(*shape), draw(*values_shape, seed=1)
    wanted, entries = target.copy(), np.arange(target.size).reshape(shape)[index]
    plain = values.reshape(values.shape[max(values.ndim - entries.ndim, 0):])
    for where, v in zip(entries.ravel(), np.broadcast_to(plain, entries.shape).ravel()):
        wanted.reshape(-1)[where] = v
    x = to_device(target.copy())
    backend.write_entries(x, tuple(to_device(i) if isinstance(i, np.ndarray) else i for i in index), to_device(values))
    np.testing.assert_array_equal(to_host(x), wanted)
    backend.write_entries(x, tuple(to_device(i) if isinstance(i, np.ndarray) else i for i in index), 7.0)
    assert (to_host(x)[index] == 7).all()


@pytest.mark.parametrize("row", [2.0, 3e30, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("transposed", [False, True])
def test_masked_is_zero_where_hidden_whatever_stands_there(row, transposed):
    g, mask = draw(3, 7).astype("f4"), draw(3, 7, seed=1) > 0
    g[1] = row
    with np.errstate(all="ignore"):
        got = backend.masked(to_device(g.T.copy()).T if transposed else to_device(g), to_device(mask))
    assert 0 < mask[1].sum() < 7
    assert np.array_equal(to_host(got), np.where(mask, g, 0), equal_nan=True)


def test_check_index():
    backend.check_index(to_device(np.array([0, 4])), 5)
    backend.check_index(to_device(np.zeros(0, "i8")), 0)
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 5\), got -1, 5"):
        backend.check_index(to_device(np.array([[2, -1], [5, 0]])), 5, "ids")


# The error function

def erf(a):
    return to_host(backend.erf(to_device(a)))


@pytest.mark.parametrize("kind, absolute, relative", [
    ("f2", 5e-4, 1e-3), ("f4", 2.4e-7, 4.6e-7), ("f8", 1.2e-15, 1.2e-15)])
def test_erf_accuracy(kind, absolute, relative):
    near = np.random.default_rng(0).uniform(0, 7, 20000)
    a = np.concatenate([near, np.logspace(-4 if kind == "f2" else -37, 3, 2000)]).astype(kind)
    y = erf(np.concatenate([a, -a]))
    assert y.dtype == a.dtype
    wanted = np.array([math.erf(v) for v in a])
    off = np.abs(y[:a.size].astype("f8") - wanted)
    assert off.max() < absolute and (off / wanted).max() < relative
    np.testing.assert_array_equal(y[a.size:], -y[:a.size])


@pytest.mark.parametrize("kind, start", [("f2", 4.0), ("f4", 4.0), ("f8", 5.94)])
def test_erf_is_exactly_one_far_out_and_never_beyond(kind, start):
    y = erf(np.linspace(0, 20, 100_001).astype(kind))
    assert y.max() == 1
    assert (y[np.linspace(0, 20, 100_001) > start] == 1).all()


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_erf_of_special_values_without_a_warning(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = erf(np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 6e4, -6e4], kind))
    np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, math.nan, 1, -1], kind))
    assert math.copysign(1, y[0]) == 1 and math.copysign(1, y[1]) == -1


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_erf_of_shapes(kind):
    whole = np.random.default_rng(0).standard_normal((7, backend.ERF_BLOCK // 3)).astype(kind)  # several blocks
    before = whole.copy()
    y = erf(whole)
    np.testing.assert_array_equal(y, np.stack([erf(row) for row in whole]))
    np.testing.assert_array_equal(erf(whole.T), y.T)
    np.testing.assert_array_equal(whole, before)
    assert erf(np.zeros((3, 0), kind)).shape == (3, 0)
    assert erf(np.array(0.5, kind)).dtype == kind


@pytest.mark.parametrize("shape", [(5, 1), (7, 16), (2, 3, 48), (3, 49), (16,)])
def test_row_max(shape):
    a = draw(*shape)
    a[..., -1:] = -np.inf if shape[-1] > 1 else a[..., -1:]
    found = to_host(row_max(to_device(a)))
    assert np.array_equal(found, a.max(axis=-1, keepdims=True))
    a[..., 0] = np.nan
    assert np.isnan(to_host(row_max(to_device(a)))).all()
    view = a[..., ::-1].swapaxes(0, -1)
    np.testing.assert_array_equal(to_host(row_max(to_device(view))), view.max(axis=-1, keepdims=True))


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_matrix_product(lead, inner):
    a, b = draw(*lead, 5, inner), draw(*lead, inner, 7, seed=1)
    a[..., 0, 0], b[..., 0, 1] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        found, wanted = to_host(matrix_product(to_device(a), to_device(b))), np.einsum("...ik,...kj->...ij", a, b)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    whole = np.arange(b.size).reshape(b.shape)
    np.testing.assert_array_equal(to_host(matrix_product(to_device(np.ones(a.shape, int)), to_device(whole))),
                                  np.ones(a.shape, int) @ whole)


@pytest.mark.parametrize("kind, largest", [("f4", 1e-7), ("f8", 6e-16)])
def test_normal_cdf(kind, largest):
    x = np.concatenate([np.linspace(-12, 12, 40_001), [0, 1e10, -1e10, 3e38, -3e38, np.inf, -np.inf]]).astype(kind)
    with np.errstate(over="ignore"):
        y = to_host(normal_cdf(to_device(x)))
    wanted = np.array([0.5 * math.erfc(-float(v) / math.sqrt(2)) for v in x])
    assert y.dtype == kind and np.abs(y - wanted).max() < largest
    assert y.min() == 0 and y.max() == 1 and y[40_001] == 0.5
