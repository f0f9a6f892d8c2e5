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
# Flatten each patch and multiply it with a matrix; or slide a kernel of the patch's size over the image, with steps of
# that size. It is the same sum.

# %%
image = mt.arange(16.0).view(1, 1, 4, 4)
print(image[0, 0].numpy(), "\nfirst patch:", patchify(image, 2)[0, 0].tolist())

images, labels = quadrants(8)
model = ViT(ViTConfig(classes=4, patch_size=8))
with mt.no_grad():
    by_product = patchify(images, 8) @ model.patchify.weight.flatten(1).T + model.patchify.bias
    by_kernel = model.patchify(images).flatten(2).transpose(1, 2)
print("patches as vectors:", by_kernel.shape, "largest difference", (by_product - by_kernel).abs().max().item())


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
    print(f"with its positions taken away: {right(model, *test):.1%}")
    model.pos.copy_(learned)

# %% [markdown]
# ## 3. Which digit?
#
# 1,438 real digits to learn from, 359 others to be tested on; 8 by 8 pixels, patches of 2 by 2. So few images are soon
# known by heart, and dropout helps against that. The image is judged by [CLS], a token that only gathers, or by the
# mean of all patches, which learns faster: every patch hears at once what it is good for.

# %%
images, labels = digits("train")


def some_digits(n=64):
    rows = mt.randint(0, len(labels), (n,))
    return images[rows], labels[rows]


found, readers = {}, {}
for pool in ("cls", "mean"):
    mt.manual_seed(0)
    reader = ViT(ViTConfig(image_size=8, patch_size=2, channels=1, n_embd=48, dropout=0.1, pool=pool))
    digit_losses = train(reader, some_digits, 600, 3e-3)
    found[pool], readers[pool] = right(reader, *digits("test")), reader
    print(f"digits, pool {pool!r}: {found[pool]:.1%} of the held-out fifth, {right(reader, *digits('train')):.1%} of "
          f"the others, after {time.perf_counter() - began:.0f} s")
assert min(found.values()) >= 0.95

# %% [markdown]
# ## 4. What [CLS] looks at
#
# [CLS] is where the answer is read off. What it attends to in the last layer is what the answer is made of.

# %%
test_images, test_labels = digits("test")
with mt.no_grad():
    logits, _, weights = readers["cls"](test_images, need_weights=True)
guesses = logits.argmax(1)
looks = weights[-1].numpy()[:, :, 0, 1:].mean(1).reshape(-1, *reader.grid)  # (B, H, T, T) -> (B, rows, columns)
wrong = (guesses != test_labels).nonzero()[:, 0].tolist()
print(f"{len(wrong)} of {len(test_labels)} wrong")

figure = Figure(figsize=(10, 6), layout="constrained")
above, below = figure.subfigures(2, 1, height_ratios=[1, 1.2])
left, right_half = above.subplots(1, 2)
left.semilogy(square_losses)
left.set(title="Quadrants", xlabel="step", ylabel="loss (nats an image)")
right_half.semilogy(digit_losses)
right_half.set(title="Digits", xlabel="step")
below.suptitle("Five digits, and five that it got wrong; below, what [CLS] attends to")
axes = below.subplots(2, 10)
for column, i in enumerate([*range(5), *wrong[:5]]):
    axes[0, column].imshow(test_images.numpy()[i, 0], cmap="gray_r")
    axes[0, column].set_title(f"{test_labels[i].item()} as {guesses[i].item()}", fontsize=9)
    axes[1, column].imshow(looks[i], cmap="Blues", vmin=0)
for ax in axes.flat:
    ax.axis("off")
figure.savefig("out/13_vit.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Give the digits patches of 4 by 4 instead of 2 by 2. What is gained, and is anything lost?
# 2. Train without dropout. How far apart are the two accuracies now? And with images moved by up to a pixel?
# 3. Turn the order of the patches round, in training and test alike. Why does it not matter?
