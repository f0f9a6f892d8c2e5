# %% [markdown]
# # Lesson 8: the Transformer block, and where its norms stand
#
# A block is two parts, each added to what it read: attention, where tokens tell each other something, and a
# feed-forward net, where each token thinks for itself. This lesson counts where the parameters are, and then asks
# about one detail: is it normalised before a part (Pre-LN), or after the sum (Post-LN, as in the first
# Transformer)? With few blocks it hardly matters. With many it decides whether the model learns at all. Last, one net
# is replaced by many, of which each token uses two (mixture of experts).
#
# The width of a token is called d in the formulas, as in the papers, and C in the code. About a minute. Figures go to
# `out/`.

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
#
# Each part has a norm of its own: `norm1` for attention, `norm3` for the net. (`norm2` is for cross-attention, which
# stands between them in a decoder that reads a source, lesson 11.)


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
# ## 2. Where the parameters are
#
# Attention has four d by d matrices, for queries, keys, values and the output: 4 d^2. The net has one of 4d by d
# and one of d by 4d: 8 d^2, two thirds of the block. SwiGLU has three matrices, and is made 8d/3 wide to cost the
# same.


# %%
def count(module, biases=False):
    """The entries of the matrices, or of everything else: biases, and the weights of norms."""
    return sum(p.numel() for p in module.parameters() if (p.ndim < 2) == biases)


print("parameters in units of d^2:   attention  net  SwiGLU net;  share of the net;  biases and norms, in units of d")
for d in (48, 192, 768):
    block = nn.TransformerBlock(d, 4)
    gated = nn.SwiGLU(d)
    parts = [count(part) / d**2 for part in (block.attention, block.feed_forward, gated)]
    share = parts[1] / (parts[0] + parts[1])
    print(f"  d = {d:<4}" + " " * 25 + "{:.2f} {:.2f}  {:.2f}".format(*parts)
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
# Stack blocks and look at each one's gradient before any training. The matrices are drawn by Xavier's rule, as in the
# first Transformer: with the variance 2 / (rows + columns), so that a product keeps about the size of what it is
# given. The text is four poems, the loss that of the next character.

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
# The usual remedy for Post-LN is a warm-up: small steps first. To leave it time, both runs below have 120 steps.

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
c.plot([12], [cold], "s", color="tab:red", fillstyle="none", label="Post-LN, 120 steps")
c.plot([12], [warmed], "s", color="tab:green", label="the same with warm-up")
c.axhline(math.log(len(characters)), color="0.6", linestyle=":", label="guessing")
a.set(title="Gradient of each of 24 blocks", xlabel="block", ylabel="norm", ylim=(0, None))
b.set(title="Gradient of the last block", xlabel="depth", ylabel="norm")
b.set_xticks(depths, depths)
b.set_yticks((0.1, 0.2, 0.4, 0.8), (0.1, 0.2, 0.4, 0.8))
b.minorticks_off()
c.set(title="Loss after 70 steps (squares: 120)", xlabel="depth", ylabel="nats a character", xticks=depths)
a.legend(frameon=False)
b.legend(frameon=False)
c.set_ylim(0, 7)
c.legend(frameon=False, loc="upper left", fontsize=9)
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
# ## 6. Many nets, two for each token: mixture of experts
#
# The net is two thirds of a block, in parameters and in work. A mixture of experts has E nets in its place. A small
# matrix, the router, gives each token a probability for each of them; the A likeliest read the token, and what they
# make of it is averaged by these probabilities (made to sum to 1):
#
# $$y = \sum_{e \in \mathrm{top}_A(p)} \frac{p_e}{\sum_{\mathrm{top}_A} p}\, \mathrm{expert}_e(x),
#   \qquad p = \mathrm{softmax}(W_r x).$$

# %%
mt.manual_seed(0)
moe, x = nn.MixtureOfExperts(32, 8, active=2), mt.randn(20, 32)
with mt.no_grad():
    y, p = moe(x), F.softmax(moe.router(x), 1)                       # (20, 32), (20, 8)
    for i in range(20):
        best = p[i].argsort(descending=True)[:2].tolist()
        by_hand = sum(p[i, e] * moe.experts[e](x[i:i + 1])[0] for e in best) / sum(p[i, e] for e in best)
        assert mt.allclose(y[i], by_hand, atol=1e-6)
print("the layer against the formula, token by token: equal; tokens that each expert read:", moe.load.tolist())

# %% [markdown]
# So the parameters are E times those of one net, and the work A times that of one. The work is counted by the rows
# that the experts read, and measured by the clock (of the processor).

# %%
N, C_wide = 1024, 128
x, one = mt.randn(N, C_wide), nn.SwiGLU(C_wide)


def milliseconds(module):
    """Processor time of one forward pass, the best of five."""
    spent = []
    for _ in range(5):
        start = time.thread_time()
        with mt.no_grad():
            module(x)
        spent.append(1000 * (time.thread_time() - start))
    return min(spent)


table = {}
print("experts  active   parameters    rows read     time   (each in units of one net)")
for E, A in ((4, 1), (16, 1), (16, 2), (16, 4), (16, 16)):
    moe = nn.MixtureOfExperts(C_wide, E, A)
    table[E, A] = (count(moe.experts) / count(one), milliseconds(moe) / milliseconds(one), moe.load.sum().item() / N)
    print(f"{E:7} {A:7} {table[E, A][0]:12.0f} {table[E, A][2]:12.0f} {table[E, A][1]:8.1f}")
    assert table[E, A][0] == E and table[E, A][2] == A
assert table[16, 2][1] < 0.5 * table[16, 16][1] and table[16, 1][1] < table[16, 4][1] < table[16, 16][1]

# %% [markdown]
# (The time is more than A, for small A clearly: the rows have to be sorted by expert and put back, and E small pieces
# are slower to multiply than one large one. But it is far from E.)
#
# A router that is left alone can forget experts. Who is chosen learns, and fits better, and is chosen more; who is
# never chosen gets no gradient, and stays as bad as it was. Tokens that have much in common make it worse, since the
# router's first opinion is then the same for all. The remedy is a small extra loss, E times the sum over experts of
# (share of the choices) times (mean probability): 1 if all have the same load, and E if one has everything.
#
# Tokens made for this: eight kinds, a matrix to be learned for each kind, and one large vector that all tokens share.


# %%
def train_experts(balance, seed, E=8, kinds=8, C=16, steps=300):
    """The experts' share of the choices at each step (steps, E), and the mean loss of the last 20 steps."""
    mt.manual_seed(seed)
    shared, centre, maps = 3 * mt.randn(C), mt.randn(kinds, C), mt.randn(kinds, C, C) / math.sqrt(C)
    moe, loads, losses = nn.MixtureOfExperts(C, E, active=2, hidden=16), [], []
    optimizer = AdamW(moe.parameters(), lr=1e-2)
    for _ in range(steps):
        kind = mt.randint(0, kinds, (256,))
        own = centre[kind] + 0.3 * mt.randn(256, C)
        wanted = (maps[kind] @ own[:, :, None])[:, :, 0]
        loss = ((moe(own + shared) - wanted) ** 2).mean()
        optimizer.zero_grad()
        (loss + balance * moe.balance_loss).backward()
        optimizer.step()
        loads.append(moe.load.numpy() / moe.load.sum().item())
        losses.append(loss.item())
    return np.array(loads), np.mean(losses[-20:])


loads, ends = {}, {}
for balance in (0.0, 0.01, 0.1):
    runs = [train_experts(balance, seed) for seed in (0, 1, 2)]
    loads[balance] = [run[0] for run in runs]
    used = [int((run[0][-20:].mean(0) > 0.02).sum()) for run in runs]
    busiest = np.mean([run[0][-20:].mean(0).max() for run in runs])
    ends[balance] = np.mean([run[1] for run in runs]), np.mean(used), busiest
    print(f"balance loss times {balance:4}: experts with more than 2% of the choices {used} of 8, the busiest has "
          f"{busiest:.0%}; loss {ends[balance][0]:.3f}")
print(f"after {time.perf_counter() - began:.0f} s")
assert ends[0.0][1] < 5 and ends[0.01][1] > 7 and ends[0.1][2] < 0.2 < 0.3 < ends[0.0][2]
assert ends[0.01][0] < 0.85 * ends[0.0][0]

figure = Figure(figsize=(11, 3.6), layout="constrained")
a, b, c = figure.subplots(1, 3)
names = [f"E = {E}, A = {A}" for E, A in table]
for shift, (what, column) in enumerate((("parameters", 0), ("time", 1))):
    a.barh(np.arange(len(names)) + 0.4 * shift, [row[column] for row in table.values()], 0.38, label=what)
a.set_yticks(np.arange(len(names)) + 0.2, names)
a.invert_yaxis()
a.set(title="Parameters and time", xlabel="times those of one net")
a.legend(frameon=False, loc="upper right")
for ax, balance, title in ((b, 0.0, "Load, router left alone"), (c, 0.01, "Load, balance loss times 0.01")):
    ax.stackplot(range(300), loads[balance][0].T, colors=[f"C{e}" for e in range(8)])
    ax.set(title=title, xlabel="step", xlim=(0, 299), ylim=(0, 1))
b.set_ylabel("share of the choices, by expert")
figure.savefig("out/08_experts.png", dpi=110)

# %% [markdown]
# The two experts that happen to be ahead at the start of the middle picture take everything, and the other six are
# parameters for nothing. With the balance loss all eight come to work, and the error is smaller. Ten times as much of
# it makes the load quite even.
#
# ## To try
#
# 1. Initialise as GPT-2 does: divide the weights of `out_proj` and `down` by the root of twice the depth. What
#    becomes of the size of x in Pre-LN, and of the gradients?
# 2. Put 24 Post-LN blocks into training with a rate of 3e-4. Is it the depth or the rate that hinders them? And does
#    the warm-up help as much with another seed in `train`?
# 3. Replace the norms by nothing at all (`nn.Identity()`). Up to which depth does that learn?
# 4. In section 6 leave out the shared vector. How many experts work then without a balance loss?
