import gc
import math
import time
import tracemalloc

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.models.gpt import GPT, GPTConfig
from tests.harness import draw

V, BLOCK, L, H, C = 13, 11, 2, 3, 15


def small(seed=0, dtype=mt.float64, **changes):
    """A tiny GPT whose weights are large enough for its attention to be far from uniform."""
    mt.manual_seed(seed)
    model = GPT(GPTConfig(**{**dict(vocab_size=V, block_size=BLOCK, n_layer=L, n_head=H, n_embd=C), **changes}))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(0, V, (B, T)))


def plain_layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def plain_gpt(model, ids):
    """The logits of one sequence spelled out, token by token and head by head, and the attention weights."""
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    x, maps, D = w["tok_emb.weight"][ids] + w["pos_emb.weight"][:len(ids)], [], C // H
    for i in range(L):
        def part(name, i=i):
            return w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"]
        a = plain_layer_norm(x, *part("ln_1"))
        weight, bias = part("attn.qkv")
        q, k, v = np.split(a @ weight.T + bias, 3, axis=-1)
        y, seen = np.zeros_like(x), np.zeros((H, len(ids), len(ids)))
        for h in range(H):
            cut = slice(h * D, (h + 1) * D)
            for t in range(len(ids)):
                scores = np.array([q[t, cut] @ k[s, cut] / math.sqrt(D) for s in range(t + 1)])
                seen[h, t, :t + 1] = np.exp(scores) / np.exp(scores).sum()
                y[t, cut] = seen[h, t, :t + 1] @ v[:t + 1, cut]
        maps.append(seen)
        weight, bias = part("attn.proj")
        x = x + y @ weight.T + bias
        weight, bias = part("mlp.fc")
        hidden = plain_layer_norm(x, *part("ln_2")) @ weight.T + bias
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        weight, bias = part("mlp.proj")
        x = x + hidden @ weight.T + bias
    x = plain_layer_norm(x, w["ln_f.weight"], w["ln_f.bias"])
    return x @ w.get("head.weight", w["tok_emb.weight"]).T, maps


@pytest.mark.parametrize("tied", [True, False])
def test_logits_and_weights_equal_the_plain_version(tied):
    model, ids = small(tied=tied), some_ids(2, 7)
    logits, loss, weights = model(ids, need_weights=True)
    assert logits.shape == (2, 7, V) and loss is None and [w.shape for w in weights] == [(2, H, 7, 7)] * L
    for b in range(2):
        plain, maps = plain_gpt(model, ids.numpy()[b])
        np.testing.assert_allclose(logits.detach().numpy()[b], plain, rtol=1e-9, atol=1e-10)
        for layer in range(L):
            np.testing.assert_allclose(weights[layer].detach().numpy()[b], maps[layer], rtol=1e-9, atol=1e-12)


def test_loss_is_the_mean_cross_entropy_of_the_answers_that_count():
    model, ids = small(), some_ids(2, 5)
    targets = some_ids(2, 5, seed=1).numpy().copy()
    targets[1, 2:] = -100
    logits, loss = model(ids, mt.tensor(targets))
    z = logits.detach().numpy()
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    wanted = -np.mean([logp[b, t, targets[b, t]] for b in range(2) for t in range(5) if targets[b, t] >= 0])
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-12)


def test_gradients_of_every_parameter_along_random_directions():
    model, ids, cotangent, h = small(), some_ids(2, 5), mt.tensor(draw(2, 5, V)), 1e-6
    (model(ids)[0] * cotangent).sum().backward()

    def objective():
        with mt.no_grad():
            return (model(ids)[0] * cotangent).sum().item()

    for i, (name, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), {}
        for sign in (1, -1):
            with mt.no_grad():
                w.copy_(start + sign * h * direction)
            values[sign] = objective()
        with mt.no_grad():
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[1] - values[-1]) / (2 * h), rtol=1e-6,
                                   err_msg=name)


def test_every_parameter_gets_a_gradient_in_its_dtype():
    model = small(dtype=mt.float32)
    _, loss = model(some_ids(2, 7), some_ids(2, 7, seed=1))
    loss.backward()
    assert loss.dtype == mt.float32
    for name, w in model.named_parameters():
        assert w.grad.dtype == mt.float32 and w.grad.shape == w.shape, name
        assert (np.abs(w.grad.numpy()) > 0).any(), name


def test_a_later_token_changes_nothing_before_it():
    model, ids = small(), some_ids(2, 8).numpy()
    changed = ids.copy()
    changed[:, 5] = (ids[:, 5] + 1) % V
    before, after = (model(mt.tensor(i))[0].detach().numpy() for i in (ids, changed))
    assert np.array_equal(before[:, :5], after[:, :5])
    assert (np.abs(before[:, 5:] - after[:, 5:]).max(axis=(0, 2)) > 1e-6).all()


@pytest.mark.parametrize("pieces", [[1] * 9, [4, 1, 1, 3], [3, 5, 1], [9]])
@mt.no_grad()
def test_reading_in_pieces_through_the_cache_equals_reading_at_once(pieces):
    model, ids = small(), some_ids(2, 9)
    whole, _, maps = model(ids, need_weights=True)
    cache, start, parts = model.new_cache(), 0, []
    for n in pieces:
        logits, _, weights = model(ids[:, start:start + n], cache=cache, need_weights=True)
        wanted = maps[1].detach().numpy()[:, :, start:start + n, :start + n]
        np.testing.assert_allclose(weights[1].detach().numpy(), wanted, rtol=1e-9, atol=1e-12)
        parts.append(logits)
        start += n
        assert len(cache) == start
    np.testing.assert_allclose(mt.cat(parts, dim=1).detach().numpy(), whole.detach().numpy(), rtol=1e-9, atol=1e-10)
    assert cache.layers[1].read()[0].shape == (2, H, 9, C // H)


def test_gradients_that_would_end_at_the_cache_are_refused():
    model, ids = small(), some_ids(2, 5)
    with pytest.raises(RuntimeError, match=r"generate under no_grad\(\)"):
        model(ids, cache=model.new_cache())


def test_start_of_training():
    mt.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=101, block_size=64, n_layer=3, n_head=4, n_embd=64))
    wanted = {"tok_emb.weight": 0.02, "blocks.0.attn.qkv.weight": 0.02, "blocks.2.mlp.fc.weight": 0.02,
              "blocks.0.attn.proj.weight": 0.02 / math.sqrt(6), "blocks.2.mlp.proj.weight": 0.02 / math.sqrt(6)}
    parameters = dict(model.named_parameters())
    for name, std in wanted.items():
        np.testing.assert_allclose(parameters[name].detach().numpy().std(), std, rtol=0.05, err_msg=name)
    for name, w in parameters.items():
        if name.endswith("bias"):
            assert not w.detach().numpy().any(), name
    _, loss = model(mt.randint(0, 101, (4, 64)), mt.randint(0, 101, (4, 64)))
    assert abs(loss.item() - math.log(101)) < 0.1


def test_tied_weights_are_one_parameter():
    tied, untied = small(tied=True), small(tied=False)
    assert tied.head.weight is tied.tok_emb.weight
    count = [sum(w.numel() for w in model.parameters()) for model in (tied, untied)]
    assert count[1] - count[0] == V * C


def test_dropout_works_in_training_only():
    model, ids = small(dropout=0.5), some_ids(1, 7)
    a, b = (model(ids)[0].detach().numpy() for _ in range(2))
    assert np.abs(a - b).max() > 1e-3
    model.eval()
    a, b = (model(ids)[0].detach().numpy() for _ in range(2))
    assert np.array_equal(a, b)
    model.load_state_dict(small(dropout=0.0).state_dict())
    np.testing.assert_allclose(model(ids)[0].detach().numpy(), small(dropout=0.0)(ids)[0].detach().numpy(), rtol=1e-12)


def test_mistakes_are_named():
    model = small()
    with pytest.raises(IndexError, match=r"\[0, 13\).*got 13"):
        model(mt.tensor([[1, 13]]))
    with pytest.raises(IndexError, match="got -1"):
        model(mt.tensor([[1, -1]]))
    with pytest.raises(ValueError, match="12 tokens do not fit block_size=11"):
        model(some_ids(1, 12))
    cache = model.new_cache()
    with mt.no_grad():
        model(some_ids(1, 7), cache=cache)
    with pytest.raises(ValueError, match="5 tokens after 7 cached ones do not fit block_size=11"):
        model(some_ids(1, 5), cache=cache)
    assert len(cache) == 7
    with pytest.raises(ValueError, match=r"\(batch, time\), got shape \(3,\)"):
        model(mt.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"n_embd=10 .* n_head=4"):
        GPT(GPTConfig(vocab_size=5, n_embd=10, n_head=4))


def test_an_empty_cache_has_no_length():
    assert len(small().new_cache()) == 0


def test_equals_a_gpt_of_pytorchs_own_layers():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, ids, targets = small(), some_ids(2, 7), some_ids(2, 7, seed=1)
    w = {name: torch.tensor(p.detach().numpy(), requires_grad=True) for name, p in model.named_parameters()}
    F, norm = torch.nn.functional, torch.nn.functional.layer_norm
    x = w["tok_emb.weight"][torch.tensor(ids.numpy())] + w["pos_emb.weight"][:7]
    for i in range(L):
        def part(name, i=i):
            return w[f"blocks.{i}.{name}.weight"], w[f"blocks.{i}.{name}.bias"]
        qkv = F.linear(norm(x, (C,), *part("ln_1")), *part("attn.qkv"))
        q, k, v = qkv.view(2, 7, 3, H, C // H).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 7, C)
        x = x + F.linear(y, *part("attn.proj"))
        x = x + F.linear(F.gelu(F.linear(norm(x, (C,), *part("ln_2")), *part("mlp.fc"))), *part("mlp.proj"))
    logits = norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"]) @ w["tok_emb.weight"].T
    theirs = F.cross_entropy(logits.flatten(0, 1), torch.tensor(targets.numpy()).flatten())
    theirs.backward()
    _, ours = model(ids, targets)
    ours.backward()
    np.testing.assert_allclose(ours.item(), theirs.item(), rtol=1e-12)
    for name, p in model.named_parameters():
        np.testing.assert_allclose(p.grad.numpy(), w[name].grad.numpy(), rtol=1e-7, atol=1e-10, err_msg=name)


def test_training_does_not_grow_without_the_collector():
    mt.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, block_size=7, n_layer=2, n_head=2, n_embd=14, dropout=0.1))
    optimizer = mt.optim.AdamW(model.parameters(), lr=1e-3)
    arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)  # the rest is Python's stock of freed tuples
    held = []
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for step in range(200):
            ids = mt.randint(0, 11, (5, 7))
            _, loss = model(ids, ids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step in (49, 199):
                held.append(sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces([arrays]).traces))
    finally:
        tracemalloc.stop()
        gc.enable()
    assert held[0] > 0 and held[1] == held[0]


@pytest.mark.timed
def test_time_per_token_stays_flat_with_the_cache():
    mt.manual_seed(0)
    model, times = GPT(GPTConfig(vocab_size=V, block_size=1001, n_layer=2, n_head=2, n_embd=32)), []
    with mt.no_grad():
        cache = model.new_cache()
        for _ in range(1000):
            began = time.thread_time()
            model(mt.tensor([[3]]), cache=cache)
            times.append(time.thread_time() - began)
    assert np.quantile(times[950:], 0.25) < 1.5 * np.quantile(times[75:125], 0.25)
