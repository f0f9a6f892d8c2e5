"""What array libraries disagree on. The error function: its accuracy for each dtype, held against Python's own."""
import math
import warnings

import numpy as np
import pytest

from minitorch_attn import backend


@pytest.mark.parametrize("kind, absolute, relative", [
    ("f2", 5e-4, 1e-3), ("f4", 2.4e-7, 4.6e-7), ("f8", 1.2e-15, 1.2e-15)])
def test_erf_accuracy(kind, absolute, relative):
    near = np.random.default_rng(0).uniform(0, 7, 20000)
    a = np.concatenate([near, np.logspace(-4 if kind == "f2" else -37, 3, 2000)]).astype(kind)
    y = backend.erf(np.concatenate([a, -a]))
    assert y.dtype == a.dtype
    wanted = np.array([math.erf(v) for v in a])
    off = np.abs(y[:a.size].astype("f8") - wanted)
    assert off.max() < absolute and (off / wanted).max() < relative
    np.testing.assert_array_equal(y[a.size:], -y[:a.size])


@pytest.mark.parametrize("kind, start", [("f2", 4.0), ("f4", 4.0), ("f8", 5.94)])
def test_erf_is_exactly_one_far_out_and_never_beyond(kind, start):
    y = backend.erf(np.linspace(0, 20, 100_001).astype(kind))
    assert y.max() == 1
    assert (y[np.linspace(0, 20, 100_001) > start] == 1).all()


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_erf_of_special_values_without_a_warning(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = backend.erf(np.array([0.0, -0.0, math.inf, -math.inf, math.nan, 6e4, -6e4], kind))
    np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, math.nan, 1, -1], kind))
    assert math.copysign(1, y[0]) == 1 and math.copysign(1, y[1]) == -1


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_erf_of_shapes(kind):
    whole = np.random.default_rng(0).standard_normal((7, backend.ERF_BLOCK // 3)).astype(kind)  # several blocks
    before = whole.copy()
    y = backend.erf(whole)
    np.testing.assert_array_equal(y, np.stack([backend.erf(row) for row in whole]))
    np.testing.assert_array_equal(backend.erf(whole.T), y.T)
    np.testing.assert_array_equal(whole, before)
    assert backend.erf(np.zeros((3, 0), kind)).shape == (3, 0)
    assert backend.erf(np.array(0.5, kind)).dtype == kind
