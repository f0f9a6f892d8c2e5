import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.datasets import digit_reversal
from minitorch_attn.models.seq2seq import Seq2Seq, Seq2SeqConfig, mirror
from minitorch_attn.nn import functional as F
from minitorch_attn.optim import Adam
from tests.harness import assert_gradients, draw

SV, V, E, H = 10, 13, 5, 7
PAD, START, END = 10, 11, 12


def small(attention=True, dtype=mt.float64):
    mt.manual_seed(0)
    model = Seq2Seq(Seq2SeqConfig(SV + 1, V, E, H, attention))
    with mt.no_grad():
        for w in model.parameters():
            w += 0.3 * mt.randn(w.shape)
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(0, SV, (B, T)))


LENGTHS = mt.tensor([5, 2, 3])


def test_mirror_turns_each_row_round_and_leaves_its_padding():
    x = mt.arange(15).view(3, 5)[:, :, None]
    assert mirror(x, LENGTHS)[:, :, 0].tolist() == [[4, 3, 2, 1, 0], [6, 5, 7, 8, 9], [12, 11, 10, 13, 14]]
    assert_gradients(lambda x: mirror(x, LENGTHS), draw(3, 5, 2))


def test_the_encoder_is_a_bidirectional_gru_over_each_row_alone():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, source = small(), some_ids(3, 5)
    states, last = (x.detach().numpy() for x in model.encoder(source, LENGTHS))
    twin = torch.nn.GRU(E, H, batch_first=True, bidirectional=True).double()
    w = {name: torch.from_numpy(p.detach().numpy()) for name, p in model.encoder.named_parameters()}
    twin.load_state_dict({name: w[("leftward." if "reverse" in name else "rightward.") + name.removesuffix("_reverse")]
                          for name in twin.state_dict()})
    for b, n in enumerate(LENGTHS.tolist()):
        wanted, h = twin(w["emb.weight"][torch.from_numpy(source.numpy()[b:b + 1, :n])])
        np.testing.assert_allclose(states[b, :n], wanted[0].detach().numpy(), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(last[b], h.detach().numpy()[:, 0].ravel(), rtol=1e-9, atol=1e-12)


def test_attention_equals_the_formula():
    model, s, states = small(), draw(3, H), draw(3, 5, 2 * H, seed=1)
    a = model.attention
    W, b, U, v = (p.detach().numpy() for p in (a.query.weight, a.query.bias, a.key.weight, a.v))
    seen = mt.arange(5) < LENGTHS[:, None]
    context, weights = a(mt.tensor(s), a.key(mt.tensor(states)), mt.tensor(states), seen)
    for i, n in enumerate(LENGTHS.tolist()):
        scores = np.array([v @ np.tanh(W @ s[i] + b + U @ states[i, j]) for j in range(n)])
        alpha = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(weights.detach().numpy()[i], [*alpha, *[0] * (5 - n)], rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(context.detach().numpy()[i], alpha @ states[i, :n], rtol=1e-10)


@pytest.mark.parametrize("attention", [True, False])
def test_a_padded_row_counts_as_the_row_alone(attention):
    model, source, ids = small(attention), some_ids(3, 5), some_ids(3, 4)
    logits, _, weights = model(source, ids, lengths=LENGTHS, need_weights=True)
    written = model.greedy(source, 6, LENGTHS)[0].tolist()
    assert (weights is not None) == attention
    for b, n in enumerate(LENGTHS.tolist()):
        alone = model(source[b:b + 1, :n], ids[b:b + 1])[0]
        np.testing.assert_allclose(logits[b].detach().numpy(), alone[0].detach().numpy(), rtol=1e-9, atol=1e-11)
        tokens = model.greedy(source[b:b + 1, :n], 6)[0].tolist()[0]
        assert written[b] == tokens + [PAD] * (len(written[b]) - len(tokens))
        if attention:
            assert not weights.detach().numpy()[b, :, n:].any()
            np.testing.assert_allclose(weights.detach().numpy()[b].sum(-1), 1, rtol=1e-9)


@pytest.mark.parametrize("attention", [True, False])
def test_gradients_of_every_parameter_along_random_directions(attention):
    model, source, ids, cotangent, h = small(attention), some_ids(3, 5), some_ids(3, 4), mt.tensor(draw(3, 4, V)), 1e-6
    (model(source, ids, lengths=LENGTHS)[0] * cotangent).sum().backward()
    for i, (name, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), []
        with mt.no_grad():
            for sign in (1, -1):
                w.copy_(start + sign * h * direction)
                values.append((model(source, ids, lengths=LENGTHS)[0] * cotangent).sum().item())
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[0] - values[1]) / (2 * h), rtol=1e-6,
                                   atol=1e-8, err_msg=name)


@pytest.mark.parametrize("attention", [True, False])
def test_float32_stays_and_every_parameter_learns(attention):
    model, target = small(attention, mt.float32), some_ids(3, 4, seed=1)
    target[1, 2:] = PAD
    logits, loss = model(some_ids(3, 5), *model.shift(target))
    loss.backward()
    assert loss.dtype == mt.float32
    for name, w in model.named_parameters():
        assert w.grad.dtype == mt.float32 and (np.abs(w.grad.numpy()) > 0).any(), name
    logp = F.log_softmax(logits, -1).detach().numpy()
    wanted = [logp[b, t, target.numpy()[b, t]] for b in range(3) for t in range(4) if target.numpy()[b, t] != PAD]
    np.testing.assert_allclose(loss.item(), -np.mean(wanted), rtol=1e-5)


def test_without_teacher_forcing_the_decoder_reads_its_own_tokens():
    model, source, ids = small(), some_ids(3, 5), mt.cat([mt.full((3, 1), START), some_ids(3, 5, seed=1)], dim=1)
    own = model(source, ids, teacher_forcing=0.0)[0].argmax(-1)
    again = model(source, mt.cat([ids[:, :1], own[:, :-1]], dim=1))[0].argmax(-1)
    assert own.tolist() == again.tolist()
    written = model.greedy(source, 6)[0].tolist()
    for a, b in zip(own.tolist(), written):
        stop = a.index(END) + 1 if END in a else 6
        assert a[:stop] == b[:stop]
    forced = model(source, ids)[0].argmax(-1)
    assert forced.tolist() != own.tolist()


def test_a_row_that_has_ended_is_filled_up():
    model, source = small(), some_ids(3, 5, seed=3)
    model.config.end_id = -1
    alone = [model.greedy(source[b:b + 1], 6)[0].tolist()[0] for b in range(3)]
    model.config.end_id = token = 4
    assert [row.index(token) if token in row else 6 for row in alone] == [2, 4, 6]
    for tokens, written in zip(alone, model.greedy(source, 6)[0].tolist()):
        stop = tokens.index(token) + 1 if token in tokens else 6
        assert written == tokens[:stop] + [PAD] * (6 - stop)


def test_the_ratio_is_how_often_the_truth_is_read():
    model, source = small(), some_ids(300, 5)
    ids = mt.cat([mt.full((300, 1), START), some_ids(300, 1, seed=1)], dim=1)
    own, true = (model(source, ids, teacher_forcing=r)[0].detach().numpy()[:, 1] for r in (0.0, 1.0))
    mixed = model(source, ids, teacher_forcing=0.7)[0].detach().numpy()[:, 1]
    differ = np.abs(own - true).max(-1) > 1e-9
    was_true = np.abs(mixed - true).max(-1) < 1e-12
    assert (was_true | (np.abs(mixed - own).max(-1) < 1e-12)).all()
    np.testing.assert_allclose(was_true[differ].mean(), 0.7, atol=0.1)


def test_it_learns_to_reverse_short_sequences():
    mt.manual_seed(0)
    model = Seq2Seq(Seq2SeqConfig(SV + 1, V, 16, 32))
    optimizer = Adam(model.parameters(), lr=1e-2)
    for _ in range(250):
        source, target, lengths = digit_reversal(64, 4, shortest=2)
        _, loss = model(source, *model.shift(target), lengths=lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    source, target, _ = digit_reversal(300, 4)
    written, weights = model.greedy(source, 4)
    assert (written == target).all(1).float().mean().item() > 0.9
    assert weights.mean(0)[0].argmax().item() == 3  # what it writes first stands last


def test_mistakes_are_named():
    model, source, ids = small(), some_ids(2, 5), some_ids(2, 3)
    for lengths in ([5, 6], [0, 5], [5]):
        with pytest.raises(ValueError, match=r"lengths must be \(2,\), each from 1 to 5"):
            model(source, ids, lengths=mt.tensor(lengths))
    with pytest.raises(ValueError, match=r"probability in \[0, 1\], got 1.5"):
        model(source, ids, teacher_forcing=1.5)
    with pytest.raises(IndexError, match="ids must lie in"):
        model(source, ids + V)
    with pytest.raises(IndexError, match="source must lie in"):
        model(source + SV + 1, ids)
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 3\), got \(3, 2\)"):
        model(source, ids, some_ids(3, 2))
    with pytest.raises(ValueError, match="at least one token for the decoder"):
        model(source, ids[:, :0])
    for empty in (source[:0], source[:, :0]):
        with pytest.raises(ValueError, match="at least one source"):
            model(empty, ids[:len(empty)])
    with pytest.raises(ValueError, match=r"source must be \(batch, time\), got shape \(5,\)"):
        model(source[0], ids)
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, got 0"):
        model.greedy(source, 0)
    with pytest.raises(ValueError, match="start_id=11 lies outside target_vocab=8"):
        Seq2Seq(Seq2SeqConfig(SV, 8))
    assert np.array_equal(model(source, ids, lengths=[3, 2])[0].detach().numpy(),
                          model(source, ids, lengths=mt.tensor([3, 2]))[0].detach().numpy())
