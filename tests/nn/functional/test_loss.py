"""Losses: by the formulas, by differences, composed, and beside PyTorch."""
import itertools
import math
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients, leaf
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

REDUCTIONS = ("mean", "sum", "none")
LAYOUTS = [((5, 7), (5,)), ((2, 7, 3), (2, 3)), ((2, 7, 3, 5), (2, 3, 5)), ((7,), ())]
EVERY_LAYOUT = pytest.mark.parametrize("shape, samples", LAYOUTS, ids=str)


def class_targets(samples, classes=7):
    return np.asarray(np.random.default_rng(9).integers(0, classes, samples))


def distributions(shape):
    axis = 1 if len(shape) > 1 else 0
    e = np.exp(draw(*shape, seed=5))
    return e / e.sum(axis, keepdims=True)


def log_softmax(z):
    return z - math.log(math.fsum(math.exp(v) for v in z))


def by_formula(z, target, w, ignore, smoothing, reduction):
    """Cross-entropy sample by sample."""
    classes = z.shape[1] if z.ndim > 1 else len(z)
    by_index = target.dtype.kind != "f"
    losses, total = np.zeros(z.shape[:z.ndim > 1] + z.shape[2:]), 0.0
    for at in np.ndindex(losses.shape):
        line = ((*at[:z.ndim > 1], slice(None), *at[1:])) if z.ndim > 1 else slice(None)
        if by_index and target[at] == ignore:
            continue
        q = np.eye(classes)[target[at]] if by_index else target[line]
        q = ((1 - smoothing) * q + smoothing / classes) * w
        losses[at] = -math.fsum(q * log_softmax(z[line]))
        total += w[target[at]] if by_index else 1
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / total}[reduction]


# Class indices and distributions

@EVERY_LAYOUT
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["index", "index with ignored", "distribution"])
def test_cross_entropy(shape, samples, smoothing, weighted, kind):
    z, w = draw(*shape), draw(7, seed=1, low=0.5, high=2) if weighted else np.ones(7)
    target = distributions(shape) if kind == "distribution" else class_targets(samples)
    ignore = int(target.flat[0]) if kind == "index with ignored" and target.size > 1 else -100
    torch = pytest.importorskip("torch")
    for reduction in REDUCTIONS:
        keywords = {"reduction": reduction, "label_smoothing": smoothing}
        if kind != "distribution":
            keywords["ignore_index"] = ignore

        def loss(z, t, lib=F, make=mt.tensor, keywords=keywords):
            return lib.cross_entropy(z, t, make(w.astype(str(z.dtype)[-7:])) if weighted else None, **keywords)

        np.testing.assert_allclose(loss(mt.tensor(z), mt.tensor(target)).numpy(),
                                   by_formula(z, target, w, ignore, smoothing, reduction), rtol=1e-10)
        assert_like_torch(loss, lambda z, t, loss=loss: loss(z, t, torch.nn.functional, torch.tensor), z, target)
        assert_keeps_float32(loss, z, target)
        if z.size < 100:
            assert_gradients(loss, z, target)


@EVERY_LAYOUT
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_equals_its_composition(shape, samples, smoothing):
    t, w = class_targets(samples), draw(7, seed=1, low=0.5, high=2)
    axis = 1 if len(shape) > 1 else 0
    chosen = np.moveaxis(np.eye(7)[t], -1, axis)
    column = w.reshape([-1 if i == axis else 1 for i in range(len(shape))])

    def composed(z):
        log_p = z - z.exp().sum(axis, keepdim=True).log()
        q = mt.tensor(((1 - smoothing) * chosen + smoothing / 7) * column)
        return -(q * log_p).sum() / w[t].sum()

    def fused(z):
        return F.cross_entropy(z, mt.tensor(t), mt.tensor(w), label_smoothing=smoothing)

    assert_equals_composed(fused, composed, draw(*shape))


@EVERY_LAYOUT
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(shape, samples, weighted):
    z, t, w = draw(*shape), class_targets(samples), draw(7, seed=1, low=0.5, high=2)
    torch = pytest.importorskip("torch")
    for reduction, ignore in itertools.product(REDUCTIONS, (-100, int(t.flat[0]) if t.size > 1 else -1)):
        def loss(z, t, lib=F, make=mt.tensor, reduction=reduction, ignore=ignore):
            weight = make(w.astype(str(z.dtype)[-7:])) if weighted else None
            return lib.nll_loss(z, t, weight, ignore_index=ignore, reduction=reduction)

        kept = t != ignore
        each = np.where(kept, -np.take_along_axis(z, np.expand_dims(t, z.ndim > 1), z.ndim > 1).reshape(samples), 0)
        w_t = np.where(kept, w[t] if weighted else 1.0, 0.0)
        each = each * w_t
        expected = {"none": each, "sum": each.sum(), "mean": each.sum() / w_t.sum()}[reduction]
        np.testing.assert_allclose(loss(mt.tensor(z), mt.tensor(t)).numpy(), expected, rtol=1e-10)
        assert_like_torch(loss, lambda z, t, loss=loss: loss(z, t, torch.nn.functional, torch.tensor), z, t)
        assert_keeps_float32(loss, z, t)
        if z.size < 100:
            assert_gradients(loss, z, t)


def test_cross_entropy_is_nll_loss_of_log_softmax():
    t = mt.tensor(class_targets((5,)))
    assert_equals_composed(lambda z: F.cross_entropy(z, t), lambda z: F.nll_loss(F.log_softmax(z, 1), t), draw(5, 7))


def test_arguments_by_name():
    z, t = mt.tensor(draw(5, 7)), mt.tensor(class_targets((5,)))
    assert F.cross_entropy(target=t, input=z).item() == F.cross_entropy(z, t).item()


def test_ignored_samples_count_in_no_term():
    z, t = mt.tensor([[2.0, 0, 0], [0, 3.0, 0]]), mt.tensor([0, -100])
    assert F.cross_entropy(z, t, label_smoothing=0.2).item() == pytest.approx(0.506211, abs=1e-6)
    assert F.cross_entropy(z[:1], t[:1], label_smoothing=0.2).item() == pytest.approx(0.506211, abs=1e-6)


def test_class_weights_and_smoothing_together():
    z, t = mt.tensor([[0.0, 0.0]], dtype=mt.float64), mt.tensor([0])
    w = mt.tensor([1.0, 10.0], dtype=mt.float64)
    assert F.cross_entropy(z, t, w, label_smoothing=0.2).item() == pytest.approx(1.316980, abs=1e-6)
    assert F.cross_entropy(z, t, label_smoothing=0.2).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_nothing_but_ignored_samples(loss):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        z = leaf(draw(2, 3))
        y = loss(z, mt.tensor([-1, -1]), ignore_index=-1)
        y.backward()
        assert math.isnan(y.item()) and not z.grad.numpy().any()
        assert loss(z, mt.tensor([-1, -1]), ignore_index=-1, reduction="sum").item() == 0
        assert math.isnan(loss(mt.tensor(np.zeros((0, 3))), mt.tensor(np.zeros(0, "i8"))).item())


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("targets, ignore", [([0, 1, -4], -1), ([0, 5, 1], -100), ([-1, 0, 1], -100)])
def test_targets_never_wrap(loss, targets, ignore):
    with pytest.raises(IndexError, match="target"):
        loss(mt.tensor(draw(3, 5)), mt.tensor(targets), ignore_index=ignore)


@pytest.mark.parametrize("dtype", ["i8", "i4", "u1"])
def test_any_whole_number_is_a_target(dtype):
    z, t = draw(5, 7), class_targets((5,))
    losses = [F.cross_entropy(mt.tensor(z), mt.tensor(targets)).item() for targets in (t, t.astype(dtype))]
    assert losses[0] == losses[1]


def test_logits_far_apart_and_infinite():
    z = np.array([[1e4, 0, -1e4], [-1e4, -1e4 + 1, -1e4], [-math.inf, 0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (y,), _, (gz,) = gradients(lambda z: F.cross_entropy(z, mt.tensor([1, 1, 1]), reduction="none"), [z])
    np.testing.assert_allclose(y.detach().numpy(), [1e4, -1 + math.log(2 + math.e), math.log(2)])
    assert np.isfinite(gz).all()
    assert F.cross_entropy(mt.tensor(z[2:]), mt.tensor([0])).item() == math.inf


def test_float16_is_computed_in_float32():
    z, t = (20 * draw(97, 101)).astype("f2"), class_targets((97,), 101)
    (y,), _, (gz,) = gradients(lambda z: F.cross_entropy(z, mt.tensor(t)), [z])
    assert y.dtype == gz.dtype == np.float16
    assert y.item() == np.float16(F.cross_entropy(mt.tensor(z.astype("f4")), mt.tensor(t)).item())


def test_inputs_that_are_not_contiguous():
    t = mt.tensor(class_targets((5,)))
    assert_equals_composed(lambda z: F.cross_entropy(z.transpose(0, 1), t),
                           lambda z: F.cross_entropy(z.t().clone(), t), draw(7, 5))


@pytest.mark.parametrize("call, error", [
    (lambda z, t: F.cross_entropy(z, t[:3]), RuntimeError),
    (lambda z, t: F.cross_entropy(z.unsqueeze(0), t), RuntimeError),
    (lambda z, t: F.cross_entropy(z, z[:, :3]), RuntimeError), (lambda z, t: F.nll_loss(z, z), RuntimeError),
    (lambda z, t: F.cross_entropy(z, t, mt.tensor(np.ones(3))), RuntimeError),
    (lambda z, t: F.cross_entropy(z, t, reduction="avg"), ValueError),
    (lambda z, t: F.nll_loss(z, t, reduction=""), ValueError),
    (lambda z, t: F.cross_entropy(z, t, label_smoothing=1.5), ValueError),
    (lambda z, t: F.mse_loss(z, z, reduction="avg"), ValueError),
    (lambda z, t: F.kl_div(z, z, reduction="avg"), ValueError),
    (lambda z, t: F.binary_cross_entropy_with_logits(z, z[:3]), ValueError),
    (lambda z, t: F.binary_cross_entropy(z.sigmoid(), z[:3]), ValueError),
    (lambda z, t: F.binary_cross_entropy(3 + z, z), RuntimeError),
    (lambda z, t: F.binary_cross_entropy_with_logits(z, z.float()), RuntimeError),
    (lambda z, t: F.huber_loss(z, z, delta=0.0), ValueError),
    (lambda z, t: F.smooth_l1_loss(z, z, beta=-1.0), ValueError),
])
def test_errors(call, error):
    with pytest.raises(error):
        call(mt.tensor(draw(5, 7, low=-1, high=1)), mt.tensor(class_targets((5,))))


# Numbers and probabilities

def divergence(x, t):
    return t * (np.log(t) - x)


def bent(d):
    """A parabola up to 0.7, then a line of slope 1."""
    return np.where(abs(d) < 0.7, d ** 2 / 1.4, abs(d) - 0.35)


# name: (keywords, formula for arrays, ranges of input and target)
NUMBERS = {
    "mse_loss": ({}, lambda x, t: (x - t) ** 2, (-2, 2), (-2, 2)),
    "l1_loss": ({}, lambda x, t: abs(x - t), (-2, 2), (-2, 2)),
    "huber_loss": ({"delta": 0.7}, lambda x, t: 0.7 * bent(x - t), (-2, 2), (-2, 2)),
    "smooth_l1_loss": ({"beta": 0.7}, lambda x, t: bent(x - t), (-2, 2), (-2, 2)),
    "smooth_l1_loss of beta 0": ({"beta": 0.0}, lambda x, t: abs(x - t), (-2, 2), (-2, 2)),
    "binary_cross_entropy": ({}, lambda x, t: -(t * np.log(x) + (1 - t) * np.log(1 - x)), (0.1, 0.9), (0, 1)),
    "binary_cross_entropy_with_logits": ({}, lambda x, t: t * np.log1p(np.exp(-x)) + (1 - t) * np.log1p(np.exp(x)),
                                         (-3, 3), (0, 1)),
    "kl_div": ({}, divergence, (-3, 0), (0.1, 1)),
    "kl_div of logarithms": ({"log_target": True}, lambda x, t: divergence(x, np.exp(t)), (-3, 0), (-3, 0)),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("shape", [(5, 7), (), (1,), (0, 3)], ids=str)
def test_losses_of_numbers(name, shape):
    keywords, formula, x_range, t_range = NUMBERS[name]
    x, t = (np.asarray(draw(*shape, seed=i, low=a, high=b)) for i, (a, b) in enumerate((x_range, t_range)))
    torch = pytest.importorskip("torch")
    for reduction in REDUCTIONS:
        ours, theirs = (lambda x, t, lib=lib, r=reduction: getattr(lib, name.split()[0])(x, t, reduction=r, **keywords)
                        for lib in (F, torch.nn.functional))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            got = ours(mt.tensor(x), mt.tensor(t)).numpy()
        each = formula(x, t)
        if x.size or reduction != "mean":
            np.testing.assert_allclose(got, each if reduction == "none" else getattr(each, reduction)())
        else:
            assert np.isnan(got)
        assert_gradients(ours, x, t)
        assert_keeps_float32(ours, x, t)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch advises another reduction for kl_div
            assert_like_torch(ours, theirs, x, t)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss", "kl_div"])
def test_broadcasting(name):
    keywords, formula, x_range, t_range = NUMBERS[name]
    x, t = draw(5, 1, low=x_range[0], high=x_range[1]), draw(7, seed=1, low=t_range[0], high=t_range[1])
    def loss(x, t):
        return getattr(F, name)(x, t, reduction="none", **keywords)
    np.testing.assert_allclose(loss(mt.tensor(x), mt.tensor(t)).numpy(), formula(x, t))
    assert_gradients(loss, x, t)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "huber_loss"])
def test_a_number_as_target(name):
    loss, x = getattr(F, name), mt.tensor(draw(5, 3), requires_grad=True)
    twin = mt.tensor(x.detach().numpy(), requires_grad=True)
    y, wanted = loss(x, 0.3), loss(twin, mt.full((5, 3), 0.3, dtype=x.dtype))
    y.backward()
    wanted.backward()
    np.testing.assert_allclose(y.item(), wanted.item(), rtol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), twin.grad.numpy(), rtol=1e-12)


COMPOSED = {
    "mse_loss": lambda x, t: (x - t).square(),
    "l1_loss": lambda x, t: (x - t).abs(),
    "huber_loss": lambda x, t: (x - t).abs().clamp(max=0.7) * ((x - t).abs() - (x - t).abs().clamp(max=0.7) / 2),
    "binary_cross_entropy": lambda x, t: -(t * x.log() + (1 - t) * (1 - x).log()),
    "binary_cross_entropy_with_logits": lambda x, t: -(t * x.sigmoid().log() + (1 - t) * (1 - x.sigmoid()).log()),
    "kl_div": lambda x, t: t * (t.log() - x),
}


@pytest.mark.parametrize("name", COMPOSED)
def test_losses_equal_their_composition(name):
    keywords, _, x_range, t_range = NUMBERS[name]
    x, t = draw(5, 7, low=x_range[0], high=x_range[1]), draw(5, 7, seed=1, low=t_range[0], high=t_range[1])
    assert_equals_composed(lambda x, t: getattr(F, name)(x, t, **keywords), lambda x, t: COMPOSED[name](x, t).mean(),
                           x, t)


@pytest.mark.parametrize("weight_shape", [(5, 7), (7,), (1, 7), (1,)])
def test_weights_of_binary_losses(weight_shape):
    torch = pytest.importorskip("torch")
    x, t = draw(5, 7), draw(5, 7, seed=1, low=0, high=1)
    w, p = draw(*weight_shape, seed=2, low=0.5, high=2), draw(7, seed=3, low=0.5, high=3)
    for reduction in REDUCTIONS:
        for weight, pos_weight in ((w, None), (None, p), (w, p)):
            def loss(x, t, lib=F, make=mt.tensor, reduction=reduction, given=(weight, pos_weight)):
                weight, pos_weight = (None if v is None else make(v) for v in given)
                return lib.binary_cross_entropy_with_logits(x, t, weight, reduction=reduction, pos_weight=pos_weight)
            assert_like_torch(loss, lambda x, t, loss=loss: loss(x, t, torch.nn.functional, torch.tensor), x, t)
            assert_gradients(loss, x, t)
        assert_gradients(lambda x, t, r=reduction: F.binary_cross_entropy(x.sigmoid(), t, mt.tensor(w), reduction=r),
                         x, t)


def test_certain_predictions():
    x, t = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = F.binary_cross_entropy(mt.tensor(x), mt.tensor(t), reduction="none").numpy()
        np.testing.assert_allclose(loss, [0, 0, 100, 100])
        x = np.array([-1000.0, 1000.0, -1000.0, 1000.0])
        (y,), (w,), (gx, _) = gradients(lambda *a: F.binary_cross_entropy_with_logits(*a, reduction="none"), [x, t])
    np.testing.assert_allclose(y.detach().numpy(), [0, 0, 1000, 1000])
    np.testing.assert_allclose(gx / w, [0, 0, -1, 1])


def test_kl_div_of_zero_probabilities():
    t, p = np.array([0, 0.2, 0.6, 0.2, 0]), np.array([0, 0.25, 0.5, 0.25, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with np.errstate(divide="ignore"):
            log_p = np.log(p)
        assert F.kl_div(mt.tensor(log_p), mt.tensor(t), reduction="sum").item() == pytest.approx(0.020136, abs=1e-6)
        assert F.kl_div(mt.tensor(log_p), mt.tensor(np.eye(5)[0]), reduction="sum").item() == math.inf


def test_kl_div_by_batch():
    torch = pytest.importorskip("torch")
    x, t = draw(5, 7, low=-3, high=0), draw(5, 7, seed=1, low=0.1, high=1)
    def loss(x, t, lib=F):
        return lib.kl_div(x, t, reduction="batchmean")
    assert loss(mt.tensor(x), mt.tensor(t)).item() == pytest.approx(divergence(x, t).sum() / 5)
    assert_gradients(loss, x, t)
    assert_like_torch(loss, lambda x, t: loss(x, t, torch.nn.functional), x, t)


@pytest.mark.parametrize("call", [
    lambda x, w: F.cross_entropy(x, mt.tensor([0, 2]), w, label_smoothing=0.1),
    lambda x, w: F.cross_entropy(x, mt.softmax(x.detach(), -1), w),
    lambda x, w: F.binary_cross_entropy(mt.sigmoid(x), mt.ones_like(x), w),
    lambda x, w: F.binary_cross_entropy_with_logits(x, mt.ones_like(x), w),
    lambda x, w: F.binary_cross_entropy_with_logits(x, mt.ones_like(x), pos_weight=w)])
def test_a_weight_overwritten_before_backward_is_noticed(call):
    w = mt.tensor(draw(3, low=0.5, high=2))
    loss = call(leaf(draw(2, 3)), w)
    w.mul_(10)
    with pytest.raises(RuntimeError, match="modified in place"):
        loss.backward()


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div",
                                  "binary_cross_entropy_with_logits"])
def test_float16_losses_of_many_elements_stay_finite(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, t = (20 * draw(60, 101, seed=i, low=1, high=2).astype("f2") for i in range(2))
    got = getattr(F, name)(mt.tensor(x), mt.tensor(t))
    wanted = getattr(torch.nn.functional, name)(torch.tensor(x).float(), torch.tensor(t).float()).half()
    assert got.dtype == mt.float16 and np.isfinite(float(got))
    np.testing.assert_allclose(float(got), float(wanted), rtol=1e-3)


def test_float16_with_float32_gives_float32():
    assert F.mse_loss(mt.ones(3, dtype=mt.float16), mt.ones(3)).dtype == mt.float32


def test_weights_of_another_dtype_are_converted():
    x = leaf(draw(2, 3).astype("f4"))
    w = mt.tensor(draw(3, low=0.5, high=2))
    F.binary_cross_entropy_with_logits(x, mt.ones_like(x), w, pos_weight=w).backward()
    assert x.grad.dtype == mt.float32


def test_cross_entropy_is_right_after_a_write_to_the_classes():
    z, t = mt.tensor(draw(3, 5), requires_grad=True), mt.tensor([1, 2, 0])
    F.cross_entropy(z, t.clone()).backward()
    wanted, z.grad = z.grad, None
    loss = F.cross_entropy(z, t)
    t.fill_(4)
    loss.backward()
    assert mt.equal(z.grad, wanted)
