# %% [markdown]
# # Lesson 13: the Vision Transformer reads an image like a sentence
#
# Cut an image into patches, turn each into a vector, and a Transformer reads them like words. Nothing in it knows that
# patches have neighbours; what it knows of places it learns through its position vectors.
#
# Two tasks: in which quadrant is the bright square (made by rule), and which digit did someone write (real images).
# Less than a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import digits, quadrants
from minitorch_attn.models.vit import ViT, ViTConfig, patchify
from minitorch_attn.optim import AdamW
from minitorch_attn.optim.lr_scheduler import LambdaLR

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. Patches are a strided convolution
#
# Flatten each patch and multiply it with a matrix; or slide a convolution's kernel, as large as a patch, over the
# image in steps of that size. It is the same sum.

# %%
image = mt.arange(16.0).view(1, 1, 4, 4)
print(image[0, 0].numpy(), "\nfirst patch:", patchify(image, 2)[0, 0].tolist())

images, labels = quadrants(8)
model = ViT(ViTConfig(classes=4, patch_size=8))
with mt.no_grad():
    by_product = patchify(images, 8) @ model.patchify.weight.flatten(1).T + model.patchify.bias
    by_kernel = model.patchify(images).flatten(2).transpose(1, 2)
print("patches as vectors:", by_kernel.shape, "largest difference", (by_product - by_kernel).abs().max().item())
assert mt.allclose(by_product, by_kernel, atol=1e-5)


def train(model, batch, steps, lr):
    """Train with AdamW, the learning rate rising for 40 steps and then falling; the loss of each step."""
    optimizer, losses = AdamW(model.parameters(), lr=lr), []
    schedule = LambdaLR(optimizer, lambda s: min(1, (s + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * s / steps)))
    model.train()
    for _ in range(steps):
        _, loss = model(*batch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    return losses


def right(model, images, labels):
    """The share of images that are named rightly."""
    with mt.no_grad():
        return (model(images)[0].argmax(1) == labels).float().mean().item()


# %% [markdown]
# ## 2. Which quadrant?
#
# Every patch looks the same wherever it is, so that this needs positions. The same model without them is the test.

# %%
test = quadrants(1000)
square_losses = train(model, lambda: quadrants(64), 200, 1e-3)
score = right(model, *test)
print(f"quadrants: {score:.1%} of 1,000 new images, after {time.perf_counter() - began:.0f} s")
assert score >= 0.95

with mt.no_grad():
    learned = model.pos.clone()
    model.pos.zero_()
    without = right(model, *test)
    print(f"with its positions taken away: {without:.1%} (guessing: 25%)")
    model.pos.copy_(learned)
assert without < 0.5

# %% [markdown]
# ## 3. Which digit?
#
# 1,438 real digits to learn from, 359 others to be tested on; 8 by 8 pixels, patches of 2 by 2. So few images are soon
# known by heart; dropout is there to make that harder (exercise 2 leaves it out). The answer is read from [CLS], a
# token that only gathers, or from the mean of all patches. Two runs say little about which is better: one percent is
# four images.

# %%
images, labels = digits("train")


def some_digits(n=64):
    rows = mt.randint(0, len(labels), (n,))
    return images[rows], labels[rows]


found, readers, digit_losses = {}, {}, {}
for pool in ("cls", "mean"):
    mt.manual_seed(0)
    reader = ViT(ViTConfig(image_size=8, patch_size=2, channels=1, n_embd=48, dropout=0.1, pool=pool))
    digit_losses[pool] = train(reader, some_digits, 600, 3e-3)
    found[pool], readers[pool] = right(reader, *digits("test")), reader
    print(f"digits, pool {pool!r}: {found[pool]:.1%} of the held-out fifth, {right(reader, *digits('train')):.1%} of "
          f"the others, after {time.perf_counter() - began:.0f} s")
assert min(found.values()) >= 0.95

# %% [markdown]
# ## 4. What [CLS] looks at
#
# The answer is read from [CLS], so what it attends to in the last layer is what the answer is read from. (Not from the
# pixels there alone: each patch has taken up something of the others in the layer before.)

# %%
test_images, test_labels = digits("test")
with mt.no_grad():
    logits, _, weights = readers["cls"](test_images, need_weights=True)
guesses = logits.argmax(1)
looks = weights[-1].numpy()[:, :, 0, 1:].mean(1).reshape(-1, *reader.grid)  # (B, H, T, T) -> (B, rows, columns)
wrong = (guesses != test_labels).nonzero()[:, 0].tolist()
print(f"{len(wrong)} of {len(test_labels)} wrong")

rights = (guesses == test_labels).nonzero()[:, 0].tolist()

figure = Figure(figsize=(11, 5.2), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[2, 1])
left, right_half = above.subplots(1, 2)
left.semilogy(square_losses)
left.set(title="Quadrants", xlabel="step", ylabel="loss (nats an image)")
for pool, losses in digit_losses.items():
    means = [sum(losses[i:i + 20]) / 20 for i in range(0, 600, 20)]
    right_half.semilogy(range(10, 600, 20), means, label={"cls": "read from [CLS]", "mean": "from the mean"}[pool])
right_half.set(title="Digits, mean of 20 steps", xlabel="step")
right_half.legend(frameon=False)
top = looks[[*rights[:5], *wrong[:5]]].max()
below.suptitle(f"Five right and five wrong. Red is what [CLS] attends to: none for weight 0, full for {top:.2f}")
axes = below.subplots(1, 10)
for ax, i in zip(axes, [*rights[:5], *wrong[:5]]):
    ax.imshow(test_images.numpy()[i, 0], cmap="gray_r", extent=(0, 8, 8, 0))
    ax.imshow(np.ones((4, 4)), cmap="Reds", vmin=0, vmax=1.4, extent=(0, 8, 8, 0), alpha=0.85 * looks[i] / top)
    ax.set_title(f"{test_labels[i].item()} as {guesses[i].item()}", fontsize=10)
    ax.axis("off")
figure.savefig("out/13_vit.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the digits patches of 4 by 4 instead of 2 by 2. What is gained, and is anything lost?
# 2. Train without dropout. How far apart are the two accuracies now? And with images moved by up to a pixel?
# 3. Reverse the order of the patches, in training and test alike. Why does it not matter?
