"""Attention against loops, finite differences and PyTorch; masks, rows that see nothing, memory."""
import math
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import to_device, to_host
from minitorch_attn.nn import functional as F
from minitorch_attn.random import keep_mask
from tests.harness import assert_gradients, assert_like_torch, draw, gradients, leaf

INF = math.inf
sdpa = F.scaled_dot_product_attention


def theirs(*args, **kwargs):
    import torch
    return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def plain(q, k, v, mask=None, is_causal=False, scale=None):
    """Attention entry by entry, and its weights; NumPy broadcasts the leading axes beforehand."""
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, lead + x.shape[-2:]) for x in (q, k, v))
    steps, keys = q.shape[-2], k.shape[-2]
    mask = np.broadcast_to(True if mask is None else mask, (*lead, steps, keys))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    y, p = np.zeros((*lead, steps, v.shape[-1])), np.zeros((*lead, steps, keys))
    for at in np.ndindex(*lead, steps):
        seen = [s for s in range(keys) if not (is_causal and s > at[-1])]
        if mask.dtype == bool:
            seen = [s for s in seen if mask[(*at, s)]]
        added = np.zeros(keys) if mask.dtype == bool else mask[at]
        score = {s: scale * sum(q[at] * k[(*at[:-1], s)]) + added[s] for s in seen}
        score = {s: x for s, x in score.items() if x > -INF}
        top = max(score.values(), default=0)
        total = sum(math.exp(x - top) for x in score.values())
        for s, x in score.items():
            p[(*at, s)] = math.exp(x - top) / total
            y[at] += p[(*at, s)] * v[(*at[:-1], s)]
    return y, p


def some_mask(*shape, seed=0):
    """A boolean mask whose third row, where there is one, sees nothing."""
    mask = draw(*shape, seed=40 + seed) > -0.3
    mask[..., 2:3, :] = False
    return mask


def hidden_by_inf(mask):
    return np.where(mask, draw(*mask.shape, seed=41), -INF)


# shapes of query, key, value; mask; options
CASES = {
    "matrices": ((5, 3), (7, 3), (7, 2), None, {}),
    "batch and heads": ((2, 3, 5, 7), (2, 3, 11, 7), (2, 3, 11, 2), None, {}),
    "causal": ((2, 5, 3), (2, 5, 3), (2, 5, 3), None, {"is_causal": True}),
    "causal, more keys": ((2, 3, 7), (2, 5, 7), (2, 5, 2), None, {"is_causal": True}),
    "causal, more queries": ((2, 7, 5), (2, 3, 5), (2, 3, 2), None, {"is_causal": True}),
    "scale": ((5, 3), (7, 3), (7, 2), None, {"scale": -0.7}),
    "boolean mask": ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3), some_mask(5, 7), {}),
    "a boolean mask for each sample": ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3), some_mask(2, 1, 5, 7), {}),
    "padding mask": ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3), some_mask(2, 1, 1, 7), {}),
    "added mask": ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3), draw(3, 5, 7, seed=9), {}),
    "added mask, one row for all": ((2, 5, 2), (2, 7, 2), (2, 7, 3), draw(1, 7, seed=9), {}),
    "added -inf": ((2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3), hidden_by_inf(some_mask(2, 1, 5, 7)), {}),
    "key and value repeated": ((2, 3, 5, 2), (1, 3, 7, 2), (2, 1, 7, 3), None, {}),
    "query repeated": ((1, 5, 2), (3, 7, 2), (3, 7, 5), some_mask(3, 5, 7), {}),
    "leading axes of value only": ((5, 2), (7, 2), (3, 7, 2), None, {}),
    "leading axes of query only": ((2, 3, 5, 2), (7, 2), (7, 3), None, {}),
    "one query": ((2, 1, 3), (2, 5, 3), (2, 5, 2), None, {}),
    "one key": ((2, 5, 3), (2, 1, 3), (2, 1, 2), None, {}),
    "width one": ((2, 5, 1), (2, 3, 1), (2, 3, 1), None, {}),
}
table = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def arrays_of(case):
    *shapes, mask, options = case
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    return (arrays if mask is None else [*arrays, mask]), options


@table
def test_values(case):
    arrays, options = arrays_of(case)
    y, _ = plain(*arrays, **options)
    np.testing.assert_allclose(sdpa(*map(mt.tensor, arrays), **options).numpy(), y, rtol=1e-12, atol=1e-14)


@table
def test_gradients(case):
    arrays, options = arrays_of(case)
    if len(arrays) > 3 and arrays[3].dtype == float and np.isinf(arrays[3]).any():
        mask = mt.tensor(arrays.pop())  # differences of -inf have no meaning
        options = {**options, "attn_mask": mask}
    assert_gradients(lambda *x: sdpa(*x, **options), *arrays)


@table
def test_like_torch(case):
    arrays, options = arrays_of(case)
    assert_like_torch(lambda *x: sdpa(*x, **options), lambda *x: theirs(*x, **options), *arrays)


@table
def test_float32_stays(case):
    arrays, options = arrays_of(case)
    arrays = [a if a.dtype == bool else a.astype("f4") for a in arrays]
    (y,), _, found = gradients(lambda *x: sdpa(*x, **options), arrays)
    assert y.dtype == mt.float32
    assert all(g.dtype == np.float32 for a, g in zip(arrays, found) if a.dtype != bool)


@table
def test_weights_times_values(case):
    """The composed way: the weights, then a product."""
    arrays, options = arrays_of(case)
    v, rest = arrays[2], arrays[:2] + arrays[3:]
    y = F.attention_weights(*map(mt.tensor, rest), **options) @ mt.tensor(v)
    np.testing.assert_allclose(y.numpy(), sdpa(*map(mt.tensor, arrays), **options).numpy(), rtol=1e-12, atol=1e-14)
    p = F.attention_weights(*map(mt.tensor, rest), **options).numpy()
    rows = p.sum(-1)
    assert np.all((abs(rows - 1) < 1e-12) | (rows == 0))


@table
def test_weights_gradients(case):
    arrays, options = arrays_of(case)
    arrays = arrays[:2] + arrays[3:]
    if len(arrays) > 2 and arrays[2].dtype == float and np.isinf(arrays[2]).any():
        options = {**options, "attn_mask": mt.tensor(arrays.pop())}
    assert_gradients(lambda *x: F.attention_weights(*x, **options), *arrays)


# Grouped queries

GROUPED = [((2, 6, 5, 3), (2, 2, 7, 3), (2, 2, 7, 5), None), ((6, 5, 3), (3, 7, 3), (3, 7, 5), some_mask(5, 7)),
           ((2, 6, 5, 3), (2, 1, 7, 3), (2, 1, 7, 5), draw(2, 6, 5, 7, seed=8)),
           ((2, 6, 5, 3), (2, 2, 7, 3), (2, 2, 7, 5), some_mask(2, 1, 5, 7)),
           ((2, 6, 5, 3), (1, 6, 7, 3), (1, 6, 7, 5), draw(6, 5, 7, seed=8))]


@pytest.mark.parametrize("case", GROUPED, ids=str)
def test_grouped_queries(case):
    *shapes, mask = case
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)] + ([] if mask is None else [mask])
    heads, groups = shapes[0][-3], shapes[1][-3]
    repeated = [arrays[0], *(np.repeat(x, heads // groups, axis=-3) for x in arrays[1:3]), *arrays[3:]]
    y = sdpa(*map(mt.tensor, arrays), enable_gqa=True)
    np.testing.assert_allclose(y.numpy(), plain(*repeated)[0], rtol=1e-12, atol=1e-14)
    assert_gradients(lambda *x: sdpa(*x, enable_gqa=True), *arrays)
    assert_like_torch(lambda *x: sdpa(*x, enable_gqa=True), lambda *x: theirs(*x, enable_gqa=True), *arrays)


# What may be seen

ZERO_SCORES = mt.zeros(2, 1), mt.zeros(2, 1), mt.tensor([[1.0], [3.0]])


@pytest.mark.parametrize("mask, weights", [
    ([True, False], [1, 0]), ([False, False], [0, 0]),     # True may be seen
    ([0.0, 0.0], [0.5, 0.5]), ([0.0, -INF], [1, 0]),       # floats are added: 0 hides nothing
    ([1.0, 0.0], [0.731059, 0.268941]),
    ([-INF, -INF], [0, 0])], ids=str)
def test_meaning_of_masks(mask, weights):
    query, key, value = ZERO_SCORES
    mask = mt.tensor([mask])
    np.testing.assert_allclose(F.attention_weights(query, key, mask).numpy(), [weights, weights], atol=1e-6)
    y = sdpa(query, key, value, mask)
    np.testing.assert_allclose(y.numpy(), [[weights[0] + 3 * weights[1]]] * 2, atol=1e-6)


def test_causal_starts_at_the_first_key_also_for_fewer_queries():
    value = mt.tensor([[1.0], [2.0], [3.0], [4.0]])
    assert sdpa(mt.zeros(1, 1), mt.zeros(4, 1), value, is_causal=True).item() == 1.0
    aligned_at_the_end = mt.ones(1, 4, dtype=mt.bool).tril(3)
    assert sdpa(mt.zeros(1, 1), mt.zeros(4, 1), value, aligned_at_the_end).item() == 2.5


def test_causal_starts_at_the_first_key_also_for_more_queries():
    y = sdpa(mt.zeros(5, 1), mt.zeros(2, 1), mt.tensor([[1.0], [2.0]]), is_causal=True)
    assert y.flatten().tolist() == [1.0, 1.5, 1.5, 1.5, 1.5]


def test_causal_ignores_what_comes_later_to_the_last_bit():
    q, k, v = (draw(2, 3, 8, 5, seed=i).astype("f4") for i in range(3))
    before = sdpa(*map(mt.tensor, (q, k, v)), is_causal=True).numpy().copy()
    for x in (q, k, v):
        x[:, :, 5:] += 100 * draw(2, 3, 3, 5, seed=7)
    after = sdpa(*map(mt.tensor, (q, k, v)), is_causal=True).numpy()
    assert np.array_equal(before[:, :, :5], after[:, :, :5])
    assert not np.allclose(before[:, :, 5:], after[:, :, 5:])


def test_numbers_beyond_a_dtype_become_infinite_without_a_warning():
    q, k, v = (mt.tensor(draw(2, 3, 5, seed=i).astype("f4")) for i in range(3))
    hidden = mt.tensor(np.array([0.0, 0.0, -1e300]))  # float64, of which the last is -inf in float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = sdpa(q, k, v, hidden)
        far = sdpa(q.half(), k.half(), mt.full((2, 3, 5), 60000.0).half(), dropout_p=0.5)
    assert np.array_equal(y.numpy(), sdpa(q, k, v, mt.tensor([0.0, 0.0, -INF])).numpy())
    assert far.isinf().any()


@pytest.mark.parametrize("additive", [False, True])
def test_a_query_that_sees_nothing_reads_zero_and_sends_no_gradient(additive):
    mask = np.array([[True, True, False], [False, False, False]])
    mask = np.where(mask, 0.0, -INF) if additive else mask
    arrays = [draw(2, 5), draw(3, 5, seed=1), draw(3, 2, seed=2), mask]
    (y,), _, found = gradients(lambda *x: sdpa(*x), arrays)
    y = y.detach().numpy()
    assert np.array_equal(y[1], [0, 0]) and np.all(y[0])
    assert np.array_equal(found[0][1], np.zeros(5)) and np.all(found[0][0])
    for g in found[1:3]:
        assert np.array_equal(g[2], np.zeros_like(g[2])) and np.all(np.isfinite(g)) and np.all(g[:2])
    if additive:
        assert np.array_equal(found[3][1], [0, 0, 0]) and np.all(np.isfinite(found[3]))


def test_nothing_finite_stands_for_minus_infinity():
    q, k, v = mt.tensor([[1.0]]), mt.tensor([[0.0], [-200.0], [-201.0]]), mt.tensor([[9.0], [1.0], [2.0]])
    assert sdpa(q, k, v, mt.tensor([[False, True, True]])).item() == pytest.approx(1.268941, abs=1e-5)
    far = mt.tensor([[-3e38], [-3e38]])
    assert sdpa(q, far, v[1:]).item() == pytest.approx(1.5)
    assert sdpa(q, mt.tensor([[3e4], [3e4 - 1]]), v[1:], scale=1.0).item() == pytest.approx(1.268941, abs=1e-5)


def test_a_hidden_key_with_an_enormous_score_takes_no_weight():
    k = mt.tensor([[1e30], [0.0]])
    assert sdpa(mt.ones(1, 1), k, mt.tensor([[9.0], [2.0]]), mt.tensor([[False, True]])).item() == 2.0


def test_masks_and_inputs_are_left_alone():
    arrays = [draw(5, 3), draw(7, 3, seed=1), draw(7, 2, seed=2), draw(5, 7, seed=3)]
    tensors = [leaf(a) for a in arrays]
    y = sdpa(*tensors)
    g = mt.tensor(draw(5, 2, seed=4))
    y.backward(g)
    assert np.array_equal(g.numpy(), draw(5, 2, seed=4))
    for x, a in zip(tensors, arrays):
        assert np.array_equal(x.detach().numpy(), a)


def test_scale_is_one_over_the_root_of_the_width():
    p = F.attention_weights(mt.tensor([[4.0, 0, 0, 0]]), mt.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]]))
    np.testing.assert_allclose(p.numpy(), [[0.880797, 0.119203]], atol=1e-6)


@pytest.mark.parametrize("d", [4, 16, 64, 256])
def test_what_the_scale_is_for(d):
    """Products of random queries and keys have variance d; unscaled, wide heads get one-hot weights, no gradient."""
    q, k, g = draw(1000, d), draw(61, d, seed=1), draw(1000, 61, seed=2)
    assert np.sum(draw(20000, d) * draw(20000, d, seed=1), 1).var() / d == pytest.approx(1, abs=0.08)
    entropy, gradient = {}, {}
    for scale in (None, 1.0):
        a = leaf(q @ k.T * (d ** -0.5 if scale is None else scale))
        p = F.softmax(a, -1)
        p.backward(mt.tensor(g))
        p = p.detach().numpy()
        fused = F.attention_weights(mt.tensor(q), mt.tensor(k), scale=scale).numpy()
        np.testing.assert_allclose(fused, p, rtol=1e-9, atol=1e-12)
        entropy[scale] = -np.mean(np.sum(p * np.log(p), 1))
        gradient[scale] = np.median(np.linalg.norm(a.grad.numpy(), axis=1))
    assert entropy[None] > 0.8 * math.log(61) and gradient[None] > 0.1  # whatever d
    assert entropy[1.0] < 6 / d ** 0.5
    assert d < 256 or gradient[1.0] < 0.2 * gradient[None]


# Dtypes and shapes at the edge

@pytest.mark.parametrize("additive", [False, True])
def test_float16_does_not_overflow(additive):
    mask = np.where(some_mask(5, 7), 0, -INF).astype("f2") if additive else some_mask(5, 7)
    q, k, v = ((draw(*shape, seed=i) * size).astype("f2") for i, (shape, size) in
               enumerate([((5, 64), 300), ((7, 64), 300), ((7, 2), 1)]))
    arrays = [q, k, v] if mask.dtype == bool else [q, k, v, mask]
    fixed = {"attn_mask": mt.tensor(mask)} if mask.dtype == bool else {}
    (y,), weights, found = gradients(lambda *x: sdpa(*x, **fixed), arrays)
    assert y.dtype == mt.float16 and all(g.dtype == np.float16 and np.all(np.isfinite(g)) for g in found)
    wide = [a.astype("f8") for a in arrays]
    (wide_y,), _, wide_found = gradients(lambda *x: sdpa(*x, **fixed), wide, weights)
    y = y.detach().numpy()
    np.testing.assert_allclose(y, wide_y.detach().numpy(), rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found[2], wide_found[2], rtol=4e-3, atol=4e-3)
    assert np.array_equal(y[2], [0, 0])


def test_a_float64_mask_on_float32_inputs_gets_a_float64_gradient():
    q, k, v = (leaf(draw(*s).astype("f4")) for s in [(5, 3), (7, 3), (7, 2)])
    mask = leaf(draw(5, 7))
    y = sdpa(q, k, v, mask)
    y.backward(mt.ones(5, 2))
    assert y.dtype == q.grad.dtype == mt.float32 and mask.grad.dtype == mt.float64


@pytest.mark.parametrize("shapes", [((0, 5, 3), (0, 7, 3), (0, 7, 2)), ((2, 0, 3), (2, 7, 3), (2, 7, 2)),
                                    ((2, 5, 3), (2, 0, 3), (2, 0, 2)), ((2, 5, 0), (2, 7, 0), (2, 7, 2)),
                                    ((2, 5, 3), (2, 7, 3), (2, 7, 0))], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_empty(shapes, is_causal):
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_like_torch(lambda *x: sdpa(*x, is_causal=is_causal), lambda *x: theirs(*x, is_causal=is_causal), *arrays)


# Memory

def heads_of(x, heads):
    """(B, T, C) -> (B, H, T, D), a view."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def test_heads_as_views_and_a_gradient_that_is_not_contiguous():
    x, w = draw(2, 7, 45), draw(2, 7, 15, seed=3)

    def attend(x, contiguous=False):
        q, k, v = (heads_of(part, 3) for part in x.chunk(3, -1))
        if contiguous:
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        return sdpa(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, 15)

    (one,), _, (g_one,) = gradients(attend, [x], [w])
    (two,), _, (g_two,) = gradients(lambda x: attend(x, contiguous=True), [x], [w])
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(g_one, g_two, rtol=1e-12, atol=1e-14)
    assert_gradients(attend, x)


def test_heads_merge_without_a_copy_in_both_directions():
    x = leaf(draw(2, 7, 15))
    q = heads_of(x, 3)
    y = sdpa(q, q, q)
    assert y.transpose(1, 2).array.flags.c_contiguous
    gq, gk, gv = y.node.backward(to_device(draw(2, 3, 7, 5)))
    assert all(g.swapaxes(1, 2).flags.c_contiguous for g in (gq, gk, gv))
    time_first = leaf(draw(7, 2, 15)).unflatten(-1, (3, 5)).permute(1, 2, 0, 3)
    assert sdpa(time_first, time_first, time_first).permute(2, 0, 1, 3).array.flags.c_contiguous


def test_only_one_array_of_the_size_of_the_scores_is_kept():
    q, k, v = (leaf(draw(2, 11, 3, seed=i)) for i in range(3))
    for options in ({}, {"is_causal": True}, {"attn_mask": mt.tensor(some_mask(2, 11, 11))}):
        cells = [c.cell_contents for c in sdpa(q, k, v, **options).node.backward.__closure__]
        assert sum(getattr(c, "size", 0) >= 11 * 11 for c in cells) == 1


PACKED = {
    "plain": (None, {}),
    "causal": (None, {"is_causal": True}),
    "scale": (None, {"scale": 0.3}),
    "boolean mask": (some_mask(5, 5), {}),
    "padding mask": (some_mask(2, 1, 1, 5), {}),
    "added mask": (draw(3, 5, 5, seed=9), {}),
    "dropout": (None, {"dropout_p": 0.3}),
}


@pytest.mark.parametrize("case", PACKED.values(), ids=PACKED)
def test_packed_attention_is_that_of_its_parts(case):
    mask, options = case
    array, g = draw(2, 5, 3, 3, 7), mt.tensor(draw(2, 5, 3, 7, seed=1))

    def run(attend):
        mt.manual_seed(3)
        packed = leaf(array)
        masks = [] if mask is None else [mt.tensor(mask) if mask.dtype == bool else leaf(mask)]
        y = attend(packed, *masks)
        y.backward(g)
        return [to_host(x.array) for x in (y, packed.grad, *(m.grad for m in masks if m.requires_grad))]

    def apart(packed, *masks):
        return sdpa(*packed.permute(2, 0, 3, 1, 4), *masks, **options).transpose(1, 2)

    for found, wanted in zip(run(lambda *x: F.packed_attention(*x, **options)), run(apart), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-14)


def test_packed_attention_merges_heads_without_a_copy():
    y = F.packed_attention(mt.tensor(draw(2, 5, 3, 3, 7)))
    assert y.is_contiguous() and y.shape == (2, 5, 3, 7)


def test_packed_attention_in_float16_and_of_no_samples():
    array = draw(2, 5, 3, 3, 7).astype(np.float16)
    y, wide = F.packed_attention(mt.tensor(array)), F.packed_attention(mt.tensor(array.astype(np.float32)))
    assert y.dtype == mt.float16
    np.testing.assert_array_equal(to_host(y.array), to_host(wide.array).astype(np.float16))
    assert F.packed_attention(mt.zeros(0, 5, 3, 3, 7)).shape == (0, 5, 3, 7)


@pytest.mark.parametrize("shape, options, message", [
    ((2, 5, 3, 7), {}, r"packed attention needs queries, keys and values \(B, T, 3, H, D\), got \(2, 5, 3, 7\)"),
    ((2, 5, 2, 3, 7), {}, "packed attention needs"),
    ((2, 5, 3, 3, 7), {"dropout_p": 1.5}, "dropout_p must lie in"),
    ((2, 5, 3, 3, 7), {"attn_mask": mt.ones(5, 7)}, "does not broadcast to the scores"),
    ((2, 5, 3, 3, 7), {"attn_mask": mt.ones(5, 5), "is_causal": True}, "not both"),
])
def test_packed_attention_mistakes(shape, options, message):
    with pytest.raises(RuntimeError, match=message):
        F.packed_attention(mt.tensor(draw(*shape)).float(), **options)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 3), (1, 2)], ids=str)
def test_gradients_only_for_whom_they_are_wanted(wanted):
    arrays = [draw(5, 3), draw(7, 3, seed=1), draw(7, 2, seed=2), draw(5, 7, seed=3)]
    _, weights, all_of_them = gradients(sdpa, arrays)
    inputs = [mt.tensor(a) for a in arrays]
    for i in wanted:
        inputs[i].requires_grad = True
    y = sdpa(*inputs)
    returned = y.node.backward(to_device(weights[0]))
    y.backward(mt.tensor(weights[0]))
    for i, (x, g) in enumerate(zip(inputs, all_of_them)):
        if i in wanted:
            np.testing.assert_allclose(x.grad.numpy(), g, rtol=1e-12)
        else:
            assert x.grad is None and returned[i] is None


# Dropout

def test_dropout_zeroes_weights_and_scales_the_rest():
    q, k, v = (draw(2, 5, 7, seed=i) for i in range(3))
    mt.manual_seed(3)
    keep = to_host(keep_mask((2, 5, 5), 0.4))
    mt.manual_seed(3)
    y = sdpa(*map(mt.tensor, (q, k, v)), dropout_p=0.4, is_causal=True)
    _, p = plain(q, k, v, is_causal=True)
    np.testing.assert_allclose(y.numpy(), (p * keep / 0.6) @ v, rtol=1e-12, atol=1e-14)


def test_dropout_gradients():
    def seeded(*inputs):
        mt.manual_seed(5)
        return sdpa(*inputs[:3], attn_mask=inputs[3], dropout_p=0.3)
    assert_gradients(seeded, draw(2, 5, 3), draw(2, 7, 3, seed=1), draw(2, 7, 2, seed=2), draw(5, 7, seed=3))


def test_dropout_keeps_the_mean():
    mt.manual_seed(0)
    y = sdpa(mt.zeros(1, 4001, 1), mt.zeros(1, 53, 1), mt.ones(1, 53, 1), dropout_p=0.25)
    assert y.mean().item() == pytest.approx(1.0, abs=5e-3)
    assert y.std().item() == pytest.approx(math.sqrt(0.25 / 0.75 / 53), rel=0.05)


def test_dropout_of_everything_and_of_nothing():
    q, k, v = (leaf(draw(5, 3, seed=i)) for i in range(3))
    y = sdpa(q, k, v, dropout_p=1.0)
    y.backward(mt.tensor(draw(5, 3, seed=8)))
    assert not y.detach().numpy().any() and not any(x.grad.numpy().any() for x in (q, k, v))
    mt.manual_seed(1)
    state = mt.get_rng_state()
    sdpa(q, k, v, dropout_p=0.0)
    assert mt.get_rng_state() == state


# Mistakes

@pytest.mark.parametrize("args, options, message", [
    ([(5, 3), (7, 2), (7, 2)], {}, r"query \(\.\.\., T, D\)"),
    ([(5, 3), (7, 3), (6, 2)], {}, r"\(5, 3\), \(7, 3\) and \(6, 2\)"),
    ([(3,), (7, 3), (7, 2)], {}, r"query \(\.\.\., T, D\)"),
    ([(2, 5, 3), (3, 7, 3), (3, 7, 2)], {}, "enable_gqa=True"),
    ([(5, 3), (7, 3), (7, 2)], {"dropout_p": 1.5}, r"\[0, 1\]"),
    ([(5, 3), (7, 3), (7, 2)], {"attn_mask": mt.ones(5, 7, dtype=mt.bool), "is_causal": True}, "not both"),
    ([(5, 3), (7, 3), (7, 2)], {"attn_mask": mt.ones(5, 7, dtype=mt.int64)}, r"\.bool\(\)"),
    ([(5, 3), (7, 3), (7, 2)], {"attn_mask": mt.ones(5, 6)}, r"attn_mask \(5, 6\)"),
    ([(5, 3), (7, 3), (7, 2)], {"attn_mask": mt.ones(2, 5, 7)}, r"attn_mask \(2, 5, 7\)"),
    ([(6, 5, 3), (4, 7, 3), (4, 7, 2)], {"enable_gqa": True}, "dividing H"),
    ([(6, 5, 3), (2, 7, 3), (3, 7, 2)], {"enable_gqa": True}, "dividing H"),
    ([(5, 3), (7, 3), (7, 2)], {"enable_gqa": True}, "dividing H"),
])
def test_mistakes(args, options, message):
    with pytest.raises(RuntimeError, match=message):
        sdpa(*(mt.zeros(*shape) for shape in args), **options)


def test_mixed_or_whole_dtypes_are_refused():
    x = mt.zeros(5, 3)
    with pytest.raises(RuntimeError, match="float32, float64 and float32"):
        sdpa(x, x.double(), x)
    with pytest.raises(RuntimeError, match="floating-point"):
        sdpa(x.long(), x.long(), x.long())
    with pytest.raises(RuntimeError, match="floating-point"):
        F.attention_weights(x, x.double())


@pytest.mark.parametrize("k", [1, 3, 7])
def test_reading_the_k_best_is_a_mask_and_differs_by_what_was_left_out(k):
    """Retrieval: attention over the k keys with the largest products, against attention over all of them."""
    queries, keys, values = (mt.tensor(draw(n, 5, seed=i)) for i, n in enumerate((11, 7, 7)))
    found = (queries @ keys.T).topk(k).indices
    read = mt.stack([sdpa(q[None], keys[rows], values[rows], scale=1.0)[0] for q, rows in zip(queries, found)])
    seen = (found[:, :, None] == mt.arange(7)).any(dim=1)  # (11, k, 7) -> (11, 7)
    assert (seen.sum(dim=1) == k).all()
    np.testing.assert_allclose(read.numpy(), sdpa(queries, keys, values, seen, scale=1.0).numpy(), atol=1e-13)
    lost = (F.attention_weights(queries, keys, scale=1.0) * ~seen).sum(dim=1).numpy()
    apart = np.linalg.norm((read - sdpa(queries, keys, values, scale=1.0)).numpy(), axis=1)
    longest = np.linalg.norm(values.numpy(), axis=1).max()
    assert (apart <= 2 * longest * lost + 1e-13).all() and (apart.max() > 1e-3 or k == 7)


@pytest.mark.parametrize("top", [9.9, 10.1, 31.0, 60.0, 100.0, -31.0, -104.0, -1000.0])
def test_scores_of_any_size_keep_their_digits(top):
    """Scores around `top`, in float32, with and without large values and small gradients; against float64."""
    q, k = np.ones((1, 1)), top + np.array([[0.0], [-1.0], [0.5]])
    v, g = np.array([[1e27], [2e27], [0.0]]), np.array([[1e-30]])
    found = []
    for kind in ("f4", "f8"):
        inputs = [mt.tensor(a.astype(kind), requires_grad=True) for a in (q, k, v)]
        y = F.scaled_dot_product_attention(*inputs, scale=1.0)
        y.backward(mt.tensor(g.astype(kind)))
        found.append([y.detach().numpy(), *[x.grad.numpy() for x in inputs[1:]]])
    for single, double in zip(*found):
        np.testing.assert_allclose(single, double, rtol=1e-5 * max(1, abs(top) / 30))


def test_small_and_large_scores_in_one_call():
    scores = np.array([[-40.0, -41, -40.5], [0, 1, 2], [50, 49, 51]])
    e = np.exp(scores - scores.max(-1, keepdims=True))
    got = F.attention_weights(mt.tensor(scores.astype("f4")), mt.eye(3), scale=1.0)
    np.testing.assert_allclose(got.numpy(), e / e.sum(-1, keepdims=True), rtol=1e-5)
