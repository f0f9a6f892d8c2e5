import time

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.generate import generate
from minitorch_attn.models.sequence import ConvolutionConfig, ConvolutionModel, RecurrentConfig, RecurrentModel
from minitorch_attn.optim import Adam
from tests.harness import draw

V, C = 11, 7
MODELS = {"rnn": lambda: RecurrentModel(RecurrentConfig(V, n_layer=2, n_embd=C, cell="rnn")),
          "gru": lambda: RecurrentModel(RecurrentConfig(V, n_layer=2, n_embd=C, cell="gru")),
          "lstm": lambda: RecurrentModel(RecurrentConfig(V, n_layer=2, n_embd=C, cell="lstm")),
          "dilated": lambda: ConvolutionModel(ConvolutionConfig(V, n_layer=3, n_embd=C, kernel_size=2)),
          "plain": lambda: ConvolutionModel(ConvolutionConfig(V, n_layer=2, n_embd=C, kernel_size=3, dilated=False))}


def small(name, dtype=mt.float64):
    mt.manual_seed(0)
    model = MODELS[name]()
    return model.double() if dtype == mt.float64 else model


def some_ids(B, T, seed=0):
    return mt.tensor(np.random.default_rng(seed).integers(0, V, (B, T)))


def test_recurrent_models_equal_pytorch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ids = some_ids(3, 5)
    for name, kind in (("rnn", torch.nn.RNN), ("gru", torch.nn.GRU), ("lstm", torch.nn.LSTM)):
        model = small(name)
        w = {n: torch.from_numpy(p.detach().numpy()) for n, p in model.named_parameters()}
        twin = kind(C, C, 2, batch_first=True).double()
        twin.load_state_dict({n.removeprefix("cell."): p for n, p in w.items() if n.startswith("cell.")})
        y = twin(w["tok_emb.weight"][torch.from_numpy(ids.numpy())])[0]
        wanted = (y @ w["head.weight"].T + w["head.bias"]).detach().numpy()
        np.testing.assert_allclose(model(ids)[0].detach().numpy(), wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["dilated", "plain"])
def test_convolutions_equal_the_plain_version(name):
    model, ids = small(name), some_ids(1, 9)
    w = {n: p.detach().numpy() for n, p in model.named_parameters()}

    def norm(x, layer):
        centred = x - x.mean(-1, keepdims=True)
        x = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return x * w[layer + ".weight"] + w[layer + ".bias"]

    x = w["tok_emb.weight"][ids.numpy()[0]]
    for i in range(len(model.layers)):
        h, kernel = norm(x, f"layers.{i}.ln"), w[f"layers.{i}.conv.weight"]
        k = kernel.shape[2]
        dilation, y = k**i if name == "dilated" else 1, np.zeros_like(x)
        for t in range(9):
            y[t] = w[f"layers.{i}.conv.bias"]
            for j in range(k):
                s = t - (k - 1 - j) * dilation
                y[t] += kernel[:, :, j] @ h[s] if s >= 0 else 0
        x = x + mt.nn.functional.gelu(mt.tensor(y)).numpy()
    wanted = norm(x, "ln") @ w["head.weight"].T + w["head.bias"]
    np.testing.assert_allclose(model(ids)[0].detach().numpy()[0], wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_every_parameter_along_random_directions(name):
    model, ids, cotangent, h = small(name), some_ids(2, 5), mt.tensor(draw(2, 5, V)), 1e-6
    (model(ids)[0] * cotangent).sum().backward()
    for i, (which, w) in enumerate(model.named_parameters()):
        start, direction, values = w.detach().clone(), mt.tensor(draw(*w.shape, seed=i)), []
        with mt.no_grad():
            for sign in (1, -1):
                w.copy_(start + sign * h * direction)
                values.append((model(ids)[0] * cotangent).sum().item())
            w.copy_(start)
        np.testing.assert_allclose((w.grad * direction).sum().item(), (values[0] - values[1]) / (2 * h), rtol=1e-6,
                                   atol=1e-8, err_msg=which)


@pytest.mark.parametrize("name", MODELS)
def test_float32_stays_and_the_loss_counts_answers(name):
    model, targets = small(name, mt.float32), some_ids(2, 5, seed=1)
    targets[1, 2:] = -100
    logits, loss = model(some_ids(2, 5), targets)
    loss.backward()
    assert loss.dtype == mt.float32 and all(w.grad.dtype == mt.float32 for w in model.parameters())
    z, t = logits.detach().numpy(), targets.numpy()
    logp = z - np.log(np.exp(z).sum(-1, keepdims=True))
    wanted = -np.mean([logp[b, i, t[b, i]] for b in range(2) for i in range(5) if t[b, i] >= 0])
    np.testing.assert_allclose(loss.item(), wanted, rtol=1e-5)


def depends_on(model, T=24):
    """How far each of the tokens before the last one is, if the last prediction depends on it."""
    ids = some_ids(1, T)
    last = model(ids)[0].detach().numpy()[0, -1]
    found = []
    for back in range(T):
        changed = ids.clone()
        changed[0, T - 1 - back] = (ids[0, T - 1 - back] + 1) % V
        if np.abs(model(changed)[0].detach().numpy()[0, -1] - last).max() > 1e-15:
            found.append(back)
    return found


def test_a_convolution_reaches_as_far_as_it_says_and_a_recurrence_to_the_start():
    assert small("dilated").reach == 8 and depends_on(small("dilated")) == list(range(8))
    assert small("plain").reach == 5 and depends_on(small("plain")) == list(range(5))
    for name in ("rnn", "gru", "lstm"):
        assert depends_on(small(name)) == list(range(24))


@pytest.mark.parametrize("name", MODELS)
def test_a_later_token_changes_nothing_before_it(name):
    model, ids = small(name), some_ids(2, 8)
    changed = ids.clone()
    changed[:, 5] = (ids[:, 5] + 1) % V
    before, after = (model(i)[0].detach().numpy() for i in (ids, changed))
    assert np.array_equal(before[:, :5], after[:, :5]) and (np.abs(before - after)[:, 5].max(-1) > 1e-9).all()


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_reading_in_pieces_through_the_cache_equals_reading_at_once(name):
    model, ids = small(name), some_ids(2, 9)
    cache, start, parts = model.new_cache(), 0, []
    for n in (4, 1, 1, 3):
        parts.append(model(ids[:, start:start + n], cache=cache)[0])
        start += n
        assert len(cache) == start
    np.testing.assert_allclose(mt.cat(parts, 1).detach().numpy(), model(ids)[0].detach().numpy(), rtol=1e-10)
    made = [generate(model, ids, 20, temperature=0, use_cache=use_cache).tolist() for use_cache in (True, False)]
    assert made[0] == made[1]


@pytest.mark.timed
def test_time_per_token_stays_flat_with_the_cache():
    model = small("gru", mt.float32)
    with mt.no_grad():
        cache, times = model.new_cache(), []
        for _ in range(1000):
            began = time.thread_time()
            model(mt.tensor([[3]]), cache=cache)
            times.append(time.thread_time() - began)
    assert np.quantile(times[950:], 0.25) < 1.5 * np.quantile(times[75:125], 0.25)


@pytest.mark.parametrize("name", ["gru", "dilated"])
def test_it_learns_what_lies_within_reach(name):
    mt.manual_seed(0)
    model = MODELS[name]()
    optimizer = Adam(model.parameters(), lr=2e-2)

    def batch(n):  # what comes next is what stood two tokens before
        ids = mt.randint(0, V, (n, 8))
        targets = mt.cat([mt.full((n, 2), -100), ids[:, :-2]], dim=1)
        return ids, targets

    for _ in range(300):
        _, loss = model(*batch(64))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids, targets = batch(200)
    right = (model(ids)[0].argmax(-1) == targets).float()[:, 2:].mean().item()
    assert right > 0.9


def test_another_cell_is_named():
    with pytest.raises(ValueError, match="got 'mamba'"):
        RecurrentModel(RecurrentConfig(V, cell="mamba"))
    with pytest.raises(IndexError):
        small("gru")(mt.tensor([[V]]))
