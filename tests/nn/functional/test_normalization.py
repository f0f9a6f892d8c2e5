"""Normalisation: by the formulas, by differences, composed, and beside PyTorch."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

SHAPES = pytest.mark.parametrize("shape, tail", [
    ((5, 7), (7,)), ((7,), (7,)), ((2, 3, 5), (5,)), ((2, 3, 5), (3, 5)), ((2, 3, 5), (2, 3, 5)), ((0, 7), (7,)),
    ((2, 1, 5), (1, 5)),
])


def parameters(tail):
    return draw(*tail, seed=1), draw(*tail, seed=2)


# Over the last axes

@SHAPES
def test_layer_norm(shape, tail):
    x, (w, b) = 3 + 2 * draw(*shape), parameters(tail)
    def norm(x, w=None, b=None):
        return F.layer_norm(x, tail, w, b, eps=0.1)
    over = tuple(range(-len(tail), 0))
    expected = (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + 0.1) if x.size else x
    np.testing.assert_allclose(norm(mt.tensor(x)).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(norm(*map(mt.tensor, (x, w, b))).numpy(), expected * w + b, atol=1e-12)

    def composed(x, w=None, b=None):
        centred = x - x.mean(over, keepdim=True)
        y = centred / (centred.square().mean(over, keepdim=True) + 0.1).sqrt()
        y = y if w is None else y * w
        return y if b is None else y + b

    for arguments in ((x,), (x, w), (x, w, b)):
        assert_gradients(norm, *arguments)
        assert_equals_composed(norm, composed, *arguments)
        assert_keeps_float32(norm, *arguments)
    assert_gradients(lambda x, b: F.layer_norm(x, tail, bias=b), x, b)
    torch = pytest.importorskip("torch")
    assert_like_torch(norm, lambda x, w, b: torch.nn.functional.layer_norm(x, tail, w, b, eps=0.1), x, w, b)
    assert_like_torch(lambda x: F.layer_norm(x, tail), lambda x: torch.nn.functional.layer_norm(x, tail), x)


@SHAPES
def test_rms_norm(shape, tail):
    x, w = 3 + 2 * draw(*shape), parameters(tail)[0]
    def norm(x, w=None):
        return F.rms_norm(x, tail, w, eps=0.1)
    over = tuple(range(-len(tail), 0))
    expected = x / np.sqrt((x * x).mean(over, keepdims=True) + 0.1) if x.size else x
    np.testing.assert_allclose(norm(mt.tensor(x)).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(norm(mt.tensor(x), mt.tensor(w)).numpy(), expected * w, atol=1e-12)

    def composed(x, w=1.0):
        return x / (x.square().mean(over, keepdim=True) + 0.1).sqrt() * w

    for arguments in ((x,), (x, w)):
        assert_gradients(norm, *arguments)
        assert_equals_composed(norm, composed, *arguments)
        assert_keeps_float32(norm, *arguments)
    torch = pytest.importorskip("torch")
    for dtype, tolerance in (("d", {}), ("f", {"rtol": 1e-4, "atol": 1e-5})):  # and with the eps of each dtype
        assert_like_torch(lambda x, w: F.rms_norm(x, tail, w), lambda x, w: torch.nn.functional.rms_norm(x, tail, w),
                          x.astype(dtype), w.astype(dtype), **tolerance)


def test_rms_norm_at_zero_has_the_eps_of_the_dtype():
    for dtype in ("f4", "f8"):
        (y,), (w,), (gx,) = gradients(lambda x: F.rms_norm(x, 3), [np.zeros((2, 3), dtype)])
        assert not y.detach().numpy().any()
        np.testing.assert_allclose(gx, w / math.sqrt(np.finfo(dtype).eps), rtol=1e-6)


@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_inputs_that_are_not_contiguous(norm):
    w = parameters((5,))[0]
    assert_equals_composed(lambda x, w: norm(x.permute(2, 0, 1), 5, w).transpose(0, 2),
                           lambda x, w: norm(x.permute(2, 0, 1).clone(), 5, w).transpose(0, 2), draw(3, 5, 2), w)
    assert_gradients(lambda x, w: norm(x.transpose(0, 1), (5,), w).transpose(0, 1), draw(5, 3), w)


def test_a_constant_row_and_an_eps_inside_the_root():
    x = mt.tensor([5.0, 5.0, 5.0], dtype=mt.float64, requires_grad=True)
    y = F.layer_norm(x, 3)
    y.backward(mt.tensor([1.0, 2.0, 4.0], dtype=mt.float64))
    assert y.tolist() == [0, 0, 0]
    np.testing.assert_allclose(x.grad.numpy(), [-421.637, -105.409, 527.046], atol=1e-3)


@pytest.mark.parametrize("size, slope", [(1e-15, 1.0), (1e-18, 1e-12), (1e15, 1e25), (1e18, 1e20), (1.0, 1e30)])
@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_very_small_and_very_large_rows_keep_their_digits(norm, size, slope):
    x, w, g = draw(5, 7).astype("f4") * np.float32(size), draw(7, seed=1).astype("f4"), draw(5, 7, seed=2) * slope

    def run(kind):
        inputs = [mt.tensor(a.astype(kind)).requires_grad_() for a in (x, w)]
        y = norm(inputs[0], (7,), inputs[1], eps=0.0)
        y.backward(mt.tensor(g.astype(kind)))
        return [y.numpy(force=True), *(v.grad.numpy() for v in inputs)]

    for found, wanted in zip(run("f4"), run("f8")):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("norm", [F.layer_norm, F.rms_norm])
def test_an_enormous_row_leaves_the_gradient_of_the_others(norm):
    x, g = draw(4, 7).astype("f4"), np.full((4, 7), 2.0, "f4")
    x[0, 0] = -3e38
    w = mt.ones(7, requires_grad=True)
    norm(mt.tensor(x), (7,), w).backward(mt.tensor(g))
    rest = mt.ones(7, requires_grad=True)
    norm(mt.tensor(x[1:]), (7,), rest).backward(mt.tensor(g[1:]))
    np.testing.assert_allclose(w.grad.numpy(), rest.grad.numpy(), rtol=1e-6, atol=1e-6)  # its mean square is infinite


def test_float16_is_computed_in_float32():
    b = np.arange(10).astype("f2")
    y = F.layer_norm(mt.tensor(np.zeros(10, "f2")), 10, bias=mt.tensor(b), eps=1e-12)  # 1e-12 is 0 in float16
    assert y.dtype == mt.float16 and (y.numpy() == b).all()
    large = np.array([300, -300, 100, 0], "f2")  # whose squares add up to infinity in float16
    for norm in (F.layer_norm, F.rms_norm):
        (y,), _, (gx, gw) = gradients(lambda x, w, norm=norm: norm(x, 4, w), [large, np.ones(4, "f2")])
        assert y.dtype == gx.dtype == gw.dtype == np.float16
        wide = norm(mt.tensor(large.astype("f4")), 4).numpy()
        np.testing.assert_array_equal(y.detach().numpy(), wide.astype("f2"))


def test_a_single_element_is_its_own_mean():
    x, w, b = (mt.tensor([v], requires_grad=True) for v in (1e6, 2.0, 3.0))
    y = F.layer_norm(x, 1, w, b)
    y.backward(mt.tensor([7.0]))
    assert y.item() == 3.0 and x.grad.item() == 0 and w.grad.item() == 0 and b.grad.item() == 7


def test_later_rows_do_not_change_earlier_ones():
    x = draw(5, 7)
    changed = x.copy()
    changed[-1] += 1
    for norm in (F.layer_norm, F.rms_norm):
        a, b = (norm(mt.tensor(v), 7).numpy() for v in (x, changed))
        assert (a[:-1] == b[:-1]).all() and (a[-1] != b[-1]).any()


@pytest.mark.parametrize("call", [
    lambda x: F.layer_norm(x, 5), lambda x: F.layer_norm(x, (5, 7)), lambda x: F.layer_norm(x, ()),
    lambda x: F.layer_norm(x, 7, x), lambda x: F.layer_norm(x, 7, None, mt.tensor(np.ones(5))),
    lambda x: F.layer_norm(x, 7, mt.tensor(np.ones(7, "f4"))), lambda x: F.rms_norm(x, 5),
    lambda x: F.rms_norm(x, 7, mt.tensor(np.ones(3))), lambda x: F.group_norm(x, 2), lambda x: F.group_norm(x, 0),
    lambda x: F.group_norm(x, 7, mt.tensor(np.ones(3))), lambda x: F.batch_norm(x, None, None),
    lambda x: F.batch_norm(x, None, None, mt.tensor(np.ones(3)), training=True),
])
def test_shapes_that_do_not_fit(call):
    with pytest.raises(RuntimeError, match="needs"):
        call(mt.tensor(draw(3, 7)))


# Over channels

GROUPS = pytest.mark.parametrize("shape, groups", [((2, 6, 5), 3), ((2, 6), 2), ((3, 4, 2, 5), 1), ((3, 4, 2), 4),
                                                   ((0, 4, 3), 2)])


@GROUPS
def test_group_norm(shape, groups):
    x, w, b = 3 + draw(*shape), draw(shape[1], seed=1), draw(shape[1], seed=2)
    def norm(x, w=None, b=None):
        return F.group_norm(x, groups, w, b, eps=0.1)
    column = (-1, *[1] * (len(shape) - 2))
    expected = np.empty(shape)
    size = shape[1] // groups
    for n in range(shape[0]):
        for c in range(0, shape[1], size):
            part = x[n, c:c + size]
            expected[n, c:c + size] = (part - part.mean()) / np.sqrt(part.var() + 0.1)
    np.testing.assert_allclose(norm(mt.tensor(x)).numpy(), expected, atol=1e-12)
    got = norm(*map(mt.tensor, (x, w, b))).numpy()
    np.testing.assert_allclose(got, expected * w.reshape(column) + b.reshape(column), atol=1e-12)
    for arguments in ((x,), (x, w, b)):
        assert_gradients(norm, *arguments)
        assert_keeps_float32(norm, *arguments)

    def composed(x, w, b):
        parts = x.reshape(shape[0], groups, -1)
        centred = parts - parts.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt()
        return y.reshape(shape) * w.reshape(column) + b.reshape(column)

    if x.size:
        assert_equals_composed(norm, composed, x, w, b)
    torch = pytest.importorskip("torch")
    if x.size:
        assert_like_torch(norm, lambda x, w, b: torch.nn.functional.group_norm(x, groups, w, b, eps=0.1), x, w, b)


BATCHES = pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (2, 3, 5, 7), (7, 1)])


@BATCHES
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(shape, training):
    x, w, b = 3 + draw(*shape), draw(shape[1], seed=1), draw(shape[1], seed=2)
    mean, var = draw(shape[1], seed=3), draw(shape[1], seed=4, low=0.5, high=2)
    over, column = (0, *range(2, len(shape))), (-1, *[1] * (len(shape) - 2))
    def norm(x, w=None, b=None):
        return F.batch_norm(x, mt.tensor(mean), mt.tensor(var), w, b, training, eps=0.1)
    m, v = (x.mean(over), x.var(over)) if training else (mean, var)
    expected = (x - m.reshape(column)) / np.sqrt(v.reshape(column) + 0.1)
    np.testing.assert_allclose(norm(mt.tensor(x)).numpy(), expected, atol=1e-12)
    got = norm(*map(mt.tensor, (x, w, b))).numpy()
    np.testing.assert_allclose(got, expected * w.reshape(column) + b.reshape(column), atol=1e-12)
    for arguments in ((x,), (x, w, b)):
        assert_gradients(norm, *arguments)

    def composed(x, w, b):
        m, v = (x.mean(over, keepdim=True), x.var(over, keepdim=True, unbiased=False)) if training else (
            mt.tensor(mean).reshape(column), mt.tensor(var).reshape(column))
        return (x - m) / (v + 0.1).sqrt() * w.reshape(column) + b.reshape(column)

    assert_equals_composed(norm, composed, x, w, b)
    torch = pytest.importorskip("torch")
    assert_like_torch(norm, lambda x, w, b: torch.nn.functional.batch_norm(
        x, torch.tensor(mean), torch.tensor(var), w, b, training, eps=0.1), x, w, b)


@BATCHES
def test_running_statistics_move_towards_the_batch(shape):
    x, over = 3 + draw(*shape), (0, *range(2, len(shape)))
    mean, var = mt.tensor(draw(shape[1], seed=3)), mt.tensor(draw(shape[1], seed=4, low=0.5, high=2))
    expected = (0.7 * mean.numpy() + 0.3 * x.mean(over), 0.7 * var.numpy() + 0.3 * x.var(over, ddof=1))
    F.batch_norm(mt.tensor(x), mean, var, training=True, momentum=0.3)
    np.testing.assert_allclose(mean.numpy(), expected[0])
    np.testing.assert_allclose(var.numpy(), expected[1])
    before = mean.numpy().copy()
    F.batch_norm(mt.tensor(x), mean, var)
    assert (mean.numpy() == before).all()


def test_batch_norm_needs_something_to_average():
    with pytest.raises(ValueError, match="more than one"):
        F.batch_norm(mt.tensor(draw(1, 3)), None, None, training=True)


# By a norm

@pytest.mark.parametrize("p", [2.0, 1.0, 3.5, math.inf])
@pytest.mark.parametrize("shape, dim", [((5, 7), 1), ((5, 7), 0), ((5, 7), -1), ((2, 3, 5), (0, 2)), ((3,), 0),
                                        ((0, 3), 1)])
def test_normalize(p, shape, dim):
    x = draw(*shape)
    def unit(x):
        return F.normalize(x, p, dim)
    size = np.abs(x)
    if x.size:
        length = size.max(dim, keepdims=True) if p == math.inf else (size ** p).sum(dim, keepdims=True) ** (1 / p)
        np.testing.assert_allclose(unit(mt.tensor(x)).numpy(), x / length, rtol=1e-12)
        assert_gradients(unit, x, rtol=1e-5)
        torch = pytest.importorskip("torch")
        assert_like_torch(unit, lambda x: torch.nn.functional.normalize(x, p, dim), x)
    elif p != math.inf:
        assert unit(mt.tensor(x)).shape == shape


def test_a_zero_vector_stays_zero():
    (y,), (w,), (gx,) = gradients(lambda x: F.normalize(x, dim=0, eps=0.5), [np.zeros(3)])
    assert not y.detach().numpy().any()
    np.testing.assert_allclose(gx, 2 * w)  # below eps it is a division by eps


@pytest.mark.parametrize("shapes, dim", [
    (((5, 7), (5, 7)), 1), (((5, 7), (5, 7)), 0), (((2, 3, 5), (2, 3, 5)), -2), (((2, 1, 5), (3, 1)), -1),
    (((1, 2, 3), (2, 1, 3)), 2), (((3,), (3,)), 0), (((), ()), 0), (((3,), (2, 3)), 1), (((0, 3), (0, 3)), 1),
])
def test_cosine_similarity(shapes, dim):
    a, b = (draw(*s, seed=i) for i, s in enumerate(shapes))
    def cosine(a, b):
        return F.cosine_similarity(a, b, dim)
    u, v = np.broadcast_arrays(np.atleast_1d(a), np.atleast_1d(b))
    expected = (u * v).sum(dim) / np.sqrt((u * u).sum(dim) * (v * v).sum(dim))
    np.testing.assert_allclose(cosine(mt.tensor(a), mt.tensor(b)).numpy(), expected, rtol=1e-10)
    assert_gradients(cosine, a, b)
    assert_keeps_float32(cosine, a, b)

    def composed(a, b):
        a, b = mt.broadcast_tensors(a, b)
        return (a * b).sum(dim) / ((a * a).sum(dim) * (b * b).sum(dim)).sqrt()

    assert_equals_composed(cosine, composed, a, b, atol=1e-10)
    torch = pytest.importorskip("torch")
    assert_like_torch(cosine, lambda a, b: torch.nn.functional.cosine_similarity(a, b, dim), a, b)


def test_cosine_similarity_with_eps():
    near = 0.01 * draw(5)  # shorter than eps, which then divides in its place
    assert_gradients(lambda a, b: F.cosine_similarity(a, b, 0, eps=0.5), near, draw(5, seed=1))
    (y,), _, (ga, gb) = gradients(lambda a, b: F.cosine_similarity(a, b, 0), [np.zeros(3), np.zeros(3)])
    assert y.item() == 0 and np.isfinite(ga).all() and np.isfinite(gb).all()
    with pytest.raises(IndexError):
        F.cosine_similarity(mt.tensor(near), mt.tensor(near), 1)


@pytest.mark.parametrize("c", [1.0, 1e4, 12345.678, 1e6])
@pytest.mark.parametrize("n", [7, 49, 768])
def test_equal_numbers_become_zeros(n, c):
    x = mt.full((2, n), c)
    assert float(abs(F.layer_norm(x, (n,))).max()) < 1e-3
    assert float(abs(F.group_norm(x.reshape(2, 1, n), 1)).max()) < 1e-3
    assert float(abs(F.batch_norm(x.reshape(-1, 1), None, None, training=True)).max()) < 1e-3


def test_a_small_spread_around_a_large_mean_is_kept():
    x = (1e4 + 1e-2 * draw(5, 768)).astype("f4")
    wide = x.astype("f8")
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(F.layer_norm(mt.tensor(x), (768,)).numpy(), wanted, atol=1e-3)


def test_batch_norm_of_float16_moves_the_running_statistics():
    x = (3 + draw(11, 2)).astype("f2")
    mean, var = mt.zeros(2, dtype=mt.float16), mt.ones(2, dtype=mt.float16)
    y = F.batch_norm(mt.tensor(x), mean, var, training=True)
    assert y.dtype == mean.dtype == mt.float16
    np.testing.assert_allclose(mean.numpy(), 0.1 * x.astype("f8").mean(0), rtol=2e-3)
    np.testing.assert_allclose(var.numpy(), 0.9 + 0.1 * x.astype("f8").var(0, ddof=1), rtol=2e-3)


@pytest.mark.parametrize("x, weight", [(mt.float16, mt.float32), (mt.float32, mt.float16)])
def test_a_weight_of_another_dtype_is_refused(x, weight):
    for call in (lambda x, w: F.layer_norm(x, 3, w), lambda x, w: F.rms_norm(x, 3, w),
                 lambda x, w: F.group_norm(x, 3, w)):
        with pytest.raises(RuntimeError, match="needs weight and bias"):
            call(mt.zeros(2, 3, dtype=x), mt.ones(3, dtype=weight))
