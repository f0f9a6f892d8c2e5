# %% [markdown]
# # Lesson 20: onward to PyTorch, and back
#
# This library ends where a model no longer fits on one machine, or needs kernels that someone wrote for one kind of
# GPU. PyTorch goes on from there. Because the names are the same, nothing has to be learned anew and nothing trained
# is lost: this lesson begins a training here, goes on with it there, and comes back with the result.
#
# It needs PyTorch (`python -m pip install torch`) and takes some twenty seconds. Figures go to `out/`.

# %%
import os

import numpy as np
import torch
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.torch_bridge import from_torch, to_torch

os.makedirs("out", exist_ok=True)

# %% [markdown]
# ## 1. A layer is its arguments and its weights
#
# Two layers compute the same if they were made with the same arguments and hold the same numbers under the same
# names. PyTorch's `Linear` is $y = x W^\top + b$ with `weight` (out, in) and `bias` (out,); so is ours.

# %%
mt.manual_seed(0)
ours = mt.nn.Linear(3, 2)
theirs = to_torch(ours)
print("here: ", ours, {name: tuple(w.shape) for name, w in ours.state_dict().items()})
print("there:", theirs, {name: tuple(w.shape) for name, w in theirs.state_dict().items()})

x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
here, there = ours(mt.tensor(x)).detach().numpy(), theirs(torch.tensor(x)).detach().numpy()
print("largest difference of the results:", np.abs(here - there).max())
assert np.allclose(here, there, atol=1e-6)

# %% [markdown]
# `to_torch` does just that: it calls the class of the same name with the arguments that it reads off the layer, then
# copies each array under its name. It goes down into containers, so a whole model moves in one call. (What PyTorch
# prints as `NonDynamicallyQuantizableLinear` is a Linear with a mark that one of its tools looks for.)

# %%
layer = mt.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
model = mt.nn.Sequential(
    mt.nn.Embedding(11, 32),
    mt.nn.TransformerEncoder(layer, 2, mt.nn.LayerNorm(32)),
    mt.nn.Linear(32, 11),
)
print(to_torch(model))

# %% [markdown]
# ## 2. Train here, then there
#
# The task: read 12 numbers below 11, and write each plus the one before it, modulo 11. Guessing costs
# $\ln 11 = 2.40$ nats a number. The training is written once; the library is an argument.


# %%
def make_batch(rng):
    ids = rng.integers(0, 11, (32, 12))
    before = np.concatenate([np.zeros((32, 1), ids.dtype), ids[:, :-1]], axis=1)
    return ids, (ids + before) % 11


def train(library, model, steps, rng, lr=3e-3):
    optimizer = library.optim.AdamW(model.parameters(), lr=lr)
    position = library.tensor(np.linspace(-1, 1, 12, dtype="float32").reshape(12, 1))
    mask = library.tensor(np.where(np.tri(12, dtype=bool), 0.0, -np.inf).astype("float32"))  # none sees what comes
    losses = []
    for _ in range(steps):
        ids, wanted = make_batch(rng)
        embedding, encoder, head = model
        logits = head(encoder(embedding(library.tensor(ids)) + position, mask=mask))      # (32, 12) -> (32, 12, 11)
        loss = library.nn.functional.cross_entropy(logits.flatten(0, 1), library.tensor(wanted).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


STEPS = 300
rng = np.random.default_rng(1)
print(f"guessing: {np.log(11):.3f}")
first = train(mt, model, STEPS, rng)
print(f"here:  {first[0]:.3f} -> {first[-1]:.3f}")

twin = to_torch(model)
state = rng.bit_generator.state
second = train(torch, twin, STEPS, rng)
print(f"there: {second[0]:.3f} -> {second[-1]:.3f}")
assert first[-1] < 1.5 and second[-1] < 1.0

# %% [markdown]
# So half of the way was gone here and the rest there. Was that really the same training? Go on here as well, from the
# same weights and the same batches: the two curves lie on each other. They differ by rounding, in the last digit that
# a float32 has, after one step and after 300: each step takes both to nearly the same place.

# %%
rng.bit_generator.state = state
again = train(mt, model, STEPS, rng)
apart = np.abs(np.array(second) - again)
print(f"largest difference in the first 10 steps: {apart[:10].max():.1e}, in all {STEPS}: {apart.max():.1e}")
assert apart[:10].max() < 1e-5 and apart.max() < 1e-3

figure = Figure(figsize=(6, 3.6), layout="constrained")
axes = figure.subplots()
axes.plot(first, label="here")
axes.plot(range(STEPS, 2 * STEPS), second, label="goes on in PyTorch")
axes.plot(range(STEPS, 2 * STEPS), again, "k:", label="goes on here")
axes.axhline(np.log(11), color="0.7", label="guessing")
axes.set(xlabel="step", ylabel="loss (nats a number)", title="One training, two libraries")
axes.legend(frameon=False)
figure.savefig("out/20_onward.png", dpi=110)

# %% [markdown]
# ## 3. And back, to look inside
#
# What was trained there comes back the same way. Here its gradients can be taken apart again, as in lesson 1: those of
# the trained head, for one position of the batch, against finite differences. That needs float64, hence `double()`.

# %%
home = from_torch(twin)
assert all(np.array_equal(w.numpy(), v.numpy())
           for w, v in zip(home.state_dict().values(), twin.state_dict().values()))
print("every weight came back to the bit")

head, ids = home[2].double(), make_batch(rng)[0]
hidden = home[0](mt.tensor(ids[:, 0])).detach().double()  # (32, 32)
report = mt.explain_gradients(lambda h: head(h).log_softmax(-1), (hidden,), names=("hidden",))
print(report)
assert report.ok

# %% [markdown]
# ## 4. A class of your own
#
# A class of yours cannot be made by name in the other library. But its source can serve both: here the library is an
# argument, in a file of its own it is the import line. Make the twin yourself and hand it over as `into=`; names and
# shapes are compared before anything is copied.


# %%
def residual_block(nn):
    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.norm(x))))

    return Block


block = residual_block(mt.nn)(3)
moved = to_torch(block, into=residual_block(torch.nn)(3))
assert np.allclose(block(mt.tensor(x)).detach().numpy(), moved(torch.tensor(x)).detach().numpy(), atol=1e-6)
try:
    to_torch(block, into=residual_block(torch.nn)(5))
except ValueError as error:
    print("refused:", str(error).splitlines()[1].strip())

# %% [markdown]
# ## 5. What you gain there
#
# From here on it is a PyTorch model like any other: `twin.to("cuda")`, `torch.compile(twin)`, and for many GPUs
#
#     torch.distributed.init_process_group("nccl")
#     parallel = torch.nn.parallel.DistributedDataParallel(twin.to(rank), device_ids=[rank])
#
# which does what `minitorch_attn.distributed` does between processes: one set of gradients, averaged, for all.
#
# ## To try
#
# 1. Move a model whose embedding and output layer share one weight. Are the two still one parameter there?
# 2. Train with `lr=3e-2` instead of `3e-3`, and plot `apart` on a logarithmic scale. Now the difference grows to a
#    tenth of a nat. Why does it there, and not here? What does the loss curve look like?
# 3. `to_torch(mt.nn.SwiGLU(8))` is refused. Write the layer in PyTorch so that `into=` accepts it.
