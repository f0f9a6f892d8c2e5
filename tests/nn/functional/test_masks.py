"""Masks against loops, in combination, and in attention: one sign, one alignment, rows that see nothing."""
import itertools
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import draw, leaf


def by_rule(T, S, rule):
    return np.array([[rule(t, s) for s in range(S)] for t in range(T)], dtype=bool).reshape(T, S)


SIZES = [(5, 5), (3, 7), (7, 3), (1, 5), (5, 1), (0, 3), (3, 0)]


@pytest.mark.parametrize("T, S", SIZES)
def test_causal(T, S):
    assert np.array_equal(F.causal_mask(T, S).numpy(), by_rule(T, S, lambda t, s: s <= t + S - T))
    assert np.array_equal(F.causal_mask(T, S, 0).numpy(), by_rule(T, S, lambda t, s: s <= t))
    assert np.array_equal(F.causal_mask(T).numpy(), np.tri(T, dtype=bool))


@pytest.mark.parametrize("T, S", SIZES)
@pytest.mark.parametrize("window", [1, 2, 3, 11])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_dilated_window(T, S, window, dilation):
    def rule(t, s):
        return t + S - T - s in [dilation * i for i in range(window)]

    assert np.array_equal(F.dilated_mask(T, window, dilation, S).numpy(), by_rule(T, S, rule))
    if dilation == 1:
        assert np.array_equal(F.sliding_window_mask(T, window, S).numpy(), by_rule(T, S, rule))


def test_a_window_of_w_is_the_query_and_w_minus_one_before_it():
    y = F.scaled_dot_product_attention(mt.zeros(7, 1), mt.zeros(7, 1), mt.arange(7.0)[:, None],
                                       F.sliding_window_mask(7, 3))
    assert y[5].item() == pytest.approx(4.0)  # the mean of 3, 4 and 5


def test_padding_from_lengths():
    got = F.padding_mask(mt.tensor([2, 0, 5]))
    assert got.shape == (3, 1, 1, 5) and got.dtype == mt.bool
    assert got.numpy()[:, 0, 0].astype(int).tolist() == [[1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert F.padding_mask([2, 1], 3, left=True).numpy()[:, 0, 0].astype(int).tolist() == [[0, 1, 1], [0, 0, 1]]
    assert F.padding_mask(mt.zeros(0, dtype=mt.int64), 3).shape == (0, 1, 1, 3)


def test_padding_from_ids_uses_the_id_it_is_given():
    target = mt.tensor([[5, 0, 7, 1], [0, 1, 1, 1]])
    assert F.padding_mask(target, pad_id=1).numpy()[:, 0, 0].tolist() == [[True, True, True, False],
                                                                         [True, False, False, False]]


@pytest.mark.parametrize("x, options, what", [
    ([3, 5], {"size": 4}, r"lie in \[0, 4\]"), ([-1], {}, "lie in"), ([1.5], {}, "whole numbers"),
    ([[1, 2]], {}, "pass pad_id"), ([1, 2], {"pad_id": 0}, "ids")])
def test_padding_mistakes(x, options, what):
    with pytest.raises(ValueError, match=what):
        F.padding_mask(mt.tensor(x), **options)


@pytest.mark.parametrize("sizes", [[2, 1, 3], [1, 1, 1], [4], [0, 2, 0, 3], []])
def test_block_causal(sizes):
    of = [i for i, n in enumerate(sizes) for _ in range(n)]
    got = F.block_causal_mask(sizes).numpy()
    assert np.array_equal(got, by_rule(len(of), len(of), lambda t, s: of[s] <= of[t]))


def test_block_causal_of_single_tokens_is_causal():
    assert np.array_equal(F.block_causal_mask([1] * 5).numpy(), F.causal_mask(5).numpy())


def test_block_mask_is_read_from_its_table():
    may_read = [[True, False], [True, True]]
    got = F.block_mask([2, 3], may_read).numpy()
    of = [0, 0, 1, 1, 1]
    assert np.array_equal(got, by_rule(5, 5, lambda t, s: may_read[of[t]][of[s]]))
    with pytest.raises(ValueError, match=r"\(2, 2\)"):
        F.block_mask([2, 3], [[True, False, True]] * 2)


@pytest.mark.parametrize("window, dilation", [(0, 1), (1, 0)])
def test_window_mistakes(window, dilation):
    with pytest.raises(ValueError, match="at least 1"):
        F.dilated_mask(3, window, dilation)


def test_combined_masks_are_what_each_pair_says():
    lengths, T = [5, 3, 0], 5
    mask = F.causal_mask(T) & F.padding_mask(lengths)
    assert mask.shape == (3, 1, T, T)
    for b, t, s in itertools.product(range(3), range(T), range(T)):
        assert mask.numpy()[b, 0, t, s] == (s <= t and s < lengths[b])
    sinks = F.sliding_window_mask(T, 2) | (mt.arange(T) < 1)
    assert sinks.numpy()[4].tolist() == [True, False, False, True, True]


def test_more_queries_than_keys_leaves_the_first_rows_blind():
    """One rule for any T and S: the last query stands beside the last key."""
    v = mt.tensor([[1.0], [2.0]])
    y = F.scaled_dot_product_attention(mt.zeros(5, 1), mt.zeros(2, 1), v, F.causal_mask(5, 2))
    assert y.numpy()[:, 0].tolist() == [0, 0, 0, 1, 1.5]


def test_one_new_query_sees_all_that_is_cached():
    v = mt.tensor([[1.0], [2.0], [3.0], [4.0]])
    lower = F.scaled_dot_product_attention(mt.zeros(1, 1), mt.zeros(4, 1), v, F.causal_mask(1, 4))
    upper = F.scaled_dot_product_attention(mt.zeros(1, 1), mt.zeros(4, 1), v, is_causal=True)
    assert (lower.item(), upper.item()) == (2.5, 1.0)


def test_additive_mask_is_exactly_zero_or_minus_infinity():
    got = F.additive_mask(F.causal_mask(3))
    inf = math.inf
    assert got.dtype == mt.float32 and got.numpy().tolist() == [[0, -inf, -inf], [0, 0, -inf], [0, 0, 0]]
    bias = leaf(draw(2, 1, 3))
    both = F.additive_mask(F.causal_mask(3), bias)
    assert both.shape == (2, 3, 3) and both.dtype == mt.float64
    both.backward(mt.ones(2, 3, 3, dtype=mt.float64))
    assert bias.grad.numpy()[:, 0].tolist() == [[3, 2, 1]] * 2  # how often each key is seen


def test_numbers_zero_and_one_are_refused_where_truth_is_meant():
    with pytest.raises(TypeError, match=r"\.bool\(\)"):
        F.additive_mask(mt.ones(3, 3).tril())
    # as attn_mask they are what is added to the scores: the future leaks
    y = F.attention_weights(mt.zeros(2, 1), mt.zeros(2, 1), mt.ones(2, 2).tril())
    np.testing.assert_allclose(y.numpy()[0], [0.731059, 0.268941], atol=1e-6)


def test_boolean_and_added_rows_that_hide_all():
    hidden, zeros = mt.tensor([[False, False]]), mt.tensor([[0.0, 0.0]])
    weights = [F.attention_weights(mt.zeros(1, 1), mt.zeros(2, 1), mask).numpy().tolist() for mask in (hidden, zeros)]
    assert weights == [[[0, 0]], [[0.5, 0.5]]]


def test_prompts_padded_on_the_left_have_blind_rows_that_stay_out():
    """The first padding finds nothing but padding: zeros, no gradient, and the tokens as if it were not there."""
    q, k, v = (leaf(draw(2, 3, 7, 5, seed=i)) for i in range(3))
    y = F.scaled_dot_product_attention(q, k, v, F.causal_mask(7) & F.padding_mask([4, 7], left=True))
    alone = F.scaled_dot_product_attention(*(x[:1, :, 3:] for x in (q, k, v)), is_causal=True)
    np.testing.assert_allclose(y.detach().numpy()[:1, :, 3:], alone.detach().numpy(), rtol=1e-12)
    y.backward(mt.tensor(draw(2, 3, 7, 5, seed=9)))
    for x in (y.detach(), q.grad, k.grad, v.grad):
        assert not x.numpy()[0, :, :3].any() and x.numpy()[0, :, 4:].all() and np.isfinite(x.numpy()).all()


def test_a_sample_that_is_all_padding_leaves_the_others_alone():
    q, k, v = (leaf(draw(2, 3, 5, 7, seed=i)) for i in range(3))
    y = F.scaled_dot_product_attention(q, k, v, F.padding_mask([5, 0]))
    alone = F.scaled_dot_product_attention(q[:1], k[:1], v[:1])
    np.testing.assert_allclose(y.detach().numpy()[0], alone.detach().numpy()[0], rtol=1e-12)
    assert not y.detach().numpy()[1].any()
    y.backward(mt.tensor(draw(2, 3, 5, 7, seed=9)))
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all() and not x.grad.numpy()[1].any() and x.grad.numpy()[0].any()


def test_blind_padding_rows_stay_out_of_valid_ones_over_two_layers():
    x = mt.tensor(draw(1, 1, 5, 3))
    mask = F.padding_mask([3], 5)
    mask = mask & mask.transpose(-1, -2)  # padding sees nothing either
    short = x[:, :, :3]
    for _ in range(2):
        x, short = F.scaled_dot_product_attention(x, x, x, mask), F.scaled_dot_product_attention(short, short, short)
    np.testing.assert_allclose(x.numpy()[:, :, :3], short.numpy(), rtol=1e-12)
    assert not x.numpy()[:, :, 3:].any()


@pytest.mark.parametrize("window, dilation", [(1, 1), (3, 1), (3, 2), (2, 5), (11, 3)])
@pytest.mark.parametrize("T, S", [(11, 11), (5, 11), (11, 5)])
def test_windowed_attention_reads_the_keys_that_are_named_one_by_one(window, dilation, T, S):
    q, k, v = draw(T, 3), draw(S, 3, seed=1), draw(S, 2, seed=2)
    wanted = np.zeros((T, 2))
    for t in range(T):
        keys = [s for s in (t + S - T - dilation * i for i in range(window)) if 0 <= s < S]
        e = np.exp(k[keys] @ q[t] / math.sqrt(3))
        if keys:
            wanted[t] = e @ v[keys] / e.sum()
    mask = F.dilated_mask(T, window, dilation, S)
    for attend in (F.scaled_dot_product_attention, F.tiled_attention):
        np.testing.assert_allclose(attend(*map(mt.tensor, (q, k, v)), mask).numpy(), wanted, rtol=1e-12, atol=1e-15)
