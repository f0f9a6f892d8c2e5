# %% [markdown]
# # Lesson 2: attention before it was called so, kernel regression
#
# You have fifty noisy measurements and want the value at a place where none was made. Average the measurements, and
# let near ones count more. That is Nadaraya-Watson regression of 1964, and it is attention already: a query, keys,
# values, and weights that sum to 1.
#
# A few seconds. Figures go to `out/`.
#
# ## Letters and words of the lessons from here on
#
# | letter | what it counts |
# |---|---|
# | B | sequences in a batch |
# | T, S | the number of queries, the number of keys; T for both if they are the same |
# | C | the width of a token's vector (in lessons 3 and 8 called d, as in the papers) |
# | H, D | heads, and the width of one: D = C / H |
# | K | heads for keys and values, where they are fewer than H (lesson 14) |
# | V | tokens in the vocabulary |
# | E, A | experts, and how many of them are active for a token (lesson 8) |
#
# | word | what it means here |
# |---|---|
# | token | one element of a sequence: a character, a piece of a word, a patch of an image |
# | parameters | the numbers that training changes |
# | score, weight | how well a key fits a query (any number); what softmax makes of it (0 to 1, a row sums to 1) |
# | attends to | gives weight to; "reads", "asks" and "looks at" are the same |
# | logits | the model's last numbers, one a class or token, before softmax; the scores are not called so |
# | nats | the unit of a loss with the natural logarithm: $-\log p$, 0 for certainty, $\log n$ for one of n at random |
# | Adam, AdamW | gradient descent that gives each parameter its own step size, from its past gradients |
# | dropout | setting a random part of the numbers to 0, in training only |
# | residual stream | the sum that runs through all blocks; each block reads it and adds to it: `x = x + part(x)` |
# | kernel | in this lesson a function of a distance; in a convolution its small matrix |

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.nn import functional as F

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)

# %% [markdown]
# ## 1. Query, key, value
#
# | | in general | here |
# |---|---|---|
# | query | what is asked | a place $x$ |
# | key | what each sample is found by | its place $x_i$ |
# | value | what it gives | its measurement $y_i$ |
#
# The score says how well a key fits a query. Here it is fixed: minus the squared distance, in units of a width
# $\sigma$. Softmax turns the scores of one query into weights, and the weights average the values:
#
# $$f(x) = \sum_i \alpha_i(x)\, y_i, \qquad
#   \alpha_i(x) = \frac{\exp(-(x - x_i)^2 / 2\sigma^2)}{\sum_j \exp(-(x - x_j)^2 / 2\sigma^2)}$$


# %%
def truth(x):
    return 2 * mt.sin(x) + x ** 0.8


keys = mt.sort(mt.rand(50) * 5).values               # (50,)
values = truth(keys) + 0.3 * mt.randn(50)            # measured with noise
queries = mt.linspace(0.5, 4.5, 5)

weights = F.kernel_weights(queries[:, None], keys[:, None], 0.3)                  # (5, 50)
predicted = F.kernel_pooling(queries[:, None], keys[:, None], values[:, None], 0.3)[:, 0]
print("predicted:", predicted.numpy().round(2))
print("truth:    ", truth(queries).numpy().round(2))

# %% [markdown]
# The formula, pair by pair:


# %%
def by_formula(x, sigma):
    kernel = [math.exp(-(x - xi) ** 2 / (2 * sigma ** 2)) for xi in keys.tolist()]
    return sum(k * yi for k, yi in zip(kernel, values.tolist())) / sum(kernel)


difference = np.abs(predicted.numpy() - [by_formula(x, 0.3) for x in queries.tolist()]).max()
print(f"each row of weights sums to 1: {weights.sum(1).numpy()}")
print(f"largest difference from the formula: {difference:.0e}")
assert difference < 1e-5 and np.allclose(weights.sum(1).numpy(), 1)

# %% [markdown]
# ## 2. What the width does
#
# A narrow kernel asks only the nearest sample and repeats its noise. A wide one asks everybody and answers with the
# mean. How many samples does a query ask? A fair count is $1 / \sum_i \alpha_i^2$: it is $n$ if $n$ samples get
# $1/n$ each, and 1 if one gets all.
#
# Here we know the truth, and can say how far a fit is from it: the root of the mean square.

# %%
SIGMAS = (0.03, 0.3, 3.0)
grid = mt.linspace(0, 5, 201)
fits, maps, distance, asked = {}, {}, {}, {}
for sigma in SIGMAS:
    p = F.kernel_weights(grid[:, None], keys[:, None], sigma)    # (201, 50)
    fits[sigma], maps[sigma] = p @ values, p
    distance[sigma] = ((fits[sigma] - truth(grid)) ** 2).mean().sqrt().item()
    asked[sigma] = (1 / (p ** 2).sum(1)).mean().item()
    print(f"sigma {sigma:4}: each query asks {asked[sigma]:4.1f} of 50 samples, {distance[sigma]:.2f} from the truth")
assert distance[0.3] < 0.8 * distance[0.03] and distance[0.3] < 0.5 * distance[3.0]
assert asked[0.03] < 4 < asked[0.3] < 20 < asked[3.0]

nearest = values[(grid[:, None] - keys).abs().argmin(1)]
gaps = [(F.kernel_pooling(grid[:, None], keys[:, None], values[:, None], sigma)[:, 0] - limit).abs().max().item()
        for sigma, limit in ((1e-5, nearest), (1e3, values.mean()))]
print(f"sigma 1e-05 gives the nearest sample's value, to {gaps[0]:.0e}; sigma 1000 the mean of all, to {gaps[1]:.0e}")
assert max(gaps) < 1e-3

figure = Figure(figsize=(11, 6), layout="constrained")
above, below = figure.subplots(2, 3, sharey="row")
for ax, sigma in zip(above, SIGMAS):
    ax.plot(keys.numpy(), values.numpy(), ".", color="0.6", label="samples")
    ax.plot(grid.numpy(), truth(grid).numpy(), "--", color="0.3", linewidth=1, label="truth")
    ax.plot(grid.numpy(), fits[sigma].numpy(), label="fit")
    ax.set(title=f"sigma {sigma}, {distance[sigma]:.2f} from the truth", xlabel="x")
for ax, sigma in zip(below, SIGMAS):
    image = ax.imshow(maps[sigma].sqrt().numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=(0, 50, 5, 0))
    ax.set(title=f"each query asks {asked[sigma]:.1f} samples", xlabel="key: number of the sample")
above[0].set_ylabel("value")
below[0].set_ylabel("query x")
above[0].legend(frameon=False)
bar = figure.colorbar(image, ax=below, label="weight (darker by its root)")
bar.set_ticks([math.sqrt(w) for w in (0, 0.01, 0.1, 0.3, 1)], labels=["0", "0.01", "0.1", "0.3", "1"])
figure.savefig("out/02_kernel_regression.png", dpi=110)

# %% [markdown]
# ## 3. A width that is learned
#
# The weights are differentiable by $\sigma$, so gradient descent can choose it. The truth
# is not known in real life, so the judge has to be the squared error at the samples: another number than the distance
# from the truth above, for the samples have noise of their own (of mean square 0.09). But it is a bad judge: with
# $\sigma \to 0$ every sample asks only itself, and nothing is wrong any more. So hide each sample from itself: a
# mask, True where a key may be seen. A hidden score becomes $-\infty$, its weight 0.
#
# We learn $\log \sigma$, which keeps $\sigma$ positive.

# %%
others = ~mt.eye(50).bool()  # (50, 50): all but oneself
square = (keys[:, None] - keys) ** 2


def sample_error(sigma, mask=None):
    """The mean squared error at the samples, each predicted from those that its row of the mask shows."""
    return ((F.masked_softmax(-square / (2 * sigma ** 2), mask) @ values - values) ** 2).mean()


log_sigma = mt.tensor(0.0, requires_grad=True)
for _ in range(200):
    loss = sample_error(log_sigma.exp(), others)
    log_sigma.grad = None
    loss.backward()
    with mt.no_grad():
        log_sigma -= 0.2 * log_sigma.grad
learned = log_sigma.exp().item()

tried = np.geomspace(0.02, 5, 80)
seeing_itself, left_out = ([sample_error(sigma, mask).item() for sigma in tried] for mask in (None, others))
best = tried[np.argmin(left_out)]
print(f"learned sigma {learned:.3f}, best of 80 tried {best:.3f}; squared error at the samples {loss.item():.3f}")
print(f"each seeing itself, it is {seeing_itself[0]:.3f} at sigma {tried[0]}, less than the noise's own 0.09")
assert abs(math.log(learned / best)) < 0.1 and seeing_itself[0] < 0.09 / 2 < 0.09 < min(left_out)

fit = F.kernel_pooling(grid[:, None], keys[:, None], values[:, None], learned)[:, 0]
distance["learned"] = ((fit - truth(grid)) ** 2).mean().sqrt().item()
print(f"distance from the truth: {distance['learned']:.3f} with the learned sigma, {distance[0.3]:.3f} with 0.3")
assert distance["learned"] < 0.98 * distance[0.3]

figure = Figure(figsize=(6, 3.6), layout="constrained")
axes = figure.subplots()
axes.semilogx(tried, seeing_itself, label="each sample sees itself")
axes.semilogx(tried, left_out, label="each sample hidden from itself")
axes.axvline(learned, color="0.6", linestyle=":", label=f"learned: {learned:.2f}")
axes.set(xlabel="sigma", ylabel="mean squared error", title="Squared error at the samples", ylim=(0, None))
axes.legend(frameon=False)
figure.savefig("out/02_learned_width.png", dpi=110)

# %% [markdown]
# So learning helped, although it never saw the truth: hidden samples stand in for it.
#
# ## 4. From distances to dot products
#
# Multiply the square out: $-|q - k|^2 / 2\sigma^2 = q \cdot k / \sigma^2 - |k|^2 / 2\sigma^2 - |q|^2 / 2\sigma^2$. The
# last part is the same for all keys of a query, and softmax does not notice what is added to all. If all keys are
# equally long, the second part falls away as well. What is left is dot-product attention with the scale $1/\sigma^2$.
# If they are not, $-|k|^2 / 2\sigma^2$ is added to the scores.

# %%
angle = 2 * mt.pi * mt.rand(30)
on_circle = mt.stack([angle.cos(), angle.sin()], 1)           # (30, 2), all of length 1
anywhere, q, v = mt.randn(30, 2), mt.randn(7, 2), mt.randn(30, 3)
sigma = 0.5
for name, k in (("on a circle", on_circle), ("anywhere", anywhere)):
    bias = -(k ** 2).sum(1) / (2 * sigma ** 2)                # (30,), one number a key
    kernel = F.kernel_pooling(q, k, v, sigma)
    plain, with_bias = (F.scaled_dot_product_attention(q, k, v, added, scale=1 / sigma ** 2)
                        for added in (None, bias))
    gaps = [(y - kernel).abs().max().item() for y in (plain, with_bias)]
    print(f"keys {name:11}: dot products differ from distances by {gaps[0]:.0e}, with the keys' bias by {gaps[1]:.0e}")
    assert gaps[1] < 1e-4 and (gaps[0] < 1e-4) == (k is on_circle)

# %% [markdown]
# Here the places where samples lie are given. In a Transformer queries and keys are computed from the tokens by
# matrices that are learned: the network chooses what "near" means. The next lesson is about such scores.
#
# ## To try
#
# 1. Ask at $x = 50$, far from all samples. All kernels are 0 in float32; why is the answer not 0 / 0? (Look for the
#    row's maximum in `_exp_rows`, `nn/functional/attention.py`.)
# 2. Give each key its own width: `sigma` may be a tensor of shape (50,). Learn all fifty as in section 3. Does the
#    squared error with each sample hidden fall? Does the distance from the truth?
# 3. Put a hundred more samples at $x > 4$. Where do narrow kernels gain from that, and where not?
