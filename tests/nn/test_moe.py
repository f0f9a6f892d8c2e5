"""Mixture of experts against a loop over tokens; sizes, work, capacity, balance."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_gradients, draw


def one_token_at_a_time(layer, x, served=None):
    """Each token through each of its experts."""
    rows, ys = x.reshape(-1, x.shape[-1]), []
    for n in range(len(rows)):
        p = layer.router(rows[n:n + 1]).softmax(-1)[0]
        chosen = np.argsort(-p.detach().numpy(), kind="stable")[:layer.active]
        total = sum(p[int(e)] for e in chosen) if layer.renormalize else 1
        y = mt.zeros(x.shape[-1], dtype=x.dtype)
        for a, e in enumerate(chosen):
            if served is None or served[n][a]:
                y = y + p[int(e)] / total * layer.experts[int(e)](rows[n:n + 1])[0]
        ys.append(y)
    return mt.stack(ys).reshape(x.shape)


@pytest.mark.parametrize("active", [1, 2, 5])
@pytest.mark.parametrize("renormalize", [True, False])
def test_values_and_gradients(active, renormalize):
    mt.manual_seed(0)
    layer = nn.MixtureOfExperts(3, 5, active, hidden=4, renormalize=renormalize).double()
    x, found = draw(2, 7, 3), []
    cotangent = mt.tensor(draw(2, 7, 3, seed=1))
    for forward in (layer, lambda x: one_token_at_a_time(layer, x)):
        inputs = mt.tensor(x)
        inputs.requires_grad = True
        y = forward(inputs)
        y.backward(cotangent)
        found.append([y.detach().numpy(), inputs.grad.numpy()])
        found[-1] += [np.zeros(p.shape) if p.grad is None else p.grad.numpy() for p in layer.parameters()]
        layer.zero_grad()
    for ours, plain in zip(*found):
        np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-12)


def test_gradients():
    mt.manual_seed(0)
    layer = nn.MixtureOfExperts(3, 4, 2, hidden=2).double()
    assert_gradients(lambda x: (layer(x), layer.balance_loss), draw(5, 3))


def test_weights_times_experts_and_work_times_active():
    one = sum(p.numel() for p in nn.SwiGLU(6, 8).parameters())
    read = []

    class Counting(nn.SwiGLU):
        def forward(self, x):
            read.append(len(x))
            return super().forward(x)

    for active in (1, 2, 4):
        layer = nn.MixtureOfExperts(6, 8, active, expert=lambda: Counting(6, 8))
        assert sum(p.numel() for p in layer.experts.parameters()) == 8 * one
        read.clear()
        layer(mt.randn(5, 11, 6))
        assert sum(read) == active * 55 and layer.load.tolist() == read


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.25])
def test_capacity(factor):
    mt.manual_seed(0)
    layer, x = nn.MixtureOfExperts(3, 4, 2, hidden=4, capacity_factor=factor).double(), mt.tensor(draw(13, 3))
    limit = math.ceil(factor * 13 * 2 / 4)
    assert layer.capacity(13) == limit
    y = layer(x)
    assert layer.load.numpy().max() <= limit
    chosen = np.argsort(-layer.router(x).detach().numpy(), axis=1)[:, :2]
    taken, served = [0] * 4, np.zeros((13, 2), bool)
    for a in range(2):
        for n in range(13):
            taken[chosen[n, a]] += 1
            served[n, a] = taken[chosen[n, a]] <= limit
    np.testing.assert_allclose(y.detach().numpy(), one_token_at_a_time(layer, x, served).detach().numpy(), rtol=1e-9)
    assert (factor > 1 or not served.all()) and layer.load.numpy().sum() == served.sum()


def test_training_on_the_balance_loss_evens_the_load():
    mt.manual_seed(3)
    layer, x = nn.MixtureOfExperts(8, 4, 1, hidden=4), mt.randn(256, 8) + 1
    optimizer = mt.optim.SGD(layer.router.parameters(), lr=0.3)
    layer(x)
    before = layer.load.numpy().max()
    for _ in range(60):
        optimizer.zero_grad()
        layer(x)
        layer.balance_loss.backward()
        optimizer.step()
    assert layer.load.numpy().max() < min(before, 90) and layer.balance_loss.item() < 1.05


def test_no_tokens_and_mistakes():
    assert nn.MixtureOfExperts(3, 4)(mt.zeros(2, 0, 3)).shape == (2, 0, 3)
    with pytest.raises(ValueError, match=r"\[1, 4\]"):
        nn.MixtureOfExperts(3, 4, 5)
    with pytest.raises(ValueError, match="capacity_factor"):
        nn.MixtureOfExperts(3, 4, capacity_factor=0)


@pytest.mark.parametrize("factor, tokens, active, experts, most", [
    (1.1, 100, 1, 10, 11), (1.0, 7, 2, 5, 3), (1.0, 10, 2, 5, 4), (1.2, 50, 1, 10, 6), (0.001, 7, 1, 5, 1)])
def test_capacity_is_what_the_formula_says(factor, tokens, active, experts, most):
    assert nn.MixtureOfExperts(4, experts, active, 3, capacity_factor=factor).capacity(tokens) == most
