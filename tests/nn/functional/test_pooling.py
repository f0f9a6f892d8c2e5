"""Kernel regression and additive attention against loops, finite differences and PyTorch spelled out."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

WIDTHS = [0.3, np.array(0.7), draw(5, 1, seed=7, low=0.3, high=2), draw(3, 5, 7, seed=7, low=0.3, high=2)]


def plain_weights(q, k, sigma):
    """Nadaraya-Watson, one pair at a time."""
    sigma = np.broadcast_to(sigma, (*q.shape[:-2], q.shape[-2], k.shape[-2]))
    p = np.zeros(sigma.shape)
    for *lead, t, s in np.ndindex(p.shape):
        lead = tuple(lead)
        p[(*lead, t, s)] = math.exp(-sum((q[(*lead, t)] - k[(*lead, s)]) ** 2) / (2 * sigma[(*lead, t, s)] ** 2))
    return p / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("sigma", WIDTHS, ids=lambda s: str(np.shape(s)))
def test_kernel_weights(sigma):
    q, k, v = draw(3, 5, 2), draw(3, 7, 2, seed=1), draw(3, 7, 11, seed=2)
    given = mt.tensor(sigma) if isinstance(sigma, np.ndarray) else sigma
    p = F.kernel_weights(mt.tensor(q), mt.tensor(k), given)
    np.testing.assert_allclose(p.numpy(), plain_weights(q, k, sigma), rtol=1e-12, atol=1e-15)
    y = F.kernel_pooling(mt.tensor(q), mt.tensor(k), mt.tensor(v), given)
    np.testing.assert_allclose(y.numpy(), plain_weights(q, k, sigma) @ v, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("sigma", WIDTHS[1:], ids=np.shape)
def test_kernel_gradients(sigma):
    arrays = draw(3, 5, 2), draw(3, 7, 2, seed=1), sigma
    assert_gradients(F.kernel_weights, *arrays)
    assert_gradients(F.kernel_pooling, draw(5, 2), draw(3, 7, 2, seed=1), draw(3, 7, 2, seed=2), sigma)
    assert_keeps_float32(F.kernel_weights, *arrays)

    def composed(q, k, sigma):
        square = ((q.unsqueeze(-2) - k.unsqueeze(-3)) ** 2).sum(-1)
        return F.softmax(-square / (2 * sigma ** 2), -1)

    assert_equals_composed(F.kernel_weights, composed, *arrays)


def test_one_wave_through_fifty_samples():
    """The regression as it is usually written down, in float32."""
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, 50)).astype("f4")
    y = (2 * np.sin(x) + x ** 0.8 + rng.normal(0, 0.5, 50)).astype("f4")
    at = np.linspace(0, 5, 5, dtype="f4")
    for sigma in (0.1, 0.3, 1.0):
        scores = -((at[:, None] - x) ** 2) / (2 * sigma ** 2)
        alpha = np.exp(scores - scores.max(1, keepdims=True))
        wanted = alpha @ y / alpha.sum(1)
        got = F.kernel_pooling(mt.tensor(at)[:, None], mt.tensor(x)[:, None], mt.tensor(y)[:, None], sigma)
        np.testing.assert_allclose(got.numpy()[:, 0], wanted, rtol=2e-6)


def test_fifty_samples_of_a_seed():
    """The predictions that PyTorch makes of the same seed, and those of the formula spelled out."""
    mt.manual_seed(0)
    x = mt.sort(mt.rand(50) * 5).values
    y = 2 * mt.sin(x) + x ** 0.8 + 0.3 * mt.randn(50)
    at = mt.linspace(0.5, 4.5, 5)
    got = F.kernel_pooling(at[:, None], x[:, None], y[:, None], 0.3).numpy()[:, 0]
    np.testing.assert_allclose(got, [1.76, 3.38, 3.25, 1.96, 1.40], atol=0.006)
    weights = plain_weights(*(a.numpy().astype("f8")[:, None] for a in (at, x)), 0.3)
    np.testing.assert_allclose(got, weights @ y.numpy(), rtol=2e-6)


def test_width_from_nearest_sample_to_the_mean_of_all():
    q, k, v = mt.tensor([[0.4]]), mt.tensor([[0.0], [0.5], [3.0]]), mt.tensor([[1.0], [2.0], [6.0]])
    assert F.kernel_pooling(q, k, v, 1e-3).item() == 2
    assert F.kernel_pooling(q, k, v, 1e4).item() == pytest.approx(3, abs=1e-5)


def test_far_from_all_samples_the_nearest_counts():
    """All kernels underflow: still a mean, not 0 / 0."""
    q, k = mt.tensor([[1e4]]), mt.tensor([[0.0], [1.0]])
    assert F.kernel_weights(q, k, 0.1).numpy().tolist() == [[0, 1]]


@pytest.mark.parametrize("sigma", [0, -1.0, mt.tensor([[1.0, 0.0]])], ids=str)
def test_a_width_is_positive(sigma):
    with pytest.raises(ValueError, match="positive"):
        F.kernel_weights(mt.zeros(1, 1), mt.zeros(2, 1), sigma)


# Additive scores

def test_additive_scores_one_pair_at_a_time():
    q, k, v = draw(2, 5, 3), draw(2, 7, 3, seed=1), draw(3, seed=2)
    wanted = np.array([[[sum(v * np.tanh(q[b, t] + k[b, s])) for s in range(7)] for t in range(5)] for b in range(2)])
    np.testing.assert_allclose(F.additive_scores(*map(mt.tensor, (q, k, v))).numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("shapes", [((5, 3), (7, 3)), ((2, 1, 3), (2, 7, 3)), ((2, 5, 1), (2, 7, 1)),
                                    ((2, 5, 3), (7, 3)), ((5, 3), (2, 7, 3)), ((0, 3), (7, 3))], ids=str)
def test_additive_gradients(shapes):
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)] + [draw(shapes[0][-1], seed=5)]
    assert_gradients(F.additive_scores, *arrays)
    assert_keeps_float32(F.additive_scores, *arrays)
    assert_equals_composed(F.additive_scores, lambda q, k, v: (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh() @ v, *arrays)


SEEN = np.array([[True, True, False, True, False, True, True]] * 5)


@pytest.mark.parametrize("mask", [None, SEEN, np.array([[[True] * 4 + [False] * 3]] * 2)], ids=["all", "some", "ends"])
def test_additive_attention_like_torch(mask):
    """Query and key of different widths."""
    arrays = [draw(2, 5, 3), draw(2, 7, 11, seed=1), draw(2, 7, 2, seed=2), draw(13, 3, seed=3), draw(13, 11, seed=4),
              draw(13, seed=5)]

    def theirs(q, k, value, w_q, w_k, v):
        import torch
        scores = torch.tanh((q @ w_q.T)[:, :, None] + (k @ w_k.T)[:, None]) @ v
        if mask is not None:
            scores = scores.masked_fill(~torch.from_numpy(mask), -math.inf)
        p = scores.softmax(-1)
        return p @ value, p

    seen = None if mask is None else mt.tensor(mask)
    assert_like_torch(lambda *x: F.additive_attention(*x, seen), theirs, *arrays)
    assert_gradients(lambda *x: F.additive_attention(*x, seen), *[a[:2] if a.ndim == 3 else a for a in arrays])


def test_a_query_that_sees_nothing():
    scores = mt.tensor(draw(5, 7))
    scores.requires_grad = True
    mask = SEEN.copy()
    mask[2] = False
    p = F.masked_softmax(scores, mt.tensor(mask))
    p.backward(mt.tensor(draw(5, 7, seed=1)))
    assert not p.detach().numpy()[2].any() and not scores.grad.numpy()[2].any()
    assert not p.detach().numpy()[~mask].any()
    np.testing.assert_allclose(p.detach().numpy().sum(1), [1, 1, 0, 1, 1], rtol=1e-12)


def test_masked_softmax():
    assert_gradients(lambda x: F.masked_softmax(x, mt.tensor(SEEN)), draw(3, 5, 7))
    assert_gradients(F.masked_softmax, draw(3, 5, 7), draw(5, 7, seed=1))
    assert_equals_composed(F.masked_softmax, lambda x: F.softmax(x, -1), draw(3, 5, 7))
    for added in ([0.0, -math.inf], [False, False]):
        p = F.masked_softmax(mt.zeros(1, 2), mt.tensor([added])).numpy()
        assert p.tolist() == ([[1, 0]] if added[1] else [[0, 0]])


def test_mistakes():
    with pytest.raises(RuntimeError, match="width A"):
        F.additive_scores(mt.zeros(2, 3), mt.zeros(2, 5), mt.zeros(3))
    with pytest.raises(RuntimeError, match="does not broadcast"):
        F.masked_softmax(mt.zeros(5, 7), mt.ones(5, 3, dtype=mt.bool))
    with pytest.raises(RuntimeError, match=r"\.bool\(\)"):
        F.masked_softmax(mt.zeros(5, 7), mt.ones(5, 7, dtype=mt.int64))


@pytest.mark.parametrize("make", [
    lambda: F.masked_softmax(mt.tensor([[12.0, 11], [-20, -21], [0, 30000]]).half()),
    lambda: F.masked_softmax(mt.full((2, 7), 9.9).half()),
    lambda: F.masked_softmax(mt.tensor([[12.0, 11]]).half(), mt.tensor([[1.0, -0.5]])),
    lambda: F.kernel_weights(mt.tensor([[7.0], [300]]).half(), mt.tensor([[0.0], [0.5]]).half(), 1.0),
    lambda: F.kernel_weights(mt.tensor([[7.0]]).half(), mt.tensor([[0.0], [0.5]]).half(), mt.ones(1)),
    lambda: F.additive_attention(mt.full((1, 1, 4), 9.0).half(), mt.ones(1, 3, 4).half(), mt.ones(1, 3, 2).half(),
                                 mt.ones(16, 4).half(), mt.ones(16, 4).half(), mt.ones(16).half())[1]])
def test_float16_rows_sum_to_one(make):
    p = make()
    assert p.dtype == mt.float16
    np.testing.assert_allclose(p.numpy().astype("f8").sum(-1), 1, rtol=2e-3)


def test_float16_weights_are_those_of_float32():
    scores, g = draw(5, 7) * 9, draw(5, 7, seed=1)
    found = []
    for dtype in (mt.float16, mt.float32):
        x = mt.tensor(scores.astype("f2")).to(dtype).requires_grad_()
        p = F.masked_softmax(x)
        p.backward(mt.tensor(g).to(dtype))
        assert x.grad.dtype == dtype
        found.append((p.detach().numpy(), x.grad.numpy()))
    for half, single in zip(*found):
        np.testing.assert_allclose(half, single, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("top", [9.9, 10.1, 31.0, 60.0, 95.0, 100.0, -31.0, -104.0, -1000.0])
def test_scores_of_any_size_keep_their_digits(top):
    scores = np.array([[0.0, -1, 0.5], [2, 1, 0]]) + top
    e = np.exp(scores - scores.max(-1, keepdims=True))
    got = F.masked_softmax(mt.tensor(scores.astype("f4"))).numpy()
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5 * max(1, abs(top) / 30))


def test_a_distance_whose_square_overflows_is_refused():
    with pytest.raises(ValueError, match="overflows float32"):
        F.kernel_weights(mt.tensor([[0.0], [1e25]]), mt.tensor([[0.0], [1.0]]))
    assert F.kernel_weights(mt.zeros(2, 1), mt.zeros(0, 1)).shape == (2, 0)
    p = F.kernel_weights(mt.tensor([[0.0]]), mt.tensor([[0.0], [1e25]]))  # another key is near
    assert p.tolist() == [[1, 0]]


@pytest.mark.filterwarnings("error")
def test_overflow_prints_nothing():
    big = mt.full((2, 3), 1e30)
    F.scaled_dot_product_attention(big, big, big)
    F.attention_weights(big, big)
    F.tiled_attention(big, big, big)
    F.masked_softmax(mt.full((2, 3), 3e38), mt.full((2, 3), 3e38))
