import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.models.bert import BERT, BERTConfig, mask_tokens
from minitorch_attn.nn import functional as F
from minitorch_attn.optim import AdamW
from tests.harness import draw

V, BLOCK, L, H, C, SPECIAL = 19, 11, 2, 3, 15, 5
PAD, MASK = 0, 4


def small(dtype=mt.float64, **changes):
    """A tiny BERT whose weights are large enough for its attention to be far from uniform."""
    mt.manual_seed(0)
    model = BERT(BERTConfig(**{**dict(vocab_size=V, block_size=BLOCK, n_layer=L, n_head=H, n_embd=C), **changes}))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(SPECIAL, V, (B, T)))


def test_a_seventh_is_chosen_and_hidden_in_three_ways():
    config, generator = BERTConfig(1009), mt.Generator().manual_seed(0)
    ids = mt.randint(SPECIAL, 1009, (500, 100), generator=generator)
    hidden, targets = (x.numpy() for x in mask_tokens(ids, config, generator=generator))
    ids = ids.numpy()
    chosen = targets != -100
    assert (chosen.sum(1) == 15).all()
    assert (targets[chosen] == ids[chosen]).all() and (hidden[~chosen] == ids[~chosen]).all()
    masked, kept = (hidden == MASK)[chosen], (hidden == ids)[chosen]
    np.testing.assert_allclose([masked.mean(), kept.mean(), (~masked & ~kept).mean()], [0.8, 0.1, 0.1], atol=0.015)
    others = hidden[chosen][~masked & ~kept]
    assert others.min() >= SPECIAL and others.max() < 1009 and len(set(others.tolist())) > 400
    places = chosen.mean(0)
    np.testing.assert_allclose(places, 0.15, atol=0.075)  # no place is favoured


def test_special_tokens_are_never_chosen_and_one_word_always_is():
    ids = mt.tensor([[2, 5, 3, 0, 0, 0], [2, 3, 0, 0, 0, 0], [2, 7, 8, 9, 3, 0]])
    for seed in range(50):
        hidden, targets = mask_tokens(ids, BERTConfig(V), generator=mt.Generator().manual_seed(seed))
        assert (targets != -100).sum(1).tolist() == [1, 0, 1] and targets[0, 1].item() == 5
        assert (hidden[ids < SPECIAL] == ids[ids < SPECIAL]).all()
    assert (mask_tokens(ids, BERTConfig(V), share=1.0)[1] != -100).sum(1).tolist() == [1, 0, 3]


def test_equals_pytorch_spelled_out():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, ids = small(), some_ids(3, 7)
    ids[1, 5:], ids[2, :2] = PAD, PAD
    w = {name: torch.from_numpy(p.detach().numpy()) for name, p in model.named_parameters()}
    functional, i = torch.nn.functional, torch.from_numpy(ids.numpy())
    norm = lambda x, name: functional.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"])  # noqa: E731
    places = torch.tensor([[*range(7)], [*range(7)], [0, 0, *range(5)]])  # counted from the first token
    x = norm(w["tok_emb.weight"][i] + w["pos_emb.weight"][places], "ln_emb")
    names = {"self_attn.in_proj_": "attn.qkv.", "self_attn.out_proj.": "attn.proj.", "linear1.": "mlp.0.",
             "linear2.": "mlp.2.", "norm1.": "ln_1.", "norm2.": "ln_2."}
    for n in range(L):
        layer = torch.nn.TransformerEncoderLayer(C, H, 4 * C, 0.0, "gelu", batch_first=True).double()
        layer.load_state_dict({theirs + kind: w[f"blocks.{n}.{ours}{kind}"] for theirs, ours in names.items()
                               for kind in ("weight", "bias")})
        x = layer(x, src_key_padding_mask=i == PAD)
    x = norm(functional.gelu(x @ w["transform.0.weight"].T + w["transform.0.bias"]), "transform.2")
    wanted = x @ w["tok_emb.weight"].T + w["head.bias"]
    np.testing.assert_allclose(model(ids)[0].detach().numpy(), wanted.detach().numpy(), rtol=1e-8, atol=1e-9)


def test_the_loss_counts_chosen_tokens_only():
    model, ids = small(), some_ids(2, 7)
    targets = mt.full((2, 7), -100)
    targets[0, 2], targets[1, 6] = 9, 5
    logits, loss = model(ids, targets)
    logp = F.log_softmax(logits, -1).detach().numpy()
    np.testing.assert_allclose(loss.item(), -(logp[0, 2, 9] + logp[1, 6, 5]) / 2, rtol=1e-12)


def test_gradients_of_every_parameter_along_random_directions():
    model, ids, cotangent, h = small(), some_ids(2, 5), mt.tensor(draw(2, 5, V)), 1e-6
    ids[0, 4:] = PAD
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


def test_both_sides_are_seen_and_padding_is_not():
    model, ids = small(), some_ids(2, 7)
    before, changed = model(ids)[0].detach().numpy(), ids.clone()
    changed[:, 3] = MASK
    assert (np.abs(before - model(changed)[0].detach().numpy()).max(-1) > 1e-6).all()
    padded = mt.cat([ids, mt.zeros(2, 3, dtype=mt.int64)], dim=1)
    np.testing.assert_allclose(model(padded)[0].detach().numpy()[:, :7], before, rtol=1e-9, atol=1e-10)
    padded = mt.cat([mt.zeros(2, 3, dtype=mt.int64), ids], dim=1)
    np.testing.assert_allclose(model(padded)[0].detach().numpy()[:, 3:], before, rtol=1e-9, atol=1e-10)


def test_weights_are_what_each_head_attends_to():
    ids = some_ids(2, 7)
    ids[1, 5:] = PAD
    _, loss, weights = small()(ids, need_weights=True)
    assert loss is None and [w.shape for w in weights] == [(2, H, 7, 7)] * L
    for w in weights:
        np.testing.assert_allclose(w.sum(-1).detach().numpy(), 1, rtol=1e-9)
        assert not w.detach().numpy()[1, :, :, 5:].any()


def test_filling_in_leaves_the_rest_and_writes_no_special_token():
    model, ids = small(), some_ids(3, 7)
    with mt.no_grad():
        model.head.bias[:SPECIAL] = 100.0  # special tokens seem likeliest
    ids[:, 2], ids[1, 5] = MASK, MASK
    filled = model.fill(ids)
    assert (filled[ids != MASK] == ids[ids != MASK]).all()
    best = model(ids)[0].detach().numpy()[:, :, SPECIAL:].argmax(-1) + SPECIAL
    assert (filled.numpy()[ids.numpy() == MASK] == best[ids.numpy() == MASK]).all()


def test_it_learns_a_rule_that_needs_both_sides():
    mt.manual_seed(0)
    model = BERT(BERTConfig(SPECIAL + 7, block_size=8, n_layer=1, n_head=2, n_embd=32))
    optimizer = AdamW(model.parameters(), lr=3e-3)

    def rows(n):  # the second half repeats the first
        half = mt.randint(SPECIAL, SPECIAL + 7, (n, 4))
        return mt.cat([half, half], dim=1)

    for _ in range(450):
        _, loss = model(*mask_tokens(rows(64), model.config, share=0.25))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth = rows(200)
    ids = truth.clone()
    ids[:, 2], ids[:, 5] = MASK, MASK
    assert (model.fill(ids) == truth).all(1).float().mean().item() > 0.95


def test_mistakes_are_named():
    with pytest.raises(ValueError, match=r"n_embd=10 .* n_head=3"):
        small(n_embd=10)
    model = small()
    for share in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="share is a part of each row"):
            mask_tokens(some_ids(2, 5), model.config, share)
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 5\), got \(5, 2\)"):
        model(some_ids(2, 5), some_ids(5, 2))
    with pytest.raises(ValueError, match=r"\(batch, time\), got shape \(5,\)"):
        model(some_ids(1, 5)[0])
    with pytest.raises(ValueError, match=f"12 tokens do not fit block_size={BLOCK}"):
        model(some_ids(1, 12))
    with pytest.raises(IndexError, match=f"got {V}"):
        model(mt.tensor([[5, V]]))
