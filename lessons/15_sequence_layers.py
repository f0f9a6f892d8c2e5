# %% [markdown]
# # Lesson 15: recurrence, convolution, attention, side by side
#
# Three ways to read a sequence. Table 1 of "Attention Is All You Need" compares them by three numbers: how far apart
# two tokens are inside the network, how many steps have to wait for each other, and how much is computed. Here they
# are compared, by formula and, where it can be done, by measuring; and then the models get a task where distance is
# all that is hard.
#
# Half a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.sequence import ConvolutionConfig, ConvolutionModel, RecurrentConfig, RecurrentModel
from minitorch_attn.optim import AdamW

F = nn.functional
os.makedirs("out", exist_ok=True)
V, C = 16, 32


def make(name, T):
    """A model that reads T tokens; the convolutions get as many layers as they need to see all of them."""
    mt.manual_seed(0)
    if name == "attention":
        return GPT(GPTConfig(V, block_size=T, n_layer=1, n_head=2, n_embd=C))
    if name == "convolution":
        return ConvolutionModel(ConvolutionConfig(V, n_layer=max(1, (T - 1).bit_length()), n_embd=C))
    return RecurrentModel(RecurrentConfig(V, n_embd=C, cell=name))


NAMES = ("rnn", "gru", "convolution", "attention")

# %% [markdown]
# ## 1. How far is it from the first token to the last?
#
# Counted in layers or steps that what the first token says has to pass. In a recurrent network each state is made from
# the one before it, so by its formula $h_t = f(h_{t-1}, x_t)$ it is T. For the other two we measure it: change the
# first token, and find the least number of layers with which the last place notices. That is one for attention, and
# about log2 T for convolutions whose reach doubles from layer to layer.


# %%
def layers_needed(make_model, T):
    """The least number of layers with which the last of T places notices another first token."""
    ids = mt.randint(0, V, (1, T))
    changed = ids.clone()
    changed[0, 0] = (ids[0, 0] + 1) % V
    for layers in range(1, 10):
        mt.manual_seed(0)
        model = make_model(layers, T)
        with mt.no_grad():
            if (model(ids)[0][0, -1] != model(changed)[0][0, -1]).any():
                return layers


makers = {"convolution": lambda layers, T: ConvolutionModel(ConvolutionConfig(V, n_layer=layers, n_embd=C)),
          "attention": lambda layers, T: GPT(GPTConfig(V, block_size=T, n_layer=layers, n_head=2, n_embd=C))}
distances = (4, 16, 64, 256)
print("T                        " + "".join(f"{T:6}" for T in distances))
print("rnn, gru (by formula)    " + "".join(f"{T:6}" for T in distances))
for name, make_model in makers.items():
    needed = [layers_needed(make_model, T) for T in distances]
    print(f"{name + ' (measured)':25}" + "".join(f"{n:6}" for n in needed))
    assert needed == ([2, 4, 6, 8] if name == "convolution" else [1, 1, 1, 1])

# %% [markdown]
# What passes many steps fades. How much does the last prediction move when the first token's vector does? Gradients of
# untrained models, relative to that of the last token's own vector.

# %%
fades = {name: [] for name in NAMES}
lengths = (4, 8, 16, 32, 64, 128)
for T in lengths:
    ids = mt.arange(T)[None] % V
    ids[0, 0], ids[0, -1] = 0, V - 1
    ids[0, 1:-1] = mt.randint(1, V - 1, (T - 2,))  # the first and the last token occur once
    for name in NAMES:
        model = make(name, T)
        (model(ids)[0][0, -1] * mt.randn(V)).sum().backward()
        if name == "attention":  # its input is token + position, so the gradient of either is that of the input;
            weight, first, last = model.pos_emb.weight, 0, T - 1  # the tokens' has a part from the output layer, too
        else:
            weight, first, last = model.tok_emb.weight, 0, V - 1
        size = np.linalg.norm(weight.grad.numpy(), axis=1)
        fades[name].append(size[first] / size[last])
print("T            " + "".join(f"{T:9}" for T in lengths))
for name in NAMES:
    print(f"{name:13}" + "".join(f"{f:9.1e}" for f in fades[name]))
assert fades["rnn"][-1] < 1e-6 < fades["attention"][-1]

# %% [markdown]
# ## 2. How many steps wait for each other, and what does it cost?
#
# One layer of each kind, on vectors. In a recurrent layer each step needs the result of the one before it: T steps
# that wait. In the others each place can be computed by itself from the inputs, in any order or all at once. To see
# it, we compute place 20 of 32 alone, from the inputs.

# %%
mt.manual_seed(0)
gru, attention, convolution = nn.GRU(C, C, batch_first=True), nn.GroupedQueryAttention(C, 2), nn.Conv1d(C, C, 2)


def convolve(x):
    return convolution(F.pad(x.transpose(1, 2), (1, 0))).transpose(1, 2)  # (B, T, C) -> (B, C, 1 + T) -> (B, T, C)


layers = {"gru": lambda x: gru(x)[0], "convolution": convolve, "attention": lambda x: attention(x, is_causal=True)}
x, t = mt.randn(1, 32, C), 20
with mt.no_grad():
    state, steps = None, 0
    for i in range(t + 1):
        alone, state = gru(x[:, i:i + 1], state)
        steps += 1
    places = {"gru": alone, "convolution": convolve(x[:, t - 1:t + 1])[:, 1:],
              "attention": attention(x[:, t:t + 1], x[:, :t + 1])}
    for name, layer in layers.items():
        apart = (places[name][:, 0] - layer(x)[:, t]).abs().max().item()
        print(f"{name:13} place {t} after {steps if name == 'gru' else 1:2} step{'s' if name == 'gru' else ' '}: "
              f"largest difference from the whole layer {apart:.0e}")
        assert apart < 1e-5
    forgetful = (gru(x[:, t:t + 1])[0][:, 0] - gru(x)[0][:, t]).abs().max().item()
print(f"a gru that does not wait for the state before is wrong by {forgetful:.2f}")
assert forgetful > 0.05 and steps == t + 1

# %% [markdown]
# The cost, counted by formula: how many multiplications. Attention pays with T^2 scores.

# %%
sizes = (128, 256, 512, 1024, 2048)
costs = {"gru": lambda T: 6 * T * C * C, "convolution": lambda T: 2 * T * C * C,
         "attention": lambda T: 4 * T * C * C + 2 * T * T * C}
print("T            " + "".join(f"{T:12,}" for T in sizes))
for name, cost in costs.items():
    print(f"{name:13}" + "".join(f"{cost(T):12,}" for T in sizes))

# %% [markdown]
# And measured: milliseconds of the processor, forward, for the layer alone, and the power of T by which they grow.

# %%
times, powers = {}, {}
with mt.no_grad():
    for name, layer in layers.items():
        times[name] = []
        for T in sizes:
            x, spent = mt.randn(2, T, C), []
            for _ in range(7):
                start = time.thread_time()
                layer(x)
                spent.append(time.thread_time() - start)
            times[name].append(min(spent))
        powers[name] = np.polyfit(np.log(sizes[-3:]), np.log(times[name][-3:]), 1)[0]
        print(f"{name:13}" + "".join(f"{s * 1e3:8.2f}" for s in times[name]) + f"   grows as T^{powers[name]:.1f}")
assert powers["attention"] > 1.5 and max(powers["gru"], powers["convolution"]) < 1.3
assert times["gru"][1] > 1.5 * times["attention"][1] and costs["gru"](256) < costs["attention"](256)

# %% [markdown]
# At T = 256 the GRU has fewer multiplications than attention, and takes longer: many small products, one after
# another, where attention has a few large ones. For long sequences its T^2 scores outweigh that. (The convolution's
# time grows more slowly than T as long as the price of the few calls from Python counts.)

# %% [markdown]
# ## 3. Remember the first token
#
# After T random tokens, name the first one. Each model trains for the same number of steps. A path of one step is
# found at once. The convolutions' path is short, but all its layers have to learn to pass the same thing on.


# %%
def recall(name, T, steps=150):
    """The share of first tokens that are named rightly after training."""
    model = make(name, T)
    optimizer = AdamW(model.parameters(), lr=5e-3)

    def batch(n):
        ids = mt.randint(0, V, (n, T))
        targets = mt.full((n, T), -100)
        targets[:, -1] = ids[:, 0]
        return ids, targets

    for _ in range(steps):
        _, loss = model(*batch(64))
        optimizer.zero_grad()
        loss.backward()
        mt.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    ids, targets = batch(400)
    with mt.no_grad():
        return (model(ids)[0][:, -1].argmax(-1) == targets[:, -1]).float().mean().item()


scores = {name: [recall(name, T) for T in (4, 16, 48)] for name in NAMES}
print("T              4     16     48   (chance: 6%)")
for name in NAMES:
    print(f"{name:13}" + "".join(f"{s:6.0%} " for s in scores[name]))
assert scores["attention"][2] > 0.95 and scores["rnn"][2] < 0.5

# %%
figure = Figure(figsize=(11, 3.8), layout="constrained")
a, b, c = figure.subplots(1, 3)
colours = dict(zip(NAMES, ("C0", "C1", "C2", "C3")))
for name in NAMES:
    not_zero = [fade or np.nan for fade in fades[name]]  # too small for float32: no point
    a.loglog(lengths, not_zero, ".-", color=colours[name], label=name)
a.set_xscale("log", base=2)
a.set(title="How much of the first token arrives", xlabel="T", ylabel="gradient, relative to the last token's")
for name, spent in times.items():
    b.loglog(sizes, [s * 1e3 for s in spent], ".-", color=colours[name], label=name)
b.set_xscale("log", base=2)
b.set(title="Time of one layer, forward", xlabel="T", ylabel="milliseconds")
for name in NAMES:
    c.plot((4, 16, 48), scores[name], ".-", color=colours[name], label=name)
c.set_xscale("log", base=2)
c.set(title="First token remembered", xlabel="T", ylabel="share", ylim=(0, 1.05))
for ax in (a, b, c):
    ax.legend(frameon=False)
figure.savefig("out/15_sequence_layers.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the gated network three times the steps. Does it learn T = 48?
# 2. Replace the GRU by an LSTM whose forget gate starts open: set the second quarter of `bias_ih` to 2 (the quarters
#    belong to input gate, forget gate, new content, output gate). What does that change in section 1?
# 3. At which T does attention become slower than the GRU here, and why does that depend on C?
