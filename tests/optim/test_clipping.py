"""Clipping by norm and value, and parameters as one vector."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import Parameter
from minitorch_attn.optim import clipping
from tests.harness import assert_gradients, draw

SHAPES = [(3, 5), (), (7,), (2, 0), (11, 2)]


def parameters(dtype="f8", scale=1.0):
    params = [Parameter(mt.tensor(np.zeros(shape, dtype))) for shape in SHAPES]
    for i, p in enumerate(params):
        p.grad = mt.tensor((scale * draw(*p.shape, seed=i)).astype(dtype))
    unused = Parameter(mt.tensor(np.zeros(3)))
    return [*params, unused]


def gradients(params):
    return [p.grad.numpy().copy() for p in params if p.grad is not None]


def plain_norm(arrays, p):
    flat = np.abs(np.concatenate([a.ravel() for a in arrays]).astype("f8"))
    return flat.max() if p == math.inf else (flat**p).sum()**(1 / p)


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("p", [2.0, 1, 3, 0.5, math.inf])
def test_norm_and_scaling(p, dtype):
    params = parameters(dtype)
    before = gradients(params)
    wanted = plain_norm(before, p)
    norm = clipping.clip_grad_norm_((x for x in params), 0.5, norm_type=p)
    assert norm.shape == () and norm.dtype == dtype
    np.testing.assert_allclose(float(norm), wanted, rtol=1e-12 if dtype == "f8" else 1e-6)
    after = gradients(params)
    for a, b in zip(after, before):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b * (0.5 / (wanted + 1e-6)), rtol=1e-12 if dtype == "f8" else 1e-5)
    np.testing.assert_allclose(plain_norm(after, p), 0.5, rtol=1e-5)


def test_small_gradients_stay_bit_by_bit():
    params = parameters()
    before = gradients(params)
    clipping.clip_grad_norm_(params, 1e3)
    for a, b in zip(gradients(params), before):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("p", [2.0, math.inf, 3.0])
def test_like_torch(p):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    params, theirs = [x for x in parameters("f4", scale=10) if x.array.size], []  # PyTorch refuses empty ones for inf
    for x in params[:-1]:
        theirs.append(torch.nn.Parameter(torch.zeros(x.shape)))
        theirs[-1].grad = torch.tensor(x.grad.numpy().copy())
    norm = clipping.clip_grad_norm_(params, 1.5, p)
    wanted = torch.nn.utils.clip_grad_norm_(theirs, 1.5, p)
    np.testing.assert_allclose(float(norm), wanted.item(), rtol=1e-6)
    for x, y in zip(params, theirs):
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("value, count, wanted", [(1e20, 100, 1e21), (1e-30, 100, 1e-29), (3e-23, 100, 3e-22),
                                                  (2.0**-149, 4, 2.0**-148)])
def test_squares_outside_the_range_of_float32(recwarn, value, count, wanted):
    """1e20 squared is infinite in float32 and 1e-30 squared is 0, but neither norm is."""
    p = Parameter(mt.tensor(np.zeros(count, "f4")))
    p.grad = mt.tensor(np.full(count, value, "f4"))
    norm = clipping.get_total_norm([p.grad])
    np.testing.assert_allclose(float(norm), wanted, rtol=1e-6)
    clipping.clip_grad_norm_(p, wanted / 1e21)
    if value == 1e20:
        np.testing.assert_allclose(p.grad.numpy(), np.full(count, 0.1, "f4"), rtol=1e-5)
    assert not recwarn.list


def test_float16_sums_in_float32():
    g = mt.tensor(np.full(10_000, 30.0, "f2"))
    norm = clipping.get_total_norm(g)
    assert norm.dtype == "f2" and float(norm) == 3000.0


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("p", [2.0, 1.0, math.inf])
def test_a_norm_that_is_not_finite(bad, p):
    """Gradients stay as they are, and the norm tells; or it is an error."""
    x, y = Parameter(mt.tensor(np.zeros(2, "f4"))), Parameter(mt.tensor(np.zeros(1, "f4")))
    x.grad, y.grad = mt.tensor(np.array([bad, 1], "f4")), mt.tensor(np.array([5], "f4"))
    norm = float(clipping.clip_grad_norm_([x, y], 1.0, p))
    assert math.isnan(norm) if math.isnan(bad) else norm == math.inf
    np.testing.assert_array_equal(x.grad.numpy(), np.array([bad, 1], "f4"))
    np.testing.assert_array_equal(y.grad.numpy(), [5])
    with pytest.raises(RuntimeError, match="error_if_nonfinite"):
        clipping.clip_grad_norm_([x, y], 1.0, p, error_if_nonfinite=True)


def test_nothing_to_clip():
    assert float(clipping.clip_grad_norm_([], 1.0)) == 0.0
    assert float(clipping.clip_grad_norm_(parameters()[-1], 1.0)) == 0.0
    assert float(clipping.get_total_norm([mt.tensor(np.zeros((2, 0)))])) == 0.0
    with pytest.raises(ValueError, match="norm_type"):
        clipping.get_total_norm([], 0)


def test_clip_value():
    params = parameters("f4")
    before = gradients(params)
    clipping.clip_grad_value_(params, 0.4)
    for a, b in zip(gradients(params), before):
        np.testing.assert_array_equal(a, np.clip(b, np.float32(-0.4), np.float32(0.4)))
    p = params[0]
    clipping.clip_grad_value_(p, 0.1)
    assert np.abs(p.grad.numpy()).max() == np.float32(0.1)


def test_vector_and_back():
    params = [Parameter(mt.tensor(draw(*shape, seed=i))) for i, shape in enumerate(SHAPES)]
    vector = clipping.parameters_to_vector(params)
    wanted = np.concatenate([p.detach().numpy().ravel() for p in params])
    np.testing.assert_array_equal(vector.detach().numpy(), wanted)
    others = [Parameter(mt.tensor(np.zeros(shape))) for shape in SHAPES]
    clipping.vector_to_parameters(vector, iter(others))
    for p, q in zip(params, others):
        np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())
    others[0].array += 1
    assert vector.detach().numpy()[0] == params[0].detach().numpy()[0, 0], "memory of its own"
    assert_gradients(lambda a, b: clipping.parameters_to_vector([a, b]), draw(2, 3), draw(5, seed=1))
    with pytest.raises(ValueError, match=r"45 entries.*\(3,\)"):
        clipping.vector_to_parameters(mt.tensor(np.zeros(3)), others)
    with pytest.raises(TypeError, match="ndarray"):
        clipping.vector_to_parameters(np.zeros(45), others)
