"""Rotary positions: one pair at a time, both layouts, lengths and distances, offsets, precision."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32


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


@layouts
def test_rotary_2d_sees_both_distances(interleaved):
    cos, sin = F.rotary_tables_2d(3, 5, 8, dtype=mt.float64)
    q, k = (F.apply_rotary(mt.tensor(draw(1, 8, seed=i)).expand(15, 8), cos, sin, interleaved) for i in range(2))
    products = (q @ k.T).numpy().reshape(3, 5, 3, 5)
    one_down_two_on = [products[r, c, r + 1, c + 2] for r in range(2) for c in range(3)]
    np.testing.assert_allclose(one_down_two_on, one_down_two_on[0], rtol=1e-10)
    assert products[0, 0, 2, 2] != pytest.approx(products[0, 0, 1, 2], rel=1e-3)
    assert products[0, 0, 1, 3] != pytest.approx(products[0, 0, 1, 2], rel=1e-3)


def test_rotary_mistakes():
    for call in (lambda: F.rotary_tables(3, 5), lambda: F.rotary_tables_2d(2, 3, 6), lambda: F.rotary(mt.zeros(2, 5))):
        with pytest.raises(ValueError, match=r"even|4 must divide"):
            call()
    with pytest.raises(RuntimeError, match="R at most D"):
        F.apply_rotary(mt.zeros(5, 4), *F.rotary_tables(5, 6))
    with pytest.raises(RuntimeError, match="rotary needs"):
        F.apply_rotary(mt.zeros(5, 4), *F.rotary_tables(3, 4))


def test_positions_of_a_batch_without_heads():
    x, positions = mt.tensor(draw(2, 5, 4)), mt.tensor([[0, 0, 0, 1, 2], [3, 4, 5, 6, 7]])
    got = F.rotary(x, positions=positions).numpy()
    for b in range(2):
        np.testing.assert_allclose(got[b], F.rotary(x[b], positions=positions[b]).numpy(), rtol=1e-12)


@pytest.mark.parametrize("x, tables", [((2, 5, 4), (2,)), ((5, 4), (2, 5, 2)), ((2, 5, 4), (3, 5, 2)), ((5, 4), ()),
                                       ((2, 5, 4), (4, 2))])
def test_tables_that_do_not_fit(x, tables):
    tables = mt.zeros(tables)
    if tables.shape == (2,):  # one angle for all places
        assert F.apply_rotary(mt.zeros(x), tables, tables).shape == x
        return
    with pytest.raises(RuntimeError, match="rotary needs x"):
        F.apply_rotary(mt.zeros(x), tables, tables)


def test_positions_that_do_not_fit():
    for x, positions in (((2, 3, 5, 4), (2, 4)), ((2, 5, 4), (3, 5)), ((5, 4), (2, 5))):
        with pytest.raises(RuntimeError, match="rotary needs x"):
            F.rotary(mt.zeros(x), positions=mt.zeros(positions))
