# %% [markdown]
# # Lesson 1: find a wrong gradient, and say why it is wrong
#
# You will write backward functions by hand, and some will be wrong. This lesson is about finding out: why the obvious
# test is blind, how small a step should be, what a kink does, and how to read a report that names the mistake.
#
# Run it as a script, `python lessons/01_gradcheck.py`, or cell by cell in an editor that knows `# %%`. It takes a few
# seconds and saves its figures to the folder `out/`.

# %%
import os

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import Tensor, explain_gradients, gradcheck
from minitorch_attn.backend import xp  # the array library in use: NumPy, if nothing else is said

os.makedirs("out", exist_ok=True)
rng = np.random.default_rng(0)


def values(*shape):
    return mt.tensor(rng.standard_normal(shape))  # float64, as the arrays of NumPy are


# %% [markdown]
# ## 1. An operation with its backward
#
# An operation is a result and a function `backward(g)` that turns the result's gradient into the input's. For softmax,
#
# $$y_i = \frac{e^{x_i}}{\sum_j e^{x_j}}, \qquad \bar x_j = y_j \Big(\bar y_j - \sum_i \bar y_i\, y_i\Big),$$
#
# where the bar stands for "gradient of the objective by". In code:
#
# | formula | code | in reports |
# |---|---|---|
# | $\bar y$ | `g`, what `backward` gets | g |
# | $\bar x$ | what `backward` returns for `x` | gx |
# | $\langle y, u \rangle = \sum_i y_i u_i$ | the objective; there $\bar y = u$ | "a random g" |
# | $\partial y_i / \partial x_j$ for all $i$ and $j$ | the Jacobian: the table of all slopes | |
#
# Here it is right, and below it with a popular mistake: every $y_i$ depends on every $x_j$ through the sum in the
# denominator, and that part is forgotten.


# %%
def softmax(x):
    e = xp.exp(x.array - x.array.max(axis=1, keepdims=True))
    y = e / e.sum(axis=1, keepdims=True)  # (B, C)

    def backward(g):
        return (y * (g - (g * y).sum(axis=1, keepdims=True)),)

    return Tensor.from_op("softmax", y, (x,), backward)


def wrong_softmax(x):
    e = xp.exp(x.array - x.array.max(axis=1, keepdims=True))
    y = e / e.sum(axis=1, keepdims=True)

    def backward(g):
        return (y * g,)

    return Tensor.from_op("softmax", y, (x,), backward)


def lazy_softmax(x):
    return Tensor.from_op("softmax", softmax(x.detach()).array, (x,), lambda g: (xp.zeros_like(g),))


# %% [markdown]
# ## 2. A plain sum is blind
#
# The obvious test takes `f(x).sum()` as objective and compares with finite differences. For softmax that sum is 1 in
# every row, whatever `x` is: its true gradient is zero. So the laziest backward of all, which returns zeros, passes.


# %%
def slopes_of(objective, x, h=1e-5):
    """Central differences: move each entry up and down by h."""
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        slope[i] = (objective(mt.tensor(up)).item() - objective(mt.tensor(down)).item()) / (2 * h)
    return slope


x = values(3, 5)
weights = values(3, 5)
print("largest error of the gradient that backward gives")
for fn in (softmax, wrong_softmax, lazy_softmax):
    errors = []
    # fn=fn keeps this round's function: without it both would use whatever fn is when they are called
    for objective in (lambda t, fn=fn: fn(t).sum(), lambda t, fn=fn: (fn(t) * weights).sum()):
        t = x.clone().requires_grad_()
        objective(t).backward()
        errors.append(np.abs(t.grad.numpy() - slopes_of(objective, x.numpy())).max())
    print(f"  {fn.__name__:14} plain sum {errors[0]:.0e}   random weights {errors[1]:.0e}")
    if fn is lazy_softmax:
        assert errors[0] < 1e-9 < 1e-2 < errors[1]

# %% [markdown]
# With random weights, $\langle f(x), u \rangle$ for a random $u$, nothing can cancel by symmetry. `gradcheck` always
# does that. And if you hand it the sum yourself, it does not say "passed": it says that the check proves nothing.
#
# How often does the sum miss a mistake? The package's own bug zoo (`python -m pytest tests/bug_zoo`) counts it: of 182
# wrong backward functions 19 slip through a plain sum. Among them are a softmax that returns zeros, a batch norm that
# forgets the variance's path, losses that ignore the gradient they get, and whatever only puts entries in the wrong
# order (flip, roll, sort, permute): a sum does not care about order.

# %%
print(explain_gradients(lambda t: lazy_softmax(t).sum(), x))

# %% [markdown]
# ## 3. Reading a report
#
# `gradcheck(fn, inputs)` returns True or raises, as in PyTorch. `explain_gradients` returns the report as a value:
# whether each gradient is right, the worst entry, where the wrong entries are, and the likely cause.

# %%
assert gradcheck(softmax, x)
report = explain_gradients(wrong_softmax, x, axes={"x": ("B", "C")})
print(report)
assert not report.ok and report["x"].cause == "missing_cross_term"
report.plot("out/01_report.png")

# %% [markdown]
# A cause is named only if it reproduces the wrong gradient to six digits at two different inputs, and no other known
# cause does. Otherwise the report says "unclear". Then `where` is the best hint: only the last time step, only head 2,
# only where `x` is negative. And the picture: here one column was forgotten, and one column is red.


# %%
def scaled(x):
    def backward(g):
        gx = 2 * g
        gx[:, 3] = g[:, 3]  # the mistake
        return (gx,)

    return Tensor.from_op("scaled", 2 * x.array, (x,), backward)


report = explain_gradients(scaled, x, axes={"x": ("B", "C")})
print(report)
assert report["x"].where == "only channel 3" and abs(report["x"].factor - 0.5) < 1e-9
report.plot("out/01_column.png")

# %% [markdown]
# ## 4. A gradient that is right by chance
#
# The weight of a layer norm is 1 before training, its bias 0. Whoever forgets to multiply by the weight does not see
# it there. So the gradient is compared at other values, too, and the report says that it was.


# %%
def product(x, weight):
    return Tensor.from_op("product", x.array * weight.array, (x, weight), lambda g: (g, (g * x.array).sum(axis=0)))


report = explain_gradients(product, (x, mt.tensor(np.ones(5))), names=("x", "weight"))
print(report)
assert not report["x"].ok and report["weight"].ok

# %% [markdown]
# ## 5. How small a step?
#
# A large step $h$ sees the curve bend: the error grows like $h^2$. A small one compares numbers that agree in almost
# all digits: the error grows like $\varepsilon / h$. Combining two steps removes the $h^2$ (Richardson):
#
# $$D(h) = f' + c\,h^2 + \dots \quad\Rightarrow\quad \frac{4\,D(h/2) - D(h)}{3} = f' + O(h^4).$$
#
# `gradcheck` sweeps over steps and takes, for every entry, the combination that is least uncertain. So it knows how
# far off its own differences are, and need not guess a tolerance.

# %%
steps = np.logspace(-11, -0.5, 43)
exact = np.cos(1.0)
errors = {}
for dtype in (np.float64, np.float32):
    at, h = dtype(1.0), steps.astype(dtype)
    errors[dtype.__name__] = np.abs((np.sin(at + h) - np.sin(at - h)) / (2 * h.astype("f8")) - exact)
half = steps / 2
plain = [(np.sin(1 + h) - np.sin(1 - h)) / (2 * h) for h in (steps, half)]
errors["float64, two steps combined"] = np.abs((4 * plain[1] - plain[0]) / 3 - exact)

figure = Figure(figsize=(6, 3.6), layout="constrained")
axes = figure.subplots()
for name, error in errors.items():
    axes.loglog(steps, np.maximum(error, 1e-16), ".-", label=name)
axes.set(xlabel="step h", ylabel="error of the slope", title="The slope of sin at 1")
axes.legend(frameon=False)
figure.savefig("out/01_steps.png", dpi=110)
assert errors["float32"].min() > 100 * errors["float64"].min()
print({name: f"best {error.min():.0e}" for name, error in errors.items()})

# %% [markdown]
# In float32 a step typically leaves four digits: the lucky step that gives six is another one for every function, and
# nobody knows it. The 1e-5 under the root of a layer norm, forgotten in the backward, does not show. So float32
# inputs, and the parameters of a Module, are checked as float64 copies, and the report says so.
#
# ## 6. Kinks
#
# `relu` has no slope at 0: 1 to the right, 0 to the left, and the difference says 1/2. No gradient there is wrong, and
# none is right. Such entries are found by comparing the two sides, counted, and left out, as long as the gradient lies
# between the two slopes. (Random inputs hardly ever hit a kink. Zeros often do.)

# %%
report = explain_gradients(mt.relu, mt.tensor([-1.0, 0.0, 2.0], dtype=mt.float64))
print(report)
assert report.ok and report[0].kinks == 1

# %% [markdown]
# ## 7. Where, and why: three mistakes in one kernel


# %%
def linear(x, weight, bias, mistake=None):
    """y = x W^T + b; x : Tensor (N, I), weight : Tensor (O, I), bias : Tensor (O,)"""
    xa, w = x.array, weight.array

    def backward(g):
        gx, gw, gb = g @ w, g.T @ xa, g.sum(axis=0)
        if mistake == "bias of one row":
            gb = g[0]
        if mistake == "transposed":
            gw = gw.T
        if mistake == "mean":
            gw = gw / len(xa)
        return gx, gw, gb

    return Tensor.from_op("linear", xa @ w.T + bias.array, (x, weight, bias), backward)


inputs = values(7, 5), values(3, 5), values(3)
found = {}
for mistake in (None, "bias of one row", "transposed", "mean"):
    report = explain_gradients(lambda *a, mistake=mistake: linear(*a, mistake), inputs, names=("x", "weight", "bias"))
    found[mistake] = [f"{a.name}: {a.cause}" + (f" ({a.detail})" if a.cause == "factor" else "")
                      for a in report.arguments if not a.ok]
    print(f"{mistake!s:16} {', '.join(found[mistake]) or 'all right'}")
assert found[None] == [] and found["mean"][0].startswith("weight: factor (1/7")

# %% [markdown]
# The factor is named from the shapes: 7 is the number of rows. That only works because all sizes differ. With a square
# `weight`, the transposed gradient would even have the right shape, and plain luck decides who notices. Test with
# different sizes, best with primes.
#
# ## Exercises
#
# 1. Write `rms_norm` with a backward by hand, $y = x / \sqrt{\mathrm{mean}(x^2) + \epsilon}$. Check it. Then treat the
#    root as a constant: which cause is named? (Compare with `missing_variance_path` in docs/gradcheck.md: what has the
#    root in common with a variance?)
# 2. Find a function other than softmax for which `f(x).sum()` has the true gradient zero, so that zeros pass. (Hint:
#    for which functions do you know the sum of a row, whatever x is?) Let `explain_gradients` tell you so, or
#    `gradcheck` with `raise_exception=False`.
# 3. Build a mistake that the report calls "unclear": two mistakes at once, say. Use `report[0].where` and
#    `report.plot(...)` to find it. Then mend one of the two: is the other one named?
