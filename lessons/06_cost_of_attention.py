# %% [markdown]
# # Lesson 6: what attention costs, and three ways to pay less
#
# T tokens have T^2 scores. Twice the text is four times the work, and four times the memory if all scores are kept.
# This lesson measures both, and then saves: tiles keep the result and save memory, a window looks at few keys only,
# and linear attention changes the weights so that the keys can be summed up in advance.
#
# Less than half a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core, so that times can be compared

import math
import time
import tracemalloc
from functools import partial

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt

F = mt.nn.functional
os.makedirs("out", exist_ok=True)


def largest_difference(a, b):
    return (a - b).abs().max().item()


# %% [markdown]
# ## 1. A softmax over keys that come bit by bit
#
# The softmax of a row divides by a sum over all its scores. It looks as if one had to hold them all. But the sum can
# run along: keep the largest score so far (`largest`), the sum of $e^{a - \mathrm{largest}}$ (`total`), and the same
# sum weighted by the values (`mixed`). When a larger score arrives, both sums are made smaller by one factor.
# Nothing that was seen is needed again.

# %%
mt.manual_seed(2)
scores, values = mt.randn(12).numpy(), mt.randn(12, 3).numpy()
largest, total, mixed = -math.inf, 0.0, np.zeros(3)
for start in range(0, 12, 4):  # three tiles of four keys
    a, v = scores[start:start + 4], values[start:start + 4]
    before, largest = largest, max(largest, a.max())
    shrink, e = math.exp(before - largest), np.exp(a - largest)
    total, mixed = total * shrink + e.sum(), mixed * shrink + e @ v
    print(f"after {start + 4:2} keys: largest {largest:.3f}, total {total:.3f}, mixed / total {mixed / total}")
at_once = F.softmax(mt.tensor(scores), 0).numpy() @ values
print(f"all at once:                                         {at_once}")
assert np.allclose(mixed / total, at_once, atol=1e-6)

# %% [markdown]
# `tiled_attention` does this for a tile of queries and a tile of keys at a time, of 256 each unless told. (On
# graphics cards the same idea is called FlashAttention.) Backward makes each tile's scores a second time instead of
# keeping them. Result and gradients must be those of the plain function, and are, to the rounding of float32.

# %%
B, H, T, D = 2, 4, 512, 32


def with_gradients(attend):
    """The result, and the gradients of query, key and value, always for the same inputs."""
    mt.manual_seed(1)
    q, k, v = (mt.randn(B, H, T, D, requires_grad=True) for _ in range(3))
    y = attend(q, k, v)
    y.backward(mt.randn(B, H, T, D))
    return y.detach(), q.grad, k.grad, v.grad


for rule in ({"is_causal": False}, {"is_causal": True}):
    plain = with_gradients(partial(F.scaled_dot_product_attention, **rule))
    tiled = with_gradients(partial(F.tiled_attention, tile=64, **rule))
    apart = [largest_difference(a, b) / max(1, a.abs().max().item()) for a, b in zip(plain, tiled)]
    print(f"{'causal' if rule['is_causal'] else 'open':6} largest difference: "
          + ", ".join(f"{name} {d:.0e}" for name, d in zip(("result", "gradient of q", "of k", "of v"), apart)))
    assert max(apart) < 1e-6

# %% [markdown]
# ## 2. Memory: a square against a line
#
# The peak of a forward and a backward pass, counted by Python's own `tracemalloc` (NumPy reports its arrays to it).

# %%
lengths = (256, 512, 1024, 2048)


def peak(attend, T):
    """The most bytes in use at one time during forward and backward, beyond the inputs."""
    q, k, v = (mt.randn(1, T, 32, requires_grad=True) for _ in range(3))
    tracemalloc.start()
    attend(q, k, v).backward(mt.ones(1, T, 32))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def power(measured):
    """p, if the last three figures grow like T^p."""
    return np.polyfit(np.log(lengths[-3:]), np.log(measured[-3:]), 1)[0]


def plain_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def tiled_causal(q, k, v, tile):
    return F.tiled_attention(q, k, v, is_causal=True, tile=tile)


exact = {"plain": plain_causal, "tiles of 64": partial(tiled_causal, tile=64),
         "tiles of 256": partial(tiled_causal, tile=256)}
memory = {name: [peak(attend, T) for T in lengths] for name, attend in exact.items()}
print("T               " + "".join(f"{T:8}" for T in lengths))
for name, found in memory.items():
    print(f"{name:12} MiB" + "".join(f"{n / 2**20:8.2f}" for n in found) + f"   grows as T^{power(found):.2f}")
assert power(memory["plain"]) > 1.8 and max(power(memory[name]) for name in exact if name != "plain") < 1.2
assert memory["tiles of 64"][-1] < 0.1 * memory["plain"][-1]
assert memory["tiles of 256"][-1] < 0.2 * memory["plain"][-1]

# %% [markdown]
# ## 3. Look at few keys: windows
#
# If a token reads only the w tokens up to itself, there are T w scores. A dilated window takes every r-th token
# instead: as many scores, r times as far back. Both are masks; what they let through, gathered by hand, must give
# the same result.

# %%
T, w, r = 24, 4, 3
masks = {"causal": F.causal_mask(T), f"window, w = {w}": F.sliding_window_mask(T, w),
         f"dilated, w = {w}, r = {r}": F.dilated_mask(T, w, r)}
q, k, v = mt.randn(3, T, 8, dtype=mt.float64).unbind(0)
for (name, mask), step in zip(masks.items(), (1, 1, r)):
    reach = T if name == "causal" else w * step
    by_hand = []
    for t in range(T):
        keys = [s for s in range(t, t - reach, -step) if s >= 0]  # itself, then step by step back
        weights = F.softmax(k[keys] @ q[t] / math.sqrt(8), 0)
        by_hand.append(weights @ v[keys])
    apart = largest_difference(F.scaled_dot_product_attention(q, k, v, mask), mt.stack(by_hand))
    print(f"{name:22} {int(mask.sum().item()):4} of {T * T} scores; by hand: largest difference {apart:.0e}")
    assert apart < 1e-12

figure = Figure(figsize=(9, 3.3), layout="constrained")
for ax, (name, mask) in zip(figure.subplots(1, 3), masks.items()):
    ax.imshow(mask.numpy(), cmap="Blues", vmin=0, vmax=1.4)
    ax.set(title=name, xlabel="key", ylabel="query")
figure.savefig("out/06_windows.png", dpi=110)

# %% [markdown]
# A mask hides scores, but does not spare them: the plain function computes all of them first. `tiled_attention` knows
# the rule of the window and does not visit tiles that it hides. For a dilated window there is a trick: the tokens
# 0, r, 2r, ... only see each other, and so do 1, r + 1, 2r + 1, ...; each of these r sequences has an ordinary
# window.


# %%
def window(q, k, v, w):
    return F.tiled_attention(q, k, v, window=w, tile=64)


def dilated(q, k, v, w, r):
    """A dilated window as r ordinary ones; T must be a multiple of r."""
    def comb(x):  # (..., T, D) -> (..., r, T/r, D)
        return x.unflatten(-2, (-1, r)).transpose(-2, -3)

    y = window(comb(q), comb(k), comb(v), w)
    return y.transpose(-2, -3).flatten(-3, -2)  # (..., r, T/r, D) -> (..., T, D)


for got, mask in ((window(q, k, v, w), F.sliding_window_mask(T, w)),
                  (dilated(q, k, v, w, r), F.dilated_mask(T, w, r))):
    assert largest_difference(got, F.scaled_dot_product_attention(q, k, v, mask)) < 1e-12

# %% [markdown]
# ## 4. Linear attention: sum up the keys before the query comes
#
# Softmax needs $e^{q \cdot k}$ of each score, with query and key inside the exponential, so that every pair must be
# looked at. Take a
# product of features instead, $\phi(q) \cdot \phi(k)$ with $\phi(x) = \mathrm{elu}(x) + 1 > 0$. Then the query can
# be taken out of the sum:
#
# $$y_t = \frac{\sum_{s \le t} (\phi(q_t) \cdot \phi(k_s))\, v_s}{\sum_{s \le t} \phi(q_t) \cdot \phi(k_s)}
#       = \frac{\phi(q_t)\, Z_t}{\phi(q_t)\, z_t}, \qquad
#   Z_t = \sum_{s \le t} \phi(k_s) v_s^\top, \quad z_t = \sum_{s \le t} \phi(k_s).$$
#
# The sums Z and z have a fixed size. This makes it a recurrent network: one step reads one token and updates them.
# (The library keeps both in one matrix: the state is Z, here (8, 8), with z beside it as its last column: (8, 9).)
# Three forms, one function: all weights as a (T, T) matrix, in chunks (the library's), and step by step.

# %%
q, k, v = mt.randn(3, 100, 8, dtype=mt.float64).unbind(0)
pairs = ((F.elu(q) + 1) @ (F.elu(k) + 1).T).tril()
by_matrix = pairs / pairs.sum(-1, keepdim=True) @ v
state, steps = None, []
for t in range(100):
    y, state = F.linear_attention_step(q[t], k[t], v[t], state)
    steps.append(y)
parallel = F.linear_attention(q, k, v, is_causal=True)
print(f"parallel and matrix:    largest difference {largest_difference(parallel, by_matrix):.0e}")
print(f"parallel and recurrent: largest difference {largest_difference(parallel, mt.stack(steps)):.0e}; "
      f"the state is {tuple(state.shape)} after any number of tokens")
assert largest_difference(parallel, by_matrix) < 1e-12 and largest_difference(parallel, mt.stack(steps)) < 1e-12

# %% [markdown]
# It is not the same function as softmax attention, and that has a price. Softmax can pick one key out of many. The
# features cannot be so choosy: let the query be one of the keys, scaled up, and see how much weight that key gets.

# %%
k = mt.randn(200, 32)
k = 6 * k / k.norm(dim=1, keepdim=True)  # 200 keys of one length; each is used as the query once
softmax_weight = F.attention_weights(k, k).diagonal().mean().item()
pairs = (F.elu(k) + 1) @ (F.elu(k) + 1).T
linear_weight = (pairs / pairs.sum(-1, keepdim=True)).diagonal().mean().item()
print(f"weight of the one key that fits, among 200: softmax {softmax_weight:.2f}, linear {linear_weight:.3f} "
      f"(an even share would be {1 / 200:.3f})")
assert softmax_weight > 10 * linear_weight and linear_weight > 1.1 / 200

# %% [markdown]
# ## 5. Time
#
# Milliseconds for forward and backward, causal, one head of width 32. Tiles do the same arithmetic as the plain
# function and half of it again (the scores are made twice), but skip the half of the tiles that the causal rule hides:
# 1.5 times the work on half of the tiles, 0.75 of it. And a tile stays in the processor's cache, where the plain
# function's arrays do not fit any more: from there on each score costs more, and its time grows even faster than
# T^2. But each tile is a few calls from Python, and these have their price: small tiles give away what they save.

# %%
ways = {**exact, "window of 64": lambda q, k, v: window(q, k, v, 64),
        "linear": lambda q, k, v: F.linear_attention(q, k, v, is_causal=True)}


def milliseconds(attend, T):
    """Processor time of the best of five runs: other programs on the computer count less than in a clock's time."""
    q, k, v = (mt.randn(1, T, 32, requires_grad=True) for _ in range(3))
    spent = []
    for _ in range(5):
        start = time.thread_time()
        attend(q, k, v).backward(mt.ones(1, T, 32))
        spent.append(time.thread_time() - start)
    return 1000 * min(spent)


times = {name: [milliseconds(attend, T) for T in lengths] for name, attend in ways.items()}
print("T              " + "".join(f"{T:8}" for T in lengths))
for name, spent in times.items():
    print(f"{name:15}" + "".join(f"{t:8.2f}" for t in spent) + f"   grows as T^{power(spent):.1f}")
assert power(times["plain"]) > power(times["linear"]) + 0.2 and times["plain"][-1] > 2 * times["linear"][-1]

# %% [markdown]
# For short texts none of it pays: at T = 256 a window and linear attention take about as long as the plain function,
# or longer. They win where T is some hundreds, and then by more and more.

# %%
figure = Figure(figsize=(9, 3.7), layout="constrained")
left, right = figure.subplots(1, 2)
for name, found in memory.items():
    left.loglog(lengths, [n / 2**20 for n in found], "o-", label=f"{name}: T^{power(found):.1f}")
left.set(title="Peak memory, forward and backward", ylabel="MiB")
left.set_yticks((1, 3, 10, 30, 100), (1, 3, 10, 30, 100))
for name, spent in times.items():
    right.loglog(lengths, spent, "o-", label=f"{name}: T^{power(spent):.1f}")
right.set(title="Time, forward and backward", ylabel="milliseconds")
right.set_yticks((1, 3, 10, 30, 100), (1, 3, 10, 30, 100))
for ax in (left, right):
    ax.set_xticks(lengths, lengths)
    ax.minorticks_off()
    ax.set_xlabel("T (tokens)")
    ax.legend(frameon=False)
figure.savefig("out/06_cost.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Add tiles of 16 and of 1024 to `exact`. What does it do to memory, and what to time?
# 2. In section 1 leave the factor `shrink` out. For which order of the scores is the result still right?
# 3. Two layers with a window of w: how far back does the result of the second reach? Check it by changing one early
#    token, with a layer norm before each layer (lesson 4, section 6, says why). What does a dilated second layer
#    change?
