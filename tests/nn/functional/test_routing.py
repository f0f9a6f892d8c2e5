"""Routing: which experts, with what weight, who is turned away, and the loss that evens the load."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw, leaf

PROBABILITIES = [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1]]


@pytest.mark.parametrize("active", [1, 2, 5])
def test_the_most_probable(active):
    p = mt.tensor(draw(7, 5)).softmax(-1)
    weights, experts = F.route_top(p, active, renormalize=False)
    order = np.argsort(-p.numpy(), axis=1)[:, :active]
    assert np.array_equal(experts.numpy(), order) and experts.dtype == mt.int64
    assert np.array_equal(weights.numpy(), np.take_along_axis(p.numpy(), order, 1))
    np.testing.assert_allclose(F.route_top(p, active)[0].numpy().sum(1), 1, rtol=1e-12)
    assert_gradients(lambda x: F.route_top(F.softmax(x, -1), active)[0], draw(7, 5))


def test_balance_loss_by_number():
    """The fractions sum to 1 also with two choices a token."""
    p = mt.tensor(PROBABILITIES)
    assert F.balance_loss(p, F.route_top(p, 2)[1]).item() == pytest.approx(1.35)
    assert F.balance_loss(p, F.route_top(p, 1)[1]).item() == pytest.approx(3 * 0.65)


@pytest.mark.parametrize("active", [1, 2, 3])
def test_balance_loss_runs_from_one_to_the_number_of_experts(active):
    even = mt.full((6, 3), 1 / 3)
    spread = mt.tensor([[(n + a) % 3 for a in range(active)] for n in range(6)])
    assert F.balance_loss(even, spread).item() == pytest.approx(1)
    one = mt.tensor([[1.0, 0, 0]] * 6)
    assert F.balance_loss(one, F.route_top(one, active)[1]).item() == pytest.approx(3 / active)


def test_balance_loss_moves_the_router():
    x = leaf(draw(7, 5))
    p = F.softmax(x, -1)
    loss = F.balance_loss(p, F.route_top(p, 2)[1])
    loss.backward()
    assert abs(x.grad.numpy()).max() > 1e-3
    other = F.softmax(x.detach() * 2, -1)
    assert abs(F.balance_loss(other, F.route_top(other, 2)[1]).item() - loss.item()) > 1e-4
    experts = F.route_top(p.detach(), 2)[1]
    assert_gradients(lambda x: F.balance_loss(F.softmax(x, -1), experts), draw(7, 5))


def test_one_step_down_the_balance_loss_evens_the_load():
    x = leaf(draw(200, 4) + np.array([1.0, 0, 0, 0]))
    before = F.balance_loss(F.softmax(x, -1), F.route_top(F.softmax(x, -1), 1)[1])
    before.backward()
    x = x.detach() - 100 * x.grad
    assert F.balance_loss(F.softmax(x, -1), F.route_top(F.softmax(x, -1), 1)[1]).item() < before.item() - 0.01


def test_counts():
    experts = mt.tensor([[0, 2], [2, 3], [2, 0]])
    assert F.expert_counts(experts, 5).tolist() == [2, 0, 3, 1, 0]


def test_capacity_serves_first_choices_first():
    experts = mt.tensor([[0, 1], [1, 0], [0, 2], [1, 0]])
    # first choices are 0, 1, 0, 1, then second ones 1, 0, 2, 0
    assert F.within_capacity(experts, 3, 2).tolist() == [[True, False], [True, False], [True, True], [True, False]]
    assert F.within_capacity(experts, 3, 1).tolist() == [[True, False], [True, False], [False, True], [False, False]]
    assert F.within_capacity(experts, 3, 4).numpy().all()


@pytest.mark.parametrize("active", [0, 4])
def test_mistakes(active):
    with pytest.raises(ValueError, match=r"\[1, 3\]"):
        F.route_top(mt.tensor(PROBABILITIES), active)
