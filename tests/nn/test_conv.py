"""Convolution layers against PyTorch's."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import draw
from tests.nn.twin import assert_float32_stays, assert_twins_agree, twins

LAYERS = [
    ("Conv1d", (3, 5, 2), {}, (2, 3, 7)), ("Conv1d", (3, 5, (2,)), {"stride": 2, "padding": 1, "bias": False}, (3, 7)),
    ("Conv1d", (4, 6, 3), {"groups": 2, "dilation": 2, "padding": "same"}, (2, 4, 7)),
    ("Conv1d", (3, 5, 1), {"padding": "valid"}, (2, 3, 7)),
    ("Conv2d", (3, 5, 2), {}, (2, 3, 7, 5)),
    ("Conv2d", (3, 5, (2, 3)), {"stride": (2, 1), "padding": (1, 2)}, (3, 7, 5)),
    ("Conv2d", (4, 6, 3), {"groups": 2, "dilation": (1, 2), "padding": "same", "bias": False}, (2, 4, 7, 5)),
    ("Conv2d", (3, 11, 2), {"stride": 2}, (2, 3, 4, 6)),
    ("Conv1d", (3, 5, 4), {"padding": "same", "padding_mode": "circular", "dilation": 2}, (2, 3, 7)),
    ("Conv1d", (3, 5, 2), {"padding": "valid", "padding_mode": "replicate"}, (2, 3, 7)),
    ("Conv2d", (3, 5, 3), {"padding": (1, 2), "padding_mode": "reflect", "bias": False}, (2, 3, 7, 5)),
]

POOLS = [
    ("MaxPool1d", (2,), {}, (2, 3, 7)), ("MaxPool1d", (3,), {"stride": 2, "padding": 1, "dilation": 2}, (3, 11)),
    ("MaxPool2d", (2,), {"ceil_mode": True}, (2, 3, 7, 5)), ("MaxPool2d", ((2, 3),), {"stride": (1, 2)}, (3, 7, 5)),
    ("AvgPool1d", (2,), {}, (2, 3, 7)), ("AvgPool1d", (3, 2, 1), {"count_include_pad": False}, (3, 11)),
    ("AvgPool2d", (2,), {"ceil_mode": True}, (2, 3, 7, 5)),
    ("AvgPool2d", ((2, 3),), {"stride": 1, "divisor_override": 5}, (3, 7, 5)),
]


@pytest.mark.parametrize("name, args, options, shape", LAYERS, ids=str)
def test_is_pytorchs(name, args, options, shape):
    assert_twins_agree(*twins(name, *args, **options), draw(*shape))
    assert_float32_stays(getattr(nn, name)(*args, **options), draw(*shape))


@pytest.mark.parametrize("name, args, options, shape", POOLS, ids=str)
def test_pools_are_pytorchs(name, args, options, shape):
    assert_twins_agree(*twins(name, *args, **options), draw(*shape))


def test_max_pool_says_where():
    y, where = nn.MaxPool1d(2, return_indices=True)(mt.tensor([[1.0, 3.0, 5.0, 4.0, 9.0]]))
    assert y.tolist() == [[3.0, 5.0]] and where.tolist() == [[1, 2]]


def test_by_hand():
    m = nn.Conv1d(1, 1, 2, stride=2, dtype=mt.float64)
    m.load_state_dict({"weight": mt.tensor([[[10.0, 1.0]]]), "bias": mt.tensor([0.5])})
    assert m(mt.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]], dtype=mt.float64)).tolist() == [[[12.5, 34.5]]]


def test_a_patch_embedding_is_a_linear_on_patches():
    m = nn.Conv2d(3, 5, 2, stride=2, dtype=mt.float64)
    x = draw(1, 3, 4, 6)
    patches = x.reshape(3, 2, 2, 3, 2).transpose(1, 3, 0, 2, 4).reshape(2, 3, 12)
    wanted = patches @ m.weight.detach().numpy().reshape(5, 12).T + m.bias.detach().numpy()
    np.testing.assert_allclose(m(mt.tensor(x)).detach().numpy()[0].transpose(1, 2, 0), wanted)


def test_refusals():
    with pytest.raises(ValueError, match=r"groups \(2\) must divide in_channels \(3\)"):
        nn.Conv1d(3, 4, 2, groups=2)
    with pytest.raises(ValueError, match="'valid' or 'same', got 'full'"):
        nn.Conv1d(3, 4, 2, padding="full")
    with pytest.raises(ValueError, match="stride 1"):
        nn.Conv2d(3, 4, 2, padding="same", stride=(1, 2))
    with pytest.raises(ValueError, match="padding_mode is 'zeros'"):
        nn.Conv1d(3, 4, 2, padding_mode="constant")
