# %% [markdown]
# # Lesson 13: the Vision Transformer reads an image like a sentence
#
# Cut an image into patches, turn each into a vector, and a Transformer reads them like words. Nothing in it knows that
# patches have neighbours; what it knows of places it learns through its position vectors.
#
# Two tasks: in which quadrant is the bright square (made by rule), and which digit did someone write (real images).
# About two minutes. Figures go to `out/`.

# %%
import os
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import digits, quadrants
from minitorch_attn.models.vit import ViT, ViTConfig, patchify
from minitorch_attn.optim import AdamW
from minitorch_attn.optim.lr_scheduler import CosineAnnealingLR

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. Patches are a strided convolution
#
# Flatten each patch and multiply it with a matrix; or slide a kernel of the patch's size over the image, with steps of
# that size. It is the same sum.

# %%
image = mt.arange(16.0).view(1, 1, 4, 4)
print(image[0, 0].numpy(), "\nfirst patch:", patchify(image, 2)[0, 0].tolist())

images, labels = quadrants(8)
model = ViT(ViTConfig(classes=4))
with mt.no_grad():
    by_product = patchify(images, 4) @ model.patchify.weight.flatten(1).T + model.patchify.bias
    by_kernel = model.patchify(images).flatten(2).transpose(1, 2)
print("patches as vectors:", by_kernel.shape, "largest difference", (by_product - by_kernel).abs().max().item())


def train(model, batch, steps, lr):
    """Train with AdamW and a falling learning rate; the loss of each step."""
    optimizer, losses = AdamW(model.parameters(), lr=lr), []
    schedule = CosineAnnealingLR(optimizer, steps)
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
square_losses = train(model, lambda: quadrants(32), 200, 2e-3)
score = right(model, *test)
print(f"quadrants: {score:.1%} of 1,000 new images, after {time.perf_counter() - began:.0f} s")
assert score >= 0.95

with mt.no_grad():
    learned = model.pos.clone()
    model.pos.zero_()
    print(f"with its positions taken away: {right(model, *test):.1%}")
    model.pos.copy_(learned)

# %% [markdown]
# ## 3. Which digit?
#
# 1,438 real digits to learn from, 359 others to be tested on; 8 by 8 pixels, patches of 2 by 2. So few images are soon
# known by heart. Dropout helps, and so does moving each image by up to a pixel each time it is shown.

# %%
train_images, train_labels = digits("train")
padded = np.pad(train_images.numpy(), ((0, 0), (0, 0), (1, 1), (1, 1)))


def moved_digits(n=64):
    rows = mt.randint(0, len(train_labels), (n,))
    down, across = mt.randint(0, 3, (2,)).tolist()
    return mt.tensor(padded[rows.numpy(), :, down:down + 8, across:across + 8]), train_labels[rows]


found = {}
for pool in ("cls", "mean"):
    mt.manual_seed(0)
    reader = ViT(ViTConfig(image_size=8, patch_size=2, channels=1, n_embd=48, dropout=0.1, pool=pool))
    digit_losses = train(reader, moved_digits, 700, 3e-3)
    found[pool] = right(reader, *digits("test"))
    print(f"digits, pool {pool!r}: {found[pool]:.1%} of the held-out fifth, {right(reader, *digits('train')):.1%} of "
          f"the others, after {time.perf_counter() - began:.0f} s")
assert min(found.values()) >= 0.95

# %% [markdown]
# ## 4. What it learned about places
#
# How alike are the position vectors of two patches? Each small map is one patch's vector against all others: those
# near it, and those in its row and column, are most alike, though nobody said which patches are neighbours.

# %%
names = ViT(ViTConfig(image_size=8, patch_size=2, channels=1)).grid
pos = reader.pos.detach().numpy()[0]
pos = pos / np.linalg.norm(pos, axis=1, keepdims=True)
alike = (pos @ pos.T).reshape(*names, *names)

figure = Figure(figsize=(10, 5), layout="constrained")
left, middle = figure.subfigures(1, 2, width_ratios=[1, 1])
top, bottom = left.subplots(2, 1)
top.semilogy(square_losses)
top.set(title="Quadrants", ylabel="loss (nats an image)")
bottom.semilogy(digit_losses)
bottom.set(title="Digits", xlabel="step", ylabel="loss (nats an image)")
for i, ax in enumerate(middle.subplots(*names).flat):
    ax.imshow(alike[i // names[1], i % names[1]], vmin=-1, vmax=1, cmap="RdBu_r")
    ax.set(xticks=[], yticks=[])
middle.suptitle("How alike each position's vector is to all others")
figure.savefig("out/13_vit.png", dpi=110)

wrong = [(i, int(p)) for i, (p, y) in enumerate(zip(reader(digits("test")[0])[0].argmax(1).tolist(),
                                                    digits("test")[1].tolist())) if p != y][:8]
figure = Figure(figsize=(10, 1.9), layout="constrained")
for ax, (i, p) in zip(figure.subplots(1, max(len(wrong), 2)), wrong):
    ax.imshow(digits("test")[0].numpy()[i, 0], cmap="gray_r")
    ax.set(xticks=[], yticks=[], title=f"{digits('test')[1][i].item()}, read as {p}")
figure.savefig("out/13_mistakes.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the digits patches of 4 by 4 instead of 2 by 2. What is lost, what is gained?
# 2. Train without `moved_digits`, on the images as they are. How far apart are both accuracies now?
# 3. Turn the order of the patches round, in training and test alike. Why does it not matter?
