"""Activations as layers: the function of the same name with the arguments given to the constructor."""
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_like_torch, draw

LAYERS = [
    ("ReLU", {}), ("ReLU6", {}), ("GELU", {}), ("GELU", {"approximate": "tanh"}), ("SiLU", {}), ("Sigmoid", {}),
    ("LogSigmoid", {}), ("Tanh", {}), ("Softplus", {}), ("Softplus", {"beta": 2, "threshold": 1.5}),
    ("Softmax", {"dim": 1}), ("Softmax", {"dim": -2}), ("LogSoftmax", {"dim": 0}), ("Softmin", {"dim": 1}),
    ("GLU", {}), ("GLU", {"dim": 1}), ("LeakyReLU", {}), ("LeakyReLU", {"negative_slope": 0.3}),
    ("ELU", {}), ("ELU", {"alpha": 2.0}), ("Hardtanh", {}), ("Hardtanh", {"min_val": -0.5, "max_val": 2.0}),
]


@pytest.mark.parametrize("name, options", LAYERS, ids=str)
def test_is_pytorchs(name, options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours, theirs = getattr(nn, name)(**options), getattr(torch.nn, name)(**options)
    assert repr(ours) == repr(theirs) and not ours.state_dict()
    assert_like_torch(ours, theirs, 3 * draw(3, 2, 4))
    assert_like_torch(ours, theirs, draw(3, 2, 4).astype("f4"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ReLU", "ReLU6", "SiLU", "LeakyReLU", "ELU", "Hardtanh"])
def test_in_place(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer = getattr(nn, name)(inplace=True)
    x = mt.tensor([-2.0, 3.0])
    wanted = getattr(nn, name)()(x).tolist()
    y = layer(x)
    assert x.tolist() == y.tolist() == wanted and repr(layer) == repr(getattr(torch.nn, name)(inplace=True))


def test_hardtanh_limits():
    with pytest.raises(ValueError, match="below max_val"):
        nn.Hardtanh(1.0, 1.0)
