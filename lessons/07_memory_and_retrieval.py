# %% [markdown]
# # Lesson 7: attention as a memory, and as a search
#
# Two things that look unlike attention, and are it. A Hopfield network restores a damaged picture from those it has
# stored: one update is one step of attention. And a search engine that feeds a language model (retrieval-augmented
# generation, RAG) first takes the k best documents, and then reads: attention over what was found.
#
# A few seconds. Figures go to `out/`.

# %%
import itertools
import os

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import digits

F = mt.nn.functional
os.makedirs("out", exist_ok=True)
mt.manual_seed(0)

# %% [markdown]
# ## 1. A memory of ten pictures
#
# Store one handwritten digit of each kind, black pixels as +1 and white ones as -1: patterns $x_1$ to $x_{10}$ of
# 64 numbers. A damaged picture is a state q. The update moves it to a mixture of the stored patterns, weighted by
# how well they fit:
#
# $$q \leftarrow \sum_s p_s x_s, \qquad p = \mathrm{softmax}(\beta X q).$$
#
# That is attention. The query is q, keys and values are both the patterns, and $\beta$ stands where attention has its
# scale, $1 / \sqrt{D}$.

# %%
images, labels = digits("train")
first_of_each = [labels.tolist().index(kind) for kind in range(10)]
patterns = mt.where(images[first_of_each].flatten(1) > images.mean(), 1.0, -1.0)  # (10, 1, 8, 8) -> (10, 64)


def damaged(x, share):
    """Each pixel negated with this probability."""
    return mt.where(mt.rand(*x.shape) < share, -x, x)


noisy = damaged(patterns, 0.15)
half = patterns.clone()
half[:, 32:] = 0  # the lower half is not known

q, D = noisy, patterns.shape[1]
spelled_out = F.softmax(q @ patterns.T / D**0.5, dim=1) @ patterns
update = F.hopfield_update(q, patterns, beta=1 / D**0.5)
print(f"one update against attention spelled out: largest difference {(update - spelled_out).abs().max().item():.0e}")
assert (update - spelled_out).abs().max() < 1e-5

# %% [markdown]
# How sharp must the softmax be? A small $\beta$ mixes everything, a large one picks the best. Attention's own scale,
# $1 / \sqrt{64} = 0.125$, is too soft for a memory: what comes back is close to the pattern, but not it.


# %%
def recovered(state, stored):
    """The share of states that have become their own pattern, in every pixel."""
    return (state.sign() == stored).all(dim=1).float().mean().item()


many = patterns.repeat(50, 1)  # each digit, damaged in fifty ways
print("restored exactly by one update:   15% of the pixels wrong   lower half unknown")
by_beta = {}
for beta in (0.01, 0.125, 1.0):
    mt.manual_seed(1)
    shares = [recovered(F.hopfield_update(cue, stored, beta), stored)
              for cue, stored in ((damaged(many, 0.15), many), (half, patterns))]
    by_beta[beta] = shares
    print(f"  beta {beta:<5}" + "".join(f"{share:22.0%}" for share in shares))
assert min(by_beta[1.0]) > 0.95 and max(by_beta[0.01]) < 0.1 and by_beta[0.125][1] < 0.5
restored = F.hopfield_update(noisy, patterns, 1.0)

# %% [markdown]
# The update goes downhill in an energy, and its step is exactly the gradient: $q - \nabla E(q)$ is the new state.

# %%
state = noisy.clone().requires_grad_()
F.hopfield_energy(state, patterns, 1.0).sum().backward()
apart = (state.detach() - state.grad - restored).abs().max().item()
energies = [F.hopfield_energy(F.hopfield_update(noisy, patterns, 0.05, steps), patterns, 0.05).mean().item()
            for steps in range(4)]
print(f"update against one step down the gradient: largest difference {apart:.0e}")
print("mean energy after 0, 1, 2, 3 updates (beta 0.05):", " ".join(f"{e:.3f}" for e in energies))
assert apart < 1e-5 and all(b <= a + 1e-4 for a, b in itertools.pairwise(energies))

# %%
figure = Figure(figsize=(8.5, 5), layout="constrained")
axes = figure.subplots(6, 10)
rows = (("stored", patterns), ("15% negated", noisy), ("updated, beta = 1", restored), ("lower half unknown", half),
        ("updated, beta = 1", F.hopfield_update(half, patterns, 1.0)),
        ("15% negated, updated,\nbeta = 0.001", F.hopfield_update(noisy, patterns, 0.001)))  # the mean of all
for ax, kind in zip(axes[0], range(10)):
    ax.set_title(kind, fontsize=10)
for row, (name, pictures) in zip(axes, rows):
    for ax, picture in zip(row, pictures.numpy()):
        ax.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=-1, vmax=1)
        ax.set(xticks=[], yticks=[])
    row[0].set_ylabel(name, rotation=0, ha="right", va="center")
figure.savefig("out/07_digits.png", dpi=110)

# %% [markdown]
# ## 2. How much can it hold?
#
# The network of 1982 adds all patterns up in one (D, D) matrix and takes signs: $q \leftarrow \mathrm{sign}(X^\top
# X q)$. It holds about 0.14 D patterns, here 9. The exponential in the softmax lets the best pattern drown the
# others. How many fit then grows exponentially with D (Ramsauer et al. 2021; with one D it is not shown here). Random
# patterns, a fifth of the pixels negated. One draw of a few patterns says little, so each figure is a mean: of 20
# draws up to 50 patterns, of 3 above.

# %%
numbers = (5, 8, 10, 12, 15, 20, 50, 100, 500, 2000)
kept = {"softmax, one update": [], "1982, ten updates": []}
for number in numbers:
    drawn = {name: [] for name in kept}
    for _ in range(20 if number <= 50 else 3):
        stored = mt.where(mt.rand(number, D) < 0.5, -1.0, 1.0)
        cue = damaged(stored, 0.2)
        drawn["softmax, one update"].append(recovered(F.hopfield_update(cue, stored, 1.0), stored))
        weights = stored.T @ stored - number * mt.eye(D)  # the diagonal would only say: stay as you are
        for _ in range(10):
            cue = (cue @ weights).sign()
        drawn["1982, ten updates"].append(recovered(cue, stored))
    for name, shares in drawn.items():
        kept[name].append(np.mean(shares))
print("patterns stored      " + "".join(f"{n:6}" for n in numbers))
for name, shares in kept.items():
    print(f"{name:21}" + "".join(f"{s:6.0%}" for s in shares))
old, new = kept["1982, ten updates"], kept["softmax, one update"]
assert new[-2] > 0.95 and old[0] > 0.8 > 0.75 > old[numbers.index(10)] > 0.3 > 0.1 > old[numbers.index(20)]

# %% [markdown]
# ## 3. Search first, then read
#
# Fourteen sentences are the library. Each becomes a vector: count its runs of three letters (" wa", "wat", "ate",
# ...), weigh rare runs more, and make the length 1. A question is turned into a vector in the same way, and its
# product with a sentence says how many rare runs the two share.

# %%
library = """The Nile flows north through Egypt and ends in the Mediterranean Sea.
Water boils at a lower temperature on a high mountain, because the air pressure is lower.
The moon has no light of its own; it reflects the light of the sun.
Bees dance to tell the other bees of the hive where flowers are.
A triangle with sides of length 3, 4 and 5 has a right angle.
Bread rises because yeast turns sugar into gas.
The first programs for a computing machine were written down by Ada Lovelace in 1843.
Salt lowers the freezing point of water, so it is strewn on icy roads.
Whales are mammals: they breathe air and feed milk to their young.
A prime number has exactly two divisors, one and itself.
Paper was made in China long before it was made in Europe.
The heart of a grown person beats about seventy times a minute at rest.
Iron rusts when it meets oxygen and water.
Gradients point in the direction in which a function grows fastest.""".split("\n")
questions = {"Why does water boil sooner on a mountain?": 1, "How do bees tell each other where flowers are?": 3,
             "Why do we put salt on an icy road?": 7, "Does the moon shine with its own light?": 2,
             "Who wrote the first computer programs?": 6, "What is a prime number?": 9,
             "How fast does the heart beat?": 11, "Why does iron rust?": 12}


def runs(text):
    """All runs of three characters, letters and spaces only."""
    text = "".join(c if c.isalnum() else " " for c in f" {text.lower()} ")
    return [text[i:i + 3] for i in range(len(text) - 2)]


known = {run: i for i, run in enumerate(sorted({run for text in library for run in runs(text)}))}
in_how_many = np.zeros(len(known))
for text in library:
    in_how_many[[known[run] for run in set(runs(text))]] += 1
rarity = np.log(len(library) / in_how_many)  # 0 for what is in every sentence


def vectors(texts):
    """(number of texts, number of runs), each row of length 1."""
    counts = np.zeros((len(texts), len(known)), "f4")
    for row, text in zip(counts, texts):
        for run in runs(text):
            if run in known:
                row[known[run]] += 1
    counts *= rarity
    return mt.tensor(counts / np.linalg.norm(counts, axis=1, keepdims=True))


keys, asked, wanted = vectors(library), vectors(questions), mt.tensor(list(questions.values()))
products = asked @ keys.T  # (questions, sentences)
found = products.topk(3).indices
for i, (question, best) in enumerate(zip(questions, found[:, 0].tolist())):
    print(f"{i}: {question}\n    {best}: {library[best]}")
first = (found[:, 0] == wanted).float().mean().item()
among_three = (found == wanted[:, None]).any(dim=1).float().mean().item()
print(f"the right sentence comes first: {first:.0%}, is among the first three: {among_three:.0%}")
assert first >= 0.85 and among_three == 1

# %% [markdown]
# This finds letters, not meaning. Asked in other words, a question shares with its answer what is there by accident,
# and whether the answer comes early is luck: the second question finds it because "street" begins like "strewn",
# and "safe" like "salt". (Search engines for language models learn their vectors, so that texts that mean the same
# lie close.)

# %%
in_other_words = {"What makes dough get bigger in the oven?": 5, "How do you make a slippery street safe?": 7}
for question, answer in in_other_words.items():
    product = (vectors([question]) @ keys.T)[0]
    rank = product.argsort(descending=True).tolist().index(answer) + 1
    shared = sorted(set(runs(question)) & set(runs(library[answer])))
    print(f"{question} The answer comes {rank} of {len(library)}; by accident: {', '.join(map(repr, shared))}")

# %% [markdown]
# Now read: softmax of the products, weighted mean of the values (here the sentences' vectors again). Reading the
# three sentences that were found is the same as attention over the whole library with a mask that hides the rest.

# %%
beta, k = 10.0, 3
everything = F.scaled_dot_product_attention(asked, keys, keys, scale=beta)
read = mt.stack([F.scaled_dot_product_attention(asked[i:i + 1], keys[rows], keys[rows], scale=beta)[0]
                 for i, rows in enumerate(found)])
seen = mt.zeros(*products.shape, dtype=mt.bool)
for i, rows in enumerate(found):
    seen[i, rows] = True
masked = F.scaled_dot_product_attention(asked, keys, keys, seen, scale=beta)
print(f"top {k} against a mask: largest difference {(read - masked).abs().max().item():.0e}")
assert (read - masked).abs().max() < 1e-6

# %% [markdown]
# Against attention over everything it is an approximation. The weight that the search threw away says how good: if
# the sentences found hold the weight 1 - $\epsilon$, the results differ by at most $2 \epsilon$, since no value is
# longer than 1. (What is lost counts once, and once more as it is given to the others.)

# %%
weights = F.attention_weights(asked, keys, scale=beta)
table = {beta: [] for beta in (3.0, 10.0, 30.0)}
for beta, rows in table.items():
    whole = F.scaled_dot_product_attention(asked, keys, keys, scale=beta)
    all_weights = F.attention_weights(asked, keys, scale=beta)
    for k in range(1, len(library) + 1):
        seen = products >= products.topk(k).values[:, -1:]
        apart = (F.scaled_dot_product_attention(asked, keys, keys, seen, scale=beta) - whole).norm(dim=1)
        lost = (all_weights * ~seen).sum(dim=1)
        assert (apart <= 2 * lost + 1e-5).all()
        rows.append((apart.mean().item(), lost.mean().item()))
print("k                     " + "".join(f"{k:7}" for k in (1, 2, 3, 5, 14)))
for beta, rows in table.items():
    for name, column in (("difference", 0), ("weight lost", 1)):
        print(f"beta {beta:4.0f}, {name:11} " + "".join(f"{rows[k - 1][column]:7.3f}" for k in (1, 2, 3, 5, 14)))
assert all(rows[-1][0] < 1e-5 for rows in table.values()) and table[30.0][2][0] < 0.1 * table[3.0][2][0]

# %% [markdown]
# A sharp softmax reads few sentences anyway, and the search loses nothing. A soft one spreads its weight thinly
# over everything, and there the search changes the result: it is a hard decision, and what it misses cannot be
# read. In exchange the reader looks at 3 sentences, not at 14, or 14 million. (In a real system the reader is a
# language model with the sentences in its prompt. It attends to their words and not to one vector for each. And a
# search index finds the best without computing all products.)
#
# The thin spreading has a good side, too: every key gets a gradient, so that all can learn. With top-k only those
# that were found do.

# %%
taught = []
for mask in (None, products >= products.topk(3).values[:, -1:]):
    learning = keys.clone().requires_grad_()
    F.scaled_dot_product_attention(asked[:1], learning, keys, None if mask is None else mask[:1], scale=10.0).backward(
        mt.randn(1, keys.shape[1]))
    taught.append(int((learning.grad.abs().sum(dim=1) > 0).sum().item()))
print(f"sentences that get a gradient from one question: {taught[0]} of {len(library)}; with top 3: {taught[1]}")
assert taught == [len(library), 3]

# %%
figure = Figure(figsize=(11, 3.8), layout="constrained")
a, b, c = figure.subplots(1, 3, width_ratios=[1, 1.25, 1])
for name, shares in kept.items():
    a.semilogx(numbers, shares, "o-", label=name)
a.set(title="Random patterns restored exactly", xlabel="patterns stored", ylabel="share of the patterns")
a.legend(frameon=False)
shown = b.imshow(weights.numpy(), cmap="Blues", vmin=0)
b.plot(wanted.numpy(), range(len(questions)), "r.", label="the right sentence")
b.set(title="What each question attends to", xlabel="number of the sentence", ylabel="number of the question")
b.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), frameon=False)
figure.colorbar(shown, ax=b, label="weight (beta = 10)", shrink=0.8)
for beta, rows in table.items():
    c.plot(range(1, len(library) + 1), [row[0] for row in rows], ".-", label=f"beta = {beta:.0f}")
c.set(title="Top k against everything", xlabel="k", ylabel="difference of the results", xticks=range(2, 15, 3))
c.legend(frameon=False)
figure.savefig("out/07_retrieval.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Store all ten digits twice, from different writers. Which $\beta$ now gives one writer's digit, and which a
#    mixture of the two?
# 2. Ask a question that no sentence answers. What do the weights look like, and how could a system notice?
# 3. Replace the runs of three letters by whole words. Which questions fail, and why did runs help there?
