"""Multi-head attention against PyTorch's: same seed, same numbers; masks, padding, weights, layout of the heads."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.twin import twins

INF = math.inf
B, T, S, C, H = 2, 5, 7, 6, 3


def agree(ours, theirs, call, *arrays):
    """``call(layer, *arrays)`` here and in PyTorch: values and all gradients, of inputs and of parameters."""
    assert_like_torch(lambda *x: call(ours, *x), lambda *x: call(theirs, *x), *arrays)
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-7, err_msg=name)


def tensor(*shape, seed=0):
    return mt.tensor(draw(*shape, seed=seed).astype("f4"))


def padding(*lengths, width=S):
    """True at padding."""
    return np.arange(width) >= np.array(lengths)[:, None]


LAYERS = [{}, {"batch_first": True}, {"bias": False}, {"add_bias_kv": True}, {"add_zero_attn": True},
          {"kdim": 3, "vdim": 4}, {"kdim": 3, "vdim": 4, "bias": False, "batch_first": True},
          {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True, "vdim": 5}]
layers = pytest.mark.parametrize("options", LAYERS, ids=str)
weights_or_not = pytest.mark.parametrize("need_weights", [True, False])


@layers
@weights_or_not
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("batched", [True, False])
def test_cross_attention_is_pytorchs(options, need_weights, average, batched):
    ours, theirs = twins("MultiheadAttention", C, H, **options)
    first = options.get("batch_first")
    shapes = [(n, B, w) for n, w in ((T, C), (S, options.get("kdim", C)), (S, options.get("vdim", C)))]
    shapes = [(b, n, w) if first else (n, b, w) for n, b, w in shapes]
    shapes = shapes if batched else [(*{n for n in s[:2] if n != B}, s[2]) for s in shapes]
    agree(ours, theirs, lambda f, *x: f(*x, need_weights=need_weights, average_attn_weights=average),
          *(draw(*shape, seed=i) for i, shape in enumerate(shapes)))


@pytest.mark.parametrize("options", [o for o in LAYERS if "vdim" not in o], ids=str)
@weights_or_not
def test_self_attention_is_pytorchs(options, need_weights):
    ours, theirs = twins("MultiheadAttention", C, H, **options)
    agree(ours, theirs, lambda f, x: f(x, x, x, need_weights=need_weights), draw(T, S, C))
    ours.zero_grad()
    theirs.zero_grad()
    agree(ours, theirs, lambda f, x, y: f(x, y, y, need_weights=need_weights), draw(T, B, C),  # one tensor, two roles
          draw(*((T, S, C) if options.get("batch_first") else (S, B, C)), seed=1))
    ours.zero_grad()
    theirs.zero_grad()
    agree(ours, theirs, lambda f, x, y: f(y, y, x, need_weights=need_weights), draw(S, B, C), draw(S, B, C, seed=1))


def test_self_attention_is_one_kernel_unless_weights_are_wanted(monkeypatch):
    layer, called = nn.MultiheadAttention(C, H), []
    kernel = nn.functional.packed_attention
    monkeypatch.setattr(nn.functional, "packed_attention", lambda *args: called.append(1) or kernel(*args))
    x = tensor(T, B, C)
    layer(x, x, x)
    assert not called
    layer(x, x, x, need_weights=False)
    assert called


def hidden(*shape):
    """True where hidden; each query sees the first key, for PyTorch gives NaN to one that sees nothing."""
    mask = draw(*shape, seed=30) > 0.3
    mask[..., 0] = False
    return mask


MASKS = {
    "padding": (padding(7, 4), None),
    "added padding": (np.where(padding(7, 4), -INF, draw(B, S)), None),
    "mask": (None, hidden(T, S)),
    "added mask": (None, draw(T, S)),
    "mask for each head": (None, hidden(B * H, T, S)),
    "added mask for each head": (None, draw(B * H, T, S)),
    "both": (padding(7, 4), hidden(T, S)),
    "both added": (np.where(padding(7, 4), -INF, 0.0), draw(B * H, T, S)),
    "one of each": (padding(7, 4), draw(T, S)),
    "the other of each": (draw(B, S), hidden(T, S)),
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "add_bias_kv": True, "add_zero_attn": True}], ids=str)
@weights_or_not
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_masks_are_pytorchs(masks, options, need_weights):
    ours, theirs = twins("MultiheadAttention", C, H, **options)
    arrays = [draw(*((B, n, C) if options else (n, B, C)), seed=n) for n in (T, S)]
    given = {name: m for name, m in zip(("key_padding_mask", "attn_mask"), masks) if m is not None}

    def call(layer, query, key, *ms):
        return layer(query, key, key, need_weights=need_weights, **dict(zip(given, ms)))
    agree(ours, theirs, call, *arrays, *given.values())


def test_causal_hint():
    ours, theirs = twins("MultiheadAttention", C, H)
    mask = np.triu(np.full((T, T), -INF), 1)
    agree(ours, theirs, lambda f, x, m: f(x, x, x, attn_mask=m, is_causal=True, need_weights=False),
          draw(T, B, C), mask)
    with pytest.raises(RuntimeError, match="hint"):
        ours(*[tensor(T, B, C)] * 3, is_causal=True)


@weights_or_not
def test_gradients(need_weights):
    layer = nn.MultiheadAttention(C, H, add_bias_kv=True, batch_first=True).double()
    mask = mt.tensor(padding(7, 0))
    assert_gradients(lambda q, k, v: layer(q, k, v, mask, need_weights=need_weights),
                     draw(B, T, C), draw(B, S, C, seed=1), draw(B, S, C, seed=2))


def test_both_ways_agree():
    layer = nn.MultiheadAttention(C, H, batch_first=True)
    x, mask = tensor(B, T, C), mt.tensor(padding(5, 3, width=T))
    y, weights = layer(x, x, x, mask)
    fused, none = layer(x, x, x, mask, need_weights=False)
    assert none is None and weights.shape == (B, T, T)
    np.testing.assert_allclose(fused.detach().numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_true_means_hidden_in_both_masks():
    layer = nn.MultiheadAttention(2, 1, batch_first=True)
    layer.in_proj_weight.data = mt.cat([mt.zeros(4, 2), mt.eye(2)])
    layer.out_proj.weight.data = mt.eye(2)
    x = mt.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    first = mt.tensor([[True, False]])
    assert layer(x, x, x, first)[0].tolist() == [[[3.0, 4.0], [3.0, 4.0]]]
    assert layer(x, x, x, attn_mask=first.expand(2, 2))[0].tolist() == [[[3.0, 4.0], [3.0, 4.0]]]
    assert layer(x, x, x, first)[1].tolist() == [[[0.0, 1.0], [0.0, 1.0]]]
    added = mt.tensor([[0.0, -INF]])  # not read as truth values
    assert layer(x, x, x, added)[1].tolist() == [[[1.0, 0.0], [1.0, 0.0]]]


def test_a_loop_over_heads():
    """Each head by itself on its own columns, then the output projection; and the weights of each."""
    mt.manual_seed(0)
    layer = nn.MultiheadAttention(C, H, batch_first=True).double()
    layer.in_proj_bias.data, layer.out_proj.bias.data = (mt.tensor(draw(n, seed=5)) for n in (3 * C, C))
    w, b, w_out, b_out = (p.detach().numpy() for p in (layer.in_proj_weight, layer.in_proj_bias,
                                                       layer.out_proj.weight, layer.out_proj.bias))
    x, source = draw(B, T, C), draw(B, S, C, seed=1)
    y, weights = layer(*map(mt.tensor, (x, source, source)), average_attn_weights=False)
    _, mean = layer(*map(mt.tensor, (x, source, source)))
    wanted = np.zeros((B, T, C)) + b_out
    for h in range(H):
        q, k, v = (a @ w[rows].T + b[rows] for a, rows in zip((x, source, source), (
            slice(i * C + h * C // H, i * C + (h + 1) * C // H) for i in range(3))))
        p = np.exp(q @ k.transpose(0, 2, 1) / math.sqrt(C // H))
        p /= p.sum(-1, keepdims=True)
        np.testing.assert_allclose(weights.detach().numpy()[:, h], p, rtol=1e-10)
        wanted += p @ v @ w_out[:, h * C // H:(h + 1) * C // H].T
    np.testing.assert_allclose(y.detach().numpy(), wanted, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(mean.detach().numpy(), weights.detach().numpy().mean(1), rtol=1e-10)


def test_heads_are_neighbouring_columns():
    layer = nn.MultiheadAttention(4, 2, batch_first=True)
    layer.in_proj_weight.data = mt.cat([mt.zeros(8, 4), mt.eye(4)])
    x = mt.arange(8.0).reshape(1, 2, 4)
    _, _, v = (layer._split_heads(part) for part in layer._project(x, x, x))
    assert v[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert mt.equal(layer._merge_heads(v), x)


@weights_or_not
def test_a_sample_that_is_all_padding(need_weights):
    layer = nn.MultiheadAttention(C, H, batch_first=True)
    layer.out_proj.bias.data = tensor(C, seed=5)
    x = tensor(B, T, C)
    x.requires_grad = True
    mask = mt.tensor(padding(5, 0, width=T))
    y, weights = layer(x, x, x, mask, need_weights=need_weights)
    alone, _ = layer(x[:1], x[:1], x[:1], need_weights=need_weights)
    np.testing.assert_allclose(y[0].detach().numpy(), alone[0].detach().numpy(), rtol=1e-5, atol=1e-6)
    assert mt.equal(y[1], layer.out_proj.bias.expand(T, C))
    assert weights is None or (not weights[1].any() and weights[0].any())
    (y * tensor(B, T, C, seed=8)).sum().backward()
    assert not x.grad[1].any() and x.grad[0].all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_masked_tail_does_not_reach_the_rest_through_two_layers():
    layers = [nn.MultiheadAttention(C, H, batch_first=True) for _ in range(2)]
    x = tensor(1, S, C)
    tail = mt.tensor(padding(4))
    blocked = tail[:, :, None] | tail[:, None, :]  # padding neither reads nor is read
    short, long = x[:, :4], x
    for layer in layers:
        short = layer(short, short, short, need_weights=False)[0]
        long = layer(long, long, long, attn_mask=blocked.expand(H, S, S), need_weights=False)[0]
    assert long.isfinite().all()
    np.testing.assert_allclose(long[:, :4].detach().numpy(), short.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_returned_weights_are_those_before_dropout():
    mt.manual_seed(0)
    layer = nn.MultiheadAttention(C, H, dropout=0.1, batch_first=True)
    x = tensor(4, T, C)
    _, weights = layer(x, x, x, mt.tensor(padding(5, 3, 1, 0, width=T)), average_attn_weights=False)
    sums = weights.sum(-1).detach().numpy()
    np.testing.assert_allclose(sums[:3], 1, rtol=1e-6)
    assert not sums[3].any()
    assert weights.max().item() <= 1


def test_weights_pass_gradients_on():
    layer = nn.MultiheadAttention(C, H).double()
    assert_gradients(lambda x: layer(x, x, x)[1], draw(T, B, C))


@weights_or_not
def test_dropout_only_while_training(need_weights):
    layer = nn.MultiheadAttention(C, H, dropout=0.5)
    x = tensor(T, B, C)

    def run():
        return layer(x, x, x, need_weights=need_weights)[0]
    assert not mt.equal(run(), run())
    layer.eval()
    evaluated = run()
    assert mt.equal(run(), evaluated)
    layer.train()
    layer.dropout = 0.0
    assert mt.equal(run(), evaluated)


def test_float32_stays():
    layer = nn.MultiheadAttention(C, H)
    x = tensor(T, B, C)
    x.requires_grad = True
    mask = tensor(T, T)
    y, weights = layer(x, x, x, attn_mask=mask)
    (y * y).sum().backward()
    assert y.dtype == weights.dtype == x.grad.dtype == mt.float32
    assert all(p.grad.dtype == mt.float32 for p in layer.parameters())


def test_float64_from_the_start():
    layer = nn.MultiheadAttention(C, H, add_bias_kv=True, dtype=mt.float64)
    assert {p.dtype for p in layer.parameters()} == {mt.float64}


@pytest.mark.parametrize("sizes", [(6, 4), (0, 1), (6, 0), (-6, 3)], ids=str)
def test_heads_that_do_not_divide_the_width(sizes):
    with pytest.raises(ValueError, match="multiple of num_heads"):
        nn.MultiheadAttention(*sizes)


@pytest.mark.parametrize("shapes, masks, message", [
    ([(T, B, C), (S, B, C), (S + 1, B, C)], {}, r"\(S, B, 6\)"),
    ([(T, B, C + 1), (S, B, C), (S, B, C)], {}, r"\(T, B, 6\)"),
    ([(T, B, C), (S, B + 1, C), (S, B + 1, C)], {}, r"\(T, B, 6\)"),
    ([(T, C), (S, B, C), (S, B, C)], {}, "without B"),
    ([(C,), (C,), (C,)], {}, "without B"),
    ([(T, B, C), (S, B, C), (S, B, C)], {"attn_mask": (S, T)}, r"attn_mask must be \(5, 7\) or \(6, 5, 7\)"),
    ([(T, B, C), (S, B, C), (S, B, C)], {"attn_mask": (B, T, S)}, "attn_mask must be"),
    ([(T, B, C), (S, B, C), (S, B, C)], {"key_padding_mask": (S, B)}, r"key_padding_mask must be \(2, 7\)"),
])
def test_mistakes(shapes, masks, message):
    layer = nn.MultiheadAttention(C, H)
    with pytest.raises(RuntimeError, match=message):
        layer(*(mt.zeros(*shape) for shape in shapes), **{name: mt.zeros(*shape) for name, shape in masks.items()})


def test_a_mask_of_whole_numbers_is_refused():
    x = mt.zeros(T, B, C)
    with pytest.raises(RuntimeError, match=r"\.bool\(\)"):
        nn.MultiheadAttention(C, H)(x, x, x, attn_mask=mt.ones(T, T, dtype=mt.int64))


# Additive attention

def test_additive_attention():
    """Queries and keys of different widths, and a decoder's keys projected once."""
    mt.manual_seed(0)
    layer = nn.AdditiveAttention(3, 5, 7).double()
    q, k, v = draw(2, 1, 3), draw(2, 11, 5, seed=1), draw(2, 11, 2, seed=2)
    mask = mt.tensor([[[True] * 11], [[True] * 4 + [False] * 7]])
    y, weights = layer(*map(mt.tensor, (q, k, v)), mask)
    wanted = nn.functional.additive_attention(*map(mt.tensor, (q, k, v)), layer.w_query.weight, layer.w_key.weight,
                                              layer.v, mask)
    for mine, other in zip((y, weights), wanted):
        assert np.array_equal(mine.detach().numpy(), other.detach().numpy())
    assert not weights.detach().numpy()[1, :, 4:].any()
    again, _ = layer(mt.tensor(q), None, mt.tensor(v), mask, projected_key=layer.w_key(mt.tensor(k)))
    assert np.array_equal(again.detach().numpy(), y.detach().numpy())
    y.backward(mt.ones(2, 1, 2, dtype=mt.float64))
    assert all(p.grad is not None and p.grad.numpy().any() for p in layer.parameters())
    assert abs(layer.v.detach().numpy()).max() <= 7 ** -0.5
