# %% [markdown]
# # Lesson 4: masks, or who may see what
#
# A mask tells each query which keys it may see. Padding must not be read, a language model must not read the future,
# an action must not change what was observed. One sign, one way to combine them, and one rule for a query that may
# see nothing: that is this lesson.
#
# A few seconds. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn, plot
from minitorch_attn.nn import functional as F

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)

# %% [markdown]
# ## 1. One sign: True may be seen
#
# A mask is a boolean tensor that broadcasts to (B, H, T, S): batch, heads, queries, keys. Before softmax the scores of
# hidden keys become $-\infty$, so that their weights are $e^{-\infty} = 0$ exactly, and the others sum to 1.


# %%
def attention(q, k, v, seen):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return F.softmax(scores.masked_fill(~seen, -math.inf), -1) @ v


B, H, T, D = 3, 2, 12, 8
q, k, v = mt.randn(3, B, H, T, D).unbind(0)
causal = F.causal_mask(T)
difference = (attention(q, k, v, causal) - F.scaled_dot_product_attention(q, k, v, causal)).abs().max().item()
weights = F.attention_weights(q, k, causal)
print(f"two lines against the library's function: {difference:.0e}")
off = (weights.sum(-1) - 1).abs().max().item()
print(f"largest hidden weight: {weights.masked_fill(causal, 0.0).max().item()}; row sums are 1, to {off:.0e}")
assert difference < 1e-6 and not weights.masked_fill(causal, 0.0).any() and off < 1e-6

# %% [markdown]
# ## 2. The masks
#
# Each mask is a rule about a query's place $t$ and a key's place $s$. Here are the rules, and the library's masks
# beside them.

# %%
KINDS = [0] * 5 + [1] * 2 + [2] * 5  # five tokens of one kind, then two, then five
rules = {
    "causal": (lambda t, s: s <= t, F.causal_mask(T)),
    "sliding window of 4": (lambda t, s: 0 <= t - s < 4, F.sliding_window_mask(T, 4)),
    "dilated: 4, two apart": (lambda t, s: t - s in (0, 2, 4, 6), F.dilated_mask(T, 4, 2)),
    "block-causal: 5, 2, 5": (lambda t, s: KINDS[s] <= KINDS[t], F.block_causal_mask([5, 2, 5])),
    "padding: 9 of 12 are tokens": (lambda t, s: s < 9, F.padding_mask([9], T).expand(1, 1, T, T)[0, 0]),
}
for name, (rule, mask) in rules.items():
    by_rule = [[rule(t, s) for s in range(T)] for t in range(T)]
    assert mask.tolist() == by_rule, name
    print(f"{name:28} {int(mask.sum()):3} of {T * T} pairs may be seen")
plot.mask({name: mask for name, (_, mask) in rules.items()}, "out/04_masks.png")

# %% [markdown]
# A sliding window shows each query at most 4 keys, so that the pairs grow like T and not like $T^2$. The dilated one
# reaches twice as far for the same price. Block-causal is causal for blocks: within a block all see each other.
#
# ## 3. The offset: where do the queries stand?
#
# While a model writes, there is one new query beside all the keys so far. Row 0 of a causal mask then has to be the
# *last* place, not the first. Query $t$ stands at place $t$ + offset, and the offset is $S - T$ unless given: the last
# query stands beside the last key. `is_causal=True` of `scaled_dot_product_attention` has offset 0, as in PyTorch.

# %%
places = mt.arange(6.0)[:, None]                                   # the value of each key is its place
one, same = mt.zeros(1, 1), mt.zeros(6, 1)                         # all scores are 0: the mean of what may be seen
by_offset = F.scaled_dot_product_attention(one, same, places, F.causal_mask(1, 6)).item()
by_flag = F.scaled_dot_product_attention(one, same, places, is_causal=True).item()
print(f"one new query beside 6 keys reads the mean place {by_offset}; with is_causal=True it reads {by_flag}")
assert (by_offset, by_flag) == (2.5, 0.0)

masks = {"6 queries, 6 keys": F.causal_mask(6), "3 new queries, 6 keys": F.causal_mask(3, 6),
         "1 new query, 6 keys": F.causal_mask(1, 6), "3 queries, offset 0": F.causal_mask(3, 6, offset=0)}
plot.mask(masks, "out/04_offset.png", "Causal masks while a model writes, and with offset 0")
assert mt.equal(masks["3 new queries, 6 keys"], masks["6 queries, 6 keys"][3:])  # the last rows of the full mask

# %% [markdown]
# ## 4. Combining: & and |
#
# Masks of truth values combine like sentences: `&` where both must allow it, `|` where one is enough. Three samples of
# different lengths in a language model need the past *and* no padding.

# %%
lengths = [12, 7, 3]
both = F.causal_mask(T) & F.padding_mask(lengths, T)               # (T, T) & (B, 1, 1, T) -> (B, 1, T, T)
print("causal & padding:", both.shape)
for b, t, s in np.ndindex(B, T, T):
    assert both[b, 0, t, s].item() == (s <= t and s < lengths[b])
sinks = F.sliding_window_mask(T, 3) | (mt.arange(T) < 2)           # the last three, and always the first two
shown = {f"causal, length {n}": m for n, m in zip(lengths, both)}
plot.mask({**shown, "window of 3, or the first 2": sinks & causal}, "out/04_combined.png", "Masks combined")

y = F.scaled_dot_product_attention(q, k, v, both)
changed = k.clone()
changed[1, :, 7:] = 100.0                                           # other padding in sample 1
assert mt.equal(y, F.scaled_dot_product_attention(q, changed, v, both))
print("results with other keys in the padding: equal to the last bit")

# %% [markdown]
# Adding masks of numbers is less safe. A large negative number such as $-10^9$ hides only beside something larger. If
# two such masks hide all keys of a query between them, softmax compares hidden keys with each other, and one that was
# hidden once beats those hidden twice. And a mask of the *numbers* 0 and 1 hides nothing: 1 is added to the scores.

# %%
padding, future = mt.tensor([[False, False, True]]), mt.tensor([[True, False, False]])  # together nothing is left
as_numbers = sum((~m).float() * -1e9 for m in (padding, future))
scores = mt.zeros(1, 3)
print("numbers added: ", F.softmax(scores + as_numbers, -1).tolist(), "(keys 0 and 2 are hidden, and are read)")
print("booleans and &:", F.masked_softmax(scores, padding & future).tolist())
leak = F.attention_weights(mt.zeros(3, 1), mt.zeros(3, 1), F.causal_mask(3).float())
print("a causal mask of 0 and 1, weight of the first query on the future:", round(leak[0, 1:].sum().item(), 2))
assert F.masked_softmax(scores, padding & future).tolist() == [[0, 0, 0]] and leak[0, 1:].sum().item() > 0.4

# %% [markdown]
# ## 5. A query that may see nothing
#
# It happens: prompts of different lengths are padded on the left, so that all end together, and the first padding
# tokens look back and find only padding. Softmax of a row of $-\infty$ is 0 / 0: NaN, and `backward()` carries it on.
# In this library such a row reads zeros, and sends no gradient to anyone.

# %%
prompts = F.causal_mask(T) & F.padding_mask([8, 12], T, left=True)  # sample 0: four places of padding, then 8 tokens
q, k, v = (mt.randn(2, 1, T, D).requires_grad_() for _ in range(3))
y = F.scaled_dot_product_attention(q, k, v, prompts)
y.backward(mt.randn(2, 1, T, D))
weights = F.attention_weights(q, k, prompts).detach().numpy()[0, 0]
sizes = {"result": y.detach(), "gradient of q": q.grad, "gradient of k": k.grad, "gradient of v": v.grad}
sizes = {name: np.abs(x.numpy()[0, 0]) for name, x in sizes.items()}
for name, x in sizes.items():
    print(f"{name:14} largest entry at the 4 padding places {x[:4].max()}, elsewhere {x[4:].max():.2f}")
    assert not x[:4].any() and x[5:].all() and np.isfinite(x).all()

with mt.no_grad():
    alone = F.scaled_dot_product_attention(q[:1, :, 4:], k[:1, :, 4:], v[:1, :, 4:], is_causal=True)
print(f"the 8 tokens against the same prompt without padding: {(alone - y[:1, :, 4:]).abs().max().item():.0e}")
assert mt.allclose(alone, y[:1, :, 4:], atol=1e-6)

v.grad = None
y = attention(q, k, v, prompts)
y.backward(mt.randn(2, 1, T, D))
lost = [int(x[0, 0].isnan().any(-1).sum()) for x in (y.detach(), v.grad)]
print(f"the two lines of section 1 do not know this rule: {lost[0]} of {T} results are NaN, and {lost[1]} of {T} "
      "gradients of values")
assert lost == [4, T]

figure = Figure(figsize=(11, 3.8), layout="constrained")
first, *others = figure.subplots(1, 5, width_ratios=[1.6, 1, 1, 1, 1])
top = max(x.max() for x in sizes.values())
for ax, (name, x) in zip((first, *others), {"weights": weights, **sizes}.items()):
    not_zero = np.where(x == 0, np.nan, x)  # imshow leaves NaN white, and the least that is not zero is tinted
    colours = ("Blues", 1) if ax is first else ("Oranges", top)
    image = ax.imshow(not_zero, cmap=colours[0], vmin=-0.2 * colours[1], vmax=colours[1], aspect="auto")
    ax.set(title=name, xlabel="key" if ax is first else "entry", xticks=range(0, x.shape[1], 2))
    ax.axhline(3.5, color="0.4", linestyle=":")
first.set_ylabel("place")
figure.suptitle("A prompt after four places of padding: white is exactly zero, darker is larger", fontsize=11)
figure.savefig("out/04_blind_rows.png", dpi=110)

# %% [markdown]
# Four blind queries are enough to spoil the gradients of *all* values, and so of every layer below.
#
# One more row of the query's gradient is zero, place 4, and rightly: that token may see one key alone, itself. Its
# weight is 1, whatever the query says.

# %% [markdown]
# ## 6. Does the past really not see the future?
#
# Test it, do not believe it: change the last tokens and look whether anything before them moves. Through several
# layers too, for one leak is enough.
#
# Such a test can fail to see a leak, and two things matter. Each layer normalises what it reads: without that x
# doubles from layer to layer, the scores grow fourfold, and softmax becomes so hard (lesson 3) that keys with less
# than the largest score get a weight of exactly 0, seen or not. And the changed tokens are drawn anew. Adding 1 to
# all their entries would not do, for a layer norm takes a constant off again.

# %%
x = mt.randn(1, 1, T, D)
changed = x.clone()
changed[:, :, 8:] = mt.randn(1, 1, 4, D)


def layers(x, mask, number=3):
    for _ in range(number):
        h = F.layer_norm(x, (D,))
        x = x + F.scaled_dot_product_attention(h, h, h, mask)
    return x


for name, mask in (("causal", F.causal_mask(T)), ("window of 3", F.sliding_window_mask(T, 3)),
                   ("padding alone", F.padding_mask([11], T))):
    moved = (layers(x, mask) != layers(changed, mask)).any(-1)[0, 0]
    print(f"{name:14} places that notice a change at 8 to 11:", moved.nonzero()[:, 0].tolist())
    assert moved[:8].any().item() == (name == "padding alone") and moved[8:].all()

leaky = F.causal_mask(T)
leaky[7, 11] = True  # one pair too many, of 144: does the test see it?
found = []
for seed in range(20):
    mt.manual_seed(seed)
    x = mt.randn(1, 1, T, D)
    other, constant = x.clone(), x.clone()
    other[:, :, 8:], constant[:, :, 8:] = mt.randn(1, 1, 4, D), x[:, :, 8:] + 1.0
    found.append([(layers(x, leaky) != layers(y, leaky))[:, :, :8].any().item() for y in (other, constant)])
by_new, by_constant = np.sum(found, axis=0)
print(f"a leak of one pair is seen in {by_new} of 20 tests with new tokens, in {by_constant} with 1 added")
assert by_new == 20

# %% [markdown]
# ## 7. The one place with the opposite sign
#
# `nn.MultiheadAttention`, and what is built of it, keeps PyTorch's sign: there True means *hidden*. Give it `~mask`.

# %%
layer = nn.MultiheadAttention(8, 2, batch_first=True)
x = mt.randn(1, T, 8)
_, weights = layer(x, x, x, attn_mask=~F.causal_mask(T))
_, wrong = layer(x, x, x, attn_mask=F.causal_mask(T))
future = ~F.causal_mask(T)
print("weight on the future with ~mask:", weights[0].masked_fill(~future, 0.0).sum().item(),
      " with the wrong sign:", round(wrong[0].masked_fill(~future, 0.0).sum().item(), 2), "of", T, "rows")
assert not weights[0].masked_fill(~future, 0.0).any()

# %% [markdown]
# With the wrong sign each query sees the future and nothing else, and the last one sees nothing at all. Such a model
# reads the answers off its input, and when it has to write there are none. So: when a loss looks too good, change a
# later token, as in section 6.
#
# ## To try
#
# 1. How many layers of a sliding window of 4 does it take until place 11 (the last; places count from 0) notices a
#    change at place 0? Guess, then measure with `layers(x, mask, number)` of section 6. And with the dilated window?
#    (Careful: which distances can it bridge at all?)
# 2. Several short texts are packed into one row of T tokens. Build the mask that lets each token see the past of its
#    own text only, from a tensor that says which text each token belongs to.
# 3. Write a mask for a text of $n$ tokens read in both directions, after which an answer is written token by token
#    (a "prefix" language model). Which two masks of this lesson give it, combined by `|` or `&`?
