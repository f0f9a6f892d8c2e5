"""Positions: the published formulas, what depends on distance alone, shifts, widths, precision, other sizes."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

# Sinusoidal

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


@pytest.mark.parametrize("call", [lambda: F.sinusoidal_table(3, 5), lambda: F.rotary_tables(3, 5),
                                  lambda: F.sinusoidal_table_2d(2, 3, 6), lambda: F.rotary_tables_2d(2, 3, 6),
                                  lambda: F.rotary(mt.zeros(2, 5)), lambda: F.alibi_slopes(0)])
def test_widths_that_cannot_be(call):
    with pytest.raises(ValueError, match=r"even|4 must divide|at least 1"):
        call()


# Rotary

def plain_rotary(x, positions, width, base, interleaved):
    """One pair at a time."""
    y = x.copy()
    for *lead, t in np.ndindex(x.shape[:-1]):
        for i in range(width // 2):
            a, b = (2 * i, 2 * i + 1) if interleaved else (i, i + width // 2)
            angle = np.broadcast_to(positions, x.shape[:-1])[(*lead, t)] / base ** (2 * i / width)
            u, v = x[(*lead, t, a)], x[(*lead, t, b)]
            y[(*lead, t, a)] = u * math.cos(angle) - v * math.sin(angle)
            y[(*lead, t, b)] = v * math.cos(angle) + u * math.sin(angle)
    return y


layouts = pytest.mark.parametrize("interleaved", [False, True], ids=["halves", "pairs"])


@layouts
@pytest.mark.parametrize("shape, dim", [((5, 8), None), ((2, 3, 5, 8), None), ((2, 3, 5, 7), 4), ((1, 2), 2),
                                        ((0, 4), None)], ids=str)
def test_rotary(shape, dim, interleaved):
    x = draw(*shape)
    turn = {"dim": dim, "interleaved": interleaved}
    wanted = plain_rotary(x, np.arange(3, 3 + shape[-2]), dim or shape[-1], 10000, interleaved)
    np.testing.assert_allclose(F.rotary(mt.tensor(x), 3, **turn).numpy(), wanted, rtol=1e-12, atol=1e-14)
    assert_gradients(lambda x: F.rotary(x, 3, **turn), x)
    assert_keeps_float32(lambda x: F.rotary(x, 3, **turn), x)


@layouts
def test_rotary_equals_composed(interleaved):
    def composed(x):
        cos, sin = F.rotary_tables(mt.arange(2, 7), 6, dtype=mt.float64)
        if interleaved:
            a, b = x.unflatten(-1, (3, 2)).unbind(-1)
            return mt.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        a, b = x.chunk(2, -1)
        return mt.cat([a * cos - b * sin, b * cos + a * sin], -1)

    assert_equals_composed(lambda x: F.rotary(x, 2, interleaved=interleaved), composed, draw(2, 5, 6))
    assert_equals_composed(lambda x: F.rotary(x.transpose(0, 1), 2, interleaved=interleaved),
                           lambda x: composed(x.transpose(0, 1)), draw(5, 2, 6))  # a view of heads


def test_rotary_layouts_by_number():
    x = mt.tensor([[1.0, 2, 3, 4]], dtype=mt.float64)
    np.testing.assert_allclose(F.rotary(x, 1, interleaved=True).numpy(),
                               [[-1.142640, 1.922076, 2.959851, 4.029800]], atol=1e-6)
    np.testing.assert_allclose(F.rotary(x, 1).numpy(), [[-1.984111, 1.959901, 2.462378, 4.019800]], atol=1e-6)


@layouts
def test_rotary_keeps_lengths_and_sees_distances(interleaved):
    q, k = draw(1, 8), draw(1, 8, seed=1)

    def turned(x, t):
        return F.rotary(mt.tensor(x), t, interleaved=interleaved).numpy()[0]

    assert np.linalg.norm(turned(q, 31)) == pytest.approx(np.linalg.norm(q), rel=1e-12)
    products = [turned(q, t) @ turned(k, t - 5) for t in (5, 6, 100)]
    np.testing.assert_allclose(products, products[0], rtol=1e-10)
    assert turned(q, 7) @ turned(k, 6) != pytest.approx(products[0], rel=1e-3)


def test_rotary_with_an_offset_continues():
    x = mt.tensor(draw(2, 11, 6))
    pieces = [F.rotary(x[:, :4]), F.rotary(x[:, 4:5], 4), F.rotary(x[:, 5:], 5)]
    assert np.array_equal(mt.cat(pieces, 1).numpy(), F.rotary(x).numpy())


def test_rotary_positions_for_each_sample():
    """A row padded on the left by two starts at its own position 0."""
    x = mt.tensor(draw(2, 3, 5, 6))
    y = F.rotary(x, positions=mt.tensor([[0, 1, 2, 3, 4], [0, 0, 0, 1, 2]]))
    assert np.array_equal(y[0].numpy(), F.rotary(x[0]).numpy())
    assert np.array_equal(y[1, :, 2:].numpy(), F.rotary(x[1, :, 2:]).numpy())


def test_rotary_in_float16_has_angles_of_float32():
    x = np.array([[1.0, 0.0], [1.0, 0.0]])
    y = F.rotary(mt.tensor(x.astype("f2")), 2048).numpy()
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, plain_rotary(x, [2048, 2049], 2, 10000, False), atol=1e-3)
    with pytest.raises(ValueError, match="float32"):
        F.rotary_tables(3, 4, dtype=mt.float16)


def test_rotary_2d():
    """Turning the row's half and the column's half by hand; products depend on both distances."""
    x = draw(15, 8)
    cos, sin = F.rotary_tables_2d(3, 5, 8, dtype=mt.float64)
    got = F.apply_rotary(mt.tensor(x), cos, sin, interleaved=True).numpy()
    cell = np.arange(15)
    wanted = np.concatenate([plain_rotary(x[:, :4], cell // 5, 4, 10000, True),
                             plain_rotary(x[:, 4:], cell % 5, 4, 10000, True)], -1)
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_rotary_mistakes():
    with pytest.raises(RuntimeError, match="R at most D"):
        F.apply_rotary(mt.zeros(5, 4), *F.rotary_tables(5, 6))
    with pytest.raises(RuntimeError, match="rotary needs"):
        F.apply_rotary(mt.zeros(5, 4), *F.rotary_tables(3, 4))


# ALiBi

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


def test_alibi_with_a_causal_mask():
    """Published as a bias that grows along the keys: a softmax does not see what is added to a whole row."""
    q, k = mt.tensor(draw(3, 5, 7)), mt.tensor(draw(3, 5, 7, seed=1))
    mask = F.additive_mask(F.causal_mask(5), F.alibi_bias(3, 5, dtype=mt.float64))
    slopes = mt.tensor(F.alibi_slopes(3), dtype=mt.float64)
    published = F.additive_mask(F.causal_mask(5), slopes[:, None, None] * mt.arange(5))
    np.testing.assert_allclose(F.attention_weights(q, k, mask).numpy(),
                               F.attention_weights(q, k, published).numpy(), rtol=1e-12)


# Grids of another size

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
