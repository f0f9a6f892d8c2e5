# %% [markdown]
# # Lesson 9: telling attention where things are
#
# Attention reads a set. It does not know which token came first, unless it is told. This lesson shows that, and
# then the ways to tell: sines added to the tokens, learned vectors added to the tokens, queries and keys that turn
# (RoPE), and scores that fall with the distance (ALiBi). What do they know of distances, and what happens in
# sequences that are longer than any in training?
#
# About a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.optim import AdamW

F = mt.nn.functional
os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. Without positions, order is invisible
#
# Shuffle the tokens. If the results are the old ones, shuffled in the same way, the block cannot know the order.
# (The word for it is permutation equivariance.)

# %%
T, C, H = 10, 32, 4
block = nn.TransformerBlock(C, H).double()
turning = nn.TransformerBlock(C, H, rotary=nn.RotaryEmbedding(C // H)).double()
turning.load_state_dict(block.state_dict())
x, order = mt.randn(2, T, C, dtype=mt.float64), mt.randperm(T)
sines, learned, alibi = nn.SinusoidalPositions(C), nn.LearnedPositions(T, C).double(), nn.ALiBi(H)


def moved_by_shuffling(read):
    """How far the results of shuffled tokens are from the shuffled results, relative to their size."""
    with mt.no_grad():
        before, after = read(x)[:, order], read(x[:, order])
    return ((after - before).norm() / before.norm()).item()


moved = {"no positions": moved_by_shuffling(block),
         "sinusoidal": moved_by_shuffling(lambda x: block(sines(x))),
         "learned": moved_by_shuffling(lambda x: block(learned(x))),
         "RoPE": moved_by_shuffling(turning),
         "ALiBi": moved_by_shuffling(lambda x: block(x, attn_mask=alibi(T, is_causal=False))),
         "causal mask alone": moved_by_shuffling(lambda x: block(x, is_causal=True))}
for name, distance in moved.items():
    print(f"{name:18} results differ by {distance:.0e}")
assert moved["no positions"] < 1e-12 and min(list(moved.values())[1:]) > 1e-3

# %% [markdown]
# A causal mask breaks the symmetry, too: the t-th token reads from t tokens, and that number can be felt. Mark the
# first token with a 1 and all others with 0. The plain mean over what is seen is 1 / (t + 1), which tells the
# place.

# %%
marks = (mt.arange(T) == 0).double()[:, None]
means = F.scaled_dot_product_attention(mt.zeros(T, 1, dtype=mt.float64), mt.zeros(T, 1, dtype=mt.float64), marks,
                                       is_causal=True)
print("places read off the means:", (1 / means[:, 0] - 1).tolist())
assert (1 / means[:, 0] - 1 - mt.arange(T)).abs().max() < 1e-9

# %% [markdown]
# ## 2. Sines: a clock with many hands
#
# Position t becomes the sine and cosine of $\omega_i t$, for angular speeds $\omega_i = 10000^{-2i/C}$: from a hand
# that turns by 1 radian a token to hands that hardly move. To go k places on is to turn hand i by the angle
# $\omega_i k$, wherever one is:
#
# $$\begin{pmatrix} \sin \omega (t + k) \\ \cos \omega (t + k) \end{pmatrix} =
#   \begin{pmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{pmatrix}
#   \begin{pmatrix} \sin \omega t \\ \cos \omega t \end{pmatrix}$$
#
# A layer can learn such a matrix, and so can look "k places back". And the product of two codes depends on k alone.

# %%
table = F.sinusoidal_table(64, C, dtype=mt.float64)  # (64, C)
k, speeds = 5, 10000.0 ** (-np.arange(0, C, 2) / C)
rotation = np.zeros((C, C))
for i, angle in enumerate(k * speeds):
    rotation[2 * i:2 * i + 2, 2 * i:2 * i + 2] = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
apart = abs(table.numpy()[:-k] @ rotation.T - table.numpy()[k:]).max()
print(f"every code turned by one matrix, against the code {k} places on: largest difference {apart:.0e}")
assert apart < 1e-12


def unevenness(scores):
    """How much scores of one distance differ: their largest deviation from their diagonal's mean, over all sizes."""
    scores = np.asarray(scores)
    diagonals = [np.diagonal(scores, d) for d in range(1 - len(scores), len(scores))]
    return max(abs(d - d.mean()).max() for d in diagonals) / abs(scores).max()


products = (table @ table.T).numpy()
print(f"products of two codes: unevenness along diagonals {unevenness(products):.0e}")
assert unevenness(products) < 1e-12

# %% [markdown]
# ## 3. RoPE: turn the queries and keys themselves
#
# Added codes mix with the content: $(q + p_t) \cdot (k + p_s)$ has the terms $q \cdot p_s$ and $p_t \cdot k$, which
# depend on one place each. RoPE adds nothing. Take each pair of entries as a complex number and multiply it with
# $e^{i \omega t}$. In the product of a query and a key only the difference of their angles is left.
#
# Which two entries make a pair is a convention, and there are two. `interleaved=True` pairs neighbours (0 and 1, 2 and
# 3), as in the formula's first paper; the default pairs entry i with entry i + D/2, as most published models do. Both
# work alike, but parameters trained with one do not fit the other.

# %%
x = mt.randn(7, 8, dtype=mt.float64)
pairs = x.numpy()[:, 0::2] + 1j * x.numpy()[:, 1::2]  # (7, 8) -> (7, 4)
pairs = pairs * np.exp(1j * np.arange(7)[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8))
by_hand = np.stack([pairs.real, pairs.imag], -1).reshape(7, 8)
apart = abs(F.rotary(x, interleaved=True).numpy() - by_hand).max()
print(f"turned as complex numbers against the library: largest difference {apart:.0e}")
assert apart < 1e-12

# %% [markdown]
# One query and one key, put at every place. Scores that depend on the distance alone are equal along each diagonal.

# %%
q, k = mt.randn(1, C, dtype=mt.float64).expand(32, C), mt.randn(1, C, dtype=mt.float64).expand(32, C)
vectors = nn.LearnedPositions(32, C).double()
with mt.no_grad():
    vectors.weight *= 50  # as large as the tokens, like the sines; they start small
    scores = {"sinusoidal": sines(q) @ sines(k).T, "learned (untrained)": vectors(q) @ vectors(k).T,
              "RoPE": F.rotary(q) @ F.rotary(k).T,
              "ALiBi": q @ k.T + F.alibi_bias(H, 32, dtype=mt.float64)[0]}
uneven = {name: unevenness(s.numpy()) for name, s in scores.items()}
for name, found in uneven.items():
    print(f"{name:20} unevenness along diagonals {found:.0e}")
assert max(uneven["RoPE"], uneven["ALiBi"]) < 1e-12 and min(uneven["sinusoidal"], uneven["learned (untrained)"]) > 0.05
far = F.rotary(q, offset=1000) @ F.rotary(k, offset=1000).T
print(f"RoPE, everything moved on by 1000: largest change {(far - scores['RoPE']).abs().max().item():.0e}")
assert (far - scores["RoPE"]).abs().max() < 1e-9

# %%
figure = Figure(figsize=(11, 5.4), layout="constrained")
above, below = figure.subfigures(2, 1)
left, right = above.subplots(1, 2, width_ratios=[1, 1])
left.imshow(table.numpy(), aspect="auto", cmap="RdBu", interpolation="nearest")
left.set(title="Sinusoidal codes, each row one position", xlabel="entry", ylabel="position")
for apart in (8, 24, 40):
    right.plot(products[apart], label=f"position {apart}")
right.set(title="Product of one position's code with all others", xlabel="position")
right.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
for ax, (name, s) in zip(below.subplots(1, 4), scores.items()):
    ax.imshow(s.numpy(), cmap="RdBu")
    ax.set(title=name, xlabel="position of the key", xticks=(0, 16, 31), yticks=(0, 16, 31))
below.axes[0].set_ylabel("position of the query")
below.suptitle("Scores of one query and one key, at all places")
figure.savefig("out/09_positions.png", dpi=110)

# %% [markdown]
# ## 4. Two dimensions
#
# The patches of an image have a row and a column. Half of the width is given to each: half of the sines, or half of
# the pairs that RoPE turns. Products then depend on how many rows and how many columns lie between.

# %%
rows = columns = 9
grid = F.sinusoidal_table_2d(rows, columns, C, dtype=mt.float64)
near = (grid @ grid.T)[4 * columns + 4].view(rows, columns).numpy()  # the middle cell against all others
cos, sin = F.rotary_tables_2d(rows, columns, C, dtype=mt.float64)
one_q, one_k = (mt.randn(1, C, dtype=mt.float64).expand(rows * columns, C) for _ in range(2))
turned = F.apply_rotary(one_q, cos, sin) @ F.apply_rotary(one_k, cos, sin).T
turned = turned.view(rows, columns, rows, columns)
same = [turned[r, c, r + 2, c + 3].item() for r in range(rows - 2) for c in range(columns - 3)]
print(f"2-D RoPE, key 2 rows and 3 columns on, at {len(same)} places: scores from {min(same):.6f} to {max(same):.6f}")
print(f"2-D sines: the middle cell's product is {near[4, 4]:.1f} with itself, {near[4, 5]:.1f} with the next, "
      f"{near[0, 0]:.1f} with the corner")
assert max(same) - min(same) < 1e-9 and near.max() == near[4, 4] and np.allclose(near, near.T)
learned_grid = nn.GridPositions(4, 4, C, prefix=1)
print("learned grid of 4 x 4 and [CLS], used for 6 x 6 patches:",
      tuple(learned_grid(mt.zeros(1, 37, C), 6, 6).shape), "(cells between the learned ones are interpolated)")

# %% [markdown]
# ## 5. Longer than anything seen in training
#
# Five models, equal but for positions: one causal block, trained on sequences of 16 tokens. Then they read 64. Two
# tasks, chosen because they ask for different things:
#
# - three back: name the token three places before. Only the distance counts, to the place.
# - last colour: some tokens (0 to 3) are colours; name the latest one. The nearer counts more, at any distance.

# %%
V, SHORT, LONG = 12, 16, 64


def three_back(n, T):
    """ids, targets (n, T), and where the answer counts."""
    ids = mt.randint(0, V, (n, T))
    targets = mt.cat([ids[:, :3], ids[:, :-3]], 1)
    return ids, targets, (mt.arange(T) >= 3).expand(n, T)


def last_colour(n, T):
    colour = mt.rand(n, T) < 0.25
    colour[:, 0] = True
    ids = mt.where(colour, mt.randint(0, 4, (n, T)), mt.randint(4, V, (n, T)))
    latest = mt.where(colour, mt.arange(T), 0)  # (n, T), then the largest index of a colour so far
    latest = mt.where(F.causal_mask(T), latest[:, None], -1).amax(dim=2)  # (n, 1, T) -> (n, T, T) -> (n, T)
    return ids, ids.gather(1, latest), mt.ones(n, T, dtype=mt.bool)


class Reader(nn.Module):
    """One causal block on tokens with positions of the given kind."""

    def __init__(self, kind):
        super().__init__()
        self.tok_emb = nn.Embedding(V, C)
        added = {"sinusoidal": nn.SinusoidalPositions(C), "learned": nn.LearnedPositions(LONG, C)}
        self.positions = added.get(kind, nn.Identity())
        self.alibi = nn.ALiBi(H) if kind == "ALiBi" else None
        self.block = nn.TransformerBlock(C, H, rotary=nn.RotaryEmbedding(C // H) if kind == "RoPE" else None)
        self.norm, self.head = nn.LayerNorm(C), nn.Linear(C, V)

    def forward(self, ids):
        x = self.positions(self.tok_emb(ids))  # (B, T) -> (B, T, C)
        if self.alibi is None:
            x = self.block(x, is_causal=True)
        else:
            x = self.block(x, attn_mask=self.alibi(ids.shape[1]))
        return self.head(self.norm(x))  # (B, T, C) -> (B, T, V)


def right_at_each_place(kind, task, steps=300, rate=1e-2):
    """Train at the short length; the share of right answers at each place of the long one, (LONG,)."""
    mt.manual_seed(0)
    model = Reader(kind)
    optimizer = AdamW(model.parameters(), lr=rate)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 40) * (1 + np.cos(np.pi * step / steps)) / 2
        ids, targets, counts = task(32, SHORT)
        loss = F.cross_entropy(model(ids)[counts], targets[counts])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids, targets, counts = task(400, LONG)
    with mt.no_grad():
        right = (model(ids).argmax(-1) == targets) & counts
    return right.float().mean(dim=0).numpy()


kinds, spans = ("none (causal)", "learned", "sinusoidal", "RoPE", "ALiBi"), {16: slice(3, 16), 32: slice(16, 32),
                                                                             64: slice(32, 64)}
curves, means = {}, {}
for task in (three_back, last_colour):
    print(f"{task.__name__}: right answers at places  3-15  16-31  32-63   (trained on 0-15)")
    for kind in kinds:
        curves[task, kind] = right_at_each_place(kind, task)
        for T, span in spans.items():
            means[task, kind, T] = curves[task, kind][span].mean()
        print(f"  {kind:36}" + "".join(f"{means[task, kind, T]:7.0%}" for T in spans), flush=True)
    print(f"  after {time.perf_counter() - began:.0f} s")

# %%
for kind in ("learned", "sinusoidal", "RoPE"):  # all of them learn both tasks, at the length that they are trained on
    assert min(means[task, kind, 16] for task in (three_back, last_colour)) > 0.95
assert means[three_back, "learned", 32] < 0.3 and means[three_back, "RoPE", 32] > 0.7
assert means[three_back, "sinusoidal", 32] < 0.7 and means[three_back, "ALiBi", 16] < 0.7
assert means[last_colour, "ALiBi", 64] > 0.85 > 0.75 > means[last_colour, "learned", 64]

# %% [markdown]
# What the figures say:
#
# - Learned vectors end where training ended: those of later places were never trained.
# - Sines are defined everywhere, but the model has only met the codes of 16 places, and fails on the others.
# - RoPE knows distances, so that the exact step back works well beyond 16. But the longer sequence also has distances
#   that never occurred, and their scores may be anything: farther on it fails as well.
# - ALiBi cannot single out one place, so that it does not even learn the first task. But it prefers what is near at
#   any length, and in the second task hardly notices that the sequence is four times as long.
# - The causal mask alone is better than guessing, and no more.
#
# None of them is best. Which one goes on depends on what the task asks of positions. (A table of learned vectors
# that is too short raises an error; here it was made long enough, to see what its untrained rows do.)

# %%
figure = Figure(figsize=(11, 4), layout="constrained")
for ax, (task, title) in zip(figure.subplots(1, 2, sharey=True), ((three_back, "Name the token three places back"),
                                                                  (last_colour, "Name the latest colour"))):
    for kind in kinds:
        first = 3 if task is three_back else 0
        ax.plot(range(first, LONG), curves[task, kind][first:], label=kind)
    ax.axvline(SHORT - 0.5, color="0.5", linestyle=":")
    ax.text(SHORT, 1.03, "longer than in training", color="0.4")
    ax.set(title=title, xlabel="place in the sequence", ylim=(0, 1.1))
figure.axes[0].set_ylabel("right answers")
figure.axes[1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
figure.savefig("out/09_extrapolation.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Train RoPE on the first task with places that begin anywhere: in `Reader.forward` give the block
#    `positions=mt.arange(ids.shape[1]) + mt.randint(0, 48, ()).item()`. Why does it change nothing? What would the
#    same do for the learned vectors (`self.positions(x, offset=...)`)?
# 2. Raise RoPE's base to 1,000,000, or lower it to 10. How does the accuracy at places 32 to 63 change, and why?
# 3. Give `Reader` of section 5 two blocks, one after the other, and no positions. The causal mask is all that it has.
#    Can it now learn "three back"?
