"""Sorting, and the largest and smallest entries."""
import numpy as np
import pytest

import minitorch_attn as mt
from tests.harness import assert_gradients, assert_like_torch, draw, gradients

SHAPE = (3, 7, 5)
NAN = float("nan")


def plain_order(row, descending):
    """Ids that sort a list; equal entries keep their order, NaN is the largest."""
    return sorted(range(len(row)), key=lambda i: (row[i] != row[i], row[i]) if not descending
                  else (row[i] == row[i], -row[i]))


def along(axis, a, function):
    """`function` of each line of `a` along `axis`, as lists."""
    lines = np.moveaxis(a, axis, -1)
    rows = [function(row.tolist()) for row in lines.reshape(-1, lines.shape[-1])]
    return np.moveaxis(np.array(rows).reshape(*lines.shape[:-1], -1), -1, axis)


TIED = np.random.default_rng(7).integers(0, 3, SHAPE)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "u1", "?"])
def test_sort_keeps_the_order_of_equal_entries(kind, dim, descending):
    a = TIED.astype(kind)
    wanted = along(dim, a, lambda row: plain_order([float(v) for v in row], descending))
    found = mt.sort(mt.tensor(a), dim=dim, descending=descending)
    np.testing.assert_array_equal(found.indices.numpy(), wanted)
    np.testing.assert_array_equal(found.values.numpy(), np.take_along_axis(a, wanted, dim), strict=True)
    np.testing.assert_array_equal(mt.argsort(mt.tensor(a), dim, descending).numpy(), wanted)
    strided = mt.tensor(np.ascontiguousarray(a.T)).permute(2, 1, 0)
    np.testing.assert_array_equal(strided.sort(dim, descending).indices.numpy(), wanted)


def assert_picks(found, a, wanted, dim):
    """The values are those at the `wanted` places, and the indices name places that hold them, none twice."""
    ids = found.indices.numpy()
    np.testing.assert_array_equal(found.values.numpy(), np.take_along_axis(a, wanted.astype(int), dim), strict=True)
    np.testing.assert_array_equal(np.take_along_axis(a, ids, dim), found.values.numpy())
    ordered = np.sort(ids, axis=dim)
    assert (np.diff(ordered, axis=dim) > 0).all()


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k, dim", [(0, 1), (1, 0), (3, 1), (7, -2), (5, -1)])
@pytest.mark.parametrize("kind", ["f8", "i8"])
def test_topk(kind, k, dim, largest):
    a = TIED.astype(kind)
    wanted = along(dim, a, lambda row: plain_order(row, largest)[:k])
    assert_picks(mt.topk(mt.tensor(a), k, dim=dim, largest=largest), a, wanted, dim)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [1, 3, 11])
@pytest.mark.parametrize("kind", ["f4", "i8", "?"])
def test_topk_of_many(kind, k, largest):
    """Few of many are found without sorting all; ties at the border included."""
    rng = np.random.default_rng(k)
    a = rng.integers(0, 2 if kind == "?" else 20, (2, 101, 3)).astype(kind)
    wanted = along(1, a, lambda row: plain_order([float(v) for v in row], largest)[:k])
    assert_picks(mt.tensor(a).topk(k, 1, largest), a, wanted, 1)


def test_topk_of_many_with_nan():
    a = draw(101)
    a[[5, 50]] = NAN
    assert mt.tensor(a).topk(3).indices.tolist() == plain_order(a.tolist(), True)[:3]
    assert mt.tensor(a).topk(3, largest=False).indices.tolist() == plain_order(a.tolist(), False)[:3]


def test_nan_is_the_largest():
    x = mt.tensor([1.0, NAN, -float("inf"), float("inf"), NAN])
    assert x.argsort().tolist() == [2, 0, 3, 1, 4] and x.argsort(descending=True).tolist() == [1, 4, 3, 0, 2]
    assert x.topk(3).indices.tolist() == [1, 4, 3] and x.topk(2, largest=False).indices.tolist() == [2, 0]


CASES = {
    "sort": lambda lib, x: lib.sort(x, dim=1),
    "sort descending": lambda lib, x: x.sort(0, descending=True),
    "sort stable": lambda lib, x: lib.sort(x, stable=True),
    "msort": lambda lib, x: lib.msort(x),
    "topk": lambda lib, x: lib.topk(x, 3, dim=1),
    "topk smallest": lambda lib, x: x.topk(2, largest=False),
    "topk values": lambda lib, x: x.topk(2).values[..., -1, None],
    "kthvalue": lambda lib, x: lib.kthvalue(x, 2, dim=1),
    "kthvalue keepdim": lambda lib, x: x.kthvalue(3, keepdim=True),
    "argsort": lambda lib, x: lib.argsort(x, dim=0),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours = CASES[name]
    assert_like_torch(lambda x: ours(mt, x), lambda x: ours(torch, x), draw(*SHAPE))
    assert_like_torch(lambda x: ours(mt, x), lambda x: ours(torch, x), draw(*SHAPE).astype("f4"))


@pytest.mark.parametrize("name", [name for name in CASES if name != "argsort"])
def test_gradients(name):
    assert_gradients(lambda x: CASES[name](mt, x), draw(3, 7, 5))
    assert_gradients(lambda x: CASES[name](mt, x.transpose(0, 2)), draw(5, 7, 3))
    results, _, found = gradients(lambda x: CASES[name](mt, x), [draw(*SHAPE).astype("f4")])
    assert results[0].dtype == mt.float32 and found[0].dtype == np.float32


def test_gradient_of_topk_of_many():
    assert_gradients(lambda x: x.topk(2, 1).values, draw(2, 53))


def test_indices_are_whole_numbers_outside_the_graph():
    x = mt.tensor(draw(3, 5), requires_grad=True)
    for found in (x.sort(), x.topk(2), x.kthvalue(1)):
        assert found.values.requires_grad and not found.indices.requires_grad and found.indices.dtype == mt.int64
        assert found[0] is found.values
    assert not x.argsort().requires_grad


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (3, 0)], ids=str)
def test_odd_shapes_like_torch(shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    calls = [lambda lib, x: lib.sort(x), lambda lib, x: x.sort(0, True), lambda lib, x: x.argsort(-1),
             lambda lib, x: x.topk(min(1, x.numel())), lambda lib, x: x.kthvalue(1) if x.numel() else x]
    for call in calls:
        assert_like_torch(lambda x, call=call: call(mt, x), lambda x, call=call: call(torch, x), draw(*shape))


X = mt.zeros(2, 5)
ERRORS = {
    "sort dim": (lambda: X.sort(2), IndexError), "argsort dim": (lambda: X.argsort(-3), IndexError),
    "topk dim": (lambda: X.topk(1, 2), IndexError), "topk large": (lambda: X.topk(6), RuntimeError),
    "topk negative": (lambda: X.topk(-1), RuntimeError), "kthvalue 0": (lambda: X.kthvalue(0), RuntimeError),
    "kthvalue large": (lambda: X.kthvalue(6), RuntimeError),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error = ERRORS[name]
    with pytest.raises(error, match=r"dim|k must lie"):
        call()
