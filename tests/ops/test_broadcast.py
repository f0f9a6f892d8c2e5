"""Broadcasting and its undoing."""
import itertools

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import to_device, to_host
from minitorch_attn.ops.broadcast import sum_axes, unbroadcast
from tests.harness import assert_gradients, assert_like_torch, draw, gradients

CASES = {
    "expand": (lambda lib, x: x.expand(2, 3, 5), (2, 1, 5), (2, 3, 5)),
    "expand in front": (lambda lib, x: x.expand(7, 2, -1, 3), (2, 1, 3), (7, 2, 1, 3)),
    "expand a list": (lambda lib, x: x.expand([3, -1]), (1, 5), (3, 5)),
    "expand a number": (lambda lib, x: x.expand(3, 5), (), (3, 5)),
    "expand to nothing": (lambda lib, x: x.expand(0, 5), (1, 5), (0, 5)),
    "expand nothing": (lambda lib, x: x.expand(3, 0), (1, 0), (3, 0)),
    "expand to itself": (lambda lib, x: x.expand(-1, 5), (3, 5), (3, 5)),
    "expand_as": (lambda lib, x: x.expand_as(lib.zeros(2, 3)), (3,), (2, 3)),
    "broadcast_to": (lambda lib, x: lib.broadcast_to(x, (2, 3, 5)), (3, 1), (2, 3, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_expand(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    call, shape, new_shape = CASES[name]
    a = draw(*shape)
    got = call(mt, mt.tensor(a)).numpy()
    wanted = np.zeros(new_shape)
    for where in np.ndindex(new_shape):
        tail = where[len(new_shape) - a.ndim:]
        wanted[where] = a[tuple(i if n > 1 else 0 for i, n in zip(tail, a.shape))]
    np.testing.assert_array_equal(got, wanted, strict=True)
    assert_gradients(lambda x: call(mt, x), a)
    assert_like_torch(lambda x: call(mt, x), lambda x: call(torch, x), a)
    results, _, found = gradients(lambda x: call(mt, x), [a.astype("f4")])
    assert results[0].dtype == mt.float32 and found[0].dtype == np.float32


def test_expand_is_a_view():
    x = mt.zeros(3, 1)
    y = x.expand(3, 5)
    x.fill_(2.0)
    assert y.tolist() == [[2.0] * 5] * 3
    with pytest.raises(RuntimeError, match="expand"):
        y.fill_(1.0)
    with pytest.raises(RuntimeError, match="expand"):
        y[0, 0] = 1.0
    assert x.tolist() == [[2.0]] * 3


@pytest.mark.parametrize("sizes", [(2, 5), (3,), (-1, 3, 5), (-2, 5), (3, 7)], ids=str)
def test_expand_errors(sizes):
    with pytest.raises(RuntimeError, match="only axes of size 1"):
        mt.zeros(3, 5).expand(*sizes)


def test_broadcast_tensors():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = draw(3, 1), draw(5, seed=1), draw(2, 1, 1, seed=2)
    assert [x.shape for x in mt.broadcast_tensors(*map(mt.tensor, arrays))] == [(2, 3, 5)] * 3
    assert_gradients(mt.broadcast_tensors, *arrays)
    assert_like_torch(mt.broadcast_tensors, torch.broadcast_tensors, *arrays)
    with pytest.raises(RuntimeError, match=r"\(2,\), \(3,\)"):
        mt.broadcast_tensors(mt.zeros(2), mt.zeros(3))


@pytest.mark.parametrize("shape, seen", [
    ((3,), (3,)), ((3,), (2, 3)), ((1,), (5, 4)), ((2, 1, 5), (7, 2, 3, 5)), ((), (2, 3)), ((0, 1), (0, 3)),
    ((1, 3), (0, 3)), ((300, 1), (300, 7)), ((7,), (300, 7)),
], ids=str)
def test_unbroadcast_sums_over_the_copies(shape, seen):
    g = draw(*seen)
    wanted = np.zeros(shape)
    for where in np.ndindex(seen):
        tail = where[len(seen) - len(shape):]
        wanted[tuple(i if n > 1 else 0 for i, n in zip(tail, shape))] += g[where]
    for like in (g, np.asfortranarray(g)):
        got = to_host(unbroadcast(to_device(like), shape))
        np.testing.assert_allclose(got, wanted, rtol=1e-12, strict=True)
    assert unbroadcast(to_device(g.astype("f4")), shape).dtype == np.float32


@pytest.mark.parametrize("axes", [a for n in (1, 2, 3, 4) for a in itertools.combinations(range(4), n)], ids=str)
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 2, 3, 0), (2, 0, 3, 1), (3, 2, 1, 0)], ids=str)
@pytest.mark.parametrize("shape", [(5, 7, 3, 11), (5, 1, 300, 2), (3, 2, 301, 1), (1, 1, 3, 2)], ids=str)
def test_sum_axes(shape, order, axes):
    a = draw(*shape).transpose(order)
    for like in (a, a[..., ::2]):
        found = to_host(sum_axes(to_device(like), axes))
        np.testing.assert_allclose(found, like.sum(axis=axes, keepdims=True), rtol=1e-11, atol=1e-11, strict=True)
        assert not np.shares_memory(found, like)


@pytest.mark.parametrize("shape", [(1 << 18,), (3, 1 << 18), (3, 1 << 18, 1)], ids=str)
def test_long_sums_keep_their_digits(shape):
    a = to_device(np.full(shape, 0.1, "f4"))
    axis = len(shape) - 1 if shape[-1] > 1 else 1
    np.testing.assert_allclose(to_host(sum_axes(a, (axis,))).ravel(), (1 << 18) * float(np.float32(0.1)), rtol=1e-6)


def test_gradients_of_broadcast_operands():
    a, b = mt.ones(4, 1, requires_grad=True), mt.ones(1, 4, requires_grad=True)
    c = mt.tensor([2.0], requires_grad=True)
    (a * b * c).backward(mt.arange(16).view(4, 4).float())
    assert a.grad.tolist() == [[2.0 * sum(range(4 * i, 4 * i + 4))] for i in range(4)]
    assert b.grad.tolist() == [[2.0 * sum(range(j, 16, 4)) for j in range(4)]]
    assert c.grad.tolist() == [sum(range(16))]
    x = mt.zeros(3, requires_grad=True)
    (x + mt.zeros(2, 3)).backward(mt.ones(2, 3))
    assert x.grad.tolist() == [2.0] * 3
