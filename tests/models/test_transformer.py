import itertools
import time

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.models.transformer import Transformer, TransformerConfig
from minitorch_attn.nn import functional as F
from minitorch_attn.optim import AdamW
from tests.harness import draw

SV, V, BLOCK, L, H, C = 13, 7, 17, 2, 3, 15
PAD, START, END = 0, 1, 2


def small(seed=0, dtype=mt.float64, **changes):
    """A tiny model whose weights are large enough for its attention to be far from uniform."""
    mt.manual_seed(seed)
    config = dict(source_vocab=SV, target_vocab=V, block_size=BLOCK, n_layer=L, n_head=H, n_embd=C)
    model = Transformer(TransformerConfig(**{**config, **changes}))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, high, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(3, high, (B, T)))


def test_equals_pytorch_spelled_out():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, source, ids = small(), some_ids(2, 7, SV), some_ids(2, 5, V)
    source[1, 4:] = PAD
    w = {name: torch.from_numpy(p.detach().numpy()) for name, p in model.named_parameters()}
    t = {"encoder": torch.nn.TransformerEncoderLayer, "decoder": torch.nn.TransformerDecoderLayer}

    def block(side, i):
        layer = t[side](C, H, 4 * C, 0.0, "relu", batch_first=True, norm_first=True).double()
        ours, names = f"{side}.{i}.", {"self_attn": "attn", "multihead_attn": "cross"}
        state = {}
        for name in layer.state_dict():
            part, kind = name.rsplit(".", 1)
            if kind.startswith("in_proj"):
                a, kind = ours + names[part], kind.removeprefix("in_proj_")
                state[name] = torch.cat([w[f"{a}.q.{kind}"], w[f"{a}.kv.{kind}"]])
            elif "out_proj" in part:
                state[name] = w[ours + names[part.split(".")[0]] + ".proj." + kind]
            else:
                state[name] = w[ours + {"linear1": "mlp.0", "linear2": "mlp.2"}.get(part, part.replace("norm", "ln_"))
                                + "." + kind]
        layer.load_state_dict(state)
        return layer

    def norm(x, name):
        return torch.nn.functional.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"])

    s, d = torch.from_numpy(source.numpy()), torch.from_numpy(ids.numpy())
    x = w["source_emb.weight"][s] + w["source_pos.weight"][:7]
    y = w["target_emb.weight"][d] + w["target_pos.weight"][:5]
    hidden = s == PAD
    for i in range(L):
        x = block("encoder", i)(x, src_key_padding_mask=hidden)
    x = norm(x, "ln_source")
    causal = torch.ones(5, 5, dtype=bool).triu(1)
    for i in range(L):
        y = block("decoder", i)(y, x, tgt_mask=causal, memory_key_padding_mask=hidden)
    wanted = norm(y, "ln_target") @ w["head.weight"].T + w["head.bias"]
    np.testing.assert_allclose(model(source, ids)[0].detach().numpy(), wanted.detach().numpy(), rtol=1e-8, atol=1e-9)


def test_gradients_of_every_parameter_along_random_directions():
    model, source, ids, h = small(), some_ids(2, 5, SV), some_ids(2, 3, V), 1e-6
    source[0, 3:] = PAD
    cotangent = mt.tensor(draw(2, 3, V))
    (model(source, ids)[0] * cotangent).sum().backward()
    for i, (name, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), []
        with mt.no_grad():
            for sign in (1, -1):
                w.copy_(start + sign * h * direction)
                values.append((model(source, ids)[0] * cotangent).sum().item())
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[0] - values[1]) / (2 * h), rtol=1e-6,
                                   atol=1e-7, err_msg=name)


def test_loss_counts_what_is_no_padding():
    model, source = small(), some_ids(2, 5, SV)
    target = mt.tensor([[3, 4, 5, END], [6, END, PAD, PAD]])
    ids, answers = model.shift(target)
    assert ids.tolist() == [[START, 3, 4, 5], [START, 6, END, PAD]]
    assert answers.tolist() == [[3, 4, 5, END], [6, END, -100, -100]]
    logits, loss = model(source, ids, answers)
    logp = F.log_softmax(logits, -1).detach().numpy()
    wanted = [logp[b, t, target.numpy()[b, t]] for b in range(2) for t in range(4 - 2 * b)]
    np.testing.assert_allclose(loss.item(), -np.mean(wanted), rtol=1e-12)


def test_float32_stays_and_every_parameter_learns():
    model = small(dtype=mt.float32)
    _, loss = model(some_ids(2, 7, SV), some_ids(2, 5, V), some_ids(2, 5, V, seed=1))
    loss.backward()
    assert loss.dtype == mt.float32
    for name, w in model.named_parameters():
        assert w.grad.dtype == mt.float32 and (np.abs(w.grad.numpy()) > 0).any(), name


def test_a_later_token_changes_nothing_before_it_and_the_source_changes_all():
    model, source, ids = small(), some_ids(2, 7, SV), some_ids(2, 8, V)
    before, changed = model(source, ids)[0].detach().numpy(), ids.clone()
    changed[:, 5] = (ids[:, 5] - 3 + 1) % (V - 3) + 3
    after = model(source, changed)[0].detach().numpy()
    assert np.array_equal(before[:, :5], after[:, :5]) and (np.abs(before - after)[:, 5:].max(-1) > 1e-6).all()
    source[:, 3] = (source[:, 3] - 3 + 1) % (SV - 3) + 3
    assert (np.abs(before - model(source, ids)[0].detach().numpy()).max(-1) > 1e-6).all()


@pytest.mark.parametrize("left", [False, True])
def test_padding_of_the_source_changes_nothing(left):
    model, short, ids = small(), some_ids(2, 4, SV), some_ids(2, 5, V)
    pads = mt.zeros(2, 3, dtype=mt.int64)
    padded = mt.cat([pads, short] if left else [short, pads], dim=1)
    np.testing.assert_allclose(model(padded, ids)[0].detach().numpy(), model(short, ids)[0].detach().numpy(),
                               rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 1, 1, 3], [9]])
def test_reading_in_pieces_through_the_cache_equals_reading_at_once(pieces):
    model, source, ids = small(), some_ids(2, 7, SV), some_ids(2, 9, V)
    source[1, 5:] = PAD
    memory, mask = model.encode(source)
    cache, start, parts = model.new_cache(), 0, []
    with mt.no_grad():
        for n in pieces:
            parts.append(model.decode(ids[:, start:start + n], memory, mask, cache)[0])
            start += n
            assert len(cache[0][0]) == start
            memory = None  # the cache has all that is needed of it
    np.testing.assert_allclose(mt.cat(parts, dim=1).numpy(), model(source, ids)[0].detach().numpy(),
                               rtol=1e-9, atol=1e-10)
    assert [x.read()[1].shape for x in cache[1]] == [(2, H, 9, C // H), (2, H, 7, C // H)]


def padded_sources():
    source = some_ids(5, 7, SV)
    source[1, 4:], source[2, :3], source[3, 6:] = PAD, PAD, PAD
    return source


@pytest.mark.parametrize("seed", range(3))
def test_decoding_is_the_same_with_and_without_the_cache(seed):
    model, source = small(seed, dtype=mt.float32), padded_sources()
    assert model.greedy(source, 15).tolist() == model.greedy(source, 15, use_cache=False).tolist()
    (a, p), (b, q) = (model.beam(source, 15, 3, use_cache=use_cache) for use_cache in (True, False))
    assert a.tolist() == b.tolist()
    np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-4)


def test_a_padded_batch_decodes_as_each_row_alone():
    model, source = small(), padded_sources()
    together = model.greedy(source, 12).tolist()
    for row, tokens in zip(source, together):
        alone = model.greedy(row[row != PAD][None], 12).tolist()[0]
        assert tokens == alone + [PAD] * (len(tokens) - len(alone))


def log_likelihood(model, source, target):
    """Of one whole target, by one reading of it."""
    ids, _ = model.shift(mt.tensor([target]))
    logits = model(source, ids)[0].detach().numpy()[0]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return sum(logp[t, token] for t, token in enumerate(target))


def test_greedy_takes_the_likeliest_token_each_time():
    model, source = small(1), some_ids(1, 5, SV)
    target = []
    for _ in range(6):
        target.append(max((i for i in range(V) if i not in (PAD, START)),
                          key=lambda i: log_likelihood(model, source, [*target, i])))
        if target[-1] == END:
            break
    assert model.greedy(source, 6).tolist() == [target]


@pytest.mark.parametrize("seed, alpha", [(0, 0.0), (1, 0.0), (2, 0.0), (5, 1.0), (11, 1.0)])
def test_a_wide_beam_finds_the_best_of_all_targets(seed, alpha):
    model, source = small(seed, target_vocab=5), some_ids(2, 5, SV, seed)
    targets = [list(t) for n in (1, 2, 3) for t in itertools.product([END, 3, 4], repeat=n)
               if END not in t[:-1] and (n == 3 or t[-1] == END)]
    (found, scores), others = model.beam(source, 3, width=27, length_penalty=alpha), 0
    for b in range(2):
        fair = [log_likelihood(model, source[b:b + 1], t) / ((5 + len(t)) / 6) ** alpha for t in targets]
        best = targets[int(np.argmax(fair))]
        plain = [log_likelihood(model, source[b:b + 1], t) for t in targets]
        others += targets[int(np.argmax(plain))] != best
        assert found[b].tolist()[:len(best)] == best and not any(found[b].tolist()[len(best):])
        np.testing.assert_allclose(scores[b].item(), log_likelihood(model, source[b:b + 1], best), rtol=1e-6)
    assert bool(others) == bool(alpha)  # the penalty chooses others


@pytest.mark.timed
def test_time_per_token_stays_flat_with_the_cache():
    mt.manual_seed(0)
    model = Transformer(TransformerConfig(SV, V, block_size=1001, n_layer=2, n_head=2, n_embd=32))
    with mt.no_grad():
        memory, mask = model.encode(some_ids(1, 7, SV))
        cache, times = model.new_cache(), []
        for _ in range(1000):
            began = time.thread_time()
            model.decode(mt.tensor([[3]]), memory, mask, cache)
            times.append(time.thread_time() - began)
    assert np.quantile(times[950:], 0.25) < 1.5 * np.quantile(times[75:125], 0.25)


def test_it_learns_to_double_letters():
    mt.manual_seed(0)
    model = Transformer(TransformerConfig(SV, SV, block_size=12, n_layer=1, n_head=2, n_embd=32))
    optimizer = AdamW(model.parameters(), lr=5e-3)

    def batch(n):
        source = mt.randint(3, SV, (n, 4))
        return source, mt.cat([source.repeat_interleave(2, 1), mt.full((n, 1), END)], dim=1)

    for _ in range(150):
        source, target = batch(32)
        _, loss = model(source, *model.shift(target))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target = batch(100)
    written = model.greedy(source, 11)
    assert written.shape == target.shape and (written == target).all(1).float().mean().item() > 0.9


def test_weights_are_where_it_looks():
    model, source = small(), padded_sources()
    _, _, weights = model(source, some_ids(5, 4, V), need_weights=True)
    assert [w.shape for w in weights] == [(5, H, 4, 7)] * L
    for w in weights:
        np.testing.assert_allclose(w.sum(-1).detach().numpy(), 1, rtol=1e-9)
        assert not w.detach().numpy()[1, :, :, 4:].any() and not w.detach().numpy()[2, :, :, :3].any()


def test_mistakes_are_named():
    model, source, ids = small(), some_ids(2, 5, SV), some_ids(2, 3, V)
    with pytest.raises(ValueError, match=r"n_embd=10 .* n_head=4"):
        Transformer(TransformerConfig(3, 3, n_embd=10))
    with pytest.raises(ValueError, match=r"source must be \(batch, time\), got shape \(5,\)"):
        model(source[0], ids)
    with pytest.raises(ValueError, match=f"18 tokens do not fit block_size={BLOCK}"):
        model(source, some_ids(2, 18, V))
    for bad in ((source, ids + V), (source - source - 1, ids)):
        with pytest.raises(IndexError, match="must lie in"):
            model(*bad)
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 3\), got \(3, 2\)"):
        model(source, ids, some_ids(3, 2, V))
    with pytest.raises(ValueError, match=f"max_new_tokens=18 is more than block_size={BLOCK}"):
        model.greedy(source, 18)
    for width, steps in ((0, 3), (2, -1)):
        with pytest.raises(ValueError, match="width must be at least 1"):
            model.beam(source, steps, width)
    assert model.greedy(source, 0).shape == (2, 0)
