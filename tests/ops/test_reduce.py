"""Reductions and running sums and products: against loops, finite differences and PyTorch."""
import math
import statistics
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from tests.harness import assert_gradients, assert_like_torch, draw, gradients

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# name: the same of a list of Python numbers
PLAIN = {
    "sum": math.fsum, "mean": statistics.fmean, "amax": max, "amin": min,
    "var": lambda v: statistics.variance(v) if len(v) > 1 else NAN,
    "std": lambda v: statistics.stdev(v) if len(v) > 1 else NAN,
    "logsumexp": lambda v: math.log(math.fsum(map(math.exp, v))),
    "norm": lambda v: math.sqrt(math.fsum(x * x for x in v)), "prod": math.prod, "max": max, "min": min,
}
SEVERAL = "sum mean amax amin var std logsumexp norm".split()  # those that take several dims
CASES = [((3, 5), None), ((3, 5), 0), ((3, 5), -1), ((2, 3, 5), (0, 2)), ((2, 3, 5), (-1, -2)), ((2, 3, 5), 1),
         ((2, 3, 5), [0]), ((7,), 0), ((1, 1), 1), ((), None), ((), 0), ((), -1), ((3, 0), 0), ((2, 3, 5), ())]


def plainly(function, a, dim, keepdim):
    """`function` of the list of elements behind each result, by loops."""
    dims = range(a.ndim) if dim in (None, (), []) else [dim] if isinstance(dim, int) else dim
    axes = {d % max(a.ndim, 1) for d in dims} if a.ndim else set()
    kept = [1 if i in axes else n for i, n in enumerate(a.shape)]
    out = np.zeros(kept)
    for where in np.ndindex(*kept):
        box = tuple(slice(None) if i in axes else slice(k, k + 1) for i, k in enumerate(where))
        out[where] = function([float(v) for v in a[box].ravel()])
    return out if keepdim else out.reshape([n for i, n in enumerate(a.shape) if i not in axes])


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("shape, dim", CASES, ids=str)
@pytest.mark.parametrize("name", PLAIN)
def test_reductions(name, shape, dim, keepdim):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name not in SEVERAL and not (dim is None or isinstance(dim, int)):
        pytest.skip("takes one dim")
    if (name == "logsumexp" and dim in (None, ())) or (name not in SEVERAL and dim is None and keepdim):
        pytest.skip("takes no such arguments")
    words = {"dim": dim, "keepdim": keepdim} if dim is not None or name in SEVERAL else {}
    if name in ("amax", "amin") and dim is None:
        del words["dim"]

    def call(lib):
        def run(x):
            found = getattr(lib, name)(x, **words)
            return found.values if isinstance(found, tuple) else found
        return run

    a = draw(*shape)
    y = call(mt)(mt.tensor(a))
    assert y.dtype == mt.float64
    wanted = plainly(PLAIN[name], a, dim, keepdim) if a.size else np.zeros(y.shape)
    np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-12, atol=1e-14)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*degrees of freedom")  # PyTorch's, of one element
        if dim != () or name not in ("var", "std"):  # PyTorch's gradient is infinite there
            assert_like_torch(call(mt), call(torch), a)
            assert_like_torch(call(mt), call(torch), a.astype("f4"), rtol=1e-5, atol=1e-6)
    if not np.isnan(wanted).any() and a.size:
        assert_gradients(lambda x: call(mt)(x.transpose(0, -1) if keepdim and x.ndim else x), a)


@pytest.mark.parametrize("shape, dim", [((4160, 3), 0), ((65, 64, 3), (0, 1)), ((300, 7), 1), ((5, 300), 1),
                                        ((2, 130, 7), 1), ((700, 7), None)], ids=str)
def test_sums_of_many_elements(shape, dim):
    for kind, tolerance in (("f4", 1e-4), ("f8", 1e-12), ("f2", 3e-3), ("i8", 0)):
        a = (draw(*shape, low=0, high=9)).astype(kind)
        for x in (mt.tensor(a), mt.tensor(a.T.copy()).permute(*range(a.ndim)[::-1])):
            wanted = np.sum(a.astype("f8"), axis=dim)
            if wanted.max() < 60000 or kind != "f2":
                np.testing.assert_allclose(mt.sum(x, dim).numpy(), wanted, rtol=tolerance)
            if kind in ("f4", "f8"):
                np.testing.assert_allclose(mt.mean(x, dim).numpy(), a.astype("f8").mean(dim), rtol=tolerance)
                np.testing.assert_allclose(mt.var(x, dim).numpy(), a.astype("f8").var(dim, ddof=1), rtol=tolerance)


def test_half_precision_adds_up_in_single():
    x = mt.full((3000,), 0.1, dtype=mt.float16)
    assert mt.sum(x).dtype == mt.float16 and abs(mt.sum(x).item() - 3000 * x[0].item()) < 0.25


@pytest.mark.parametrize("kind", ["?", "u1", "i4", "i8", "f4", "f8"])
@pytest.mark.parametrize("name", "sum prod cumsum cumprod mean amax amin max all any argmax".split())
def test_dtypes_of_results(name, kind):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([[1, 2, 0], [3, 0, 5]]).astype(kind)
    words = {"dim": 1} if name.startswith("cum") else {}
    if name == "mean" and kind[0] != "f":
        with pytest.raises(RuntimeError, match="mean needs a floating-point tensor"):
            mt.mean(mt.tensor(a))
    elif name == "argmax" and kind == "?":  # PyTorch refuses
        assert mt.argmax(mt.tensor(a)).item() == 0
    elif name in ("all", "any") and kind == "u1":  # in PyTorch uint8, a relic
        assert getattr(mt, name)(mt.tensor(a)).dtype == mt.bool
    else:
        assert_like_torch(lambda x: getattr(mt, name)(x, **words), lambda x: getattr(torch, name)(x, **words), a)


@pytest.mark.parametrize("kind, dtype", [("f4", "float64"), ("f8", "float32"), ("i8", "float32"), ("f4", "int64")])
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "cumsum", "cumprod", "norm"])
def test_dtype_converts_before(name, kind, dtype):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([[1.5, 2.5, 3.5], [0.5, 5.0, -2.0]]).astype(kind)

    def call(lib):
        words = {"dim": 0} if name.startswith("cum") else {}
        return lambda x: getattr(lib, name)(x if dtype[0] == "f" else x.detach(), dtype=getattr(lib, dtype), **words)

    if name == "norm" and (kind, dtype) != ("f4", "float64"):
        pytest.skip("PyTorch widens only")
    if dtype == "int64" and name == "mean":
        with pytest.raises(RuntimeError, match="floating-point"):
            call(mt)(mt.tensor(a))
    else:
        assert_like_torch(call(mt), call(torch), a)


def test_numpys_words():
    x = mt.tensor(draw(2, 3))
    assert mt.equal(mt.sum(x, axis=1, keepdims=True), mt.sum(x, 1, True))
    assert mt.equal(x.max(axis=0).values, x.max(0).values)
    assert mt.equal(x.cumsum(axis=1), x.cumsum(1))
    assert mt.equal(x.std(axis=-1, keepdims=True, correction=0), x.std(-1, False, True))


# No elements

def test_no_elements():
    x = mt.zeros(3, 0, 5, requires_grad=True)
    assert mt.equal(mt.sum(x, 1, keepdim=True), mt.zeros(3, 1, 5))
    assert mt.mean(x, 1).isnan().all().item()
    (mt.sum(x, 1) + mt.mean(x, 1) + mt.logsumexp(x, 1) + mt.prod(x, 1) + mt.norm(x, dim=1)).backward(mt.ones(3, 5))
    assert x.grad.shape == (3, 0, 5)
    assert mt.sum(x).item() == 0 and mt.prod(x).item() == 1 and math.isnan(mt.mean(x).item())
    assert mt.all(x).item() is True and mt.any(x).item() is False
    assert mt.logsumexp(x, 1)[0, 0].item() == -INF
    assert math.isnan(mt.var(x).item()) and math.isnan(mt.std(x).item())
    assert mt.cumsum(x, 1).shape == mt.cumprod(x, 1).shape == (3, 0, 5)
    assert mt.argmax(x, 0).shape == mt.amax(x, 0).shape == mt.max(x, 0).values.shape == (0, 5)


@pytest.mark.parametrize("call, error", [
    (lambda x: mt.amax(x, 1), IndexError), (mt.amin, IndexError), (lambda x: mt.max(x, 1), IndexError),
    (lambda x: mt.min(x, 1), IndexError), (mt.max, RuntimeError), (mt.min, RuntimeError), (mt.argmax, IndexError),
    (lambda x: mt.argmin(x, 1), IndexError), (lambda x: mt.norm(x, INF), IndexError)])
def test_no_element_to_choose(call, error):
    with pytest.raises(error, match=r"\(3, 0\)"):
        call(mt.zeros(3, 0))


# Sums

def test_the_gradient_of_a_sum_reaches_a_copy_of_its_own():
    x = mt.zeros(2, 3, requires_grad=True)
    mt.sum(x).backward()
    x.grad[0, 0] = 5.0  # every element has memory of its own
    assert x.grad.tolist() == [[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


def test_infinities_add_up_without_a_warning():
    assert math.isnan(mt.sum(mt.tensor([INF, -INF])).item())
    assert mt.mean(mt.tensor([1.0, -INF])).item() == -INF


# Spread

@pytest.mark.parametrize("words", [
    {}, {"unbiased": False}, {"unbiased": True}, {"correction": 0}, {"correction": 2}, {"correction": 6},
    {"correction": 7}, {"dim": 1, "unbiased": False}, {"dim": (0, 1), "correction": 0}], ids=str)
@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_correction(name, words):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    warnings.filterwarnings("ignore", message=".*degrees of freedom")
    a = draw(2, 3)
    assert_like_torch(lambda x: getattr(mt, name)(x, False), lambda x: getattr(torch, name)(x, False), a)
    if words.get("correction", 0) >= a.size:  # infinite, and so are the gradients
        assert_like_torch(lambda x: getattr(mt, name)(x.detach(), **words),
                          lambda x: getattr(torch, name)(x.detach(), **words), a)
    else:
        assert_like_torch(lambda x: getattr(mt, name)(x, **words), lambda x: getattr(torch, name)(x, **words), a)
        assert_gradients(lambda x: getattr(mt, name)(x, **words), a)


def test_spread_of_equal_elements():
    x = mt.full((3,), 7.0, requires_grad=True)
    y = mt.std(x)
    y.backward()
    assert y.item() == 0 and x.grad.tolist() == [0.0, 0.0, 0.0]
    one = mt.tensor([3.0], requires_grad=True)
    y = mt.std(one)
    y.backward()
    assert math.isnan(y.item()) and math.isnan(one.grad.item())
    assert mt.std(one, unbiased=False).item() == 0


def test_spread_far_from_zero():
    a = 1e6 + draw(5, 97)
    wanted = [statistics.variance(row) for row in a.tolist()]
    np.testing.assert_allclose(mt.var(mt.tensor(a), 1).numpy(), wanted, rtol=1e-9)


def test_unbiased_and_correction_exclude_each_other():
    with pytest.raises(TypeError, match="var: give unbiased or correction"):
        mt.var(mt.zeros(2), 0, True, correction=1)
    for name in ("var", "std"):
        with pytest.raises(RuntimeError, match=name + " needs a floating-point tensor, got int64"):
            getattr(mt, name)(mt.tensor([1, 2]))


# Largest and smallest

TIED = np.array([[2.0, 5.0, 5.0, -1.0, 2.0], [-1.0, -1.0, 5.0, 5.0, 5.0], [0.0, 0.0, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize("dim", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "amax", "amin"])
def test_ties(name, dim):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def call(lib):
        return lambda x: getattr(lib, name)(x, **({} if dim is None else {"dim": dim}))

    for a in (TIED, TIED.astype("f4"), TIED.astype("i8")):
        assert_like_torch(call(mt), call(torch), a)
    a = np.array([[1.0, NAN, 3.0, NAN]])
    assert_like_torch(lambda x: call(mt)(x.detach()), lambda x: call(torch)(x.detach()), a)


def test_shares_of_tied_elements():
    x = mt.tensor([1.0, 3.0, 3.0], requires_grad=True)
    (mt.amax(x) + 10 * mt.max(x) + 100 * mt.max(x, 0).values).backward()
    assert x.grad.tolist() == [0.0, 105.5, 5.5]
    x = mt.tensor(2.0, requires_grad=True)
    mt.amax(mt.stack([x, x])).backward()
    assert x.grad.item() == 1.0


def test_max_along_a_dim_names_its_results():
    x = mt.tensor(draw(2, 3, 5), requires_grad=True)
    found = mt.max(x, dim=1)
    values, indices = found
    assert found.values is values and found.indices is indices and indices.dtype == mt.int64
    assert values.requires_grad and not indices.requires_grad
    np.testing.assert_array_equal(indices.numpy(), [[max(range(3), key=lambda j: x[i, j, k].item()) for k in range(5)]
                                                    for i in range(2)])
    assert mt.max(x, 1, True).indices.shape == (2, 1, 5)
    assert mt.min(mt.tensor(4.0), 0) == (mt.tensor(4.0), mt.tensor(0))


def test_max_of_two_tensors():
    x, y = mt.tensor([1.0, 4.0]), mt.tensor([3.0, 2.0])
    assert mt.max(x, y).tolist() == [3.0, 4.0] and x.min(y).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("words", [{}, {"keepdim": True}, {"dim": 0}, {"dim": -1, "keepdim": True}], ids=str)
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax(name, words):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for a in (draw(3, 5), draw(), draw(2, 3, 5)):
        assert_like_torch(lambda x: getattr(mt, name)(x, **words), lambda x: getattr(torch, name)(x, **words), a)


def test_argmax_has_no_gradient():
    x = mt.tensor([1.0, 5.0], requires_grad=True)
    assert mt.argmax(x).item() == 1 and not mt.argmax(x).requires_grad
    with pytest.raises(RuntimeError, match="requires grad"):
        (mt.argmax(x) + 2).backward()


# logsumexp

def test_logsumexp_of_extremes():
    x = mt.tensor([[-INF, -INF], [-INF, 1.0], [1000.0, 1000.0], [-1000.0, -1001.0], [INF, 0.0]], requires_grad=True)
    y = mt.logsumexp(x, 1)
    assert y.tolist() == pytest.approx([-INF, 1.0, 1000 + math.log(2), -1000 + math.log1p(math.exp(-1)), INF])
    y[:4].backward(mt.ones(4))
    wanted = [[0, 0], [0, 1], [0.5, 0.5], [1 / (1 + math.exp(-1)), 1 / (1 + math.e)]]
    np.testing.assert_allclose(x.grad.numpy()[:4], wanted, rtol=1e-6)
    assert mt.logsumexp(mt.tensor([1, 2]), 0).item() == pytest.approx(math.log(math.e + math.e ** 2))


# Products and running sums

def plain_cumulative(combine, a, axis):
    out = a.copy()
    for where in np.ndindex(a.shape):
        if where[axis]:
            before = (*where[:axis], where[axis] - 1, *where[axis + 1:])
            out[where] = combine(out[before], a[where])
    return out


@pytest.mark.parametrize("shape, dim", [((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 5), -2), ((2, 1), 1), ((3, 0), 1),
                                        ((1,), -1)], ids=str)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulative(name, shape, dim):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = draw(*shape)
    combine = float.__add__ if name == "cumsum" else float.__mul__
    wanted = plain_cumulative(lambda x, y: combine(float(x), float(y)), a, dim % a.ndim)
    np.testing.assert_allclose(getattr(mt, name)(mt.tensor(a), dim).numpy(), wanted, rtol=1e-12)
    assert_gradients(lambda x: getattr(mt, name)(x, dim), a)
    assert_gradients(lambda x: getattr(mt, name)(x.transpose(0, -1), dim), a)
    for kind in ("f8", "f4"):
        assert_like_torch(lambda x: getattr(mt, name)(x, dim), lambda x: getattr(torch, name)(x, dim), a.astype(kind),
                          rtol=1e-5)


def test_cumulative_of_one_number():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert_like_torch(lambda x: mt.cumsum(x, 0), lambda x: torch.cumsum(x, 0), np.array(2.5))
    assert_like_torch(lambda x: mt.cumprod(x, -1), lambda x: torch.cumprod(x, -1), np.array(2.5))


def test_direction_of_the_gradient_of_cumsum():
    x = mt.zeros(3, requires_grad=True)
    mt.cumsum(x, 0).backward(mt.tensor([1.0, 2.0, 3.0]))
    assert x.grad.tolist() == [6.0, 5.0, 3.0]


ZEROS = [[2.0, 3.0, 0.0, 1.0], [2.0, 0.0, 0.0, 3.0], [0.0, 4.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.0], [2.0, 3.0, 4.0, 5.0]]


@pytest.mark.parametrize("row", ZEROS, ids=str)
def test_products_with_zeros(row):
    a = np.array(row)
    _, weights, found = gradients(lambda x: mt.cumprod(x, 0), [a])
    wanted = [sum(weights[0][j] * math.prod(row[:k] + row[k + 1:j + 1]) for j in range(k, 4)) for k in range(4)]
    np.testing.assert_allclose(found[0], wanted, rtol=1e-14)
    x = mt.tensor(a, requires_grad=True)
    mt.prod(x).backward()
    assert x.grad.tolist() == [math.prod(row[:k] + row[k + 1:]) for k in range(4)]
    assert_gradients(lambda x: mt.prod(x.reshape(2, 2), 1), a)
    x = mt.tensor([2.0, 3.0, 0.0], requires_grad=True)
    mt.sum(mt.cumprod(x, 0)).backward()
    assert x.grad.tolist() == [4.0, 2.0, 6.0]


def test_prod_without_overflow_in_the_gradient():
    x = mt.tensor([1e30, 1e-30, 1e30, 1e-30], requires_grad=True)
    y = mt.prod(x)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy() * x.detach().numpy(), [y.item()] * 4, rtol=1e-6)


# Truth values

@pytest.mark.parametrize("words", [{}, {"dim": 0}, {"dim": -1}, {"dim": (0, 1)}], ids=str)
@pytest.mark.parametrize("name", ["all", "any", "count_nonzero"])
def test_all_any_count_nonzero(name, words):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for a in ([[1.0, 0.0, NAN], [2.0, 3.0, 4.0]], [[0, 0, 3], [0, 1, 2]], [[True, False, True]]):
        assert_like_torch(lambda x: getattr(mt, name)(x, **words), lambda x: getattr(torch, name)(x, **words), a)
    assert mt.all(mt.zeros(2, 3), 1, keepdim=True).shape == (2, 1)
    assert mt.all(mt.tensor(2.0)).item() is True and mt.any(mt.tensor(0.0)).item() is False


# Norms

@pytest.mark.parametrize("p", [2, 1, 3, 1.5, 0.5, 0, -1, INF, -INF, "fro"])
@pytest.mark.parametrize("dim", [None, 0, -1, (0, 1)])
def test_norm(p, dim):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if p == "fro" and dim in (0, -1):
        dim = (0, 1)
    a = draw(3, 5)
    assert_like_torch(lambda x: mt.norm(x, p, dim), lambda x: torch.norm(x, p, dim), a)
    a = a.astype("f4")
    assert_like_torch(lambda x: mt.norm(x, p, dim, True), lambda x: torch.norm(x, p, dim, True), a, rtol=1e-5)
    a = a.astype("f8")
    assert_gradients(lambda x: mt.norm(x, p, dim), a)
    size = np.abs(a.ravel()).tolist()
    if p in (0, INF, -INF):
        wanted = {0: 15, INF: max(size), -INF: min(size)}[p]
    else:
        power = 2 if p == "fro" else p
        wanted = math.fsum(v ** power for v in size) ** (1 / power)
    assert mt.norm(mt.tensor(a), p).item() == pytest.approx(wanted)


@pytest.mark.parametrize("p", [2, 1, 3, 1.5, INF, -INF, 0.5])
def test_norm_at_zero(p):
    for a in ([0.0, 0.0], [0.0, 2.0]):
        x = mt.tensor(a, requires_grad=True)
        mt.norm(x, p).backward()
        assert x.grad.tolist() == pytest.approx([0.0, 1.0] if a[1] and p != -INF else [0.0, 0.0])
    x = mt.zeros(2, requires_grad=True)
    (mt.norm(x) ** 2).backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_norm_errors():
    with pytest.raises(NotImplementedError, match="'nuc'"):
        mt.norm(mt.zeros(2, 2), "nuc")
    with pytest.raises(RuntimeError, match="norm needs a floating-point tensor, got int64"):
        mt.norm(mt.tensor([1, 2]))


# Mistakes

ALL = [*PLAIN, "cumsum", "cumprod", "argmax", "argmin", "all", "any", "count_nonzero", "norm", "var_mean"]


@pytest.mark.parametrize("name", ALL)
def test_dims_out_of_range(name):
    for dim in (2, -3):
        with pytest.raises(IndexError, match=rf"\[-2, 1\].* got {dim}"):
            getattr(mt, name)(mt.zeros(2, 3), dim=dim)
    with pytest.raises(IndexError, match="got 1"):
        getattr(mt, name)(mt.tensor(1.0), dim=1)
    with pytest.raises(TypeError, match="expected a Tensor, got list"):
        getattr(mt, name)([1.0], dim=0)


@pytest.mark.parametrize("name", [*SEVERAL, "all", "count_nonzero"])
def test_dims_given_twice(name):
    with pytest.raises(RuntimeError, match="twice"):
        getattr(mt, name)(mt.zeros(2, 3), dim=(1, -1))


def test_float16_is_reduced_in_float32():
    large = mt.tensor([60000.0, 60000.0], dtype=mt.float16)
    assert large.mean().item() == 60000
    assert mt.tensor([60000.0, 60000.0, -60000.0], dtype=mt.float16).sum().item() == 60000
    assert mt.ones(100000, dtype=mt.float16).mean().item() == 1
    x = mt.tensor([300.0, 400.0], dtype=mt.float16, requires_grad=True)
    x.norm().backward()
    assert x.norm().item() == 500
    np.testing.assert_allclose(x.grad.numpy(), [0.6, 0.8], rtol=1e-3)
    x = mt.tensor([-300.0, 400.0, 0.0], dtype=mt.float16, requires_grad=True)
    x.std().backward()
    assert x.std().item() == 351.25
    np.testing.assert_allclose(x.grad.numpy(), np.array([-1000, 1100, -100]) / 3 / (351.19 * 2), rtol=2e-3)
    assert {y.dtype for y in (x.std(), x.var(), x.mean(), x.norm(), x.norm(3), x.grad)} == {mt.float16}


@pytest.mark.parametrize("p", [-1, -2.5])
def test_negative_norm_with_a_zero_has_no_gradient(p):
    x = mt.tensor([1.0, 0.0, -2.0], requires_grad=True)
    y = x.norm(p)
    y.backward()
    assert y.item() == 0
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
