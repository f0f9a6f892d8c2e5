"""Dropout: on while training, off otherwise."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn


def test_off_in_evaluation():
    layer, x = nn.Dropout(0.5).eval(), mt.tensor([1.0, 2.0, 3.0])
    assert layer(x).tolist() == x.tolist() and layer(x).tolist() == x.tolist()


def test_on_in_training():
    mt.manual_seed(0)
    layer, x = nn.Dropout(0.3), mt.ones(10_000, requires_grad=True)
    y = layer(x)
    kept = y.detach().numpy() != 0
    np.testing.assert_allclose(y.detach().numpy()[kept], 1 / 0.7, rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 4 * np.sqrt(0.21 / kept.size)
    y.backward(mt.ones(y.shape) * 2.0)
    np.testing.assert_allclose(x.grad.numpy(), kept * 2 / 0.7, rtol=1e-6)
    assert (layer(x).detach().numpy() != y.detach().numpy()).any()


def test_the_seed_decides():
    layer, x = nn.Dropout(0.3), mt.ones(50)
    mt.manual_seed(4)
    first = layer(x).tolist()
    mt.manual_seed(4)
    assert layer(x).tolist() == first


def test_extremes():
    x = mt.tensor([1.0, 2.0])
    assert nn.Dropout(0.0)(x).tolist() == [1.0, 2.0] and nn.Dropout(1.0)(x).tolist() == [0.0, 0.0]
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match=r"probability in \[0, 1\], got"):
            nn.Dropout(p)


def test_in_place_and_repr():
    x = mt.ones(1000)
    y = nn.Dropout(0.5, inplace=True)(x)
    assert x.tolist() == y.tolist() and 0.0 in x.tolist()
    assert repr(nn.Dropout(0.3)) == "Dropout(p=0.3, inplace=False)"


@pytest.mark.parametrize("layer, shape", [("Dropout1d", (11, 13, 5)), ("Dropout2d", (11, 13, 2, 3))])
def test_whole_channels(layer, shape):
    mt.manual_seed(0)
    layer = getattr(nn, layer)(0.5)
    y = layer(mt.ones(shape)).numpy().reshape(11, 13, -1)
    assert (y == y[..., :1]).all() and 0.3 < (y == 0).mean() < 0.7 and y.max() == 2.0
    assert (layer.eval()(mt.ones(shape)).numpy() == 1).all()
