# %% [markdown]
# # Lesson 0: tensors, graphs, and gradients you can check
#
# Everything later in this course is trained by following gradients. This lesson takes one small computation apart:
# how it is recorded, how the gradient walks back through the record, and how you find out that a gradient is right.
#
# Run it as a script, `python lessons/00_autograd.py`, or cell by cell in an editor that knows `# %%`. It takes a few
# seconds and saves its figures to the folder `out/`.

# %%
import os

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt

os.makedirs("out", exist_ok=True)

# %% [markdown]
# ## 1. A tensor is an array that remembers
#
# A tensor holds an array. If it says `requires_grad`, every result computed from it remembers how it was made.

# %%
w = mt.tensor([2.0, -1.0], requires_grad=True)
b = mt.tensor(0.5, requires_grad=True)
x = mt.tensor([3.0, 4.0])  # data: no gradient wanted

y = mt.tanh((w * x).sum() + b)
print("y =", y.item())

# %% [markdown]
# The memory is a graph of nodes: each operation links to the nodes of its inputs, never the other way round. Its
# name, its number (the order of creation) and its parents can be looked at. `x` is missing, for nothing asks for its
# gradient.


# %%
def show(node, depth=0):
    print("  " * depth + f"{node.op} (node {node.number}, shape {node.shape})")
    for parent in node.parents:
        if parent is not None:
            show(parent, depth + 1)


show(y.node)

# %% [markdown]
# ## 2. Backward: the chain rule, from the last node to the first
#
# Write $u = \sum_i w_i x_i + b$ and $y = \tanh u$. Then
#
# $$\frac{\partial y}{\partial u} = 1 - y^2, \qquad
#   \frac{\partial y}{\partial w_i} = (1 - y^2)\, x_i, \qquad
#   \frac{\partial y}{\partial b} = 1 - y^2 .$$
#
# Each node knows only its own line of this: given the gradient of its result, it returns the gradients of its
# inputs. `backward()` visits the nodes in descending number, so that a node is visited after everything that was
# computed from it, and writes what arrives at the leaves into `.grad`.

# %%
y.backward()
by_hand = 1 - y.item() ** 2
print("w.grad:", w.grad.numpy(), "by hand:", by_hand * x.numpy())
print("b.grad:", b.grad.item(), "by hand:", by_hand)
assert np.allclose(w.grad.numpy(), by_hand * x.numpy()) and np.isclose(b.grad.item(), by_hand)

# %% [markdown]
# ## 3. Used twice, gradients add
#
# If $a$ reaches the result along two paths, the gradient is the sum over both. For $f(a) = a \cdot a + 3a$ it is
# $2a + 3$. The same rule undoes broadcasting: a number that was copied to many places gets the sum over the copies.

# %%
a = mt.tensor(4.0, requires_grad=True)
(a * a + 3 * a).backward()
print("a.grad =", a.grad.item(), "and 2a + 3 =", 2 * 4 + 3)

bias = mt.tensor([0.0, 0.0, 0.0], requires_grad=True)  # (3,), added to each of 5 rows
weights = mt.tensor(np.random.default_rng(0).normal(size=(5, 3)))
((bias + mt.zeros(5, 3)) * weights).sum().backward()
print("bias.grad =", bias.grad.numpy(), "= sum over the rows of what was multiplied with it")
assert a.grad.item() == 11 and np.allclose(bias.grad.numpy(), weights.numpy().sum(0), atol=1e-6)

# %% [markdown]
# `.grad` adds up over calls as well. That is why every training loop sets it to zero first.

# %%
b.grad = None
for _ in range(2):
    mt.tanh((w.detach() * x).sum() + b).backward()
print("after two backward() calls:", b.grad.item(), "= 2 *", by_hand)

# %% [markdown]
# ## 4. Is a gradient right? Ask the function itself
#
# Nothing about a derivation has to be believed. Move one entry of the input a little up and a little down and see
# how much the result moves (the central difference):
#
# $$\frac{\partial f}{\partial x_i} \approx \frac{f(x + h e_i) - f(x - h e_i)}{2h},
#   \qquad \text{error } \tfrac{h^2}{6}\, f''' + \text{rounding}/h .$$
#
# Two habits make this sharp. Compute in float64. And do not use a plain sum as $f$: weight the results with random
# numbers, because a sum is blind. Every row of a softmax sums to 1, so the sum's true gradient is 0 and any backward
# that returns zeros would pass.


# %%
def central_differences(f, x, h=1e-5):
    slope = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += h
        down[i] -= h
        slope[i] = (f(up) - f(down)) / (2 * h)
    return slope


rng = np.random.default_rng(1)
point, weighting = rng.normal(size=(3, 5)), rng.normal(size=(3, 5))


def softmax(t):  # composed from small operations: (3, 5) -> (3, 5)
    e = mt.exp(t - t.detach().amax(dim=1, keepdim=True))
    return e / e.sum(dim=1, keepdim=True)


def objective(values):
    return (softmax(mt.tensor(values)) * mt.tensor(weighting)).sum().item()


t = mt.tensor(point, requires_grad=True)
(softmax(t) * mt.tensor(weighting)).sum().backward()
error = np.abs(t.grad.numpy() - central_differences(objective, point)).max()
print(f"softmax, weighted: largest difference {error:.1e}")
assert error < 1e-9

blind = central_differences(lambda values: softmax(mt.tensor(values)).sum().item(), point)
print(f"softmax, plain sum: largest slope {np.abs(blind).max():.1e}, so this test would pass for anything near zero")

# %% [markdown]
# ## 5. How small should the step be?
#
# Too large, and the curve bends within the step. Too small, and the two values differ only in their last digits. The
# best step lies between; float32 never gets good enough to find a subtle mistake.

# %%
steps = np.logspace(-12, 0, 49)
exact = 1 - np.tanh(0.7) ** 2
errors = {}
for dtype in (np.float64, np.float32):
    values = []
    for h in steps.astype(dtype):
        up, down = (mt.tanh(mt.tensor(np.array(0.7, dtype) + s)).item() for s in (h, -h))
        values.append(abs((up - down) / (2 * float(h)) - exact))
    errors[dtype.__name__] = values

figure = Figure(figsize=(6, 3.6), layout="constrained")
axes = figure.subplots()
for name, values in errors.items():
    axes.loglog(steps, np.maximum(values, 1e-16), ".-", label=name)
axes.set(xlabel="step h", ylabel="error of the central difference", title="The slope of tanh at 0.7")
axes.legend(frameon=False)
figure.savefig("out/00_step_size.png", dpi=110)

for name, values in errors.items():
    print(f"{name}: best step {steps[np.argmin(values)]:.0e}, error {min(values):.0e}")
assert min(errors["float64"]) < 1e-9 < min(errors["float32"])

# %% [markdown]
# ## 6. What it is for: going downhill
#
# Fit a line to noisy points. The loss is the mean squared error; each step moves the parameters against the gradient.

# %%
xs = mt.tensor(np.linspace(-1, 1, 40))
ys = 1.5 * xs - 0.4 + mt.tensor(0.2 * rng.normal(size=40))
slope, offset = (mt.tensor(0.0, dtype=mt.float64, requires_grad=True) for _ in range(2))

losses = []
for _ in range(60):
    loss = ((slope * xs + offset - ys) ** 2).mean()
    slope.grad = offset.grad = None
    loss.backward()
    with mt.no_grad():  # the update itself is not part of any graph
        slope -= 0.3 * slope.grad
        offset -= 0.3 * offset.grad
    losses.append(loss.item())

best = np.polyfit(xs.numpy(), ys.numpy(), 1)
print(f"downhill:      {slope.item():.4f} x + {offset.item():.4f}")
print(f"least squares: {best[0]:.4f} x + {best[1]:.4f}, in closed form")
assert np.allclose([slope.item(), offset.item()], best, atol=1e-3)

figure = Figure(figsize=(8, 3.4), layout="constrained")
left, right = figure.subplots(1, 2)
left.semilogy(losses)
left.set(xlabel="step", ylabel="mean squared error", title="Loss")
right.plot(xs.numpy(), ys.numpy(), ".", color="0.5", label="data")
right.plot(xs.numpy(), (slope * xs + offset).detach().numpy(), label="after 60 steps")
right.set(xlabel="x", ylabel="y", title="The line")
right.legend(frameon=False)
figure.savefig("out/00_downhill.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Write `softmax` without subtracting the maximum and give it the point `1000 * point`. What comes out, and what is
#    its gradient?
# 2. In section 4, replace `t.detach().amax` by `t.amax`. The value is the same; why is the gradient, too?
# 3. In section 6, try the step 1.7. Why does it go wrong? (The second derivative of the loss with respect to the
#    offset is 2; when does `1 - 2 * step` have a size above 1?)
