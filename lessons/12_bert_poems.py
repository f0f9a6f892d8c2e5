# %% [markdown]
# # Lesson 12: BERT fills in the blanks of four poems
#
# A GPT guesses what comes next and may look back only. BERT guesses what was hidden and may look at both sides. So it
# cannot be trained by asking for the next character: hide some, and ask for those.
#
# About a quarter of a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import tang_poems
from minitorch_attn.models.bert import BERT, BERTConfig, mask_tokens
from minitorch_attn.optim import AdamW
from minitorch_attn.text.wordpiece import WordPieceTokenizer

os.makedirs("out", exist_ok=True)
mt.manual_seed(0)
began = time.perf_counter()

# %% [markdown]
# ## 1. The poems as ids
#
# In WordPiece every Chinese character is a word by itself. The poems have 73 different ones, with the marks. The first
# five ids are special tokens; [MASK] is one. That makes 78.

# %%
poems = tang_poems()
tokenizer = WordPieceTokenizer.train(poems, 5 + len(set(poems)))
ids = mt.tensor([tokenizer.encode(poems[i:i + 24]) for i in range(0, 96, 24)])
print(len(tokenizer), "tokens, poems", ids.shape, tokenizer.vocabulary[:8])


def line(row):
    return "".join(tokenizer.vocabulary[i] for i in row.tolist()).replace("[MASK]", "＿")


# %% [markdown]
# ## 2. Hide 15%
#
# Of the 24 characters of a poem that is 3.6, rounded to 4. Of the chosen characters 80% become [MASK], 10% any
# character, 10% stay. The loss asks for the chosen ones only: all other targets are -100, and places with that
# target do not count. In what follows each step hides anew.

# %%
config = BERTConfig(len(tokenizer), block_size=24, n_layer=2, n_head=4, n_embd=64)
hidden, targets = mask_tokens(ids, config)
for row in hidden:
    print(line(row))
chosen = targets != -100
print("chosen in each poem:", chosen.sum(1).tolist())

many = ids.repeat(500, 1)
hidden, targets = mask_tokens(many, config)
chosen = targets != -100
shares = [(hidden[chosen] == config.mask_id), (hidden[chosen] != config.mask_id) & (hidden[chosen] != many[chosen])]
shares = [s.float().mean().item() for s in (*shares, hidden[chosen] == many[chosen])]
print(f"chosen: {chosen.float().mean().item():.3f} of {many.numel():,} characters; "
      "of these [MASK] {:.3f}, another {:.3f}, the same {:.3f}".format(*shares))
assert np.abs(np.array(shares) - (0.8, 0.1, 0.1)).max() < 0.02
assert abs(chosen.float().mean().item() - 0.15) < 0.02 and (hidden == many)[~chosen].all()

# %% [markdown]
# ## 3. Training

# %%
model = BERT(config)
optimizer, losses = AdamW(model.parameters(), lr=2e-3), []
for step in range(400):
    _, loss = model(*mask_tokens(ids.repeat(8, 1), config))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 100 == 99:
        print(f"step {step + 1}: loss {np.mean(losses[-50:]):.3f} nats a blank")

# %% [markdown]
# Four poems are soon known by heart, and even where a character was replaced by another, the rest of the poem tells
# which one it was: the loss goes nearly to zero.
#
# ## 4. Fill in the blanks
#
# New blanks, all of them [MASK]: 15% of each poem, as in training, and more.

# %%
scores = {}
for share in (0.15, 0.33, 0.5, 0.7):
    truth = ids.repeat(100, 1)
    _, targets = mask_tokens(truth, config, share)
    blank = targets != -100
    filled = model.fill(truth.masked_fill(blank, config.mask_id))
    scores[share] = (filled == truth)[blank].float().mean().item()
    print(f"{share:.0%} hidden: {scores[share]:.1%} of {int(blank.sum())} blanks right")
print(f"after {time.perf_counter() - began:.0f} s")
assert scores[0.15] >= 0.9

# %%
holes = ids.clone()
holes[0, [2, 3, 9]], holes[2, [0, 4, 13, 22]] = config.mask_id, config.mask_id
for row, filled in zip(holes, model.fill(holes)):
    print(line(row), "->", line(filled))

# %% [markdown]
# ## 5. It looks to both sides
#
# Whom do the three [MASK] of the first poem attend to? A GPT's picture would be empty to the right of each dot.

# %%
with mt.no_grad():
    _, _, weights = model(holes[:1], need_weights=True)
blanks = [2, 3, 9]
attended = weights[0].numpy()[0].mean(0)[blanks]  # (H, T, T) of the first layer -> the mean over heads -> (3, T)
right_of = [row[place + 1:].sum() for place, row in zip(blanks, attended)]
print("weight to the right of each [MASK]:", " ".join(f"{share:.2f}" for share in right_of))
assert min(right_of) > 0.2

figure = Figure(figsize=(10, 3), layout="constrained")
left, right = figure.subplots(1, 2, width_ratios=[1, 1.9])
left.plot(losses)
left.set(xlabel="step", ylabel="loss (nats a blank)", title="Training", ylim=0)
image = right.imshow(attended, cmap="Blues", vmin=0, aspect="auto")
right.plot(blanks, range(3), "o", color="C3", label="its own place")
right.set(title="What each [MASK] attends to (first layer, mean over the heads)", xlabel="place in the poem",
          ylabel="[MASK] at place", xticks=range(0, 24, 2), yticks=range(3), yticklabels=blanks)
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), frameon=False)
figure.colorbar(image, ax=right, label="weight")
figure.savefig("out/12_bert.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Train with all chosen characters turned into [MASK] (100/0/0). Then give the model a poem with a wrong character
#    and no [MASK]: does it still notice?
# 2. Hide 50% in training. Does that help where half is missing?
# 3. Ask `model.fill` for whole lines. When does it begin to mix poems?
