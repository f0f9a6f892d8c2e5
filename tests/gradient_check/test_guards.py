"""What must not crash, and what is said instead."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import Tensor, explain_gradients, gradcheck, nn
from minitorch_attn.nn import functional as F
from tests.harness import draw
from tests.harness import operation as op


def t(*shape, seed=0):
    return mt.tensor(draw(*shape, seed=seed))


def raises(error):
    def backward(a, g):
        raise error
    return backward


def text(report):
    return " ".join(str(report).split())


def kinds(report, fatal=True):
    return {g.kind for g in report.guards if g.fatal == fatal}


FORMS = {
    "a Tensor": (lambda a, g: (mt.tensor(2 * g * a[0]),), "wrong_form", "returned for its input 0 a Tensor"),
    "a number": (lambda a, g: (float(g.sum()),), "wrong_form", "returned for its input 0 a float"),
    "a bare array": (lambda a, g: 2 * g * a[0], "wrong_form", "returned a bare ndarray where a tuple of 1"),
    "nothing": (lambda a, g: None, "wrong_form", "returned a bare NoneType where a tuple of 1"),
    "two for one": (lambda a, g: (g, g), "wrong_form", "returned 2 where a tuple of 1"),
    "g of the result's shape": (lambda a, g: (g[:2],), "wrong_shape", "a gradient of shape (2,)"),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_backward_of_the_wrong_form(name):
    backward, cause, said = FORMS[name]
    report = explain_gradients(op(np.square, backward), t(3))
    assert not report.ok and report[0].cause == cause and said in text(report)


@pytest.mark.parametrize("error", [ValueError("a"), IndexError("b"), RuntimeError("c"), NameError("d"),
                                   ZeroDivisionError("e"), NotImplementedError("f")], ids=lambda e: type(e).__name__)
def test_a_backward_that_raises_is_named_with_its_line(error):
    report = explain_gradients(op(np.square, raises(error)), t(3))
    assert kinds(report) == {"backward_raised"} and report.verdict == "WRONG: the backward is broken"
    assert f"the backward of op raised {type(error).__name__}: {error} (test_guards.py, line " in text(report)


def write_mask(x, m):
    m[0] = True
    return x * m


WRITES = {"times": (lambda x: x.mul_(2) * 1, 1), "item": (lambda x: x.__setitem__(0, 1.0) or x * 1, 1),
          "mask": (write_mask, 2)}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_inputs_are_noticed_and_undone(name):
    fn, count = WRITES[name]
    inputs = (t(3), mt.tensor([False, True, True]))[:count]
    before = [x.numpy().copy() for x in inputs]
    assert kinds(explain_gradients(fn, inputs)) == {"changed_in_place"}
    for x, b in zip(inputs, before):
        np.testing.assert_array_equal(x.numpy(), b)


def test_modules_and_tensors_that_a_function_uses_are_read_as_float64():
    layer, w = nn.Linear(3, 2), mt.randn(3, 3)
    for fn in (lambda x: layer(x), layer.forward, lambda x: x @ w):
        assert gradcheck(fn, t(4, 3))
    assert layer.weight.dtype == w.dtype == mt.float32 and layer.weight.grad is None


def test_gradients_of_other_tensors_stay_as_they_are():
    w = t(3, 3).requires_grad_()
    assert gradcheck(lambda x: x @ w, t(2, 3)) and w.grad is None
    (w * 2).sum().backward()
    before = w.grad
    assert gradcheck(lambda x: x @ w, t(2, 3)) and w.grad is before


def test_the_state_of_a_module_is_kept_though_its_forward_fails():
    class Failing(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x):
            self.norm(x)
            raise KeyError("stop")

    module = Failing()
    node, array = module.norm.weight.node, module.norm.weight.array
    with pytest.raises(KeyError):
        explain_gradients(module, t(4, 3))
    assert module.norm.weight.array is array and module.norm.weight.node is node
    assert module.norm.weight.dtype == mt.float32 and not module.norm.running_mean.numpy().any()
    assert module.norm.num_batches_tracked.item() == 0


def test_parameters_keep_their_place_in_a_graph():
    layer = nn.Linear(3, 2)
    y = layer(mt.randn(4, 3))
    assert gradcheck(layer, t(4, 3))
    found = mt.autograd.grad(y.sum(), [layer.weight, layer.bias])  # a graph from before the check still leads there
    assert [g.shape for g in found] == [(2, 3), (2,)]


def test_lazy_layers():
    assert gradcheck(nn.LazyLinear(4), t(5, 3))


def test_names_and_axes():
    assert [a.name for a in explain_gradients(mt.mul, (t(3), t(3, seed=1)), names=["a"]).arguments] == ["a", "y"]
    for axes, said in (({"z": ("B",)}, "given for 'z'"), ({"x": ("B",)}, "names 1 axes"), (("B", "C"), "a tuple")):
        with pytest.raises(ValueError, match=said):
            explain_gradients(lambda x: mt.tanh(x), t(2, 3), axes=axes)
    with pytest.raises(ValueError, match="must be positive"):
        explain_gradients(mt.tanh, t(3), eps=0)


def test_what_is_not_checked_is_said():
    report = explain_gradients(mt.mul, (t(3).requires_grad_(), t(3)))
    assert report.ok and "because requires_grad is False: y" in text(report)
    assert "x is a ndarray" in text(explain_gradients(lambda x: x, np.zeros(3)))
    assert "the function returned a ndarray" in text(explain_gradients(lambda x: x.detach().numpy(), t(3)))


def test_a_report_with_nan_shows_itself_in_a_notebook():
    report = explain_gradients(op(np.positive, lambda a, g: (g * np.array([1, np.nan, 1]),)), t(3))
    assert not report.ok and "<table" in report._repr_html_() and np.isinf(report[0].error)


def test_functions_that_change_late_are_random():
    count = [0]

    def late(x):
        count[0] += 1
        return x * (2 if count[0] < 40 else 3)
    assert "random" in kinds(explain_gradients(late, t(3)))


def test_a_function_whose_last_digits_change_is_random():
    count = [0]

    def nearly(x):
        count[0] += 1
        return x * (1 + 1e-15 * (count[0] % 2))
    assert kinds(explain_gradients(nearly, t(3))) == {"random"}


def test_a_backward_that_draws_anew():
    rng = np.random.default_rng(0)
    mask = rng.random(20) < 0.5
    report = explain_gradients(op(lambda x: x * mask, lambda a, g: (g * (rng.random(20) < 0.5),)), t(20))
    assert "not_repeatable" in kinds(report) and "draw random numbers anew" in text(report)
    assert "not looked for" in text(report)


def test_a_wrong_entry_among_many_is_found_by_halving():
    def backward(a, g):
        gx = 2 * g * a[0]
        gx[1999] *= 1.5
        return (gx,)
    report = explain_gradients(op(np.square, backward), t(2000), fast_mode=True)
    assert report[0].worst_index == (1999,) and report[0].step > 0


def test_what_is_too_large_to_look_at_is_said_and_quick():
    report = explain_gradients(op(np.sin, lambda a, g: (-g * np.cos(a[0]),)), t(60, 40))
    assert "too large to look; check a smaller input" in text(report)


def test_the_advice_for_layer_norm_is_right_when_followed():
    """gx = r (g_hat - x_hat mean(g_hat x_hat)), and the term that the report asks for."""
    def layer_norm(followed):
        def forward(x, w):
            return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w

        def backward(a, g):
            x, w = a
            r = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x_hat, g_hat = (x - x.mean(-1, keepdims=True)) * r, g * w
            gx = g_hat - x_hat * (g_hat * x_hat).mean(-1, keepdims=True)
            if followed:
                gx = gx - g_hat.mean(-1, keepdims=True)
            return r * gx, (g * x_hat).sum(0)
        return op(forward, backward)
    report = explain_gradients(layer_norm(False), (t(3, 5), t(5, seed=1)))
    assert report[0].cause == "missing_mean_path" and "Add the term with mean(g_hat)" in text(report)
    assert explain_gradients(layer_norm(True), (t(3, 5), t(5, seed=1))).ok


@pytest.mark.parametrize("ids", [[[0, 2, 2], [1, 2, 0]], [[1, 1, 1]]])
def test_an_embedding_that_counts_repeated_ids_once(ids):
    ids = np.array(ids)

    def backward(a, g):
        gw = np.zeros_like(a[0])
        gw[ids] += g
        return (gw,)

    def embedding(ids_, weight):
        return Tensor.from_op("embedding", weight.array[ids], (weight,), lambda g: backward([weight.array], g))
    report = explain_gradients(embedding, (mt.tensor(ids), t(3, 4)))
    assert report[0].cause == "lost_path" and "numpy.add.at(gw, ids, g)" in text(report)
    assert gradcheck(F.embedding, (mt.tensor(ids), t(3, 4)))
