# %% [markdown]
# # Lesson 8: the Transformer block, and where its norms stand
#
# A block is two parts, each added to what it read: attention, where tokens tell each other something, and a
# feed-forward net, where each token thinks for itself. This lesson counts where the weights are, and then asks
# about one detail: is it normalised before a part (Pre-LN), or after the sum (Post-LN, as in the first
# Transformer)? With few blocks it hardly matters. With many it decides whether the model learns at all.
#
# Less than a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.datasets import tang_poems
from minitorch_attn.optim import AdamW

F = mt.nn.functional
os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. A block in ten lines
#
# The library's `TransformerBlock` is this, with more choices:
#
# $$\text{Pre-LN:}\quad x \leftarrow x + \mathrm{part}(\mathrm{norm}(x)) \qquad\qquad
#   \text{Post-LN:}\quad x \leftarrow \mathrm{norm}(x + \mathrm{part}(x))$$


# %%
def by_hand(block, x):
    a, net = block.attention, block.feed_forward

    def attend(h):
        q, k, v = (proj(h).unflatten(-1, (a.num_heads, -1)).transpose(1, 2)  # (B, T, C) -> (B, H, T, D)
                   for proj in (a.q_proj, a.k_proj, a.v_proj))
        return a.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # -> (B, T, C)

    def think(h):
        return net.down(F.gelu(net.up(h)))  # (B, T, C) -> (B, T, 4C) -> (B, T, C)

    if block.norm_first:
        x = x + attend(block.norm1(x))
        return x + think(block.norm3(x))
    x = block.norm1(x + attend(x))
    return block.norm3(x + think(x))


x = mt.randn(2, 10, 64)
for norm_first in (True, False):
    block = nn.TransformerBlock(64, 8, norm_first=norm_first)
    apart = (block(x) - by_hand(block, x)).abs().max().item()
    print(f"{'Pre-LN' if norm_first else 'Post-LN':7} library against by hand: largest difference {apart:.0e}")
    assert apart < 1e-5

# %% [markdown]
# ## 2. Where the weights are
#
# Attention has four d by d matrices, for queries, keys, values and the output: 4 d^2. The net has one of 4d by d
# and one of d by 4d: 8 d^2, two thirds of the block. SwiGLU has three matrices, and is made 8d/3 wide to cost the
# same.


# %%
def count(module, biases=False):
    """The entries of the matrices, or of everything else: biases, and the weights of norms."""
    return sum(p.numel() for p in module.parameters() if (p.ndim < 2) == biases)


print("weights in units of d^2:   attention  net  SwiGLU net;  share of the net;  biases and norms, in units of d")
for d in (48, 192, 768):
    block = nn.TransformerBlock(d, 4)
    gated = nn.SwiGLU(d)
    parts = [count(part) / d**2 for part in (block.attention, block.feed_forward, gated)]
    share = parts[1] / (parts[0] + parts[1])
    print(f"  d = {d:<4}" + " " * 22 + "{:.2f} {:.2f}  {:.2f}".format(*parts)
          + f" (width {gated.up.out_features:4}) {share:13.3f} {count(block, biases=True) / d:18.0f}")
    assert parts == [4, 8, 8] and gated.up.out_features == 8 * d // 3

# %% [markdown]
# A layer norm has 2d numbers (scale and shift). RMSNorm, which most recent models use, only scales: d numbers, and
# one pass less over the data, for it does not subtract the mean. On vectors whose mean is 0 anyway the two are the
# same.

# %%
d = 64
x = 3 * mt.randn(5, d)
centred = x - x.mean(dim=1, keepdim=True)
layer, rms = nn.LayerNorm(d, eps=1e-6), nn.RMSNorm(d, eps=1e-6)
apart = (layer(x) - rms(centred)).abs().max().item()
print(f"numbers: LayerNorm {count(layer, biases=True)}, RMSNorm {count(rms, biases=True)}; "
      f"RMSNorm of x minus its mean against LayerNorm of x: largest difference {apart:.0e}")
assert (count(layer, biases=True), count(rms, biases=True)) == (2 * d, d) and apart < 1e-5

# %% [markdown]
# ## 3. Gradients at the start
#
# Stack blocks and look at each one's gradient before any training. Weights are drawn by Xavier's rule, as in the
# first Transformer. The text is four poems, the loss that of the next character.

# %%
text = tang_poems()
characters = sorted(set(text))
data = mt.tensor([characters.index(c) for c in text])
T, C, H = 16, 32, 4


class Stack(nn.Module):
    """A language model of `depth` blocks; options are those of TransformerBlock."""

    def __init__(self, depth, **options):
        super().__init__()
        self.tok_emb, self.positions = nn.Embedding(len(characters), C), nn.LearnedPositions(T, C)
        self.blocks = nn.ModuleList([nn.TransformerBlock(C, H, **options) for _ in range(depth)])
        pre = options.get("norm_first", True)
        self.norm = nn.LayerNorm(C) if pre else nn.Identity()  # Post-LN has normalised already
        self.head = nn.Linear(C, len(characters))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)

    def forward(self, ids):
        x = self.positions(self.tok_emb(ids))  # (B, T) -> (B, T, C)
        for block in self.blocks:
            x = block(x, is_causal=True)
        return self.head(self.norm(x))  # (B, T, C) -> (B, T, V)


def loss_of(model, samples=16):
    places = mt.randint(0, len(data) - T, (samples, 1)) + mt.arange(T)
    return F.cross_entropy(model(data[places]).flatten(0, 1), data[places + 1].flatten())


def gradient_norms(depth, norm_first):
    """The length of each block's gradient, all its parameters together."""
    mt.manual_seed(0)
    model = Stack(depth, norm_first=norm_first)
    loss_of(model, 32).backward()
    return [math.sqrt(sum((p.grad ** 2).sum().item() for p in block.parameters())) for block in model.blocks]


depths, kinds = (2, 6, 12, 24), {"Pre-LN": True, "Post-LN": False}
norms = {kind: {depth: gradient_norms(depth, first) for depth in depths} for kind, first in kinds.items()}
last = {kind: [found[-1] for found in norms[kind].values()] for kind in kinds}
print("gradient of the last block, for depth" + "".join(f"{depth:7}" for depth in depths))
for kind, found in last.items():
    power = np.polyfit(np.log(depths), np.log(found), 1)[0]
    print(f"  {kind:35}" + "".join(f"{g:7.3f}" for g in found) + f"   goes like depth^{power:.2f}")
    assert abs(power - (-0.5 if kind == "Pre-LN" else 0)) < 0.2

# %% [markdown]
# In Pre-LN the sum x grows from block to block, since nothing scales it down, and the last norm divides by its
# size, about the root of the depth. So the gradients of nearly all blocks get smaller by that root: the deeper the
# stack, the gentler each step for each block. (The first few, which add to a small x, keep large ones.) In Post-LN
# each sum is scaled back to size 1, and the gradients of the last blocks stay large however many blocks there are
# (Xiong et al. 2020). With twelve times the blocks, each moving as far as before, the result moves much farther in
# one step.

# %%
sizes = {}
with mt.no_grad():
    for kind, first in kinds.items():
        mt.manual_seed(0)
        model = Stack(24, norm_first=first)
        x, sizes[kind] = model.positions(model.tok_emb(data[None, :T])), []
        for block in model.blocks:
            x = block(x, is_causal=True)
            sizes[kind].append((x ** 2).mean().sqrt().item())
    print("size of x after block 1, 6, 12, 24:", *(
        f"{kind} " + " ".join(f"{found[i]:.2f}" for i in (0, 5, 11, 23)) for kind, found in sizes.items()), sep="\n  ")
assert sizes["Pre-LN"][-1] > 2 * sizes["Pre-LN"][0] and abs(sizes["Post-LN"][-1] - 1) < 0.01

# %% [markdown]
# ## 4. Which of them learn?
#
# The same number of steps, the same rate from the first step on.


# %%
def train(depth, steps=70, rate=3e-3, warmup=1, **options):
    """The loss of each step; the rate rises to `rate` over the first `warmup` steps."""
    mt.manual_seed(0)
    model, losses = Stack(depth, **options), []
    optimizer = AdamW(model.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / warmup)
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


ends = {(kind, depth): np.mean(train(depth, norm_first=first)[-10:])
        for kind, first in kinds.items() for depth in depths}
print(f"loss after 70 steps (guessing: {math.log(len(characters)):.2f})" + "".join(f"{d:8}" for d in depths))
for kind in kinds:
    print(f"  {kind:36}" + "".join(f"{ends[kind, depth]:8.2f}" for depth in depths))
print(f"after {time.perf_counter() - began:.0f} s")
assert all(ends["Pre-LN", depth] < 1 for depth in depths)
assert ends["Post-LN", 2] < 1 and ends["Post-LN", 12] > 2 and ends["Post-LN", 24] > 2

# %% [markdown]
# The usual remedy for Post-LN is a warm-up: small steps first. It helps, but how much depends on the weights that
# were drawn: with the seed 1 in place of 0, 12 blocks reach 2.6 after 120 steps, far from what Pre-LN has after 70.

# %%
cold, warmed = (np.mean(train(12, 120, norm_first=False, warmup=warmup)[-10:]) for warmup in (1, 60))
print(f"Post-LN, 12 blocks, 120 steps: loss {cold:.2f}; with 60 of them as warm-up {warmed:.2f}; "
      f"after {time.perf_counter() - began:.0f} s")
assert warmed < cold - 1

# %%
figure = Figure(figsize=(11, 3.9), layout="constrained")
a, b, c = figure.subplots(1, 3)
for kind, colour in (("Pre-LN", "tab:blue"), ("Post-LN", "tab:orange")):
    a.plot(range(1, 25), norms[kind][24], ".-", color=colour, label=kind)
    b.loglog(depths, last[kind], "o-", color=colour, label=kind)
    c.plot(depths, [ends[kind, depth] for depth in depths], "o-", color=colour, label=kind)
b.loglog(depths, [last["Pre-LN"][0] * math.sqrt(2 / depth) for depth in depths], "k:", label="1 / root of the depth")
c.plot([12], [warmed], "s", color="tab:green", label="Post-LN, warm-up")
c.axhline(math.log(len(characters)), color="0.6", linestyle=":", label="guessing")
a.set(title="Gradient of each of 24 blocks", xlabel="block", ylabel="norm", ylim=(0, None))
b.set(title="Gradient of the last block", xlabel="depth", ylabel="norm")
b.set_xticks(depths, depths)
b.set_yticks((0.1, 0.2, 0.4, 0.8), (0.1, 0.2, 0.4, 0.8))
b.minorticks_off()
c.set(title="Loss after 70 steps (warm-up: 120)", xlabel="depth", ylabel="nats a character", xticks=depths)
a.legend(frameon=False)
b.legend(frameon=False)
c.legend(frameon=False, loc="center right", bbox_to_anchor=(1, 0.6))
figure.savefig("out/08_depth.png", dpi=110)

# %% [markdown]
# ## 5. Scores that grow
#
# Another thing that can run away are the scores q.k: nothing limits the weights that make them. QK-Norm divides
# each query and each key by its root mean square, and multiplies with a learned scale. Two blocks, trained at a
# rate that is far too high, thirty times that of above.


# %%
def largest_score(model, ids):
    """The largest |q.k| / sqrt(D) in the first block."""
    block, a = model.blocks[0], model.blocks[0].attention
    with mt.no_grad():
        h = block.norm1(model.positions(model.tok_emb(ids)))
        q, k = (proj(h).unflatten(-1, (H, -1)).transpose(1, 2) for proj in (a.q_proj, a.k_proj))
        if a.q_norm is not None:
            q, k = a.q_norm(q), a.k_norm(k)
        return (q @ k.transpose(-1, -2)).abs().max().item() / math.sqrt(C // H)


growth = {}
for name, options in (("without QK-Norm", {}), ("with QK-Norm", {"qk_norm": True})):
    mt.manual_seed(0)
    model, growth[name] = Stack(2, **options), []
    optimizer = AdamW(model.parameters(), lr=0.1)
    for step in range(201):
        if step % 20 == 0:
            growth[name].append(largest_score(model, data[None, :T]))
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{name:15}: largest score after 0, 100 and 200 steps "
          f"{growth[name][0]:.1f}, {growth[name][5]:.1f}, {growth[name][10]:.1f}; loss {loss.item():.2f}")
assert growth["without QK-Norm"][-1] > 100 * growth["with QK-Norm"][-1] and loss.item() < 0.5

figure = Figure(figsize=(5.5, 3.5), layout="constrained")
axes = figure.subplots()
for name, found in growth.items():
    axes.semilogy(range(0, 201, 20), found, "o-", label=name)
axes.set(title="Largest score in the first block", xlabel="step", ylabel="|q.k| / root of D")
axes.legend(frameon=False)
figure.savefig("out/08_scores.png", dpi=110)
print(f"after {time.perf_counter() - began:.0f} s")

# %% [markdown]
# ## To try
#
# 1. Initialise as GPT-2 does: divide the weights of `out_proj` and `down` by the root of twice the depth. What
#    becomes of the size of x in Pre-LN, and of the gradients?
# 2. Put 24 Post-LN blocks into training with a rate of 3e-4. Is it the depth or the rate that hinders them?
# 3. Replace the norms by nothing at all (`nn.Identity()`). Up to which depth does that learn?
