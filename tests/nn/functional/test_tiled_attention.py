"""Attention by tiles: equal to the plain kernel with every mask, and in memory linear in the length."""
import importlib
import math
import tracemalloc

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw, gradients, leaf

INF = math.inf
tiled, plain = F.tiled_attention, F.scaled_dot_product_attention
Tiles = importlib.import_module("minitorch_attn.nn.functional.tiled_attention").Tiles  # the name means the function
KINDS = {
    "nothing hidden": lambda T, S: None,
    "boolean": lambda T, S: draw(T, S, seed=4) > 0.3,
    "boolean for each sample and head": lambda T, S: draw(2, 3, T, S, seed=4) > 0.3,
    "padding": lambda T, S: np.arange(S) < np.array([S // 2, 0]).reshape(2, 1, 1, 1),
    "whole queries hidden": lambda T, S: (np.arange(T) % 3 > 0)[:, None],
    "added": lambda T, S: draw(3, T, S, seed=4),
    "added to all queries alike": lambda T, S: draw(S, seed=4),
    "added -inf": lambda T, S: np.where(draw(T, S, seed=4) > 0.5, draw(T, S, seed=5), -INF),
    "the first tiles of keys hidden": lambda T, S: np.broadcast_to(np.arange(S) >= 2 * S // 3, (T, S)),
}
masks = pytest.mark.parametrize("kind", KINDS)
RULES = {"causal": {"is_causal": True}, "window": {"window": 3}, "wide window": {"window": 100},
         "offset": {"is_causal": True, "offset": 6}, "window and offset": {"window": 4, "offset": 6},
         "before the keys": {"is_causal": True, "offset": -4}, "window of one": {"window": 1}}
rules = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)


def arrays(T, S, D=5, E=2, dtype="f8"):
    return [draw(2, 3, *shape, seed=i).astype(dtype) for i, shape in enumerate([(T, D), (S, D), (S, E)])]


def mask_of(rule, T, S):
    """The rule of tiled_attention as a mask."""
    back = np.arange(T)[:, None] + rule.get("offset", 0) - np.arange(S)
    return (back >= 0) & (back < rule.get("window", 10**6))


@masks
@pytest.mark.parametrize("tile", [1, 4, 256])
def test_equals_the_plain_one(kind, tile):
    inputs = arrays(11, 13)
    mask = KINDS[kind](11, 13)
    inputs += [] if mask is None else [mask]
    ours = gradients(lambda *x: tiled(*x, tile=tile), inputs)
    theirs = gradients(plain, inputs)
    np.testing.assert_allclose(ours[0][0].detach().numpy(), theirs[0][0].detach().numpy(), rtol=1e-10, atol=1e-13)
    for mine, other in zip(ours[2], theirs[2]):
        if other is not None:
            np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-13)


@masks
def test_equals_the_plain_one_to_a_millionth_in_float32(kind):
    inputs = arrays(67, 71, 16, 16, "f4")
    mask = KINDS[kind](67, 71)
    if mask is not None:
        inputs.append(mask if mask.dtype == bool else mask.astype("f4"))
    ours, theirs = gradients(lambda *x: tiled(*x, tile=16), inputs), gradients(plain, inputs)
    assert ours[0][0].dtype == mt.float32
    assert abs(ours[0][0].detach().numpy() - theirs[0][0].detach().numpy()).max() < 1e-6
    for mine, other in zip(ours[2], theirs[2]):
        if other is not None:
            assert mine.dtype == np.float32
            assert abs(mine - other).max() < 1e-6 * max(1, abs(other).max())


@rules
@pytest.mark.parametrize("T, S", [(11, 11), (5, 11), (11, 5)])
def test_rules_are_masks(rule, T, S):
    inputs = arrays(T, S)
    ours = gradients(lambda *x: tiled(*x, tile=4, **rule), inputs)
    theirs = gradients(lambda *x: plain(*x, mt.tensor(mask_of(rule, T, S))), inputs)
    np.testing.assert_allclose(ours[0][0].detach().numpy(), theirs[0][0].detach().numpy(), rtol=1e-10, atol=1e-13)
    for mine, other in zip(ours[2], theirs[2]):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-13)


def test_rule_and_mask_together():
    padding = F.padding_mask([7, 4], 7)
    x = [mt.tensor(a) for a in arrays(7, 7)]
    got = tiled(*x, padding, window=3, tile=2)
    np.testing.assert_allclose(got.numpy(), plain(*x, padding & F.sliding_window_mask(7, 3)).numpy(), atol=1e-13)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"window": 2, "offset": 1}, {"scale": -0.7}])
def test_gradients(options):
    assert_gradients(lambda *x: tiled(*x, tile=2, **options), *arrays(5, 5, 2, 1))


@masks
def test_gradients_with_masks(kind):
    mask = KINDS[kind](3, 5)
    if mask is None or np.isinf(mask).any():  # differences of -inf have no meaning
        fixed = None if mask is None else mt.tensor(mask)
        assert_gradients(lambda *x: tiled(*x, fixed, tile=2), *arrays(3, 5, 2, 1))
    else:
        assert_gradients(lambda *x: tiled(*x, tile=2), *arrays(3, 5, 2, 1), mask)


@pytest.mark.parametrize("shapes", [((5, 3), (7, 3), (7, 2)), ((2, 1, 5, 3), (1, 3, 7, 3), (2, 3, 7, 2)),
                                    ((5, 3), (7, 3), (2, 7, 3)), ((2, 0, 3), (2, 7, 3), (2, 7, 2)),
                                    ((2, 5, 3), (2, 0, 3), (2, 0, 2)), ((0, 5, 3), (0, 7, 3), (0, 7, 2))], ids=str)
def test_leading_axes_and_nothing(shapes):
    inputs = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    ours, theirs = gradients(lambda *x: tiled(*x, tile=2), inputs), gradients(plain, inputs)
    np.testing.assert_allclose(ours[0][0].detach().numpy(), theirs[0][0].detach().numpy(), rtol=1e-10, atol=1e-13)
    for mine, other in zip(ours[2], theirs[2]):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-13)


def test_grouped_queries():
    inputs = [draw(2, 6, 5, 3), draw(2, 2, 7, 3, seed=1), draw(2, 2, 7, 5, seed=2), draw(5, 7, seed=3) > 0]
    ours = gradients(lambda *x: tiled(*x, enable_gqa=True, tile=2), inputs)
    theirs = gradients(lambda *x: plain(*x, enable_gqa=True), inputs)
    np.testing.assert_allclose(ours[0][0].detach().numpy(), theirs[0][0].detach().numpy(), rtol=1e-10, atol=1e-13)
    for mine, other in zip(ours[2][:3], theirs[2][:3]):
        np.testing.assert_allclose(mine, other, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("scores", [[-200.0, -201.0], [-60000.0, -60001.0]])
def test_a_hidden_first_tile_and_very_negative_scores(scores):
    """The running maximum starts at -inf: neither 0 nor any finite number, which real scores may lie below."""
    q, k = leaf(np.array([[1.0]])), leaf(np.array([[0.0], [0.0], *([s] for s in scores)]))
    v = leaf(np.array([[9.0], [9.0], [1.0], [2.0]]))
    y = tiled(q, k, v, mt.tensor([[False, False, True, True]]), scale=1.0, tile=2)
    assert y.item() == pytest.approx(1.268941, abs=1e-6)
    y.backward(mt.ones(1, 1, dtype=mt.float64))
    np.testing.assert_allclose(v.grad.numpy()[:, 0], [0, 0, 0.731059, 0.268941], atol=1e-6)


def test_hidden_queries_send_no_gradient():
    q, k, v = map(leaf, arrays(5, 7))
    mask = np.ones((5, 7), bool)
    mask[2] = False
    y = tiled(q, k, v, mt.tensor(mask), tile=2)
    y.backward(mt.tensor(draw(2, 3, 5, 2, seed=8)))
    assert not y.detach().numpy()[:, :, 2].any() and not q.grad.numpy()[:, :, 2].any()
    assert all(np.isfinite(x.grad.numpy()).all() and x.grad.numpy().any() for x in (q, k, v))


def test_gradient_that_is_a_view():
    cotangent = draw(2, 11, 3, 2, seed=9)
    found = []
    for g in (mt.tensor(cotangent).transpose(1, 2), mt.tensor(np.ascontiguousarray(cotangent.swapaxes(1, 2)))):
        x = [leaf(a) for a in arrays(11, 13)]
        tiled(*x, tile=4).backward(g)
        found.append([a.grad.numpy() for a in x])
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("which", range(3))
def test_inputs_overwritten_before_backward(which):
    x = [leaf(a) * 1 for a in arrays(5, 7)]
    y = tiled(*x)
    x[which].data.mul_(2)
    with pytest.raises(RuntimeError, match="modified in place"):
        y.backward(mt.ones(2, 3, 5, 2, dtype=mt.float64))


def test_float16_stays_and_is_finite():
    q, k, v = (mt.tensor(a.astype("f2")) for a in arrays(5, 7))
    mask = np.ones((5, 7), bool)
    mask[1], mask[2, :4] = False, False
    y = tiled(q, k, v, mt.tensor(mask), tile=3)
    assert y.dtype == mt.float16 and np.isfinite(y.numpy()).all() and not y.numpy()[:, :, 1].any()
    np.testing.assert_allclose(y.numpy(), plain(q, k, v, mt.tensor(mask)).numpy(), atol=2e-3)


@pytest.mark.parametrize("options, what", [({"window": 0}, "at least 1"), ({"tile": 0}, "at least 1")])
def test_mistakes(options, what):
    with pytest.raises(ValueError, match=what):
        tiled(*[mt.tensor(a) for a in arrays(5, 7)], **options)
    with pytest.raises(RuntimeError, match="floating-point dtype"):
        tiled(mt.ones(2, 3), mt.ones(2, 3), mt.ones(2, 3, dtype=mt.float64))


def peak(attend, T):
    """Bytes that the forward and backward pass need at their worst, results and gradients included."""
    q, k, v = (leaf(draw(1, T, 16, seed=i).astype("f4")) for i in range(3))
    tracemalloc.start()
    try:
        attend(q, k, v).backward(mt.ones(1, T, 16))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_linear():
    few, many = (peak(lambda *x: tiled(*x, is_causal=True, tile=64), T) for T in (512, 2048))
    assert 2 * few < many < 5 * few  # four times the length; the tiles themselves weigh the same in both
    assert many < 0.1 * peak(lambda *x: plain(*x, is_causal=True), 2048)


def test_tiles_that_a_window_hides_are_not_visited(monkeypatch):
    visited = []
    scores = Tiles.scores
    monkeypatch.setattr(Tiles, "scores", lambda self, *at: visited.append(at) or scores(self, *at))

    def tiles(T, **rule):
        visited.clear()
        tiled(*[mt.zeros(T, 1) for _ in range(3)], tile=16, **rule)
        return len(visited)

    assert (tiles(128), tiles(256)) == (8**2, 16**2)
    assert (tiles(128, is_causal=True), tiles(256, is_causal=True)) == (8 * 9 // 2, 16 * 17 // 2)
    assert tiles(256, window=16) <= 2 * 16  # a row of tiles reaches 16 keys back: one tile more than its own
    assert tiles(512, window=16) <= 2 * 32


def test_a_dilated_window_is_a_window_for_each_remainder():
    q, k, v = map(mt.tensor, arrays(12, 12))

    def comb(x):  # (..., T, D) -> (..., 3, T/3, D)
        return x.unflatten(-2, (-1, 3)).transpose(-2, -3)

    y = tiled(comb(q), comb(k), comb(v), window=2, tile=2).transpose(-2, -3).flatten(-3, -2)
    np.testing.assert_allclose(y.numpy(), plain(q, k, v, F.dilated_mask(12, 2, 3)).numpy(), rtol=1e-12)
