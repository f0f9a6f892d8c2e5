# %% [markdown]
# # Lesson 11: the encoder-decoder Transformer turns dates into one form
#
# "Wednesday, 7 March 1973", "7.3.73", "Mar 7 1973": one day, many ways to write it. The Transformer of "Attention Is
# All You Need" learns to read any of them and to write `1973-03-07`. Nobody tells it what a month is.
#
# The encoder reads the whole source, every character looking at every other. The decoder writes one character at a
# time; it looks at what it has written so far (causal self-attention) and at the source (cross-attention).
#
# About a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import date_pairs
from minitorch_attn.models.transformer import Transformer, TransformerConfig
from minitorch_attn.optim import AdamW
from minitorch_attn.optim.lr_scheduler import LambdaLR
from minitorch_attn.text.characters import CharacterTokenizer

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. The data
#
# 21,000 days of the years 1950 to 2049, each written in one of eight ways. No day comes twice, so the last 1,000 are
# days that training never sees.

# %%
pairs = date_pairs(21_000)
for written, iso in pairs[:5]:
    print(f"{written:30} {iso}")

PAD, START, END = 0, 1, 2  # ids of our own; those of the characters come after them
reading = CharacterTokenizer("".join(written for written, _ in pairs))
writing = CharacterTokenizer("0123456789-")


def table(rows):
    """Lists of different lengths as one tensor, filled up with padding."""
    width = max(map(len, rows))
    return mt.tensor([row + [PAD] * (width - len(row)) for row in rows])


source = table([[i + 3 for i in reading.encode(written)] for written, _ in pairs])
target = table([[i + 3 for i in writing.encode(iso)] + [END] for _, iso in pairs])
seen, unseen = slice(0, 20_000), slice(20_000, 21_000)
print("source", source.shape, "target", target.shape)


def text(ids):
    return writing.decode([i - 3 for i in ids.tolist() if i > END])


# %% [markdown]
# ## 2. Training, with the truth as input
#
# While it learns, the decoder reads the true characters and is asked for the next one at every place at once: this is
# *teacher forcing*. `shift` makes both from the target.

# %%
model = Transformer(TransformerConfig(len(reading) + 3, len(writing) + 3, block_size=32, n_layer=2, n_embd=64))
ids, answers = model.shift(target[:1])
print("reads  ", ids.tolist()[0], "\nanswers", answers.tolist()[0])
print(sum(w.numel() for w in model.parameters()), "parameters")

STEPS = 800
optimizer = AdamW(model.parameters(), lr=3e-3)
schedule = LambdaLR(optimizer, lambda step: min(1, (step + 1) / 100) * (1 - step / STEPS))  # warm up, then down


def exact(part):
    """Which share of these dates is right in every character."""
    return (model.greedy(source[part], 11) == target[part]).all(1).float().mean().item()


losses, scores = [], []
for step in range(STEPS):
    rows = mt.randint(0, 20_000, (64,))
    _, loss = model(source[rows], *model.shift(target[rows]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
    if step % 100 == 99:
        scores.append(exact(slice(20_000, 20_200)))
        print(f"step {step + 1}: loss {np.mean(losses[-50:]):.4f}, exact on 200 unseen dates {scores[-1]:.1%}")

# %% [markdown]
# ## 3. Days that it never saw
#
# Now nobody forces anything: it reads its own characters.

# %%
score = exact(unseen)
print(f"exact on 1,000 unseen dates: {score:.1%}, after {time.perf_counter() - began:.0f} s")
assert score >= 0.99

# %% [markdown]
# ## 4. Greedy, beam, and the cache
#
# Greedy decoding takes the likeliest character each time. A beam keeps several beginnings and can take back a choice;
# a model that is this sure has nothing to take back. What a cache saves: without it, each new character means reading
# all earlier ones again.

# %%
few = source[unseen][:200]
best, scores_of = model.beam(few, 11, width=4)
by_beam = (best == target[unseen][:200]).all(1).float().mean().item()
print("beam of 4, exact:", by_beam)
spent, found = {True: [], False: []}, {}
for _ in range(3):
    for cache in spent:
        start = time.thread_time()  # processor time: what else the computer does counts less
        found[cache] = model.greedy(few, 11, use_cache=cache).tolist()
        spent[cache].append(time.thread_time() - start)
for cache, times in spent.items():
    print(f"greedy, cache {cache}: {min(times):.2f} s")
assert found[True] == found[False] and by_beam >= 0.98 and min(spent[True]) < 0.8 * min(spent[False])

doubtful = scores_of.argsort()[:3].tolist()
for i in doubtful:
    print(f"least sure of: {pairs[20_000 + i][0]!r} -> {text(best[i])}, probability {np.exp(scores_of[i].item()):.3f}")

# %% [markdown]
# ## 5. Where it looks
#
# Each line of the picture is a character that it writes, each column one that it reads. The figures of the year and of
# the day look straight at theirs. Those of the month spread over its name: no single letter tells it.

# %%
index = next(i for i in range(20_000, 21_000) if len(pairs[i][0]) > 22)
with mt.no_grad():
    _, _, weights = model(source[index:index + 1], model.shift(target[index:index + 1])[0], need_weights=True)
read, wrote = pairs[index]
look = np.mean([w.numpy()[0].mean(0) for w in weights], axis=0)[:10, :len(read)]  # mean over layers and heads

figure = Figure(figsize=(9, 7), layout="constrained")
left, right = figure.subplots(2, 1, height_ratios=[1, 1.4])
left.semilogy(losses)
left.set(xlabel="step", ylabel="loss (nats a character)", title="Training")
right.imshow(look, cmap="Blues", aspect="auto")
right.set_xticks(range(len(read)), list(read))
right.set_yticks(range(10), list(wrote))
right.set(title="Where the decoder looks as it writes each character", xlabel="read", ylabel="written")
figure.savefig("out/11_dates.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Leave out `source_pos` (set its weight to zero and keep it there). Which of the eight ways of writing suffer?
# 2. Train with dates up to 2019 only and test on those after. Does it know that the figures go on?
# 3. Give it a date in a way that it never saw, such as "7 Mar 1973". What does it take from the ways that it knows?
