"""Dropout: what it keeps, how it scales, and that the gradient takes the same way."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import draw, leaf


def drawn(function, *shape, **keywords):
    mt.manual_seed(5)
    x = leaf(draw(*shape, low=1, high=2))
    y = function(x, **keywords)
    g = draw(*shape, seed=1)
    (y * mt.tensor(g)).sum().backward()
    return x.detach().numpy(), y.detach().numpy(), g, x.grad.numpy()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_kept_elements_are_scaled_and_the_others_zero(p):
    x, y, g, gx = drawn(F.dropout, 101, 103, p=p)
    kept = y != 0
    np.testing.assert_allclose(y[kept], x[kept] / (1 - p), rtol=1e-12)
    np.testing.assert_allclose(gx, np.where(kept, g / (1 - p), 0), rtol=1e-12)
    # the share that is kept lies within five standard deviations of 1 - p
    assert abs(kept.mean() - (1 - p)) < 5 * np.sqrt(p * (1 - p) / kept.size)
    # independent from element to element: neighbours are both kept in (1 - p)^2 of the cases
    assert abs((kept[:, 1:] & kept[:, :-1]).mean() - (1 - p) ** 2) < 0.02


def test_p_zero_and_one():
    x, y, g, gx = drawn(F.dropout, 5, 7, p=0.0)
    assert (y == x).all() and (gx == g).all()
    x, y, g, gx = drawn(F.dropout, 5, 7, p=1.0)
    assert not y.any() and not gx.any()


def test_out_of_training_it_is_the_input_itself():
    x = leaf(draw(5, 7))
    assert F.dropout(x, 0.5, training=False) is x and F.dropout2d(x, 0.5, training=False) is x


def test_every_call_draws_anew_and_the_seed_repeats_it():
    x = mt.tensor(np.ones((31, 37), "f4"))
    mt.manual_seed(3)
    first, second = F.dropout(x, 0.5).numpy(), F.dropout(x, 0.5).numpy()
    mt.manual_seed(3)
    assert (first != second).any() and (F.dropout(x, 0.5).numpy() == first).all()
    assert first.dtype == np.float32


@pytest.mark.parametrize("function, shape, channel", [
    (F.dropout1d, (13, 17, 5), (2,)), (F.dropout1d, (17, 5), (1,)),
    (F.dropout2d, (13, 17, 5, 3), (2, 3)), (F.dropout2d, (17, 5, 3), (1, 2)),
])
def test_whole_channels(function, shape, channel):
    x, y, g, gx = drawn(function, *shape, p=0.5)
    kept = (y != 0).all(axis=channel, keepdims=True)
    assert 0 < kept.mean() < 1
    np.testing.assert_allclose(y, np.where(kept, 2 * x, 0))
    np.testing.assert_allclose(gx, np.where(kept, 2 * g, 0))


def test_in_place():
    x = mt.tensor(np.ones((31, 37)))
    y = F.dropout(x, 0.5, inplace=True)
    assert y is x and set(np.unique(x.numpy())) == {0.0, 2.0}
    x = leaf(np.ones((31, 37)))
    h = x * 3
    (F.dropout(h, 0.5, inplace=True) * mt.tensor(draw(31, 37))).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), draw(31, 37) * h.detach().numpy())  # h is 3 x's factor, 0 or 2, times 1


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_odd_shapes(shape):
    assert F.dropout(mt.tensor(np.ones(shape)), 0.5).shape == shape


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_a_probability_outside_the_unit_interval(p):
    with pytest.raises(ValueError, match="probability"):
        F.dropout(mt.tensor(np.ones(3)), p)


def test_the_mean_stays_near_p_1():
    mt.manual_seed(0)
    n, kept = 8_000_000, 1.49 / 65536  # which in 16 bits would be 1 or 2
    assert abs(float(F.dropout(mt.ones(n), 1 - kept).mean()) - 1) < 4 / np.sqrt(n * kept)


def test_a_refused_write_in_place_draws_nothing():
    w = leaf(draw(3))
    before = mt.get_rng_state()
    with pytest.raises(RuntimeError, match="leaf"):
        F.dropout(w, inplace=True)
    assert mt.get_rng_state() == before
