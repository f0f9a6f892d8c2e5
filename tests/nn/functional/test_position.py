"""Positions: the published formulas, what depends on distance alone, precision, other sizes."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.functional.composed import assert_keeps_float32


def test_sinusoidal_entry_by_entry():
    got = F.sinusoidal_table(7, 6, dtype=mt.float64).numpy()
    for t in range(7):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            np.testing.assert_allclose(got[t, 2 * i:2 * i + 2], [math.sin(angle), math.cos(angle)], rtol=1e-13)
    assert F.sinusoidal_table(3, 4).dtype == mt.float32
    assert np.array_equal(F.sinusoidal_table(mt.tensor([[2, 5]]), 6, dtype=mt.float64).numpy(), got[[[2, 5]]])


def test_sinusoidal_products_depend_on_distance():
    p = F.sinusoidal_table(31, 16, dtype=mt.float64).numpy()
    for apart in (0, 1, 7):
        along = [p[t] @ p[t + apart] for t in range(31 - apart)]
        np.testing.assert_allclose(along, along[0], rtol=1e-12)


@pytest.mark.parametrize("k", [1, 7])
def test_a_sinusoidal_shift_is_one_rotation(k):
    p = F.sinusoidal_table(31, 6, dtype=mt.float64).numpy()
    rotation = np.zeros((6, 6))
    for i in range(3):
        sine, cosine = math.sin(k / 10000 ** (2 * i / 6)), math.cos(k / 10000 ** (2 * i / 6))
        rotation[2 * i:2 * i + 2, 2 * i:2 * i + 2] = [[cosine, sine], [-sine, cosine]]
    np.testing.assert_allclose(p[:-k] @ rotation.T, p[k:], atol=1e-13)


def test_far_positions_stay_apart():
    far = F.sinusoidal_table(mt.tensor([2048, 2049, 70000]), 8).numpy()
    assert abs(far[0] - far[1]).max() > 0.5 and np.isfinite(far).all()
    np.testing.assert_allclose(far[2, :2], [math.sin(70000), math.cos(70000)], rtol=1e-6)


def test_sinusoidal_2d_tells_row_and_column():
    got, one = F.sinusoidal_table_2d(3, 5, 8).numpy(), F.sinusoidal_table(5, 4).numpy()
    for row in range(3):
        for column in range(5):
            assert np.array_equal(got[row * 5 + column], np.concatenate([one[row], one[column]]))
    assert len(np.unique(got, axis=0)) == 15


@pytest.mark.parametrize("call", [lambda: F.sinusoidal_table(3, 5), lambda: F.sinusoidal_table_2d(2, 3, 6),
                                  lambda: F.alibi_slopes(0)])
def test_widths_that_cannot_be(call):
    with pytest.raises(ValueError, match=r"even|4 must divide|at least 1"):
        call()


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 6, 8, 12, 40])
def test_alibi_slopes(heads):
    def authors(n):  # as published with the paper, in recursive form
        def power_of_two(n):
            start = 2 ** (-(2 ** -(math.log2(n) - 3)))
            return [start * start ** i for i in range(n)]
        if math.log2(n).is_integer():
            return power_of_two(n)
        closest = 2 ** math.floor(math.log2(n))
        return power_of_two(closest) + authors(2 * closest)[0::2][:n - closest]

    np.testing.assert_allclose(F.alibi_slopes(heads), authors(heads), rtol=1e-12)


def test_alibi_bias():
    got = F.alibi_bias(3, 2, 5).numpy()
    assert got.shape == (3, 2, 5) and got.dtype == np.float32
    for h, slope in enumerate([2 ** -4, 2 ** -8, 2 ** -2]):
        assert got[h].tolist() == [[-slope * abs(t + 3 - s) for s in range(5)] for t in range(2)]


def test_alibi_depends_on_distance_alone():
    bias = F.alibi_bias(3, 11).numpy()
    assert np.array_equal(bias[:, 1:, 1:], bias[:, :-1, :-1]) and len(np.unique(bias[0])) == 11


def test_alibi_with_a_causal_mask():
    """Published as a bias that grows along the keys: a softmax does not see what is added to a whole row."""
    q, k = mt.tensor(draw(3, 5, 7)), mt.tensor(draw(3, 5, 7, seed=1))
    mask = F.additive_mask(F.causal_mask(5), F.alibi_bias(3, 5, dtype=mt.float64))
    slopes = mt.tensor(F.alibi_slopes(3), dtype=mt.float64)
    published = F.additive_mask(F.causal_mask(5), slopes[:, None, None] * mt.arange(5))
    np.testing.assert_allclose(F.attention_weights(q, k, mask).numpy(),
                               F.attention_weights(q, k, published).numpy(), rtol=1e-12)


@pytest.mark.parametrize("old, new", [((2, 8), (4, 4)), ((3, 5), (7, 2)), ((4, 4), (4, 4)), ((1, 3), (2, 6)),
                                      ((5, 3), (1, 1)), ((7, 7), (3, 3))], ids=str)
def test_resize_like_torch(old, new):
    def theirs(x):
        import torch
        moved = torch.nn.functional.interpolate(x.movedim(-1, 1), new, mode="bilinear", align_corners=False)
        return moved.movedim(1, -1)

    assert_like_torch(lambda x: F.resize_grid(x, *new), theirs, draw(2, *old, 3))
    assert_gradients(lambda x: F.resize_grid(x, *new), draw(*old, 2))
    assert_keeps_float32(lambda x: F.resize_grid(x, *new), draw(*old, 2))


def test_resize_by_number():
    """The same count of cells in another shape is still another grid."""
    rows, columns = np.meshgrid(np.arange(2.0), np.arange(8.0), indexing="ij")
    got = F.resize_grid(mt.tensor(np.stack([rows, columns], -1)), 4, 4).numpy()
    np.testing.assert_allclose(got[:, 0, 0], [0, 0.25, 0.75, 1])
    np.testing.assert_allclose(got[0, :, 1], [0.5, 2.5, 4.5, 6.5])
    assert (got[..., 0] == got[:, :1, 0]).all() and (got[..., 1] == got[:1, :, 1]).all()


def test_resize_keeps_rows_and_columns_apart():
    rows, columns = np.meshgrid(np.arange(3.0), np.arange(5.0), indexing="ij")
    got = F.resize_grid(mt.tensor((10 * rows + columns)[..., None]), 6, 10).numpy()[..., 0]
    np.testing.assert_allclose(got[2:4, 4:6], [[9.25, 9.75], [14.25, 14.75]])  # rows 0.75, 1.25; columns 1.75, 2.25


def test_resize_mistakes():
    for x, size in ((mt.zeros(3, 4), (2, 2)), (mt.zeros(3, 4, 5), (0, 2)), (mt.zeros(0, 4, 5), (2, 2))):
        with pytest.raises(ValueError, match="H, W, C"):
            F.resize_grid(x, *size)
