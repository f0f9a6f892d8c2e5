"""Kernels computed in parts give what they give as a whole."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import threads
from minitorch_attn.nn import functional as F
from minitorch_attn.nn.functional.parallel import over_batch

pytestmark = [
    pytest.mark.skipif(threads._get is None, reason="this NumPy's BLAS is not OpenBLAS"),
    pytest.mark.skipif(mt.backend.xp.name != "numpy", reason="only NumPy computes in parts"),
]

B, H, T, S, D, E = 7, 3, 5, 11, 13, 17


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.fixture
def both(monkeypatch, set_num_threads):
    """Call a function with inputs as a whole, and in three parts: its result and the inputs' gradients of each.

    Three threads are left for what the test does besides.
    """
    monkeypatch.setattr(threads, "LARGE", 1)

    def run(function, *arrays):
        found = []
        for n in (1, 3):
            set_num_threads(n)
            mt.manual_seed(2)
            inputs = [mt.tensor(a).requires_grad_() for a in arrays]
            y = function(*inputs)
            y.backward(mt.tensor(draw(*y.shape, seed=9)).to(y.dtype))
            found.append([y.numpy(force=True), *[x.grad.numpy() for x in inputs]])
        return found

    set_num_threads(3)
    return run


def assert_same(found):
    for whole, parts in zip(*found, strict=True):
        assert whole.dtype == parts.dtype
        np.testing.assert_allclose(parts, whole, rtol=1e-12, atol=1e-12)


QKV = draw(B, H, T, D), draw(B, H, S, D, seed=1), draw(B, H, S, E, seed=2)
ATTENTION = {
    "plain": ({}, ()),
    "causal": ({"is_causal": True}, ()),
    "dropout": ({"dropout_p": 0.3}, ()),
    "boolean mask of all": ({"attn_mask": mt.tensor(draw(T, S) > -1)}, ()),
    "boolean mask of each": ({"attn_mask": mt.tensor(draw(B, 1, T, S) > -1)}, ()),
    "mask of all": ({}, (draw(T, S, seed=3),)),
    "mask of each": ({}, (draw(B, 1, 1, S, seed=3),)),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_attention(both, name):
    options, masks = ATTENTION[name]
    assert_same(both(lambda *x: F.scaled_dot_product_attention(*x, **options), *QKV, *masks))


@pytest.mark.parametrize("name", ATTENTION)
def test_packed_attention(both, name):
    options, masks = ATTENTION[name]
    options, masks = ({k: v[..., :T] if k == "attn_mask" else v for k, v in options.items()},
                      [m[..., :T] for m in masks])
    assert_same(both(lambda *x: F.packed_attention(*x, **options), draw(B, T, 3, H, D), *masks))


def test_packed_attention_in_float32(both):
    for whole, parts in zip(*both(F.packed_attention, draw(B, T, 3, H, D).astype("f4"))):
        assert whole.dtype == parts.dtype == np.float32
        np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)


def test_packed_attention_with_a_gradient_for_the_mask_alone(both):
    packed = mt.tensor(draw(B, T, 3, H, D))
    assert_same(both(lambda mask: F.packed_attention(packed, mask), draw(T, T, seed=3)))
    assert packed.grad is None


@pytest.mark.parametrize("shared", [(0,), (1, 2)])
def test_attention_where_all_samples_share_an_input(both, shared):
    arrays = [a[:1] if i in shared else a for i, a in enumerate(QKV)]
    assert_same(both(F.scaled_dot_product_attention, *arrays))


def test_attention_of_one_sequence_is_not_cut(both):
    # S is as large as T, so that keys would fit a cut along the queries
    q, k, v = draw(T, D), draw(T, D, seed=1), draw(T, E, seed=2)
    assert_same(both(F.scaled_dot_product_attention, q, k, v))


def test_attention_where_keys_have_more_leading_axes(both):
    # the result's first axis, of 2 or of 7, is not that of the queries
    q, k, v = draw(B, T, D), draw(2, B, S, D, seed=1), draw(2, B, S, E, seed=2)
    assert_same(both(F.scaled_dot_product_attention, q, k, v))
    assert_same(both(F.scaled_dot_product_attention, q[:2], k[:, :2], v[:, :2]))


@pytest.mark.parametrize("heads", [1, 3, 7])
def test_attention_where_queries_have_more_leading_axes(both, heads):
    # with 7 heads the keys' first axis is as long as the batch, and yet another one
    q, k, v = draw(B, heads, T, D), draw(heads, S, D, seed=1), draw(heads, S, E, seed=2)
    assert_same(both(F.scaled_dot_product_attention, q, k, v))


def test_heads_merge_without_a_copy_as_of_a_whole(both):
    def merged(x):
        q = x.transpose(1, 2)  # (B, T, H, D) -> (B, H, T, D)
        y = F.scaled_dot_product_attention(q, q, q).transpose(1, 2)
        assert y.is_contiguous()
        return y

    assert_same(both(merged, draw(B, T, H, D)))


def test_attention_needs_no_gradient(both):
    q, k, v = map(mt.tensor, QKV)
    assert not F.scaled_dot_product_attention(q, k, v).requires_grad
    with mt.no_grad():
        assert not F.scaled_dot_product_attention(q.requires_grad_(), k, v).requires_grad
    F.scaled_dot_product_attention(q, k, v).backward(mt.ones(B, H, T, E, dtype=mt.float64))
    assert q.grad is not None and k.grad is None and v.grad is None


@pytest.mark.parametrize("which", ["value", "result"])
def test_an_array_written_over_since_is_noticed(both, which):
    q, k, v = map(mt.tensor, QKV)
    y = F.scaled_dot_product_attention(q.requires_grad_(), k, v)
    with mt.no_grad():
        (v if which == "value" else y).mul_(2)
    with pytest.raises(RuntimeError, match="modified in place"):
        y.backward(mt.ones(B, H, T, E, dtype=mt.float64))


def test_each_thread_gets_a_part(both):
    sizes, wanted = [], []

    @over_batch("x", "y")
    def _noted(x, y):
        sizes.append((x.shape[0], y.shape[0]))
        wanted.append((x.requires_grad, y.requires_grad))
        return x + y

    found = _noted(mt.ones(B, 2, 2), mt.ones(B, 2, 2, requires_grad=True))
    assert sorted(sizes) == [(2, 2), (2, 2), (3, 3)] and wanted == [(False, True)] * 3
    assert found.node.op == "noted"
    found.backward(mt.ones(B, 2, 2))
    sizes.clear()
    _noted(mt.ones(B, 2, 2), mt.ones(2, 2))
    assert sorted(sizes) == [(2, 2), (2, 2), (3, 2)]


def test_lines_are_recorded_as_of_a_whole(both):
    q, k, v = map(mt.tensor, QKV)
    with mt.autograd.grad_mode.record_lines():
        y = F.scaled_dot_product_attention(q.requires_grad_(), k, v)
    assert "test_parallel.py" in y.node.line


def test_a_graph_keeps_no_second_result(both):
    q, k, v = map(mt.tensor, QKV)
    y = F.scaled_dot_product_attention(q.requires_grad_(), k, v)
    arrays = [cell.cell_contents for cell in y.node.backward.__closure__]
    results = [a for a in arrays if isinstance(a, np.ndarray) and a.shape[1:] == (H, T, E)]
    assert len(results) == 3
    assert all(np.shares_memory(a, y.numpy(force=True)) for a in results)
    y = F.packed_attention(mt.tensor(draw(B, T, 3, H, D), requires_grad=True))
    arrays = [cell.cell_contents for cell in y.node.backward.__closure__]
    results = [a for a in arrays if isinstance(a, np.ndarray) and a.shape[1:] == (T, H, D)]
    assert len(results) == 3
    assert all(np.shares_memory(a, y.numpy(force=True)) for a in results)


@pytest.mark.parametrize("shape", [(1,), (7, 3), (2, 5, 3)])
def test_gelu(both, shape):
    assert_same(both(F.gelu, draw(*shape)))
