import numpy as np
import pytest

from minitorch_attn.gradient_check.numeric import rounding_noise, slopes

NOISE = np.full(1, 2e-16)


def slope_of(f, at):
    found = slopes(lambda x: np.atleast_1d(f(x[0])), np.array([float(at)]), NOISE)
    return found.value[0, 0], found.error[0, 0], bool(found.kink[0, 0])


@pytest.mark.parametrize("f, at, slope", [
    (np.sin, 1.0, np.cos(1.0)), (np.exp, 3.0, np.exp(3.0)), (np.log, 0.01, 100.0), (lambda x: x**3, 1e4, 3e8),
    (lambda x: 1 / x, 0.05, -400.0), (lambda x: np.tanh(40 * x), 0.01, 40 / np.cosh(0.4) ** 2),
    (lambda x: 0 * x, 2.0, 0.0),
    (abs, 0.003, 1.0), (lambda x: max(x, 0.0), -1e-4, 0.0), (np.sqrt, 1e-3, 0.5 / np.sqrt(1e-3))])
def test_slope_is_right_and_its_error_is_no_promise_too_much(f, at, slope):
    with np.errstate(invalid="ignore"):
        value, error, kink = slope_of(f, at)
    assert not kink
    assert abs(value - slope) <= 10 * error + 1e-15
    assert error <= 1e-8 * max(abs(slope), 1)


@pytest.mark.parametrize("f", [abs, lambda x: max(x, 0.0), lambda x: float(x > 0), lambda x: abs(x) + x])
def test_kinks_and_jumps_are_noticed(f):
    assert slope_of(f, 0.0)[2]


def test_a_smooth_extremum_is_no_kink():
    for f in (lambda x: x * x, np.cos, lambda x: x**4):
        value, _, kink = slope_of(f, 0.0)
        assert not kink and abs(value) < 1e-9


def test_outside_the_domain_is_left_out():
    def log(x):
        if x <= 0:
            raise ValueError("no logarithm")
        return np.log(x)

    value, error, kink = slope_of(log, 0.004)  # the first steps reach below 0
    assert abs(value - 250) < 1e-6 and error < 1e-5 and not kink


def test_results_that_are_infinite_have_no_slope_and_inputs_come_back():
    x = np.array([1.0, 2.0])
    found = slopes(lambda v: np.array([v[0] * v[1], np.inf]), x, np.full(2, 1e-16))
    np.testing.assert_allclose(found.value, [[2, 0], [1, 0]], atol=1e-12)
    assert not found.kink.any() and (x == [1, 2]).all()


def test_noise_is_measured():
    rng = np.random.default_rng(0)
    x = np.ones(3)
    quiet = rounding_noise(lambda: np.array([x.sum()]), [x], rng)
    coarse = rounding_noise(lambda: np.array([float(np.float32(x.sum() + 1e-7 * rng.standard_normal()))]), [x], rng)
    assert quiet < 1e-14 and coarse > 1e-8 and (x == 1).all()
