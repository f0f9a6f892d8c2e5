"""Grouped-query attention: equal to PyTorch's, with and without a cache; QK-Norm, rotation, windows, memory."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw
from tests.nn.twin import assert_float32_stays

OPTIONS = {
    "plain": {}, "grouped": {"num_kv_heads": 2}, "one group": {"num_kv_heads": 1}, "norm": {"qk_norm": True},
    "rotary": {"rotary": nn.RotaryEmbedding(4)}, "head width": {"head_dim": 3, "bias": True},
    "window": {"window": 3}, "all": {"num_kv_heads": 2, "qk_norm": True, "rotary": nn.RotaryEmbedding(2), "window": 4},
}
table = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def made(options, dim=16, heads=4, **more):
    mt.manual_seed(0)
    return nn.GroupedQueryAttention(dim, heads, **options, **more).double()


def composed(layer, x, mask):
    """The formula with keys and values repeated, and everything in the open."""
    B, T, _ = x.shape
    H, K, D = layer.num_heads, layer.num_kv_heads, layer.head_dim

    def heads(y, n, norm=None, turn=None):
        y = y.reshape(B, T, n, D).permute(0, 2, 1, 3)
        if norm is not None:
            y = y / ((y * y).mean(-1, keepdim=True) + np.finfo("f8").eps).sqrt() * norm.weight
        return y if turn is None else F.rotary(y, dim=turn.dim)

    q = heads(layer.q_proj(x), H, layer.q_norm, layer.rotary)
    k = heads(layer.k_proj(x), K, layer.k_norm, layer.rotary).repeat_interleave(H // K, 1)
    v = heads(layer.v_proj(x), K).repeat_interleave(H // K, 1)
    scores = (q @ k.transpose(-1, -2) / D ** 0.5).masked_fill(~mask, -np.inf)
    p = scores.softmax(-1).nan_to_num(0.0)  # a query that sees nothing reads zeros
    return layer.out_proj((p @ v).permute(0, 2, 1, 3).reshape(B, T, H * D))


@table
@pytest.mark.parametrize("tiled", [False, True], ids=["plain", "tiled"])
def test_equals_composed(options, tiled):
    layer, x = made(options, tiled=tiled), mt.tensor(draw(2, 7, 16))
    window = layer.window or 7
    y = layer(x, is_causal=True)
    wanted = composed(layer, x, F.sliding_window_mask(7, window))
    np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    padding = F.padding_mask([7, 4])
    wanted = composed(layer, x, F.sliding_window_mask(7, window) & padding)
    got = layer(x, attn_mask=padding, is_causal=True)
    np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer(x, attn_mask=F.additive_mask(padding, dtype=mt.float64), is_causal=True)
                               .detach().numpy(), got.detach().numpy(), rtol=1e-12)
    wanted = composed(layer, x, mt.ones(7, 7, dtype=mt.bool))
    np.testing.assert_allclose(layer(x).detach().numpy(), wanted.detach().numpy(), rtol=1e-9, atol=1e-12)


@table
def test_gradients(options):
    layer = made(options, 8, 2) if "num_kv_heads" not in options else made(options, 8, 4)
    assert_gradients(lambda x: layer(x, is_causal=True), draw(1, 5, 8))
    assert_float32_stays(layer.float(), draw(1, 5, 8))


@table
@pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 1, 3], [9]], ids=str)
@pytest.mark.parametrize("tiled", [False, True], ids=["plain", "tiled"])
def test_a_cache_changes_nothing(options, steps, tiled):
    layer, x = made(options, tiled=tiled), mt.tensor(draw(2, 9, 16))
    with mt.no_grad():
        whole = layer(x, is_causal=True).numpy()
        cache = nn.KVCache(window=layer.window) if layer.window else nn.KVCache(9)
        pieces = [layer(piece, is_causal=True, cache=cache) for piece in x.split(steps, 1)]
        np.testing.assert_allclose(mt.cat(pieces, 1).numpy(), whole, rtol=1e-10, atol=1e-12)
        assert cache.length == 9
        long = nn.KVCache(9)  # a window needs no windowed cache
        pieces = [layer(piece, is_causal=True, cache=long) for piece in x.split(steps, 1)]
        np.testing.assert_allclose(mt.cat(pieces, 1).numpy(), whole, rtol=1e-10, atol=1e-12)


def test_like_multi_head_attention_of_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    layer, x = made({"bias": True}), draw(2, 5, 16)
    theirs = torch.nn.MultiheadAttention(16, 4, batch_first=True).double()
    w, b = (np.concatenate([getattr(p, kind).detach().numpy() for p in (layer.q_proj, layer.k_proj, layer.v_proj)])
            for kind in ("weight", "bias"))
    theirs.load_state_dict({"in_proj_weight": torch.from_numpy(w), "in_proj_bias": torch.from_numpy(b), **{
        f"out_proj.{kind}": torch.from_numpy(getattr(layer.out_proj, kind).detach().numpy().copy())
        for kind in ("weight", "bias")}})
    wanted = theirs(*[torch.from_numpy(x)] * 3, average_attn_weights=False)
    y, weights = layer(mt.tensor(x), need_weights=True)
    np.testing.assert_allclose(y.detach().numpy(), wanted[0].detach().numpy(), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(weights.detach().numpy(), wanted[1].detach().numpy(), rtol=1e-9, atol=1e-12)


def test_grouped_like_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    q, k, v = (draw(2, heads, 5, 4, seed=i) for i, heads in enumerate((6, 2, 2)))
    wanted = torch.nn.functional.scaled_dot_product_attention(*map(torch.from_numpy, (q, k, v)), enable_gqa=True)
    got = F.scaled_dot_product_attention(*map(mt.tensor, (q, k, v)), enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-9, atol=1e-12)


def test_cross_attention_computes_the_memory_once():
    layer = made({"num_kv_heads": 2}, memory_dim=5)
    x, memory = mt.tensor(draw(2, 3, 16)), mt.tensor(draw(2, 7, 5))
    mask = F.padding_mask([7, 4])
    with mt.no_grad():
        whole = layer(x, memory, mask).numpy()
        cache = nn.KVCache(7)
        first = layer(x[:, :1], memory, mask, cache=cache)
        rest = layer(x[:, 1:], memory * mt.nan, mask, cache=cache)  # not looked at again
        np.testing.assert_allclose(mt.cat([first, rest], 1).numpy(), whole, rtol=1e-12)
    assert cache.length == 7


def test_weights_are_those_of_the_mask():
    layer, x = made({"num_kv_heads": 2}), mt.tensor(draw(2, 5, 16))
    y, p = layer(x, is_causal=True, need_weights=True)
    assert p.shape == (2, 4, 5, 5) and not np.triu(p.detach().numpy(), 1).any()
    np.testing.assert_allclose(p.detach().numpy().sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(y.detach().numpy(), layer(x, is_causal=True).detach().numpy())


def test_qk_norm_bounds_the_scores():
    """However large the projections grow, scores stay within sqrt(D) times the learned scales."""
    x = mt.tensor(draw(1, 5, 16))
    scores = {}
    for norm in (False, True):
        layer = made({"qk_norm": norm})
        for factor in (1, 100):
            with mt.no_grad():
                layer.q_proj.weight *= factor
                layer.k_proj.weight *= factor
            q = layer._heads(layer.q_proj(x), 4, layer.q_norm)
            k = layer._heads(layer.k_proj(x), 4, layer.k_norm)
            scores[norm, factor] = abs((q @ k.transpose(-1, -2)).detach().numpy() / 2).max()
    assert scores[True, 100] <= 2 + 1e-9 and scores[True, 100] == pytest.approx(scores[True, 1], rel=1e-6)
    assert scores[False, 100] == pytest.approx(1e4 * scores[False, 1])


def test_parameter_counts():
    def count(**options):
        return sum(p.numel() for p in nn.GroupedQueryAttention(32, 8, **options).parameters())

    assert count() == 4 * 32 ** 2
    assert count(num_kv_heads=2) == 2 * 32 ** 2 + 2 * 32 * 8
    assert count(qk_norm=True) == 4 * 32 ** 2 + 2 * 4


def test_dropout_while_training_only():
    layer, x = nn.GroupedQueryAttention(16, 4, dropout=0.5), mt.randn(2, 7, 16)
    assert not np.array_equal(layer(x).detach().numpy(), layer(x).detach().numpy())
    layer.eval()
    assert np.array_equal(layer(x).detach().numpy(), layer(x).detach().numpy())


def test_a_sample_of_padding_alone():
    layer, x = made({"bias": True}), mt.tensor(draw(2, 5, 16))
    x.requires_grad = True
    y = layer(x, attn_mask=F.padding_mask([5, 0]))
    y.backward(mt.tensor(draw(2, 5, 16, seed=1)))
    np.testing.assert_allclose(y.detach().numpy()[0], layer(x[:1]).detach().numpy()[0], rtol=1e-12)
    bias = layer.out_proj.bias.detach().numpy()
    assert np.array_equal(y.detach().numpy()[1], np.broadcast_to(bias, (5, 16)))
    assert np.isfinite(x.grad.numpy()).all()


def test_heads_are_columns_side_by_side():
    layer = nn.GroupedQueryAttention(4, 2)
    got = layer._heads(mt.arange(8.0).reshape(1, 2, 4), 2).numpy()
    assert got[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


@pytest.mark.parametrize("options", [{"num_kv_heads": 3}, {"tiled": True, "dropout": 0.1}])
def test_mistakes(options):
    with pytest.raises(ValueError, match=r"divide|tiles"):
        nn.GroupedQueryAttention(16, 4, **options)
    with pytest.raises(ValueError, match="divide"):
        nn.GroupedQueryAttention(15, 4)


@pytest.mark.parametrize("sizes, words", [((8, 2, 0), "at least 1"), ((8, -2), "at least 1"), ((8, 0), "at least 1"),
                                          ((0, 2), "at least 1"), ((8, 2, 2, 0), "at least 1"),
                                          ((10, 3), "num_heads must divide dim"),
                                          ((8, 4, 3), "num_kv_heads must divide")])
def test_sizes_that_make_no_heads(sizes, words):
    with pytest.raises(ValueError, match=words):
        nn.GroupedQueryAttention(*sizes)
    if len(sizes) == 2:
        with pytest.raises(ValueError, match=words):
            nn.TransformerBlock(*sizes)
