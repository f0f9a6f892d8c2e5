"""Streams of tokens in one softmax: equal to attention on what was laid end to end, and who reads how much."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw
from tests.nn.functional.composed import assert_equals_composed

SIZES = (5, 3, 2)


def streams(seed, *lead, D=7):
    return [draw(*lead, n, D, seed=seed + i) for i, n in enumerate(SIZES)]


def call(attend, x, *args):
    return attend(x[:3], x[3:6], x[6:], *args)


@pytest.mark.parametrize("mask", [None, F.block_causal_mask(SIZES), F.block_causal_mask(SIZES) & (mt.arange(10) != 6)],
                         ids=["all", "block-causal", "and padding"])
def test_equals_attention_end_to_end(mask):
    arrays = [*streams(0, 2, 3), *streams(10, 2, 3), *streams(20, 2, 3, D=11)]

    def composed(*x):
        q, k, v = (mt.cat(list(x[i:i + 3]), -2) for i in (0, 3, 6))
        p = F.attention_weights(q, k, mask)
        return (p @ v).split(list(SIZES), -2)

    assert_equals_composed(lambda *x: call(F.joint_attention, x, mask), composed, *arrays)


def test_gradients():
    arrays = [*streams(0, D=2), *streams(10, D=2), *streams(20, D=3)]
    assert_gradients(lambda *x: call(F.joint_attention, x, F.block_causal_mask(SIZES)), *arrays)
    assert_gradients(lambda *x: F.stream_shares(x[:3], x[3:], F.block_causal_mask(SIZES)), *arrays[:6])


def test_what_comes_first_does_not_depend_on_what_comes_after():
    """An observation must not change with the actions that are tried."""
    q, k, v = streams(0), streams(10), streams(20)
    mask = F.block_causal_mask(SIZES)
    before = F.joint_attention(*([mt.tensor(a) for a in x] for x in (q, k, v)), mask)
    for x in (q, k, v):
        x[2] = x[2] + 1
    after = F.joint_attention(*([mt.tensor(a) for a in x] for x in (q, k, v)), mask)
    assert [np.array_equal(a.numpy(), b.numpy()) for a, b in zip(before, after)] == [True, True, False]


def test_shares():
    q, k = ([mt.tensor(a) for a in streams(seed, 2)] for seed in (0, 10))
    got = F.stream_shares(q, k).numpy()
    p = F.attention_weights(mt.cat(q, -2), mt.cat(k, -2)).numpy()
    parts = [slice(0, 5), slice(5, 8), slice(8, 10)]
    wanted = [[[p[b, i, j].sum(-1).mean() for j in parts] for i in parts] for b in range(2)]
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    np.testing.assert_allclose(got.sum(-1), 1, rtol=1e-12)


def test_few_tokens_among_many_get_the_share_of_their_number():
    q = [mt.zeros(4, 8), mt.zeros(212, 8)]
    np.testing.assert_allclose(F.stream_shares(q, q).numpy(), [[4 / 216, 212 / 216]] * 2, rtol=1e-5)


def test_a_blind_query_lowers_its_streams_row():
    mask = np.ones((10, 10), bool)
    mask[0] = False
    got = F.stream_shares(*([mt.tensor(a) for a in streams(seed)] for seed in (0, 10)), mt.tensor(mask)).numpy()
    np.testing.assert_allclose(got.sum(-1), [4 / 5, 1, 1], rtol=1e-12)


def test_a_stream_without_queries_has_no_shares():
    x, none = mt.tensor(draw(3, 5)), mt.zeros(0, 5, dtype=mt.float64)
    shares = F.stream_shares([x, none], [x, x]).numpy()
    np.testing.assert_allclose(shares.sum(-1), [1, 0])
    assert F.stream_shares([x, none], [x, none]).numpy()[0].tolist() == [1, 0]
