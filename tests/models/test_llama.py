import math
import time

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.generate import generate
from minitorch_attn.models.llama import Llama, LlamaConfig
from minitorch_attn.optim import AdamW
from tests.harness import draw

V, BLOCK, L, H, K, C, HIDDEN = 13, 11, 2, 6, 3, 24, 17
D, PAD = C // H, 0


def small(seed=0, dtype=mt.float64, **changes):
    """A tiny Llama whose weights are large enough for its attention to be far from uniform."""
    mt.manual_seed(seed)
    sizes = dict(vocab_size=V, block_size=BLOCK, n_layer=L, n_head=H, n_embd=C, n_kv_head=K, n_hidden=HIDDEN)
    model = Llama(LlamaConfig(**{**sizes, **changes}))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(1, V, (B, T)))


def rms(x, weight):
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def turned(vector, t):
    """RoPE spelled out: entries i and i + D/2 are a pair, turned by t / 10000^(2i/D)."""
    y = np.zeros_like(vector)
    for i in range(D // 2):
        angle, a, b = t / 10000 ** (2 * i / D), vector[i], vector[i + D // 2]
        y[i] = a * math.cos(angle) - b * math.sin(angle)
        y[i + D // 2] = b * math.cos(angle) + a * math.sin(angle)
    return y


def plain_llama(model, ids):
    """The logits of one sequence spelled out, token by token and head by head, and the attention weights."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    x, maps = w["tok_emb.weight"][ids], []
    for n in range(L):
        p = {name.removeprefix(f"blocks.{n}."): value for name, value in w.items()}
        a = rms(x, p["norm_1.weight"])
        q, k, v = (a @ p[f"attn.{name}.weight"].T for name in "qkv")
        y, seen = np.zeros_like(x), np.zeros((H, len(ids), len(ids)))
        for h in range(H):
            mine, shared = slice(h * D, (h + 1) * D), slice(h * K // H * D, (h * K // H + 1) * D)
            qs, ks = q[:, mine], k[:, shared]
            if model.config.qk_norm:
                qs, ks = rms(qs, p["attn.q_norm.weight"]), rms(ks, p["attn.k_norm.weight"])
            for t in range(len(ids)):
                scores = [turned(qs[t], t) @ turned(ks[s], s) / math.sqrt(D) for s in range(t + 1)]
                seen[h, t, :t + 1] = np.exp(scores) / np.exp(scores).sum()
                y[t, mine] = seen[h, t, :t + 1] @ v[:t + 1, shared]
        maps.append(seen)
        x = x + y @ p["attn.proj.weight"].T
        a = rms(x, p["norm_2.weight"])
        gate = a @ p["mlp.gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (a @ p["mlp.up.weight"].T)) @ p["mlp.proj.weight"].T
    return rms(x, w["norm.weight"]) @ w.get("head.weight", w["tok_emb.weight"]).T, maps


@pytest.mark.parametrize("changes", [{}, dict(qk_norm=True), dict(tied=True)], ids=str)
def test_logits_and_weights_equal_the_plain_version(changes):
    model, ids = small(**changes), some_ids(2, 7)
    logits, loss, weights = model(ids, need_weights=True)
    assert logits.shape == (2, 7, V) and loss is None and [w.shape for w in weights] == [(2, H, 7, 7)] * L
    for b in range(2):
        plain, maps = plain_llama(model, ids.numpy()[b])
        np.testing.assert_allclose(logits.detach().numpy()[b], plain, rtol=1e-9, atol=1e-10)
        for layer in range(L):
            np.testing.assert_allclose(weights[layer].detach().numpy()[b], maps[layer], rtol=1e-9, atol=1e-12)


def test_loss_is_the_mean_cross_entropy_of_the_answers_that_count():
    model, ids, targets = small(), some_ids(2, 5), some_ids(2, 5, seed=1)
    targets[1, 2:] = -100
    logits, loss = model(ids, targets)
    z, t = logits.detach().numpy(), targets.numpy()
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    wanted = -np.mean([logp[b, i, t[b, i]] for b in range(2) for i in range(5) if t[b, i] >= 0])
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-12)


@pytest.mark.parametrize("changes", [{}, dict(qk_norm=True, n_kv_head=1), dict(n_kv_head=H)], ids=str)
def test_gradients_of_every_parameter_along_random_directions(changes):
    model, ids, cotangent, h = small(**changes), some_ids(2, 5), mt.tensor(draw(2, 5, V)), 1e-6
    (model(ids)[0] * cotangent).sum().backward()
    for i, (name, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), []
        with mt.no_grad():
            for sign in (1, -1):
                w.copy_(start + sign * h * direction)
                values.append((model(ids)[0] * cotangent).sum().item())
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[0] - values[1]) / (2 * h), rtol=1e-6,
                                   err_msg=name)


def test_float32_stays_and_every_parameter_learns():
    model = small(dtype=mt.float32, qk_norm=True)
    _, loss = model(some_ids(2, 7), some_ids(2, 7, seed=1))
    loss.backward()
    assert loss.dtype == mt.float32
    for name, w in model.named_parameters():
        assert w.grad.dtype == mt.float32 and (np.abs(w.grad.numpy()) > 0).any(), name


def test_a_later_token_changes_nothing_before_it():
    model, ids = small(), some_ids(2, 8)
    changed = ids.clone()
    changed[:, 5] = ids[:, 5] % (V - 1) + 1
    before, after = (model(i)[0].detach().numpy() for i in (ids, changed))
    assert np.array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before[:, 5:] - after[:, 5:]).max(axis=(0, 2)) > 1e-6).all()


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 1, 1, 3], [9]])
@pytest.mark.parametrize("pad_id", [None, PAD])
def test_reading_in_pieces_through_the_cache_equals_reading_at_once(pieces, pad_id):
    model, ids = small(pad_id=pad_id), some_ids(2, 9)
    if pad_id is not None:
        ids[1, :5], ids[0, 6] = PAD, PAD  # before the text, and in it
    whole, _, maps = model(ids, need_weights=True)
    cache, start = model.new_cache(), 0
    with mt.no_grad():
        for n in pieces:
            now = slice(start, start + n)
            logits, _, weights = model(ids[:, now], cache=cache, need_weights=True)
            np.testing.assert_allclose(logits.numpy(), whole.detach().numpy()[:, now], rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(weights[1].numpy(), maps[1].detach().numpy()[:, :, now, :start + n], rtol=1e-9,
                                       atol=1e-12)
            start += n
            assert len(cache) == start
    assert cache.layers[0].read()[0].shape == (2, K, 9, D)  # K heads, not H


def left_padded(lengths, width):
    ids = some_ids(len(lengths), width)
    for row, n in enumerate(lengths):
        ids[row, :width - n] = PAD
    return ids


def test_a_left_padded_row_counts_as_the_row_alone():
    model, ids = small(pad_id=PAD), left_padded([5, 3, 1], 5)
    logits = model(ids)[0].detach().numpy()
    for row, n in enumerate([5, 3, 1]):
        alone = model(ids[row:row + 1, 5 - n:])[0].detach().numpy()
        np.testing.assert_allclose(logits[row:row + 1, 5 - n:], alone, rtol=1e-9, atol=1e-10)
    unaware = small()(ids)[0].detach().numpy()
    assert np.abs(unaware[1, -1] - logits[1, -1]).max() > 1e-3  # without pad_id the padding is read


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("choice", [dict(temperature=0), dict(temperature=0.8), dict(top_k=5), dict(top_p=0.9)],
                         ids=str)
def test_generating_is_the_same_with_and_without_the_cache(seed, choice):
    model, prompts = small(seed, dtype=mt.float32, block_size=32, pad_id=PAD), left_padded([5, 2, 4, 1], 5)
    made = [generate(model, prompts, 20, use_cache=use_cache, generator=mt.Generator().manual_seed(seed), **choice)
            for use_cache in (True, False)]
    assert made[0].shape == (4, 25) and made[0].tolist() == made[1].tolist()


def test_a_left_padded_batch_continues_as_each_row_alone():
    model, prompts = small(block_size=32, pad_id=PAD), left_padded([5, 2, 4], 5)
    together = generate(model, prompts, 15, temperature=0)
    for row, n in enumerate([5, 2, 4]):
        alone = generate(model, prompts[row:row + 1, 5 - n:], 15, temperature=0)
        assert together[row, 5 - n:].tolist() == alone[0].tolist()


def test_the_padding_before_a_row_is_no_repetition():
    model, prompts = small(block_size=32, pad_id=PAD), left_padded([5, 2, 4, 2, 1], 5)
    with mt.no_grad():
        model.head.weight[PAD] *= 3  # the padding's id is a token like others, and here a likely one
    together, differ = generate(model, prompts, 9, temperature=0, repetition_penalty=1.5), 0
    for row, n in enumerate([5, 2, 4, 2, 1]):
        alone = generate(model, prompts[row:row + 1, 5 - n:], 9, temperature=0, repetition_penalty=1.5)
        assert together[row, 5 - n:].tolist() == alone[0].tolist()
        differ += PAD in alone[0].tolist()
    assert differ  # it was written somewhere


def test_a_padding_id_inside_the_text_is_a_token_like_others():
    model, ids = small(pad_id=PAD), some_ids(2, 7)
    ids[:, 3] = PAD
    np.testing.assert_allclose(model(ids)[0].detach().numpy(), small()(ids)[0].detach().numpy(), rtol=1e-9, atol=1e-10)


def test_a_config_stays_as_it_is():
    config = LlamaConfig(V, n_embd=64)
    model = Llama(config)
    assert (model.config.n_kv_head, model.config.n_hidden) == (4, 171) and config.n_hidden is None
    config.n_embd = 128
    assert Llama(config).config.n_hidden == 342


def test_half_precision():
    model, ids = small(dtype=mt.float32), some_ids(2, 7)
    wanted = model(ids)[0].detach().numpy()
    got = model.half()(ids)[0].detach()
    assert got.dtype == mt.float16
    np.testing.assert_allclose(got.numpy(), wanted, rtol=0.05, atol=0.05)


def test_only_distances_count(monkeypatch):
    model, ids = small(), some_ids(1, 4)
    near, there = model(ids)[0].detach().numpy(), mt.nn.functional.rotary_tables
    monkeypatch.setattr(mt.nn.functional, "rotary_tables", lambda places, *rest: there(places + 100, *rest))
    np.testing.assert_allclose(model(ids)[0].detach().numpy(), near, rtol=1e-7, atol=1e-9)
    monkeypatch.setattr(mt.nn.functional, "rotary_tables", lambda places, *rest: there(places * 2, *rest))
    assert np.abs(model(ids)[0].detach().numpy() - near).max() > 1e-3


@pytest.mark.timed
def test_time_per_token_stays_flat_with_the_cache():
    mt.manual_seed(0)
    model = Llama(LlamaConfig(V, block_size=1001, n_head=2, n_embd=32, n_kv_head=1))
    with mt.no_grad():
        cache, times = model.new_cache(), []
        for _ in range(1000):
            began = time.thread_time()
            model(mt.tensor([[3]]), cache=cache)
            times.append(time.thread_time() - began)
    assert np.quantile(times[950:], 0.25) < 1.5 * np.quantile(times[75:125], 0.25)


def test_start_of_training_and_sizes():
    mt.manual_seed(0)
    model = Llama(LlamaConfig(101, n_layer=3, n_head=4, n_embd=96, n_kv_head=2))
    assert model.config.n_hidden == 256
    block = model.blocks[0]
    assert sum(w.numel() for w in block.mlp.parameters()) == 8 * 96**2  # as a GPT's with F = 4C
    assert sum(w.numel() for w in block.attn.parameters()) == 3 * 96**2  # 4 C^2 less half of keys and values
    np.testing.assert_allclose(block.mlp.up.weight.detach().numpy().std(), 0.02, rtol=0.05)
    np.testing.assert_allclose(block.mlp.proj.weight.detach().numpy().std(), 0.02 / math.sqrt(6), rtol=0.05)
    _, loss = model(mt.randint(0, 101, (4, 64)), mt.randint(0, 101, (4, 64)))
    assert abs(loss.item() - math.log(101)) < 0.1


def test_it_learns_to_repeat():
    mt.manual_seed(0)
    model = Llama(LlamaConfig(V, block_size=16, n_layer=2, n_head=2, n_embd=32, n_kv_head=1))
    optimizer = AdamW(model.parameters(), lr=5e-3)

    def rows(n):
        half = mt.randint(1, V, (n, 6))
        return mt.cat([half, half], dim=1)

    for _ in range(300):
        ids = rows(32)
        targets = ids[:, 1:].clone()
        targets[:, :5] = -100
        _, loss = model(ids[:, :-1], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = rows(100)
    assert (generate(model, ids[:, :6], 6, temperature=0) == ids).all(1).float().mean().item() > 0.9


def test_mistakes_are_named():
    for changes in (dict(n_embd=18), dict(n_kv_head=4), dict(n_kv_head=0)):
        with pytest.raises(ValueError, match=r"n_embd=\d+ must be an even multiple of n_head=6"):
            small(**changes)
    model = small()
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 5\), got \(5, 2\)"):
        model(some_ids(2, 5), some_ids(5, 2))
    with pytest.raises(ValueError, match=r"\(batch, time\), got shape \(5,\)"):
        model(some_ids(1, 5)[0])
    with pytest.raises(ValueError, match=f"12 tokens do not fit block_size={BLOCK}"):
        model(some_ids(1, 12))
    with pytest.raises(IndexError, match=f"got {V}"):
        model(mt.tensor([[5, V]]))
    cache = model.new_cache()
    with pytest.raises(RuntimeError, match="no_grad"):
        model(some_ids(1, 2), cache=cache)
