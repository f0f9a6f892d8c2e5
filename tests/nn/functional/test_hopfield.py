"""Hopfield retrieval: the update is attention and descends in the energy; patterns come back from noise."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw, leaf


def plain_energy(q, x, beta):
    total = sum(math.exp(beta * sum(q * pattern)) for pattern in x)
    return -math.log(total) / beta + sum(q * q) / 2 + math.log(len(x)) / beta + max(sum(p * p) for p in x) / 2


def test_energy():
    q, x = draw(3, 5), draw(7, 5, seed=1)
    got = F.hopfield_energy(mt.tensor(q), mt.tensor(x), 0.7).numpy()
    np.testing.assert_allclose(got, [plain_energy(state, x, 0.7) for state in q], rtol=1e-12)
    assert F.hopfield_energy(mt.tensor(draw(2, 3, 5)), mt.tensor(draw(2, 7, 5)), 0.7).shape == (2, 3)
    assert_gradients(lambda q, x: F.hopfield_energy(q, x, 0.7), q, x)


def test_one_update_is_attention():
    q, x = mt.tensor(draw(3, 5)), mt.tensor(draw(7, 5, seed=1))
    got = F.hopfield_update(q, x, 0.7).numpy()
    np.testing.assert_allclose(got, (F.softmax(0.7 * q @ x.T, -1) @ x).numpy(), rtol=1e-12)
    assert np.array_equal(F.hopfield_update(q, x, 5 ** -0.5).numpy(), F.scaled_dot_product_attention(q, x, x).numpy())
    assert_gradients(lambda q, x: F.hopfield_update(q, x, 0.7, steps=2), draw(3, 5), draw(7, 5, seed=1))


def test_one_update_takes_away_the_gradient_of_the_energy():
    q, x = leaf(draw(3, 5)), mt.tensor(draw(7, 5, seed=1))
    F.hopfield_energy(q, x, 0.7).backward(mt.ones(3, dtype=mt.float64))
    np.testing.assert_allclose(F.hopfield_update(q, x, 0.7).detach().numpy(), q.detach().numpy() - q.grad.numpy(),
                               rtol=1e-12)


def test_no_update_raises_the_energy():
    q, x = mt.tensor(draw(11, 5)), mt.tensor(draw(7, 5, seed=1))
    for beta in (0.1, 1.0, 8.0):
        state, energy = q, F.hopfield_energy(q, x, beta).numpy()
        for _ in range(5):
            state = F.hopfield_update(state, x, beta)
            new = F.hopfield_energy(state, x, beta).numpy()
            assert (new <= energy + 1e-12).all() and (new >= 0).all()
            energy = new


def test_patterns_come_back_from_noise():
    rng = np.random.default_rng(7)
    x = rng.choice([-1.0, 1.0], (16, 64))
    flipped = np.where(rng.random(x.shape) < 0.2, -x, x)  # a fifth of the pixels turned round
    got = F.hopfield_update(mt.tensor(flipped), mt.tensor(x), beta=1.0).numpy()
    assert np.array_equal(np.sign(got), x) and abs(got - x).max() < 0.02
    few = F.hopfield_update(mt.tensor(flipped), mt.tensor(x), beta=1e-4).numpy()
    np.testing.assert_allclose(few, np.broadcast_to(x.mean(0), x.shape), atol=0.05)  # too warm: the mean of all


def test_float16_energies_do_not_overflow():
    state, patterns = mt.full((1, 64), 32.0).half(), mt.full((2, 64), 32.0).half()
    wanted = F.hopfield_energy(state.double(), patterns.double()).item()
    got = F.hopfield_energy(state, patterns)
    assert got.dtype == mt.float16 and abs(got.item() - wanted) < 1


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan])
def test_beta_is_positive(beta):
    x = mt.zeros(2, 3)
    for call in (F.hopfield_update, F.hopfield_energy):
        with pytest.raises(ValueError, match="beta, the inverse temperature, must be positive"):
            call(x, x, beta)
    with pytest.raises(ValueError, match="steps must not be negative"):
        F.hopfield_update(x, x, steps=-1)
