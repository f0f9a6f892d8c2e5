# %% [markdown]
# # Lesson 14: from GPT to Llama, and what a cache saves
#
# Most language models since 2023 are built alike: norms that only scale (RMSNorm), positions that turn (RoPE), a gated
# feed-forward net (SwiGLU), and query heads that share keys and values (grouped queries). Here is what they cost and
# save, in numbers, on a model that is small enough to train in a minute. (RMSNorm is measured in lesson 8.) Then the
# rest of a language model: how text becomes tokens, how the next one is drawn, and what it costs.
#
# A minute or two. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import itertools
import math
import random
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import tang_poems
from minitorch_attn.generate import generate, keep_top_k, keep_top_p, temper
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.llama import Llama, LlamaConfig
from minitorch_attn.optim import AdamW
from minitorch_attn.text.byte_pair import BytePairTokenizer

os.makedirs("out", exist_ok=True)


def count(module):
    return sum(w.numel() for w in module.parameters())


# %% [markdown]
# ## 1. The same size, differently spent
#
# A GPT block of width C has 4 C^2 parameters for attention and 8 C^2 for its net of width 4C. A gated net has three
# matrices, so that its width must be 8C/3 for the same 8 C^2. Grouped queries with K key and value heads for H query
# heads bring the 2 C^2 for keys and values down to 2 C^2 K / H, and, what matters more, the cache likewise. Below,
# K = 1 for H = 4 leaves a quarter of it.

# %%
C = 96
gpt = GPT(GPTConfig(100, n_layer=1, n_head=4, n_embd=C))
llama = Llama(LlamaConfig(100, n_layer=1, n_head=4, n_embd=C))
grouped = Llama(LlamaConfig(100, n_layer=1, n_head=4, n_kv_head=1, n_embd=C))
print(f"C = {C}: in units of C^2, biases counted too (the GPT has them)")
for name, block in (("GPT", gpt.blocks[0]), ("Llama", llama.blocks[0]), ("Llama, K = 1", grouped.blocks[0])):
    print(f"  {name:13} attention {count(block.attn) / C**2:.2f}, feed-forward {count(block.mlp) / C**2:.2f}")
print("  width inside the net: GPT", 4 * C, "Llama", llama.config.n_hidden, "= 8C/3")
assert count(llama.blocks[0].mlp) == 8 * C**2 and count(grouped.blocks[0].attn) == 2.5 * C**2

# %% [markdown]
# ## 2. Turning keeps lengths, and only distances count
#
# RoPE turns each pair of entries of queries and keys by an angle that grows with the position. Their product then
# depends on how far apart they are, not on where.

# %%
F = mt.nn.functional
mt.manual_seed(0)
q, k = mt.randn(1, 32), mt.randn(1, 32)
near, far = ((F.rotary(q, offset=t) * F.rotary(k, offset=t - 3)).sum().item() for t in (3, 1003))
print(f"product at positions 3 and 0: {near:.5f}, at 1003 and 1000: {far:.5f}")
assert abs(near - far) < 1e-3

# %% [markdown]
# ## 3. Scores that cannot run away
#
# With large matrices for queries and keys, or after long training at a high rate, the scores q.k grow and the softmax
# becomes a hard choice that no longer learns. (Lesson 8 lets them grow in training.) QK-Norm divides queries and keys
# by their own root mean square first, so that scores have about the same size whatever the matrices: sharper than
# without at the start, where those are small, and never sharper later.
#
# The matrices are multiplied by 1, 4, 16 and 64. Shown are the largest score, and the entropy of the sharpest row of
# weights among the last tokens: log 32 = 3.47 nats if all 32 tokens get the same, 0 if one gets all.

# %%
ids = mt.randint(0, 100, (4, 32))
TIMES, largest, sharpest = (1, 4, 16, 64), {}, {}
for qk_norm in (False, True):
    name = f"{'with' if qk_norm else 'without'} QK-Norm"
    largest[name], sharpest[name] = [], []
    for times in TIMES:
        mt.manual_seed(0)
        model = Llama(LlamaConfig(100, n_layer=1, n_embd=64, qk_norm=qk_norm))
        attn = model.blocks[0].attn
        with mt.no_grad():
            attn.q.weight *= times
            attn.k.weight *= times
            weights = model(ids, need_weights=True)[2][0].numpy()[:, :, -1]
            x = model.blocks[0].norm_1(model.tok_emb(ids))
            q, k = attn.q_norm(attn.heads(attn.q(x))), attn.k_norm(attn.heads(attn.k(x)))
            scores = F.rotary(q) @ F.rotary(k).transpose(-2, -1) / math.sqrt(attn.width)
        largest[name].append(scores.abs().max().item())
        sharpest[name].append(-(weights * np.log(np.maximum(weights, 1e-30))).sum(-1).min())
print("matrices of q and k times          " + "".join(f"{times:8}" for times in TIMES))
for name in largest:
    print(f"{name:16} largest score     " + "".join(f"{score:8.2f}" for score in largest[name]))
    print(f"{'':16} least entropy     " + "".join(f"{entropy:8.2f}" for entropy in sharpest[name]))
free, normed = largest.values()
assert abs(free[-1] / free[0] / 64**2 - 1) < 0.01 and max(normed) / min(normed) - 1 < 0.01 and max(normed) < 10
free, normed = sharpest.values()
assert free[0] > 3.4 and free[-1] < 0.5 and max(normed) - min(normed) < 0.01 and min(normed) > 2

# %% [markdown]
# ## 4. Text as bytes in pairs
#
# A model needs a finite list of tokens. Characters are too many (Unicode has over 150,000), and words are never all
# known. Byte-pair encoding starts from the 256 bytes, which can write any text, and then, again and again, makes the
# commonest pair of neighbours a new token. In a small text one can follow it:

# %%
small = BytePairTokenizer.train("low low low lower lowest new newer newest", 256 + 9, special_tokens=["<|end|>"])
for (left, right), new in small.rank.items():
    print(f"merge {new}: {small.vocabulary[left]!r:6} + {small.vocabulary[right]!r:5} = {small.vocabulary[new]!r}")
print("'lower slow' becomes", [small.vocabulary[i] for i in small.encode("lower slow")])
assert small.vocabulary[257] == b"low" and len(small.encode("low low")) == 2

# %% [markdown]
# No merge crosses from a word into the next; a space goes with the word behind it.
#
# A *special token* stands for no text: here the end of a document. It has an id of its own, after the merges. If a
# text merely spells it, that must not make one, or a user could end the document: `encode` refuses, unless it is told
# what to do.

# %%
try:
    small.encode("low<|end|>")
except ValueError as error:
    print("refused:", error)
as_token, as_text = (small.encode("low<|end|>", special=how) for how in ("allow", "text"))
print("allowed:", as_token, " as mere text:", as_text)
assert as_token == [257, small.special_ids["<|end|>"]] and small.special_ids["<|end|>"] not in as_text

random.seed(0)
for _ in range(300):  # any bytes come back, even such as are no text
    data = random.randbytes(random.randrange(40))
    assert small.decode_bytes(small.encode_bytes(data)) == data
print("300 random strings of bytes, encoded and decoded: all equal")

# %% [markdown]
# A Chinese character is three bytes. The model may stop in the middle of one, and then there is no character to show:
# `decode` writes the replacement character U+FFFD (a question mark in a diamond) for what is no complete UTF-8.

# %%
pieces = small.encode("月")
print("月 as tokens:", pieces, "the first two alone:", ascii(small.decode(pieces[:2])), "all:", small.decode(pieces))
assert small.decode(pieces[:2]) == "\ufffd" and small.decode(pieces) == "月"

# %% [markdown]
# How much is gained depends on the text. The four poems hardly repeat themselves: after 27 merges no pair occurs
# twice, and training stops. So there are more tokens than characters. In a larger text (here the library's own
# descriptions of its functions, in English) the merges grow to words.

# %%
poems = tang_poems()
tokenizer = BytePairTokenizer.train(poems, 256 + 40, special_tokens=["<|pad|>"])
print(f"the poems: {len(poems)} characters, {len(poems.encode())} bytes, {len(tokenizer.merges)} merges, "
      f"{len(tokenizer.encode(poems))} tokens")
assert len(poems) < len(tokenizer.encode(poems)) < len(poems.encode())
assert tokenizer.decode(tokenizer.encode(poems)) == poems

english = "\n".join(f.__doc__ for _, f in sorted(vars(F).items()) if callable(f) and f.__doc__)
merges = BytePairTokenizer.train(english, 256 + 1000).merges
numbers, per_token = (0, 10, 30, 100, 300, 1000), []
for number in numbers:
    shorter = BytePairTokenizer(merges[:number])  # the first merges are those of a smaller vocabulary
    per_token.append(len(english.encode()) / len(shorter.encode(english)))
print(f"English, {len(english):,} bytes. Merges: " + ", ".join(map(str, numbers)) + "; bytes for each token: "
      + ", ".join(f"{n:.2f}" for n in per_token))
print("with 1000:", [shorter.decode([i]) for i in shorter.encode("the softmax of the scores")])
assert per_token[0] == 1 and all(a < b for a, b in itertools.pairwise(per_token)) and per_token[-1] > 2.5

# %% [markdown]
# ## 5. Train on the poems

# %%
mt.manual_seed(0)
data = mt.tensor(tokenizer.encode(poems))
pad = tokenizer.special_ids["<|pad|>"]
model = Llama(LlamaConfig(len(tokenizer), block_size=256, n_layer=2, n_head=4, n_kv_head=2, n_embd=64, pad_id=pad))
optimizer, losses = AdamW(model.parameters(), lr=3e-3), []
for _ in range(300):
    places = mt.randint(0, len(data) - 48, (16,))[:, None] + mt.arange(48)
    _, loss = model(data[places], data[places + 1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {np.mean(losses[-20:]):.3f} nats a token")
assert np.mean(losses[-20:]) < 0.1

# %% [markdown]
# ## 6. A batch of different lengths
#
# Prompts of different lengths are padded on the left, so that all of them continue at the right. The padding is never
# looked at, and only distances count; so each continues as it would alone. With the cache or without, the tokens are
# the same. (Thirty tokens may end inside a character. That is the replacement character at the end of a line.)

# %%
prompts = ["床前", "春眠不觉", "红"]
encoded = [tokenizer.encode(prompt) for prompt in prompts]
width = max(map(len, encoded))
batch = mt.tensor([[pad] * (width - len(row)) + row for row in encoded])
together = generate(model, batch, 30, temperature=0)
assert together.tolist() == generate(model, batch, 30, temperature=0, use_cache=False).tolist()
for row, prompt in zip(together.tolist(), encoded):
    alone = generate(model, mt.tensor([prompt]), 30, temperature=0)[0].tolist()
    assert row[width - len(prompt):] == alone
    print(tokenizer.decode([i for i in row if i != pad]))

# %% [markdown]
# ## 7. Which token comes next?
#
# The model gives a probability to each of the tokens; one has to be chosen.
#
# - *Greedy*: the likeliest. Always the same text.
# - *Temperature* $\tau$: draw from $\mathrm{softmax}(\mathrm{logits} / \tau)$. Below 1 the likely get likelier,
#   above 1 all get more alike; towards 0 it is greedy.
# - *Top-k*: draw from the k likeliest only, however likely they are.
# - *Top-p*: draw from the fewest likeliest tokens that have at least p together. Few where the model is sure, many
#   where it is not.
#
# After a lone comma any of the poems' lines may follow, and the model knows several beginnings. What is kept, spelled
# out beside the library's filters (they set what they refuse to $-\infty$):

# %%
comma = tokenizer.encode("，")
with mt.no_grad():
    logits = model(mt.tensor([comma]))[0][:, -1]                       # (1, V)


def kept(filtered):
    return set((filtered[0] > -math.inf).nonzero()[:, 0].tolist())


TEMPERATURES, K, P, sets = (0.5, 1.0, 2.0), 3, 0.9, {}
for temperature in TEMPERATURES:
    tempered = temper(logits, temperature)
    p = F.softmax(tempered, -1)[0].numpy()
    order = np.argsort(-p, kind="stable")
    enough = int(np.argmax(np.cumsum(p[order]) >= P)) + 1              # so many have p together
    top_k, top_p = kept(keep_top_k(tempered, K)), kept(keep_top_p(tempered, P))
    assert top_k == set(order[:K].tolist()) and top_p == set(order[:enough].tolist())
    sets[temperature] = p[order], enough
    print(f"temperature {temperature}: the likeliest has {p.max():.2f}; top-k {K} keeps {len(top_k)} with "
          f"{p[list(top_k)].sum():.2f}, top-p {P} keeps {len(top_p)} of {len(p)} with {p[list(top_p)].sum():.2f}")
assert sets[0.5][1] <= sets[1.0][1] < sets[2.0][1]

# %% [markdown]
# What it does to the text: 200 lines for each way of choosing. How many are lines of the poems, and how many
# different ones?

# %%
lines, written = set(poems.replace("。", "，").split("，")) - {""}, {}
ways = {"greedy": {"temperature": 0}, "0.5": {"temperature": 0.5},
        "1": {"temperature": 1.0}, "2": {"temperature": 2.0},
        "1, top-k 3": {"temperature": 1.0, "top_k": 3}, "2, top-k 3": {"temperature": 2.0, "top_k": 3},
        "1, top-p 0.5": {"temperature": 1.0, "top_p": 0.5}, "2, top-p 0.5": {"temperature": 2.0, "top_p": 0.5}}
for name, choice in ways.items():
    mt.manual_seed(1)
    rows = generate(model, mt.tensor([comma] * 200), 16, **choice)     # a line has at most 15 tokens
    texts = [tokenizer.decode(row)[1:6] for row in rows.tolist()]
    right = [text for text in texts if text in lines]
    written[name] = len(right) / 200, len(set(right))
    print(f"temperature {name:13} {written[name][0]:4.0%} are lines of the poems, {written[name][1]} different ones")
assert written["greedy"] == (1.0, 1) and written["0.5"][0] > 0.95 and written["0.5"][1] > 1
assert written["2"][0] < 0.1 and written["2, top-p 0.5"][0] > written["2"][0] + 0.4

# %%
figure = Figure(figsize=(11.5, 3.6), layout="constrained")
*first, last = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.5])
for ax, temperature in zip(first, TEMPERATURES):
    p, enough = sets[temperature]
    ax.bar(range(14), p[:14], color=["C0" if i < enough else "0.8" for i in range(14)])
    ax.axvline(K - 0.5, color="C3", linestyle=":")
    ax.set(xlabel="token, by rank", ylim=(0, 0.5))
    ax.set_title(f"temperature {temperature}\nblue: top-p {P} keeps {enough}", fontsize=11)
    ax.text(K, 0.45, f"top-k {K}: left of this", color="C3", fontsize=9)
first[0].set_ylabel("probability after a comma")
last.barh(list(written), [share for share, _ in written.values()], color="C0")
for i, (share, different) in enumerate(written.values()):
    last.text(0.02 if share > 0.3 else share + 0.02, i, f"{different} different", va="center", fontsize=9,
              color="w" if share > 0.3 else "k")
last.invert_yaxis()
last.set_title("Lines that are in the poems", fontsize=11)
last.set(xlabel="share of 200", ylabel="temperature")
figure.savefig("out/14_sampling.png", dpi=110)

# %% [markdown]
# Greedy makes no mistake and says one thing. A high temperature alone draws from the long tail, where each token has
# little but all together have much, and a single wrong byte spoils the line. Cutting the tail off keeps the variety
# and most of the sense.

# %% [markdown]
# ## 8. What a token costs
#
# Without the cache each new token means reading all before it again; with it, one token. With 2 of 4 heads for keys
# and values the cache is half as large. A cache is filled up to each length, and then each in turn reads one token,
# thirty times: so whatever else the computer does meanwhile falls on all lengths alike. What counts is the median.

# %%
mt.manual_seed(0)
long = Llama(LlamaConfig(100, block_size=1101, n_layer=2, n_head=4, n_kv_head=2, n_embd=64))
tokens, lengths = mt.randint(0, 100, (1, 1101)), range(100, 1001, 100)


def seconds(ids, cache=None):
    """Processor time to read `ids`."""
    start = time.thread_time()
    long(ids, cache=cache)
    return time.thread_time() - start


caches, cached, uncached = {t: long.new_cache() for t in lengths}, {t: [] for t in lengths}, {t: [] for t in lengths}
with mt.no_grad():
    for t in lengths:
        long(tokens[:, :t], cache=caches[t])
    for i in range(30):
        for t in lengths:
            cached[t].append(seconds(tokens[:, t + i:t + i + 1], caches[t]))
    for _ in range(3):
        for t in lengths:
            uncached[t].append(seconds(tokens[:, :t]))
cached, uncached = ({t: 1000 * np.median(spent) for t, spent in times.items()} for times in (cached, uncached))
print(f"milliseconds a token, after 100 and 1000: with cache {cached[100]:.2f} and {cached[1000]:.2f}, "
      f"ratio {cached[1000] / cached[100]:.2f}; without {uncached[100]:.1f} and {uncached[1000]:.1f}")
assert cached[1000] < 1.5 * cached[100] and uncached[1000] > 5 * uncached[100]
keys, values = caches[1000].layers[0].read()
print("keys in the cache:", keys.shape, "instead of", (1, 4, 1030, 16))
assert keys.shape == (1, 2, 1030, 16)

# %%
figure = Figure(figsize=(11, 3.6), layout="constrained")
left, middle, right = figure.subplots(1, 3)
left.semilogx([max(n, 3) for n in numbers], per_token, "o-")
left.set_xticks((3, 10, 30, 100, 300, 1000), (0, 10, 30, 100, 300, 1000))
left.minorticks_off()
left.set(title="Byte pairs of an English text", xlabel="merges", ylabel="bytes for each token", ylim=(0, None))
middle.semilogy(losses)
middle.set(title="Training on four poems", xlabel="step", ylabel="loss (nats a token)")
right.plot(lengths, list(cached.values()), "o-", label="with cache")
right.plot(lengths, list(uncached.values()), "o-", label="without")
right.set(title="Time for one more token", xlabel="tokens before it", ylabel="milliseconds", yscale="log",
          ylim=(1, 200))
right.set_yticks((1, 3, 10, 30, 100), (1, 3, 10, 30, 100))
right.minorticks_off()
right.legend(frameon=False)
figure.savefig("out/14_llama.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Train with `n_kv_head` 4, 2 and 1. What does sharing cost here?
# 2. The slowest pair of RoPE is the hand of the clock that tells far places apart. Take a q of D = 16 entries, all 0
#    but those of that pair, 7 and 15, and draw the product of `F.rotary(q, offset=t, base=base)` with q over t, for a
#    base of 10000 and of 100. When is it back at its first value? (After $2 \pi\, \mathrm{base}^{(D-2)/D}$ tokens, 353
#    for the base 100.) What does that mean for `rope_base` and the longest text?
# 3. Make the model of section 5 once more, with the same parameters (`load_state_dict`) but without `pad_id`, and
#    compare the last logits of each row of `batch`: by how much do they change, and why not in the longest? (The
#    text hardly changes, since this model knows the poems by heart.)
