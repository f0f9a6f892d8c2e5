# %% [markdown]
# # Lesson 3: scores, and why they are divided by the root of the width
#
# A score says how well a key fits a query. Two kinds are in use: a small network (Bahdanau), and the dot product
# divided by $\sqrt{d}$. This lesson compares them, and then takes the $\sqrt{d}$ away to see what it was good for.
#
# Ten seconds. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # so that the times below are those of one core

import math
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from minitorch_attn.optim import Adam

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)

# %% [markdown]
# ## 1. The additive score: a network with one hidden layer
#
# $$a(q, k) = v \cdot \tanh(W_q q + W_k k)$$
#
# Queries and keys may have different widths, since each has its own matrix into the hidden layer. Here a decoder's
# state of width 3 asks an encoder's states of width 5.

# %%
layer = nn.AdditiveAttention(query_dim=3, key_dim=5, hidden=11).double()
query, key, value = (mt.randn(*shape, dtype=mt.float64) for shape in ((2, 3), (7, 5), (7, 4)))
y, weights = layer(query, key, value)

w_q, w_k, v = (w.detach().numpy() for w in (layer.w_query.weight, layer.w_key.weight, layer.v))
plain = np.zeros((2, 4))
for t, q in enumerate(query.numpy()):
    scores = np.array([v @ np.tanh(w_q @ q + w_k @ k) for k in key.numpy()])
    alpha = np.exp(scores) / np.exp(scores).sum()
    plain[t] = sum(a * x for a, x in zip(alpha, value.numpy()))
print("query", query.shape, "keys", key.shape, "-> weights", weights.shape, "result", y.shape)
difference = np.abs(y.detach().numpy() - plain).max()
print(f"largest difference from the formula, pair by pair: {difference:.0e}")
assert difference < 1e-12
assert mt.gradcheck(lambda q, k: layer(q, k, value)[0], (query, key))
print("gradients checked")

# %% [markdown]
# ## 2. The scaled dot product: one matrix product for all pairs
#
# $$a(q, k) = \frac{q \cdot k}{\sqrt d}, \qquad \mathrm{Attention}(Q, K, V) =
#   \mathrm{softmax}\Big(\frac{Q K^\top}{\sqrt d}\Big) V$$
#
# Queries and keys need one width $d$. It has no parameters, and no hidden layer for each pair.


# %%
def attention(q, k, v, seen=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))      # (..., T, D) -> (..., T, S)
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    return F.softmax(scores, dim=-1) @ v


q, k, v = mt.randn(3, 2, 4, 10, 16).unbind(0)                     # each (B, H, T, D)
pairs = ((attention(q, k, v), F.scaled_dot_product_attention(q, k, v)),
         (attention(q, k, v, F.causal_mask(10)), F.scaled_dot_product_attention(q, k, v, is_causal=True)))
for name, (ours, fused) in zip(("all keys", "causal"), pairs):
    print(f"three lines against the library's function, {name}: {(ours - fused).abs().max().item():.0e}")
    assert mt.allclose(ours, fused, atol=1e-6)

T, D = 256, 64
q, k, v = mt.randn(T, D), mt.randn(T, D), mt.randn(D)


def milliseconds(fn):
    spent = []
    for _ in range(5):
        start = time.perf_counter()
        fn()
        spent.append(1e3 * (time.perf_counter() - start))
    return min(spent)


additive = milliseconds(lambda: F.additive_scores(q, k, v))
product = milliseconds(lambda: q @ k.T / math.sqrt(D))
print(f"{T} x {T} scores of width {D}: additive {additive:.1f} ms ({T * T * D:,} values of tanh), "
      f"dot product {product:.2f} ms")
assert additive > 5 * product

# %% [markdown]
# ## 3. The variance of a dot product is d
#
# Let the entries of $q$ and $k$ be independent, with mean 0 and variance 1. Each product $q_i k_i$ then has mean 0 and
# variance 1, and a sum of $d$ independent ones has variance $d$. A typical score is as large as $\sqrt d$: 8 for
# $d = 64$, 32 for $d = 1024$. Dividing by $\sqrt d$ gives every width scores of variance 1.

# %%
WIDTHS = (4, 16, 64, 256, 1024)
variance, scaled_variance = [], []
for d in WIDTHS:
    scores = (mt.randn(10000, d) * mt.randn(10000, d)).sum(1)
    variance.append(scores.var().item())
    scaled_variance.append((scores / math.sqrt(d)).var().item())
    print(f"d {d:5}: variance of q.k {variance[-1]:7.1f}, divided by sqrt(d) first: {scaled_variance[-1]:.3f}")
assert all(abs(var / d - 1) < 0.08 for var, d in zip(variance, WIDTHS))

# %% [markdown]
# ## 4. What softmax does with large scores
#
# Softmax is $e^{a_i}$ divided by the sum, so what counts is how far the largest score is ahead of the second. Far
# ahead means that one key gets everything, whatever it was. Two numbers show it, for random queries and 64 keys:
#
# - the entropy $-\sum_i p_i \log p_i$, in nats: $\log 64 = 4.16$ if all keys get the same, 0 if one gets all;
# - the length of the gradient that comes back to the scores, $p_i (g_i - \sum_j p_j g_j)$ for a random $g$. Where one
#   $p$ is 1 and the others are 0, it is 0 for every $g$: nothing is learned, not even that the choice was wrong.


# %%
def look(d, scale, keys=64, queries=1000):
    """Weights of random queries on random keys, the entropy of each, and the length of the gradient to its scores."""
    q, k, g = mt.randn(queries, d), mt.randn(keys, d), mt.randn(queries, keys)
    scores = (q @ k.T * scale).requires_grad_()
    p = F.softmax(scores, -1)
    p.backward(g)
    p = p.detach()
    entropy = -(p * p.clamp(min=1e-30).log()).sum(-1)
    return p.numpy(), entropy.mean().item(), (scores.grad ** 2).sum(-1).sqrt().numpy()


found = {"divided by sqrt(d)": [], "not divided": []}
for d in WIDTHS:
    for name, scale in (("divided by sqrt(d)", 1 / math.sqrt(d)), ("not divided", 1.0)):
        _, entropy, length = look(d, scale)
        found[name].append((entropy, np.median(length), (length < 1e-3).mean()))
print("                    ", "".join(f"{f'd = {d}':>10}" for d in WIDTHS))
for name, rows in found.items():
    for what, column, form in (("entropy (nats)", 0, ".2f"), ("median gradient", 1, ".2g"),
                               ("gradients < 0.001", 2, ".0%")):
        print(f"{name:19} {what:18}", "".join(f"{format(row[column], form):>10}" for row in rows))
assert all(row[0] > 3.5 and row[2] == 0 for row in found["divided by sqrt(d)"])
assert found["not divided"][-1][0] < 0.2 and found["not divided"][-1][2] > 0.5
assert found["not divided"][-1][1] < 1e-3 * found["divided by sqrt(d)"][-1][1]
undecided = 1 - found["not divided"][WIDTHS.index(256)][2]
print(f"queries that still send a gradient above 0.001 at d = 256, not divided: {undecided:.0%}")
assert 0.5 < undecided < 0.9
divided, plain = ([row[1] for row in rows] for rows in found.values())
assert divided[0] < 0.9 * plain[0] and divided[1] < 0.9 * plain[1] and divided[2] > 1.2 * plain[2]

# %%
figure = Figure(figsize=(11, 3.6), layout="constrained")
a, b, c = figure.subplots(1, 3)
a.loglog(WIDTHS, scaled_variance, ".-", label="divided by sqrt(d)")
a.loglog(WIDTHS, variance, ".-", label="not divided")
a.loglog(WIDTHS, WIDTHS, ":", color="0.4", label="d")
for name, rows in found.items():
    b.semilogx(WIDTHS, [row[0] for row in rows], ".-", label=name)
    c.loglog(WIDTHS, [row[1] for row in rows], ".-", label=name)
b.axhline(math.log(64), color="0.4", linestyle=":", label="log 64: all keys alike")
a.set(title="Variance of the scores", xlabel="d")
b.set(title="Entropy of the weights (nats)", xlabel="d", ylim=(0, None))
c.set(title="Median gradient of the scores", xlabel="d")
for ax in (a, b, c):
    ax.set_xticks(WIDTHS, WIDTHS)
    ax.minorticks_off()
    ax.legend(frameon=False, fontsize=8)
figure.savefig("out/03_scale.png", dpi=110)

# %% [markdown]
# At d = 4 and 16 the division costs a little: it makes the gradients smaller, since softmax was not too sharp there.
# From d = 64 on it saves them.
#
# The weights of one query on 16 keys. The scores' order is the same with and without the division; how decided the
# choice is, is not.

# %%
figure = Figure(figsize=(11, 4.2), layout="constrained")
axes = figure.subplots(2, len(WIDTHS), sharex=True, sharey=True)
for column, d in enumerate(WIDTHS):
    for row, (name, scale) in enumerate((("divided", 1 / math.sqrt(d)), ("not divided", 1.0))):
        mt.manual_seed(d)  # the same query and keys in both rows
        p, _, _ = look(d, scale, keys=16, queries=1)
        axes[row, column].bar(range(16), p[0], color=f"C{row}")
        axes[row, 0].set_ylabel(f"weight, {name}")
    axes[0, column].set_title(f"d = {d}", fontsize=10)
for ax in axes[1]:
    ax.set_xlabel("key")
figure.savefig("out/03_weights.png", dpi=110)

# %% [markdown]
# ## 5. Does it matter in training?
#
# A task for attention alone: 16 keys, and a query that is a noisy copy of one of them, in other coordinates (turned by
# a fixed random matrix). Learn the matrix $W$ that turns it back, so that the weight goes to the right key. Both runs
# start from the same random $W$ and see the same data; they differ in the scale alone. So that neither is helped by
# the learning rate, we try several.


# %%
def learn(scale, rate, d=256, steps=100):
    """The share of queries whose largest weight is on the right key, in the last 10 steps."""
    mt.manual_seed(3)
    turn = mt.randn(d, d) / math.sqrt(d)
    w = (mt.randn(d, d) / math.sqrt(d)).requires_grad_()
    optimizer, rights = Adam([w], lr=rate), []
    for _ in range(steps):
        keys, right = mt.randn(32, 16, d), mt.randint(0, 16, (32,))
        queries = (keys[mt.arange(32), right] + 0.3 * mt.randn(32, d)) @ turn
        p = F.attention_weights((queries @ w)[:, None], keys, scale=scale)[:, 0]     # (32, 16)
        loss = ((p - F.one_hot(right, 16)) ** 2).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rights.append((p.argmax(1) == right).float().mean().item())
    return np.mean(rights[-10:])


RATES = (1e-3, 3e-3, 1e-2)
learned = {name: [learn(scale, rate) for rate in RATES]
           for name, scale in (("divided by sqrt(d)", 1 / math.sqrt(256)), ("not divided", 1.0))}
print("right keys after 100 steps, at the rates", *RATES)
for name, shares in learned.items():
    print(f"{name:19}", "  ".join(f"{share:5.0%}" for share in shares))
assert all(a > b for a, b in zip(*learned.values()))
assert learned["divided by sqrt(d)"][0] > 0.95 and learned["not divided"][0] < 0.5

# %% [markdown]
# Without the division it still learns, at a high rate: Adam enlarges small gradients, and at d = 256 about two thirds
# of the queries are still undecided enough to send some (section 4). But it learns less at every rate.
#
# ## To try
#
# 1. Section 3 assumes independent entries. Take `k = q` and measure the variance of $q \cdot q$ for several $d$. Why
#    is it $2d$, and where is its mean?
# 2. Divide by $d$ instead of $\sqrt d$. What becomes of the entropy for $d = 1024$, and why would training be slow at
#    first? (Some models do this on purpose: trained queries and keys are not independent any more.)
# 3. An additive score is at most $\sum_i |v_i|$ in size, whatever the query. What does that mean for the entropy of
#    its weights with a wide hidden layer? Measure it with `nn.AdditiveAttention(d, d, d)` for the widths above.
