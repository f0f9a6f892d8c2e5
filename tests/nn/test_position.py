"""Position layers: the same as the functions, with offsets, positions of their own, and other grids."""
import copy

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw


def test_sinusoidal():
    layer, x = nn.SinusoidalPositions(6), mt.zeros(2, 100, 6)
    table = F.sinusoidal_table(200, 6).numpy()
    assert np.array_equal(layer(x).numpy(), np.broadcast_to(table[:100], (2, 100, 6)))
    assert np.array_equal(layer(x, 50).numpy()[0], table[50:150])
    assert np.array_equal(layer(x[:, :2], positions=mt.tensor([[3, 4], [0, 1]])).numpy(), table[[[3, 4], [0, 1]]])
    assert layer(x.double()).dtype == mt.float64 and not layer.state_dict() and not list(layer.parameters())
    with pytest.raises(ValueError, match="even"):
        nn.SinusoidalPositions(5)


def test_a_model_that_was_in_half_precision_keeps_its_angles():
    """The table is made in float64 and rounded at use, so that nothing that happens to a model rounds it for good."""
    x = mt.zeros(1, 50, 6, dtype=mt.float64)
    wanted = F.sinusoidal_table(50, 6, dtype=mt.float64).numpy()
    for layer in (nn.SinusoidalPositions(6).half().float(), nn.SinusoidalPositions(6).double()):
        assert np.array_equal(layer(x).numpy()[0], wanted)
        assert np.array_equal(layer(x.float()).numpy()[0], wanted.astype("f4"))
    assert layer(x.half()).dtype == mt.float16


@pytest.mark.parametrize("make", [nn.SinusoidalPositions, nn.RotaryEmbedding])
def test_any_offset_costs_only_its_rows(make):
    layer, x = make(6), mt.tensor(draw(2, 3, 5, 6))
    for offset in (0, 1, 40, 60, 200, 1_000_000, 3, -2):
        there = layer(x, positions=mt.arange(offset, offset + 5))
        np.testing.assert_allclose(layer(x, offset).numpy(), there.numpy(), rtol=1e-12)
        assert len(layer.tables[0]) == 64
    assert layer(mt.zeros(1, 1, 100, 6), 5).shape == (1, 1, 100, 6)
    assert layer(mt.zeros(1, 1, 0, 6), 5).shape == (1, 1, 0, 6)


def test_learned():
    mt.manual_seed(0)
    layer, x = nn.LearnedPositions(7, 3).double(), draw(2, 5, 3)
    weight = layer.weight.detach().numpy()
    assert weight.shape == (7, 3) and 0.01 < weight.std() < 0.04
    np.testing.assert_allclose(layer(mt.tensor(x), 2).detach().numpy(), x + weight[2:])
    ids = mt.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])  # the first row is padded on the left by two
    np.testing.assert_allclose(layer(mt.tensor(x), positions=ids).detach().numpy(), x + weight[ids.numpy()])

    def with_weight(x, weight):
        layer._parameters["weight"] = weight
        return layer(x, 1)

    assert_gradients(with_weight, x, weight.copy())
    with pytest.raises(ValueError, match="only 0 to 6 were learned"):
        layer(mt.tensor(x), 3)
    with pytest.raises(IndexError):
        layer(mt.tensor(x[:, :1]), positions=mt.tensor([7]))


def test_learned_in_a_batch_padded_on_the_left():
    layer, x = nn.LearnedPositions(7, 3), mt.randn(2, 5, 3)
    positions = (mt.arange(5) - mt.tensor([[0], [2]])).clamp(min=0)
    y = layer(x, positions=positions).detach().numpy()
    assert np.array_equal(y[1, 2:], layer(x[1:, 2:]).detach().numpy()[0])


def test_grid():
    layer, x = nn.GridPositions(2, 8, 3, prefix=1), mt.zeros(4, 17, 3)
    weight = layer.weight.detach()
    assert np.array_equal(layer(x).detach().numpy()[0], weight.numpy())
    other = layer(x, 4, 4).detach().numpy()[0]  # as many patches, but another grid
    assert np.array_equal(other[0], weight.numpy()[0])
    wanted = F.resize_grid(weight[1:].reshape(2, 8, 3), 4, 4).reshape(16, 3).numpy()
    np.testing.assert_allclose(other[1:], wanted)
    assert layer(mt.zeros(1, 16, 3), 3, 5).shape == (1, 16, 3)
    with pytest.raises(ValueError, match="3 x 5 has 15 patches"):
        layer(x, 3, 5)
    layer(mt.zeros(16, 3), 3, 5).backward(mt.ones(16, 3))
    np.testing.assert_allclose(layer.weight.grad.numpy().sum(0), 16, rtol=1e-5)  # weights of interpolation sum to 1


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary(interleaved):
    layer, x = nn.RotaryEmbedding(4, interleaved=interleaved), mt.tensor(draw(2, 3, 5, 6))
    assert np.array_equal(layer(x, 100).numpy(), F.rotary(x, 100, dim=4, interleaved=interleaved).numpy())
    assert np.array_equal(layer(x).numpy(), F.rotary(x, dim=4, interleaved=interleaved).numpy())
    ids = mt.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]])
    assert np.array_equal(layer(x, positions=ids).numpy(),
                          F.rotary(x, positions=ids, dim=4, interleaved=interleaved).numpy())
    assert not layer.state_dict()
    with pytest.raises(ValueError, match="even"):
        nn.RotaryEmbedding(5)


def test_rotary_of_a_half_model_keeps_its_angles():
    layer = nn.RotaryEmbedding(2)
    x = mt.tensor(np.array([[1, 0], [1, 0]], "f4"))
    wanted = layer(x, 2048).numpy()
    got = copy.deepcopy(layer).half()(x.half(), 2048)
    assert got.dtype == mt.float16
    np.testing.assert_allclose(got.numpy(), wanted, atol=1e-3)


def test_alibi():
    layer, q = nn.ALiBi(3), mt.tensor(draw(2, 3, 5, 7, seed=1).astype("f4"))
    got = F.attention_weights(q, q, layer(5)).numpy()
    far = np.arange(5) - np.arange(5)[:, None]
    scores = q.numpy() @ q.numpy().swapaxes(-1, -2) / 7 ** 0.5
    scores = scores + np.array(F.alibi_slopes(3))[:, None, None] * np.where(far > 0, -np.inf, far)
    e = np.exp(scores)
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)
    assert layer(1, 5).shape == (3, 1, 5) and np.isfinite(layer(1, 5).numpy()).all()
    padded = layer(5, mask=F.padding_mask([5, 3]))
    assert padded.shape == (2, 3, 5, 5) and np.isinf(padded.numpy()[1, :, :, 3:]).all()
    assert np.isfinite(layer(5, is_causal=False).numpy()).all()
