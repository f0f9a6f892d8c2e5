"""The Transformer block: equal to PyTorch's layers, counted, cached, and blind to the future."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw


def copied(block, theirs):
    """Give PyTorch's encoder or decoder layer the weights of the block."""
    import torch

    def numbers(p):
        return torch.from_numpy(p.detach().numpy().copy())

    def attention(mine, name):
        parts = (mine.q_proj, mine.k_proj, mine.v_proj)
        return {f"{name}.in_proj_weight": torch.cat([numbers(p.weight) for p in parts]),
                f"{name}.in_proj_bias": torch.cat([numbers(p.bias) for p in parts]),
                f"{name}.out_proj.weight": numbers(mine.out_proj.weight),
                f"{name}.out_proj.bias": numbers(mine.out_proj.bias)}

    layers = {"linear1": block.feed_forward.up, "linear2": block.feed_forward.down, "norm1": block.norm1}
    state = attention(block.attention, "self_attn")
    if block.cross is None:
        layers["norm2"] = block.norm3
    else:
        layers.update(norm2=block.norm2, norm3=block.norm3)
        state.update(attention(block.cross, "multihead_attn"))
    for name, layer in layers.items():
        state.update({f"{name}.weight": numbers(layer.weight), f"{name}.bias": numbers(layer.bias)})
    theirs.load_state_dict(state)
    return theirs


@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("cross", [False, True], ids=["encoder", "decoder"])
def test_like_torch(norm_first, activation, cross):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    mt.manual_seed(0)
    block = nn.TransformerBlock(8, 2, nn.FeedForward(8, 12, activation), norm_first=norm_first, cross=cross).double()
    kind = torch.nn.TransformerDecoderLayer if cross else torch.nn.TransformerEncoderLayer
    theirs = copied(block, kind(8, 2, 12, 0.0, activation, batch_first=True, norm_first=norm_first).double())
    arrays = [draw(2, 5, 8), *([draw(2, 7, 8, seed=1)] if cross else [])]
    assert_like_torch(block, theirs, *arrays)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)  # True means hidden there
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    if cross:
        assert_like_torch(lambda *x: block(*x, is_causal=True, memory_mask=F.padding_mask([7, 4])),
                          lambda *x: theirs(*x, tgt_mask=causal, memory_key_padding_mask=hidden), *arrays)
    else:
        assert_like_torch(lambda x: block(x, is_causal=True), lambda x: theirs(x, src_mask=causal), *arrays)


@pytest.mark.parametrize("options", [{"norm": "rms", "norm_first": False}, {"cross": True},
                                     {"norm": "rms", "num_kv_heads": 1, "qk_norm": True}], ids=str)
def test_gradients(options):
    mt.manual_seed(0)
    block = nn.TransformerBlock(4, 2, nn.SwiGLU(4), **options).double()
    memory = [draw(1, 2, 4, seed=1)] if options.get("cross") else []
    assert_gradients(lambda *x: block(*x, is_causal=True), draw(1, 3, 4), *memory)


@pytest.mark.parametrize("dim, heads", [(16, 4), (64, 8)])
def test_four_and_eight_d_squared(dim, heads):
    block = nn.TransformerBlock(dim, heads, bias=False)
    assert sum(p.numel() for p in block.attention.parameters()) == 4 * dim ** 2
    assert sum(p.numel() for p in block.feed_forward.parameters()) == 8 * dim ** 2
    assert sum(p.numel() for p in block.parameters()) == 12 * dim ** 2 + 4 * dim  # and the two norms


def decoder(**options):
    mt.manual_seed(0)
    return nn.ModuleList([nn.TransformerBlock(8, 2, cross=True, **options) for _ in range(2)]).double().eval()


@pytest.mark.parametrize("options", [{}, {"norm_first": False}, {"rotary": nn.RotaryEmbedding(4), "norm": "rms"},
                                     {"num_kv_heads": 1, "window": 3}], ids=str)
def test_caches_change_nothing(options):
    blocks, x, memory = decoder(**options), mt.tensor(draw(2, 7, 8)), mt.tensor(draw(2, 5, 8, seed=1))
    seen = F.padding_mask([5, 2])
    with mt.no_grad():
        whole, pieces = x, []
        for block in blocks:
            whole = block(whole, memory, memory_mask=seen, is_causal=True)
        caches = [(nn.KVCache(7), nn.KVCache(5)) for _ in blocks]
        for piece in x.split([3, 1, 1, 2], 1):
            for block, (own, read) in zip(blocks, caches):
                piece = block(piece, memory, memory_mask=seen, is_causal=True, cache=own, memory_cache=read)
            pieces.append(piece)
    np.testing.assert_allclose(mt.cat(pieces, 1).numpy(), whole.numpy(), rtol=1e-10, atol=1e-12)


def test_a_batch_padded_on_the_left_reads_as_alone():
    mt.manual_seed(0)
    block = nn.TransformerBlock(8, 2, rotary=nn.RotaryEmbedding(4)).double()
    x, lengths = draw(2, 5, 8), [5, 3]
    positions = (mt.arange(5) - mt.tensor([[0], [2]])).clamp(min=0)
    mask = F.padding_mask(lengths, left=True)
    with mt.no_grad():
        caches = nn.KVCache(5)
        first = block(mt.tensor(x[:, :4]), attn_mask=mask[..., :4], is_causal=True, positions=positions[:, :4],
                      cache=caches)
        last = block(mt.tensor(x[:, 4:]), attn_mask=mask, is_causal=True, positions=positions[:, 4:], cache=caches)
        alone = block(mt.tensor(x[1:, 2:]), is_causal=True).numpy()[0]
    np.testing.assert_allclose(mt.cat([first, last], 1).numpy()[1, 2:], alone, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"norm_first": False}, {"norm": "rms", "window": 4},
                                     {"rotary": nn.RotaryEmbedding(4)}], ids=str)
def test_the_past_does_not_see_the_future(options):
    mt.manual_seed(0)
    block, x = nn.TransformerBlock(8, 2, **options), draw(2, 8, 8).astype("f4")
    before = block(mt.tensor(x), is_causal=True).detach().numpy()
    x[:, 5] += 1
    after = block(mt.tensor(x), is_causal=True).detach().numpy()
    assert np.array_equal(before[:, :5], after[:, :5]) and (before[:, 5] != after[:, 5]).all()


def test_order_matters_only_with_a_mask_or_positions():
    mt.manual_seed(0)
    order, x = np.array([3, 0, 4, 2, 1]), draw(1, 5, 8)

    def moves_along(block, **options):
        before, after = (block(mt.tensor(a), **options).detach().numpy() for a in (x, x[:, order]))
        return np.allclose(after, before[:, order], rtol=1e-9)

    plain = nn.TransformerBlock(8, 2).double()
    assert moves_along(plain)
    assert not moves_along(plain, is_causal=True)
    assert not moves_along(nn.TransformerBlock(8, 2, rotary=nn.RotaryEmbedding(4)).double())
    for positions in (nn.SinusoidalPositions(8), nn.LearnedPositions(5, 8).double()):
        assert not moves_along(lambda x, positions=positions: plain(positions(x)))
    assert not moves_along(plain, attn_mask=nn.ALiBi(2)(5, is_causal=False))


def gradient_of_the_last_block(depth, norm_first):
    """Its length at the start, and the size of what it returns: depth blocks, Xavier's weights, a fixed objective."""
    mt.manual_seed(0)
    blocks = nn.ModuleList([nn.TransformerBlock(16, 2, norm_first=norm_first) for _ in range(depth)])
    for module in blocks.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
    x = mt.randn(8, 11, 16)
    for block in blocks:
        x = block(x, is_causal=True)
    size = (x ** 2).mean().sqrt().item()
    y = nn.LayerNorm(16)(x) if norm_first else x  # Post-LN has normalised already
    y.backward(mt.randn(8, 11, 16))
    return sum((p.grad ** 2).sum().item() for p in blocks[-1].parameters()) ** 0.5, size


def test_depth_lowers_the_gradients_of_pre_ln_and_not_of_post_ln():
    (pre, small), (deep_pre, large) = (gradient_of_the_last_block(depth, True) for depth in (2, 18))
    (post, size), (deep_post, deep_size) = (gradient_of_the_last_block(depth, False) for depth in (2, 18))
    assert 2 < pre / deep_pre < 4.5  # the root of 9 times the depth
    assert 0.67 < post / deep_post < 1.5
    assert large > 2 * small and size == pytest.approx(1, abs=0.01) and deep_size == pytest.approx(1, abs=0.01)


def test_dropout_in_training_only_and_experts_inside():
    block, x = nn.TransformerBlock(8, 2, dropout=0.5), mt.randn(2, 5, 8)
    assert not np.array_equal(block(x).detach().numpy(), block(x).detach().numpy())
    block.eval()
    assert np.array_equal(block(x).detach().numpy(), block(x).detach().numpy())
    experts = nn.MixtureOfExperts(8, 4)
    nn.TransformerBlock(8, 2, experts)(x)
    assert experts.load.numpy().sum() == 20


def test_mistakes():
    with pytest.raises(ValueError, match="norm must be"):
        nn.TransformerBlock(8, 2, norm="batch")
    for cross, memory in ((True, None), (False, mt.zeros(1, 5, 8))):
        with pytest.raises(ValueError, match="cross=True"):
            nn.TransformerBlock(8, 2, cross=cross)(mt.zeros(1, 3, 8), memory)
