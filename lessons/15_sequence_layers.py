# %% [markdown]
# # Lesson 15: recurrence, convolution, attention, side by side
#
# Three ways to read a sequence. Table 1 of "Attention Is All You Need" compares them by three numbers: how far apart
# two tokens are inside the network, how many steps have to wait for each other, and how much is computed. Here all
# three are measured, and then the models get a task where distance is all that is hard.
#
# Half a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.sequence import ConvolutionConfig, ConvolutionModel, RecurrentConfig, RecurrentModel
from minitorch_attn.optim import AdamW

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
# Counted in layers or steps that what the first token says has to pass: T in a recurrent network, as many layers as a
# stack of dilated convolutions needs to reach back so far (log2 T), one in attention. To see it, we change the first
# token and look whether the last place notices.

# %%
print("T            " + "".join(f"{T:6}" for T in (4, 16, 64, 256)))
for name in NAMES:
    row = []
    for T in (4, 16, 64, 256):
        if name == "attention":
            row.append(1)
        elif name == "convolution":
            layers = 1
            while ConvolutionModel(ConvolutionConfig(V, n_layer=layers, n_embd=2)).reach < T:
                layers += 1
            row.append(layers)
        else:
            row.append(T)
    print(f"{name:13}" + "".join(f"{n:6}" for n in row))

T = 64
ids = mt.randint(0, V, (1, T))
changed = ids.clone()
changed[0, 0] = (ids[0, 0] + 1) % V
for layers in (5, 6):
    mt.manual_seed(0)
    model = ConvolutionModel(ConvolutionConfig(V, n_layer=layers, n_embd=C))
    noticed = bool((model(ids)[0][0, -1] != model(changed)[0][0, -1]).any())
    print(f"{layers} dilated layers, reach {model.reach}: the last of {T} tokens notices the first: {noticed}")
    assert noticed == (model.reach >= T)

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
        size = np.linalg.norm(model.tok_emb.weight.grad.numpy(), axis=1) if name != "attention" else None
        if name == "attention":  # its output layer shares the embedding's weight: look at the positions instead
            size = np.linalg.norm(model.pos_emb.weight.grad.numpy(), axis=1)
            fades[name].append(size[0] / size[T - 1])
        else:
            fades[name].append(size[0] / size[V - 1])
print("T            " + "".join(f"{T:9}" for T in lengths))
for name in NAMES:
    print(f"{name:13}" + "".join(f"{f:9.1e}" for f in fades[name]))
assert fades["rnn"][-1] < 1e-6 < fades["attention"][-1]

# %% [markdown]
# ## 2. How many steps wait for each other, and what does it cost?
#
# A recurrent network has T products that need each other's result; the others compute all places at once. Attention
# pays with T^2 scores. Milliseconds for one layer, forward, and the power of T by which they grow.

# %%
sizes, times = (128, 256, 512, 1024, 2048), {}
with mt.no_grad():
    for name in ("gru", "convolution", "attention"):
        times[name] = []
        for T in sizes:
            model = make(name, T if name == "attention" else 2)
            ids, spent = mt.randint(0, V, (2, T)), []
            for _ in range(4):
                start = time.perf_counter()
                model(ids)
                spent.append(time.perf_counter() - start)
            times[name].append(min(spent))
        power = np.polyfit(np.log(sizes[-3:]), np.log(times[name][-3:]), 1)[0]
        print(f"{name:13}" + "".join(f"{s * 1e3:8.2f}" for s in times[name]) + f"   grows as T^{power:.1f}")

# %% [markdown]
# Multiplications of one layer, counted: they say the same without a clock.

# %%
print("T            " + "".join(f"{T:12}" for T in sizes) + "   steps that wait")
for name, cost, waits in (("gru", lambda T: 6 * T * C * C, "T"), ("convolution", lambda T: 2 * T * C * C, "1"),
                          ("attention", lambda T: 4 * T * C * C + 2 * T * T * C, "1")):
    print(f"{name:13}" + "".join(f"{cost(T):12,}" for T in sizes) + f"   {waits}")

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
for name in NAMES:
    a.loglog(lengths, fades[name], ".-", label=name)
a.set_xscale("log", base=2)
a.set(title="How much of the first token arrives", xlabel="T", ylabel="gradient, relative to the last token's")
for name, spent in times.items():
    b.loglog(sizes, [s * 1e3 for s in spent], ".-", label=name)
b.set_xscale("log", base=2)
b.set(title="Time of one layer", xlabel="T", ylabel="milliseconds")
for name in NAMES:
    c.plot((4, 16, 48), scores[name], ".-", label=name)
c.set_xscale("log", base=2)
c.set(title="First token remembered", xlabel="T", ylabel="share", ylim=(0, 1.05))
for ax in (a, b, c):
    ax.legend(frameon=False)
figure.savefig("out/15_sequence_layers.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the gated network three times the steps. Does it learn T = 48?
# 2. Replace the GRU by an LSTM whose forget gate starts open (its bias at 2). What does that change in section 1?
# 3. At which T does attention become slower than the GRU here, and why does that depend on C?
