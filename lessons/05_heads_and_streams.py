# %% [markdown]
# # Lesson 5: several heads, several streams
#
# One softmax can look at one thing at a time; several heads side by side look at several. And queries, keys and values
# need not come from one sequence: an action may read what a camera and a touch sensor observed. Who reads, who is
# read, and who gets how much of the weight?
#
# Ten seconds. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn, plot
from minitorch_attn.nn import functional as F
from minitorch_attn.optim import Adam

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)

# %% [markdown]
# ## 1. Multi-head attention is a loop over heads
#
# Each of $H$ heads has its own projections to $D = C / H$ columns, attends by itself, and what the heads read is laid
# side by side and goes through one last matrix $W_o$. In the library the projections of all heads are one matrix.

# %%
B, T, C, H = 2, 7, 64, 4
D = C // H
layer = nn.MultiheadAttention(C, H, batch_first=True)
x = mt.randn(B, T, C)
with mt.no_grad():
    y, weights = layer(x, x, x, average_attn_weights=False)      # (B, T, C) and (B, H, T, T)

    w_q, w_k, w_v = layer.in_proj_weight.split(C)                # (3C, C) -> three of (C, C); the biases are 0 so far
    parts = []
    for h in range(H):
        mine = slice(h * D, (h + 1) * D)                         # this head's rows of each matrix
        q, k, v = x @ w_q[mine].T, x @ w_k[mine].T, x @ w_v[mine].T                # each (B, T, D)
        p = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), -1)                  # (B, T, T)
        assert mt.allclose(p, weights[:, h], atol=1e-6)
        parts.append(p @ v)
    by_loop = mt.cat(parts, -1) @ layer.out_proj.weight.T        # H of (B, T, D) -> (B, T, C)
    _, mean = layer(x, x, x)                                     # unless asked for each head: their mean
print(f"weights of each head: {weights.shape}; result against the loop: {(y - by_loop).abs().max().item():.0e}")
assert mt.allclose(y, by_loop, atol=1e-6) and mt.allclose(mean, weights.mean(1), atol=1e-6)

# %% [markdown]
# ## 2. What several heads are good for
#
# Each token is to name two others: the one before it, and the first of all. That is two relations at once. One head
# has one softmax: it must share its weight between the two, and then often cannot say which was which, or give one
# up. Two heads can take one relation each; nobody tells them to. The number of parameters is the same.
#
# The first letter has none before it; its answer is to be the last one (`roll` pushes it round). In the figure that is
# the dark cell in the top right corner.

# %%
V, PLACES, WIDE = 8, 12, 32


class TwoRelations(nn.Module):
    """One attention layer, and for each token two guesses: the letter before it, and the first letter."""

    def __init__(self, heads):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, WIDE), nn.Embedding(PLACES, WIDE)
        self.attn, self.out = nn.MultiheadAttention(WIDE, heads, batch_first=True), nn.Linear(WIDE, 2 * V)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(mt.arange(PLACES))
        y, weights = self.attn(x, x, x, average_attn_weights=False)
        return self.out(y).unflatten(-1, (2, V)), weights  # (B, T, 2V) -> (B, T, 2, V)


def letters(n):
    ids = mt.randint(0, V, (n, PLACES))
    return ids, mt.stack([ids.roll(1, 1), ids[:, :1].expand(n, PLACES)], -1)


def train(heads, seed):
    """The model after 200 steps, the share of tokens with both answers right, and the weights (H, T, T)."""
    mt.manual_seed(seed)
    model = TwoRelations(heads)
    optimizer = Adam(model.parameters(), lr=1e-2)
    for _ in range(200):
        ids, targets = letters(32)
        loss = F.cross_entropy(model(ids)[0].flatten(0, 2), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids, targets = letters(500)
    with mt.no_grad():
        logits, weights = model(ids)
    return (logits.argmax(-1) == targets).all(-1).float().mean().item(), weights.mean(0)


maps = {}
for heads in (1, 2):
    results = [train(heads, seed) for seed in (0, 1)]
    rights = [right for right, _ in results]
    maps[heads] = results[0][1].numpy()
    for seed, (share, weights) in enumerate(results):
        print(f"{heads} head{'s'[:heads - 1]}, seed {seed}: both answers right for {share:.1%} of the tokens")
        for h, p in enumerate(weights.numpy()):
            before = np.mean([p[t, t - 1] for t in range(2, PLACES)])
            print(f"  head {h}: weight on the letter before {before:.2f}, on the first {p[2:, 0].mean():.2f}")
    assert min(rights) > 0.99 if heads == 2 else max(rights) < 0.97

figure = Figure(figsize=(10, 3.6), layout="constrained")
axes = figure.subplots(1, 3, sharey=True)
for ax, p, title in zip(axes, [*maps[1], *maps[2]], ("the only head", "head 0 of two", "head 1 of two")):
    image = ax.imshow(p, cmap="Blues", vmin=0, vmax=1)
    ax.set(title=title, xlabel="key", xticks=range(0, PLACES, 2), yticks=range(0, PLACES, 2))
axes[0].set_ylabel("query")
figure.colorbar(image, ax=axes, label="mean weight", shrink=0.8)
figure.savefig("out/05_heads.png", dpi=110)

# %% [markdown]
# The one head shared its weight between the two (seed 0), or gave one relation up and attends to the first letter
# alone (seed 1). With two heads each seed finds the split.

# %% [markdown]
# ## 3. Self, cross, joint: where queries, keys and values come from
#
# | | queries from | keys and values from | who is updated |
# |---|---|---|---|
# | self | A | A | A |
# | cross | A | B | A alone: it reads B, one way |
# | joint | A and B, as one sequence | the same | both; who may read whom, a mask says |
#
# Take a robot: 196 tokens of an image, 4 of a touch sensor, 16 actions to come.

# %%
mt.manual_seed(0)
C = 64
vision, touch, action = mt.randn(1, 196, C), mt.randn(1, 4, C), mt.randn(1, 16, C)
attend = nn.MultiheadAttention(C, 4, batch_first=True)
observed, everything = mt.cat([vision, touch], 1), mt.cat([vision, touch, action], 1)
with mt.no_grad():
    for name, queries, keys in (("self", vision, vision), ("cross", action, observed),
                                ("joint", everything, everything)):
        y, weights = attend(queries, keys, keys)
        print(f"{name:6} result {y.shape!s:14} weights {weights.shape}")

# %% [markdown]
# Cross-attention is joint attention with a mask that leaves one block: actions read observations, and nothing else is
# read. Below, which stream (row) may read which (column), in the order vision, touch, action.

# %%
tables = {"self, each for itself": [[1, 0, 0], [0, 1, 0], [0, 0, 1]], "cross": [[0, 0, 0], [0, 0, 0], [1, 1, 0]],
          "joint": [[1, 1, 1]] * 3, "joint, one way": [[1, 1, 0], [1, 1, 0], [1, 1, 1]]}
plot.mask({name: F.block_mask([6, 2, 4], table) for name, table in tables.items()}, "out/05_streams.png",
          "Six tokens of vision, two of touch, four actions: who may read whom")

cross_mask = F.block_mask([196, 4, 16], tables["cross"])
with mt.no_grad():
    by_cross, _ = attend(action, observed, observed)
    by_mask, _ = attend(everything, everything, everything, attn_mask=~cross_mask)  # there True means hidden
print(f"cross against joint with that mask: {(by_cross - by_mask[:, 200:]).abs().max().item():.0e}")
assert mt.allclose(by_cross, by_mask[:, 200:], atol=1e-6)

# %% [markdown]
# ## 4. Few among many
#
# In one softmax all keys compete. As long as nothing has been learned, no token is better than another, and few
# tokens get the share of their number: 4 touch tokens of 216 get about 4/216, or 1.9%.
#
# `nn.JointAttention` is joint attention as in the table above. `shared=True` gives all streams the same projections,
# so that it is self-attention of the streams laid end to end; `need_shares=True` returns the weight that each stream
# gives to each, too: (B, H, streams, streams). Section 6 spells the layer out.

# %%
shares, counts = [], (1, 4, 16, 64, 256)
for n in counts:
    drawn = []
    for _ in range(4):  # four layers, each with weights of its own, on tokens of their own
        streams = [mt.randn(1, size, C) for size in (196, n, 16)]
        with mt.no_grad():
            _, share = nn.JointAttention((C, C, C), 4, shared=True)(streams, need_shares=True)
        drawn.append(share[0, :, 2, 1].mean().item())  # what actions give to touch, the mean over heads
    shares.append(np.mean(drawn))
    print(f"{n:4} touch tokens of {212 + n}: n / all = {n / (212 + n):.4f}, share measured {shares[-1]:.4f}")
    assert abs(shares[-1] / (n / (212 + n)) - 1) < 0.15

# %% [markdown]
# Training changes that, in either direction. The same layer learns two tasks: the answer lies in 2 touch tokens, or in
# 60 of vision. Each stream has projections of its own here (section 6), by which actions can tell touch from vision.
# Nothing in the structure promises touch a share; the task decides.
#
# Cross-attention to touch *alone* would give it all the weight of that layer. Cross-attention to vision and touch laid
# end to end is again one softmax, and they compete just the same.


# %%
def train_shares(answer, steps=160, C=16, sizes=(60, 2, 4)):
    """What actions give to touch, every 10 steps, while the answer is the mean of one stream's tokens."""
    mt.manual_seed(1)
    layer = nn.JointAttention((C, C, C), 2)
    optimizer, course, losses = Adam(layer.parameters(), lr=1e-2), [], []
    for step in range(steps + 1):
        streams = [mt.randn(16, n, C) for n in sizes]
        ys, share = layer(streams, need_shares=True)
        if step % 10 == 0:
            course.append(share[:, :, 2, 1].mean().item())
        target = streams[answer].mean(1, keepdim=True) * math.sqrt(sizes[answer])  # of variance 1 in either task
        loss = ((ys[2] - target) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return course, np.mean(losses[-10:])


course = {}
for name, answer in (("touch", 1), ("vision", 0)):
    course[name], loss = train_shares(answer)
    print(f"answer in {name:6}: touch gets {course[name][0]:.3f} at first and {course[name][-1]:.3f} in the end; "
          f"loss {loss:.4f}")
    assert loss < 0.1
assert course["touch"][-1] > 0.7 and course["vision"][-1] < 0.6 * course["vision"][0] < 0.06

figure = Figure(figsize=(9, 3.6), layout="constrained")
left, right = figure.subplots(1, 2)
left.loglog(counts, [n / (212 + n) for n in counts], ":", color="0.4", label="n / all")
left.loglog(counts, shares, "o", label="measured")
left.set(title="Before training", xlabel="touch tokens n, beside 212 others", ylabel="share of the actions' weight")
for name, values in course.items():
    right.plot(range(0, 161, 10), values, label=f"answer in {name}")
right.axhline(2 / 66, color="0.4", linestyle=":", label="2 / 66")
right.set(title="While training, 2 touch tokens of 66", xlabel="step", ylim=(-0.03, 1.03))
for ax in (left, right):
    ax.legend(frameon=False)
figure.savefig("out/05_shares.png", dpi=110)

# %% [markdown]
# A small share is not a small contribution: what arrives is weight times value. With touch values ten times as long,
# the weights are what they were, but not what is read. (Even at times 1 the two shares are not equal: a mean of 196
# random vectors is shorter than one of 4, for they cancel each other more.)

# %%
p = F.attention_weights(action, observed)[0]                      # (16, 200): what actions give to vision and touch
for times in (1, 10, 50):
    values = mt.cat([vision[0], times * touch[0]])
    read = [(p[:, part] @ values[part]).norm(dim=1).mean().item() for part in (slice(0, 196), slice(196, 200))]
    print(f"touch values times {times:2}: share of the weight {p[:, 196:].sum(1).mean().item():.3f}, "
          f"of the length of what is read {read[1] / sum(read):.2f}")
assert read[1] / sum(read) > 0.5 > 5 * p[:, 196:].sum(1).mean().item()

# %% [markdown]
# ## 5. One way: actions read what was observed, and not the reverse
#
# pi-0 (Black et al. 2024) is a model that steers a robot. It has three blocks of tokens: what is observed (images,
# text), the robot's state, and the actions. Within a block all see each other; each block sees those before it. So
# actions may be changed and tried without touching what was made of the observation.

# %%
SIZES, DIMS = (6, 1, 4), (24, 8, 16)                              # tokens and widths of observation, state, actions
model = nn.JointAttention(DIMS, 2, head_dim=8)
mask = F.block_causal_mask(SIZES)
streams = [mt.randn(1, n, c) for n, c in zip(SIZES, DIMS)]
names = ("observation", "state", "actions")


def who_notices(changed, mask):
    """For each stream, whether its result moves when the stream `changed` does."""
    other = [x + 1.0 if i == changed else x for i, x in enumerate(streams)]
    with mt.no_grad():
        return [not mt.equal(a, b) for a, b in zip(model(streams, mask), model(other, mask))]


for i, name in enumerate(names):
    noticed = who_notices(i, mask)
    print(f"change the {name:11}: noticed by", ", ".join(n for n, yes in zip(names, noticed) if yes))
    assert noticed == [j >= i for j in range(3)]
assert all(who_notices(2, None))  # without a mask everyone notices

leaves = [x.clone().requires_grad_() for x in streams]
model(leaves, mask)[0].backward(mt.randn(1, SIZES[0], DIMS[0]))
sizes = [0.0 if x.grad is None else x.grad.abs().max().item() for x in leaves]
print("largest gradient of the observation's result, by observation, state, actions:", [round(g, 3) for g in sizes])
assert sizes[0] > 0 and sizes[1:] == [0, 0]

with mt.no_grad():
    shares = model(streams, mask, need_shares=True)[1].mean((0, 1))
print("who gives how much to whom (rows: observation, state, actions):")
print(shares.numpy().round(2))
plot.attention(shares, names, names, "out/05_one_way.png", "Weight that a stream gives to a stream")

# %% [markdown]
# It also saves work. Such a model starts from random actions and improves them step by step, ten times or so; keys and
# values of what was observed do not change meanwhile. Make them once, and let only the actions ask.

# %%
H, D = model.num_heads, model.head_dim


def into_heads(i, x):
    """Queries, keys and values of stream i by its own matrix: (1, T_i, C_i) -> three of (1, H, T_i, D)."""
    return [y.unflatten(-1, (H, D)).transpose(1, 2) for y in model.qkv[i](x).chunk(3, -1)]


with mt.no_grad():
    q, k, v = zip(*[into_heads(i, x) for i, x in enumerate(streams)])
    full = F.joint_attention(q, k, v, mask)[2]
    kept = mt.cat(list(k[:2]), -2), mt.cat(list(v[:2]), -2)      # of observation and state
    alone = F.scaled_dot_product_attention(q[2], mt.cat([kept[0], k[2]], -2), mt.cat([kept[1], v[2]], -2))
difference = (full - alone).abs().max().item()
print(f"actions asking alone against all asking: {difference:.0e}; queries computed: {SIZES[2]} of {sum(SIZES)}")
assert difference < 1e-6

# %% [markdown]
# ## 6. Each stream its own projections
#
# An image patch and a joint angle have little in common, not even their width. So each stream gets its own $W_q$,
# $W_k$, $W_v$ and $W_o$; only the softmax is common. Two published models work so: MMDiT, which makes images from
# text (Esser et al. 2024), and the mixture of transformers (Liang et al. 2024). Spelled out, with `into_heads` of
# section 5:

# %%
with mt.no_grad():
    parts = [into_heads(i, x) for i, x in enumerate(streams)]         # each stream by its own matrix
    q, k, v = (mt.cat(list(x), 2) for x in zip(*parts))          # laid end to end: (1, H, T, D)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(D)).masked_fill(~mask, -math.inf)
    y = (F.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)   # (1, H, T, D) -> (1, T, H D)
    by_hand = [out(part) for out, part in zip(model.out, y.split(list(SIZES), 1))]
    by_layer = model(streams, mask)
for name, a, b in zip(names, by_hand, by_layer):
    print(f"{name:11} {b.shape!s:12} by hand against the layer: {(a - b).abs().max().item():.0e}")
    assert mt.allclose(a, b, atol=1e-6)

# %% [markdown]
# What does it cost? Weights, not work: each token is still multiplied by four matrices, those of its own stream.

# %%
for shared in (True, False):
    layer = nn.JointAttention((C, C, C), 4, shared=shared, bias=False)
    weights = sum(w.numel() for w in layer.parameters())
    print(f"{'one set for all' if shared else 'each its own':16} {weights // C**2:2} C^2 weights, "
          f"{weights // C**2 // len(layer.qkv)} C^2 multiplications a token in the projections")
    assert weights == (4 if shared else 12) * C**2

together = nn.JointAttention((C, C), 4, shared=True)
whole = nn.MultiheadAttention(C, 4, batch_first=True)
whole.load_state_dict({"in_proj_weight": together.qkv[0].weight, "in_proj_bias": together.qkv[0].bias,
                       "out_proj.weight": together.out[0].weight, "out_proj.bias": together.out[0].bias})
with mt.no_grad():
    both = mt.cat([vision, touch], 1)
    difference = (mt.cat(list(together([vision, touch])), 1) - whole(both, both, both)[0]).abs().max().item()
print(f"with one set for all it is self-attention of the whole sequence: {difference:.0e}")
assert difference < 1e-5

# %% [markdown]
# ## To try
#
# 1. Train section 2 with four heads. What do the two that are left over do? Then give one head more room: `WIDE`
#    of 64. Does it help? What would help instead of a second head? (What is short is not width, but the number of
#    softmaxes. A second layer has one, too.)
# 2. In section 4, start with touch at a disadvantage: add -4 to its scores by a floating-point mask, and learn the
#    task whose answer lies in touch. How many steps more does it take? And with -20?
# 3. In section 5, let the observation read the state but not the actions: `F.block_mask` with a table of your own.
#    Which of the assertions still hold?
