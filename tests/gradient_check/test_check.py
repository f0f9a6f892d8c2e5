"""The check as a whole: verdicts, forms of call, guards."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import Tensor, explain_gradients, gradcheck, nn
from minitorch_attn.gradient_check import GUARDS, GradcheckError
from minitorch_attn.nn import functional as F
from tests.harness import draw


def tensor(*shape, seed=0):
    return mt.tensor(draw(*shape, seed=seed))


def op(forward, backward):
    """A function of one tensor with this result and backward(x, g), both on arrays."""
    def fn(x):
        xa = x.array
        return Tensor.from_op("op", forward(xa), (x,), lambda g: (backward(xa, g),))
    return fn


def kinds(report, fatal=None):
    return {g.kind for g in report.guards if fatal is None or g.fatal == fatal}


def test_it_can_be_imported_where_pytorch_has_it():
    assert mt.autograd.gradcheck is mt.gradcheck is gradcheck and callable(mt.gradcheck)


def test_right_gradients_pass_in_every_form_of_call():
    x, y = tensor(2, 3), tensor(3, seed=1)
    assert gradcheck(mt.tanh, x) is True
    assert gradcheck(mt.mul, (x, y), eps=1e-6, atol=1e-4, rtol=1e-3) is True
    assert gradcheck(lambda a, b: (a * b, {"more": [a + b, mt.argmax(a)]}), [x, y])
    assert gradcheck(nn.Linear(3, 5), x) and gradcheck(nn.LSTM(3, 2), tensor(4, 2, 3))
    assert gradcheck(mt.tanh, x, fast_mode=True)


def test_wrong_gradients_raise_or_return_false():
    wrong = op(np.tanh, lambda x, g: g * (1 - np.tanh(x)))
    with pytest.raises(GradcheckError, match="WRONG") as error:
        gradcheck(wrong, tensor(2, 3))
    assert isinstance(error.value, RuntimeError) and not error.value.report.ok
    assert gradcheck(wrong, tensor(2, 3), raise_exception=False) is False
    assert gradcheck(wrong, tensor(2, 3), raise_exception=False, fast_mode=True) is False


def test_a_small_mistake_is_found():
    assert not explain_gradients(op(np.exp, lambda x, g: g * np.exp(x) * (1 + 1e-6)), tensor(2, 3)).ok


def test_given_tolerances_are_used():
    nearly = op(np.exp, lambda x, g: g * np.exp(x) * (1 + 1e-6))
    assert gradcheck(nearly, tensor(2, 3), rtol=1e-3) and gradcheck(nearly, tensor(2, 3), atol=1e-3)


def test_what_is_not_there_says_so():
    for option in ("check_batched_grad", "check_forward_ad"):
        with pytest.raises(NotImplementedError, match="leave these at False"):
            gradcheck(mt.tanh, tensor(2), **{option: True})


def test_only_inputs_that_require_grad_are_checked_unless_none_does():
    x, y = tensor(2, 3).requires_grad_(), tensor(2, 3, seed=1)
    assert [a.name for a in explain_gradients(mt.mul, (x, y)).arguments] == ["x"]
    assert [a.name for a in explain_gradients(mt.mul, (x.detach(), y)).arguments] == ["x", "y"]


def test_the_same_tensor_twice_is_one_argument():
    x = tensor(3)
    report = explain_gradients(mt.mul, (x, x))
    assert report.ok and len(report.arguments) == 1 and report[0].name == "x = y"


def test_a_module_is_left_as_it_was():
    norm = nn.BatchNorm1d(3)
    before = {k: v.numpy().copy() for k, v in norm.state_dict().items()}
    x = tensor(5, 3)
    assert gradcheck(norm, x)
    for name, value in norm.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    assert all(p.dtype == mt.float32 and p.grad is None and p.is_leaf for p in norm.parameters())
    assert x.grad is None and not x.requires_grad
    norm(x.float()).sum().backward()  # still works in float32
    assert norm.weight.grad.dtype == mt.float32


def test_parameters_are_checked_and_a_frozen_one_is_not():
    layer = nn.Linear(3, 2)
    layer.bias.requires_grad = False
    assert [a.name for a in explain_gradients(layer, tensor(4, 3)).arguments] == ["x", "weight"]


def test_large_models_are_checked_along_random_directions():
    report = explain_gradients(nn.Linear(150, 140), tensor(3, 150))
    assert report.ok and report.fast and "random directions" in str(report)
    wrong = op(lambda x: x * x, lambda x, g: g * x)
    report = explain_gradients(wrong, tensor(21_001))
    assert report.fast and not report.ok and "entries looked at" in report[0].where


def test_a_single_wrong_entry_among_many_is_found_in_fast_mode():
    def backward(x, g):
        gx = 2 * g * x
        gx[7] += 1e-3
        return gx
    assert not explain_gradients(op(lambda x: x * x, backward), tensor(2000), fast_mode=True).ok


# Guards

def test_a_vacuous_objective_proves_nothing():
    report = explain_gradients(lambda x: F.softmax(x, 1).sum(), tensor(3, 5))
    assert not report.ok and kinds(report, fatal=True) == {"vacuous"} and report[0].ok
    assert "random numbers" in str(report)


@pytest.mark.parametrize("dtype", [mt.float32, mt.float16])
def test_less_than_float64_is_checked_as_float64(dtype):
    x = tensor(2, 3).to(dtype)
    report = explain_gradients(lambda v: F.linear(v, v[:, :3] * 1), x)
    assert report.ok and "low_precision" in kinds(report, fatal=False) and x.dtype == dtype
    assert explain_gradients(nn.Linear(3, 5), x).ok


def test_a_float32_result_is_checked_with_its_own_rounding():
    report = explain_gradients(lambda x: mt.tanh(x.float()), tensor(2, 3))
    assert report.ok and "low_precision" in kinds(report)
    assert not explain_gradients(lambda x: op(np.tanh, lambda x, g: g)(x).float(), tensor(2, 3)).ok


@pytest.mark.parametrize("fn, values", [
    (mt.abs, [0.0, 1.0, -2.0]), (mt.relu, [0.0, 1.0, -1.0]),
    (lambda x: mt.amax(x, 1), [[1.0, 1.0, 0.0], [1.0, 2.0, 3.0]]),
    (lambda x: mt.sort(x).values * mt.arange(3), [1.0, 1.0, 2.0]), (F.hardtanh, [1.0, -1.0, 0.5])])
def test_kinks_and_ties_are_left_out(fn, values):
    report = explain_gradients(fn, mt.tensor(values, dtype=mt.float64))
    assert report.ok and report[0].kinks and kinds(report, fatal=False) == {"kink"}


def test_a_gradient_beyond_both_sides_of_a_kink_is_wrong():
    wrong = op(np.abs, lambda x, g: g * np.where(x == 0, 5.0, np.sign(x)))
    assert not explain_gradients(wrong, mt.tensor([0.0, 1.0], dtype=mt.float64)).ok


def test_random_functions_are_refused():
    report = explain_gradients(nn.Dropout(0.5), tensor(20, 3))
    assert kinds(report, fatal=True) == {"random"} and "manual_seed" in str(report)

    def seeded(x):
        mt.manual_seed(0)
        return F.dropout(x, 0.5)
    assert gradcheck(seeded, tensor(4, 3))


def test_inputs_written_to_are_noticed_and_come_back():
    def fn(x):
        with mt.no_grad():
            x.mul_(2)
        return x * 1
    x = tensor(3)
    before = x.numpy().copy()
    report = explain_gradients(fn, x)
    assert kinds(report, fatal=True) == {"changed_in_place"} and "clone()" in str(report)
    np.testing.assert_array_equal(x.numpy(), before)


def test_shared_memory_is_noticed():
    cache = np.zeros(3)

    def reused(x, g):
        np.multiply(g, 2 * x, out=cache)
        return cache
    report = explain_gradients(op(lambda x: x * x, reused), tensor(3))
    assert "shared_memory" in kinds(report, fatal=True) and "fresh array" in str(report)
    given_away = op(lambda x: 0.5 * (x * x).sum(), lambda x, g: x)
    assert "shared_memory" in kinds(explain_gradients(given_away, tensor(3)), fatal=True)


def test_a_backward_that_spoils_what_it_needs_is_noticed():
    def fn(x):
        y = np.exp(x.array)

        def backward(g):
            y[...] *= g
            return (y.copy(),)
        return Tensor.from_op("exp", y.copy(), (x,), backward)
    assert "not_repeatable" in kinds(explain_gradients(fn, tensor(3)), fatal=True)


def test_layouts():
    x = tensor(3, 5)
    report = explain_gradients(mt.sigmoid, x.T)
    assert report.ok and kinds(report) == {"layout"} and report[0].shape == (5, 3)
    report = explain_gradients(mt.sigmoid, x[:1].expand(4, 5))
    assert report.ok and "its own" in str(report)


def test_integers_are_passed_on_and_named():
    report = explain_gradients(F.embedding, (mt.tensor([[0, 2], [2, 1]]), tensor(3, 4)))
    assert report.ok and kinds(report, fatal=False) == {"integer"} and [a.name for a in report.arguments] == ["weight"]
    report = explain_gradients(lambda x: x * 2, mt.tensor([1, 2]))
    assert not report.ok and "nothing_to_check" in kinds(report)


def test_results_without_a_graph_are_noticed():
    assert "nothing_to_check" in kinds(explain_gradients(lambda x: x.detach() * 2, tensor(3)), fatal=True)
    assert "nothing_to_check" in kinds(explain_gradients(mt.argmax, tensor(3)), fatal=True)


@pytest.mark.parametrize("backward, cause", [
    (lambda x, gx: np.stack([gx, gx]) / 2, "unsummed_broadcast"), (lambda x, gx: gx[:2], "wrong_shape"),
    (lambda x, gx: gx.reshape(3, 1), "wrong_shape"), (lambda x, gx: gx.astype("f4"), "wrong_dtype"),
    (lambda x, gx: None, "zero_gradient")], ids=["repeated", "cut", "column", "float32", "None"])
def test_gradients_of_the_wrong_form(backward, cause):
    report = explain_gradients(op(lambda x: x * x, lambda x, g: backward(x, 2 * g * x)), tensor(3))
    assert not report.ok and report[0].cause == cause
    assert kinds(report) & {"wrong_shape", "wrong_dtype", "no_gradient"} and "the backward of op returned" in " ".join(
        str(report).split())


def test_a_transposed_gradient_of_another_shape():
    report = explain_gradients(op(lambda x: x * 1, lambda x, g: g.T), tensor(3, 5))
    assert report[0].cause == "transpose" and not report.ok


def test_too_few_gradients():
    def fn(x, y):
        return Tensor.from_op("add", x.array + y.array, (x, y), lambda g: (g,))
    report = explain_gradients(fn, (tensor(3), tensor(3, seed=1)))
    assert not report.ok and "returned 1 where a tuple of 2" in str(report)


def test_a_backward_that_raises_is_reported():
    def backward(x, g):
        raise RuntimeError("out of ideas")
    report = explain_gradients(op(lambda x: x * 1, backward), tensor(3))
    assert not report.ok and "out of ideas" in str(report)


def test_nan_is_reported():
    report = explain_gradients(op(lambda x: x * 1, lambda x, g: g * np.nan), tensor(3))
    assert not report.ok and "not_finite" in kinds(report, fatal=True)
    partly = explain_gradients(lambda x: mt.stack([x, x / 0]), tensor(3))
    assert "not_finite" in kinds(partly, fatal=False)


def test_empty_and_zero_dimensional_inputs():
    assert explain_gradients(mt.tanh, tensor(0, 3)).ok
    assert explain_gradients(mt.tanh, tensor()).ok and explain_gradients(mt.tanh, tensor())[0].worst_index == ()


def test_every_kind_of_guard_is_documented():
    assert {"vacuous", "kink", "random"} <= set(GUARDS)


# PyTorch's functions, wrapped by hand

def from_torch(function, scale=1.0):
    """PyTorch's `function` as an operation here, its gradient times `scale`."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def fn(*inputs):
        leaves = [torch.from_numpy(np.array(x.array)).requires_grad_() for x in inputs]
        result = function(*leaves)

        def backward(g):
            found = torch.autograd.grad(result, leaves, torch.from_numpy(np.array(g)), retain_graph=True)
            return tuple(scale * t.numpy() for t in found)
        return Tensor.from_op("from_torch", result.detach().numpy(), inputs, backward)
    return fn


def test_pytorchs_own_functions_get_the_right_verdict():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer_norm = lambda x, w, b: torch.nn.functional.layer_norm(x, (5,), w, b)  # noqa: E731
    inputs = tensor(2, 3, 5), tensor(5, seed=1), tensor(5, seed=2)
    assert gradcheck(from_torch(layer_norm), inputs)
    report = explain_gradients(from_torch(layer_norm, 2.0), inputs)
    assert [(a.cause, round(a.factor, 6)) for a in report.arguments] == [("factor", 2.0)] * 3

    class WrongTanh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return -g * (1 - torch.tanh(x) ** 2)
    assert explain_gradients(from_torch(WrongTanh.apply), tensor(3, 5))[0].cause == "sign"
