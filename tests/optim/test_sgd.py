"""SGD against the formula and against PyTorch, step by step."""
import pytest

import minitorch_attn as mt
from tests.optim.parity import assert_steps_like_torch, label, one_step

OPTIONS = [dict(), dict(momentum=0.9), dict(momentum=0.9, dampening=0.3), dict(momentum=0.9, nesterov=True),
           dict(weight_decay=0.1), dict(momentum=0.5, weight_decay=0.1, maximize=True), dict(maximize=True)]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_like_torch(options, dtype):
    assert_steps_like_torch("SGD", dict(lr=0.05, **options), dtype)


@pytest.mark.parametrize("options, wanted", [
    (dict(lr=0.1), [1 - 0.2, 1 - 0.2 - 0.4]),
    (dict(lr=0.1, momentum=0.5), [1 - 0.2, 1 - 0.2 - 0.1 * (0.5 * 2 + 4)]),
    (dict(lr=0.1, momentum=0.5, dampening=0.5), [1 - 0.2, 1 - 0.2 - 0.1 * (0.5 * 2 + 0.5 * 4)]),
    (dict(lr=0.1, momentum=0.5, nesterov=True), [1 - 0.3, 1 - 0.3 - 0.1 * (4 + 0.5 * 5)]),
    (dict(lr=0.1, weight_decay=0.5), [1 - 0.25, 0.75 - 0.1 * (4 + 0.375)]),
    (dict(lr=0.1, maximize=True), [1.2, 1.6]),
], ids=label)
def test_by_hand(options, wanted):
    """p = 1 and gradients 2, then 4."""
    assert one_step(mt.optim.SGD, options, 1.0, [2.0, 4.0]) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("options, words", [
    (dict(lr=-1.0), "Invalid lr"), (dict(momentum=-0.1), "Invalid momentum"),
    (dict(weight_decay=-0.1), "Invalid weight_decay"), (dict(lr=float("nan")), "Invalid lr"),
    (dict(nesterov=True), "nesterov"), (dict(nesterov=True, momentum=0.9, dampening=0.1), "nesterov"),
], ids=label)
def test_errors(options, words):
    with pytest.raises(ValueError, match=words):
        one_step(mt.optim.SGD, options, 1.0, [])


def test_ignored_keywords():
    assert one_step(mt.optim.SGD, dict(lr=0.1, fused=True, foreach=False), 1.0, [1.0]) == [0.9]
