"""First values: PyTorch's numbers for the same seed, and each rule's own property."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import init

SHAPES = [(5, 7), (3, 2), (7, 5, 3), (5, 3, 2, 3), (1, 1)]

SAME_DRAWS = [
    ("uniform_", {}), ("uniform_", {"a": -2.0, "b": 0.5}),
    ("normal_", {}), ("normal_", {"mean": 1.0, "std": 0.02}),
    ("xavier_uniform_", {}), ("xavier_uniform_", {"gain": 5 / 3}), ("xavier_normal_", {"gain": 0.5}),
    ("kaiming_uniform_", {}), ("kaiming_uniform_", {"a": math.sqrt(5)}),
    ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}),
    ("kaiming_normal_", {}), ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
    ("trunc_normal_", {}), ("trunc_normal_", {"std": 0.02}), ("trunc_normal_", {"mean": 0.5, "a": 0.0, "b": 1.0}),
    ("trunc_normal_", {"a": 0.5, "b": 0.7}), ("trunc_normal_", {"a": 1.5, "b": 1.9, "std": 0.8}),
    ("constant_", {"val": 0.3}), ("ones_", {}), ("zeros_", {}),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, options", SAME_DRAWS, ids=str)
def test_same_numbers_as_pytorch(name, options, dtype, shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(3)
    wanted = getattr(torch.nn.init, name)(torch.empty(shape, dtype=getattr(torch, dtype)), **options)
    mt.manual_seed(3)
    x = mt.empty(shape, dtype=getattr(mt, dtype), requires_grad=True)
    got = getattr(init, name)(x, **options)
    assert got is x and x.is_leaf and x.requires_grad
    np.testing.assert_allclose(x.detach().numpy(), wanted.numpy(), rtol=3e-6 if dtype == "float32" else 1e-13,
                               atol=1e-7 if dtype == "float32" else 1e-14)
    assert mt.rand(1).item() == torch.rand(1).item(), "the stream stands elsewhere afterwards"


@pytest.mark.parametrize("shape", [*SHAPES, (11, 3), (4, 4)], ids=str)
def test_orthogonal(shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    wanted = torch.nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64), gain=3.0)
    mt.manual_seed(0)
    x = mt.empty(shape, dtype=mt.float64)
    assert init.orthogonal_(x, gain=3.0) is x
    m = x.numpy().reshape(shape[0], -1)
    m = m if m.shape[0] <= m.shape[1] else m.T
    np.testing.assert_allclose(m @ m.T, 9.0 * np.eye(len(m)), atol=1e-12)
    np.testing.assert_allclose(x.numpy(), wanted.numpy(), atol=1e-12)


def test_a_generator_of_ones_own():
    mt.manual_seed(5)
    wanted = init.normal_(mt.empty(3, 2)).tolist()
    mt.manual_seed(0)
    assert init.normal_(mt.empty(3, 2), generator=mt.Generator().manual_seed(5)).tolist() == wanted
    untouched = mt.rand(1).item()
    mt.manual_seed(0)
    assert mt.rand(1).item() == untouched


@pytest.mark.parametrize("a, b, std", [(-2.0, 2.0, 1.0), (0.5, 0.7, 1.0), (2.0, 3.0, 1.0), (-0.01, 0.02, 0.02)])
def test_truncated_normal_follows_its_density(a, b, std):
    mt.manual_seed(1)
    x = init.trunc_normal_(mt.empty(20_000), std=std, a=a, b=b).numpy()
    assert x.min() >= a and x.max() <= b
    grid = np.linspace(a, b, 2001)
    density = np.exp(-0.5 * (grid / std) ** 2)
    mean = (grid * density).sum() / density.sum()
    spread = math.sqrt((grid**2 * density).sum() / density.sum() - mean**2)
    assert abs(x.mean() - mean) < 4 * spread / math.sqrt(x.size) and abs(x.std() / spread - 1) < 0.03


def test_truncated_normal_far_from_its_mean_warns():
    with pytest.warns(UserWarning, match="more than 2 std"):
        init.trunc_normal_(mt.empty(3), mean=5.0, a=0.0, b=1.0)


def test_eye():
    assert init.eye_(mt.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    with pytest.raises(ValueError, match="2 dims"):
        init.eye_(mt.empty(3))


def test_gains():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name in ("linear", "conv1d", "conv2d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)
    with pytest.raises(ValueError, match="only for linear"):
        init.calculate_gain("rely")
    with pytest.raises(ValueError, match="slope"):
        init.calculate_gain("leaky_relu", True)


def test_fans():
    assert init._calculate_fan_in_and_fan_out(mt.empty(5, 3)) == (3, 5)
    assert init._calculate_fan_in_and_fan_out(mt.empty(5, 3, 2, 7)) == (42, 70)
    for fill in (init.xavier_uniform_, init.kaiming_normal_, init.orthogonal_):
        with pytest.raises(ValueError, match="2 dims or more"):
            fill(mt.empty(3))
    with pytest.raises(ValueError, match="fan_in"):
        init.kaiming_uniform_(mt.empty(3, 2), mode="fan")


def test_nothing_to_fill():
    for fill in (init.kaiming_uniform_, init.kaiming_normal_):
        with pytest.warns(UserWarning, match="no values"):
            assert fill(mt.empty(0, 3)).shape == (0, 3)
    assert init.orthogonal_(mt.empty(0, 3)).shape == (0, 3) and init.trunc_normal_(mt.empty(0)).shape == (0,)
