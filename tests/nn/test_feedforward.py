"""Feed-forward nets: formulas, sizes, dropout."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.nn.twin import assert_float32_stays


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_feed_forward_like_torch(activation):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    net, x = nn.FeedForward(5, 7, activation), mt.randn(2, 3, 5)
    options = {"gelu_tanh": ("gelu", {"approximate": "tanh"})}.get(activation, (activation, {}))
    w = [torch.from_numpy(p.detach().numpy()) for p in (net.up.weight, net.up.bias, net.down.weight, net.down.bias)]
    h = getattr(torch.nn.functional, options[0])(torch.from_numpy(x.numpy()) @ w[0].T + w[1], **options[1])
    np.testing.assert_allclose(net(x).detach().numpy(), (h @ w[2].T + w[3]).numpy(), rtol=1e-4, atol=1e-6)
    assert_float32_stays(net, x.numpy())


def test_swiglu_like_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    net, x = nn.SwiGLU(5), mt.randn(2, 3, 5)
    w1, w2, w3 = (torch.from_numpy(p.weight.detach().numpy()) for p in (net.gate, net.up, net.down))
    xt = torch.from_numpy(x.numpy())
    wanted = (torch.nn.functional.silu(xt @ w1.T) * (xt @ w2.T)) @ w3.T
    np.testing.assert_allclose(net(x).detach().numpy(), wanted.numpy(), rtol=1e-4, atol=1e-6)
    assert_float32_stays(net, x.numpy())


@pytest.mark.parametrize("dim", [12, 64, 96])
def test_both_have_eight_d_squared_weights(dim):
    plain = sum(p.numel() for p in nn.FeedForward(dim, bias=False).parameters())
    gated = sum(p.numel() for p in nn.SwiGLU(dim).parameters())
    assert plain == 8 * dim ** 2
    assert plain <= gated < plain + 3 * dim  # 8d/3 rounded up
    assert nn.SwiGLU(64, multiple_of=32).up.out_features == 192


def test_dropout_while_training_only():
    for net in (nn.FeedForward(5, 100, dropout=0.5), nn.SwiGLU(5, 100, dropout=0.5)):
        x = mt.randn(3, 5)
        assert not np.array_equal(net(x).detach().numpy(), net(x).detach().numpy())
        net.eval()
        assert np.array_equal(net(x).detach().numpy(), net(x).detach().numpy())


def test_an_unknown_activation():
    with pytest.raises(ValueError, match="one of relu, gelu"):
        nn.FeedForward(5, activation="selu")
