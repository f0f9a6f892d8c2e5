# %% [markdown]
# # Lesson 10: one vector for everything, or attention
#
# Before the Transformer, a recurrent network read the source into one vector, and another wrote the target from it.
# However long the source, the vector stays as wide as it is. Attention came in as the cure: look back at the source at
# every step.
#
# The task here: digits in reverse order. A minute and a half. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import digit_reversal
from minitorch_attn.models.seq2seq import Seq2Seq, Seq2SeqConfig
from minitorch_attn.optim import Adam

os.makedirs("out", exist_ok=True)
began = time.perf_counter()

# %% [markdown]
# ## 1. The data
#
# Sequences of 4 to 10 digits in one batch: the shorter ones are filled up with padding (10), and their lengths tell
# the model where they end. A 12 ends each target, so that the model has to know when to stop. An 11 stands for the
# start: it is what the decoder reads before it has written anything. So the source has 11 tokens, 0 to 10, and the
# target 13, 0 to 12. (`Seq2SeqConfig` has these numbers as its defaults: `pad_id`, `start_id`, `end_id`.)

# %%
LONGEST, PAD, END = 10, 10, 12


def batch(n, shortest=4, longest=LONGEST):
    """Sources (n, longest), targets (n, longest + 1) with their end, and lengths (n,)."""
    source, target, lengths = digit_reversal(n, longest, shortest, PAD)
    target = mt.cat([target, mt.full((n, 1), PAD)], dim=1)
    target[mt.arange(n), lengths] = END
    return source, target, lengths


mt.manual_seed(0)
for row in zip(*(x.tolist() for x in batch(3))):
    print(*row)

# %% [markdown]
# ## 2. Train both
#
# The same encoder and decoder, once with attention and once without. *Teacher forcing*: at each step the decoder reads
# the true digit before, not the one that it would have written.


# %%
def train(attention, steps, last_ratio=1.0):
    """A trained model, and the loss of each step; the teacher forcing ratio goes evenly from 1 to `last_ratio`."""
    mt.manual_seed(0)
    model, losses = Seq2Seq(Seq2SeqConfig(11, 13, attention=attention)), []
    optimizer = Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        source, target, lengths = batch(64)
        ratio = 1 + (last_ratio - 1) * step / steps
        _, loss = model(source, *model.shift(target), lengths=lengths, teacher_forcing=ratio)
        optimizer.zero_grad()
        loss.backward()
        mt.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * (1 - step / steps)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def exact(model, length, n=300):
    """The share of sequences of one length that come out right, end and all, when the model reads its own digits."""
    source, target, lengths = batch(n, length, length)
    written = model.greedy(source, length + 1, lengths)[0]
    return (written == target).all(1).float().mean().item() if written.shape == target.shape else 0.0


models, losses, by_length = {}, {}, {}
for name, attention in (("attention", True), ("one vector", False)):
    models[name], losses[name] = train(attention, 700)
    by_length[name] = [exact(models[name], length) for length in range(1, 17)]
    print(f"{name}: after {time.perf_counter() - began:.0f} s")

# %% [markdown]
# ## 3. What one vector holds
#
# Accuracy by length. Training saw lengths 4 to 10. Without attention it falls as more has to go into the vector.

# %%
print("length      " + " ".join(f"{n:4}" for n in range(1, 17)))
for name, scores in by_length.items():
    print(f"{name:11} " + " ".join(f"{s:4.0%}" for s in scores))
seen = slice(3, LONGEST)
print(f"attention, lengths 4 to 10: {np.mean(by_length['attention'][seen]):.1%}")
assert min(by_length["attention"][seen]) >= 0.98
assert by_length["one vector"][LONGEST - 1] < by_length["one vector"][3] - 0.2

# %% [markdown]
# ## 4. Where attention looks
#
# The first digit written is the last one read, and so on: the weights lie along the other diagonal. Nobody told it.

# %%
source, target, _ = batch(200, 10, 10)
written, weights = models["attention"].greedy(source, 11)
looks = weights.numpy()[:, :10].argmax(-1)
print("looks at", looks[0].tolist())
on_diagonal = (looks == np.arange(9, -1, -1)).mean()
print(f"most weight on the mirrored place: {on_diagonal:.1%} of the steps")
assert on_diagonal > 0.9

# %% [markdown]
# ## 5. Exposure bias
#
# In training the decoder always read the truth; alone it reads its own digits, mistakes included, and has never
# learned what to do after one. Compare the share of right digits when it is forced, and when it runs freely, for the
# model that makes mistakes.
#
# Scheduled sampling lets it read its own digits more and more often in training: the teacher forcing ratio falls from
# 1 to 0. That narrows the gap. It has its price: what the model reads is often wrong, and teaches less, so that after
# as many steps both figures are lower.


# %%
def right_digits(model, forced, length=LONGEST):
    """The share of right digits by place, (length,)."""
    mt.manual_seed(1)
    source, target, lengths = batch(500, length, length)
    with mt.no_grad():
        ids, _ = model.shift(target)
        logits, _ = model(source, ids, lengths=lengths, teacher_forcing=1.0 if forced else 0.0)
    return (logits.argmax(-1) == target).numpy()[:, :length].mean(0)


models["less forced"], _ = train(False, 700, last_ratio=0.0)
gaps = {}
for name in ("one vector", "less forced"):
    forced, free = (right_digits(models[name], f) for f in (True, False))
    gaps[name] = forced, free
    print(f"{name:12} forced {forced.mean():.1%}, free {free.mean():.1%}: lost {forced.mean() - free.mean():+.1%}")
print(f"after {time.perf_counter() - began:.0f} s")
lost = {name: forced.mean() - free.mean() for name, (forced, free) in gaps.items()}
assert lost["one vector"] > lost["less forced"] > 0

# %%
figure = Figure(figsize=(11, 7), layout="constrained")
(a, b), (c, d) = figure.subplots(2, 2)
for name, values in losses.items():
    a.semilogy(values, label=name)
    b.plot(range(1, 17), by_length[name], ".-", label=name)
a.set(title="Training", xlabel="step", ylabel="loss (nats a token)")
b.axvspan(4, LONGEST, color="0.93")
b.set(title="Whole sequences right (grey: lengths trained)", xlabel="length", ylabel="share", ylim=(-0.02, 1.02))
c.imshow(weights.numpy()[0], cmap="Blues", vmin=0, vmax=1)
c.set_xticks(range(10), source[0].tolist())
c.set_yticks(range(11), [*target[0].tolist()[:10], "end"])
c.set(title="Alignment", xlabel="read", ylabel="written")
for name, (forced, free) in gaps.items():
    line, = d.plot(range(1, LONGEST + 1), forced, label=f"{name}, forced")
    d.plot(range(1, LONGEST + 1), free, "--", color=line.get_color(), label=f"{name}, free")
d.set(title="Right digits by place, length 10", xlabel="place", ylabel="share")
for ax, place in ((a, "best"), (b, "lower left"), (d, "best")):
    ax.legend(frameon=False, loc=place)
figure.savefig("out/10_seq2seq.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the model without attention twice the width. How far does that move the length at which it fails?
# 2. Sequences of 12 to 16 digits were never trained. What does the model with attention do there? Look at its weights.
# 3. Let it copy instead of reverse. Which of the two is harder without attention, and why? (What was read last is
#    freshest.)
