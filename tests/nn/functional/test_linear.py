"""The affine map."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

SHAPES = [(3,), (5, 3), (2, 5, 3), (0, 3), (2, 0, 3), (1, 1, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_sums_over_the_last_axis(shape):
    x, w, b = draw(*shape), draw(7, 3, seed=1), draw(7, seed=2)
    expected = np.zeros((*shape[:-1], 7))
    for at in np.ndindex(expected.shape):
        expected[at] = sum(x[(*at[:-1], i)] * w[at[-1], i] for i in range(3)) + b[at[-1]]
    np.testing.assert_allclose(F.linear(mt.tensor(x), mt.tensor(w), mt.tensor(b)).numpy(), expected, atol=1e-12)
    np.testing.assert_allclose(F.linear(mt.tensor(x), mt.tensor(w)).numpy(), expected - b, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients(shape):
    x, w, b = draw(*shape), draw(7, 3, seed=1), draw(7, seed=2)
    assert_gradients(F.linear, x, w, b)
    assert_gradients(F.linear, x, w)
    assert_equals_composed(F.linear, lambda x, w, b: x @ w.t() + b, x, w, b)
    assert_keeps_float32(F.linear, x, w, b)


def test_like_torch():
    torch = pytest.importorskip("torch")
    for shape in SHAPES:
        assert_like_torch(F.linear, torch.nn.functional.linear, draw(*shape), draw(7, 3, seed=1), draw(7, seed=2))


def test_an_input_that_is_not_contiguous():
    x, w = draw(5, 3, 2), draw(7, 5, seed=1)
    assert_equals_composed(lambda x, w: F.linear(x.permute(1, 2, 0), w), lambda x, w: x.permute(1, 2, 0) @ w.t(), x, w)
    assert_gradients(lambda x, w: F.linear(x, w).transpose(0, 1), draw(3, 5), w)  # nor is the gradient


@pytest.mark.parametrize("wanted", range(3))
def test_only_what_requires_grad_gets_one(wanted):
    arrays = [draw(5, 3), draw(7, 3, seed=1), draw(7, seed=2)]
    _, (g,), all_of_them = gradients(F.linear, arrays)
    inputs = [mt.tensor(a) for a in arrays]
    inputs[wanted].requires_grad = True
    F.linear(*inputs).backward(mt.tensor(g))
    assert [x.grad is None for x in inputs] == [i != wanted for i in range(3)]
    np.testing.assert_allclose(inputs[wanted].grad.numpy(), all_of_them[wanted])


def test_no_input_features():
    y, _, (gx, gw, gb) = gradients(F.linear, [np.zeros((5, 0)), np.zeros((7, 0)), draw(7)])
    np.testing.assert_array_equal(y[0].detach().numpy(), np.broadcast_to(draw(7), (5, 7)))
    assert gx.shape == (5, 0) and gw.shape == (7, 0) and gb.any()


@pytest.mark.parametrize("shapes, dtypes, said", [
    (((5, 3), (3, 7), None), "dd", "last axis"),
    (((), (7, 3), None), "dd", "last axis"),
    (((5, 3), (3,), None), "dd", "weight"),
    (((5, 3), (7, 3), (3,)), "ddd", "bias"),
    (((5, 3), (7, 3), None), "fd", "one dtype"),
    (((5, 3), (7, 3), (7,)), "ffd", "one dtype"),
])
def test_errors(shapes, dtypes, said):
    arguments = [mt.tensor(np.zeros(s, d)) for s, d in zip(shapes, dtypes) if s is not None]
    with pytest.raises(RuntimeError, match=said):
        F.linear(*arguments)
