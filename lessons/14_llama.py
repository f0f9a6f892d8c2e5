# %% [markdown]
# # Lesson 14: from GPT to Llama, and what a cache saves
#
# Most language models since 2023 are built alike: norms that only scale (RMSNorm), positions that turn (RoPE), a gated
# feed-forward net (SwiGLU), and query heads that share keys and values (grouped queries). Here is what each of them is
# for, in numbers, on a model that is small enough to train in a minute. Figures go to `out/`.

# %%
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more threads gain nothing on matrices as small as these

import math
import time

import numpy as np
from matplotlib.figure import Figure

import minitorch_attn as mt
from minitorch_attn.datasets import tang_poems
from minitorch_attn.generate import generate
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.llama import Llama, LlamaConfig
from minitorch_attn.optim import AdamW
from minitorch_attn.text.byte_pair import BytePairTokenizer

os.makedirs("out", exist_ok=True)


def count(module):
    return sum(w.numel() for w in module.parameters())


# %% [markdown]
# ## 1. The same size, differently spent
#
# A GPT block of width C has 4 C^2 weights for attention and 8 C^2 for its net of width 4C. A gated net has three
# matrices, so that its width must be 8C/3 for the same 8 C^2. Grouped queries with K of H heads cut the 2 C^2 for keys
# and values by K / H, and, what matters more, the cache.

# %%
C = 96
gpt = GPT(GPTConfig(100, n_layer=1, n_head=4, n_embd=C))
llama = Llama(LlamaConfig(100, n_layer=1, n_head=4, n_embd=C))
grouped = Llama(LlamaConfig(100, n_layer=1, n_head=4, n_kv_head=1, n_embd=C))
print(f"C = {C}: in units of C^2, norms and biases counted too")
for name, block in (("GPT", gpt.blocks[0]), ("Llama", llama.blocks[0]), ("Llama, K = 1", grouped.blocks[0])):
    print(f"  {name:13} attention {count(block.attn) / C**2:.2f}, feed-forward {count(block.mlp) / C**2:.2f}")
print("  width inside the net: GPT", 4 * C, "Llama", llama.config.n_hidden, "= 8C/3")
assert count(llama.blocks[0].mlp) == 8 * C**2

# %% [markdown]
# ## 2. Turning keeps lengths, and only distances count
#
# RoPE turns each pair of entries of queries and keys by an angle that grows with the position. Their product then
# depends on how far apart they are, not on where.

# %%
F = mt.nn.functional
mt.manual_seed(0)
q, k = mt.randn(1, 32), mt.randn(1, 32)
near, far = ((F.rotary(q, offset=t) * F.rotary(k, offset=t - 3)).sum().item() for t in (3, 1003))
print(f"product at positions 3 and 0: {near:.5f}, at 1003 and 1000: {far:.5f}")
assert abs(near - far) < 1e-3

# %% [markdown]
# ## 3. Logits that cannot run away
#
# With large weights, or after long training at a high rate, the scores q.k grow and the softmax becomes a hard choice
# that no longer learns. QK-Norm divides queries and keys by their own size first.

# %%
ids = mt.randint(0, 100, (4, 32))
print("weights of q and k times     1     4    16    64:  largest entropy lost (nats, of log T)")
for qk_norm in (False, True):
    row = []
    for times in (1, 4, 16, 64):
        mt.manual_seed(0)
        model = Llama(LlamaConfig(100, n_layer=1, n_embd=64, qk_norm=qk_norm))
        with mt.no_grad():
            for projection in (model.blocks[0].attn.q, model.blocks[0].attn.k):
                projection.weight *= times
            weights = model(ids, need_weights=True)[2][0].numpy()[:, :, -1]
        entropy = -(weights * np.log(np.maximum(weights, 1e-30))).sum(-1)
        row.append(math.log(32) - entropy.min())
    print(f"  {'with' if qk_norm else 'without'} QK-Norm".ljust(27), "  ".join(f"{loss:.2f}" for loss in row))

# %% [markdown]
# ## 4. Train on the poems
#
# As bytes in pairs: Chinese characters are three bytes each, and training merges them.

# %%
mt.manual_seed(0)
poems = tang_poems()
tokenizer = BytePairTokenizer.train(poems, 256 + 40, special_tokens=["<|pad|>"])
data = mt.tensor(tokenizer.encode(poems))
print(f"{len(poems)} characters, {len(poems.encode())} bytes, {len(data)} tokens")
pad = tokenizer.special_ids["<|pad|>"]
model = Llama(LlamaConfig(len(tokenizer), block_size=256, n_layer=2, n_head=4, n_kv_head=2, n_embd=64, pad_id=pad))
optimizer, losses = AdamW(model.parameters(), lr=3e-3), []
for _ in range(300):
    places = mt.randint(0, len(data) - 48, (16,))[:, None] + mt.arange(48)
    _, loss = model(data[places], data[places + 1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {np.mean(losses[-20:]):.3f} nats a token")
assert np.mean(losses[-20:]) < 0.1

# %% [markdown]
# ## 5. A batch of different lengths
#
# Prompts of different lengths are padded on the left, so that all of them continue at the right. The padding is never
# looked at, and only distances count; so each continues as it would alone. With the cache or without, the tokens are
# the same.

# %%
prompts = ["床前", "春眠不觉", "红"]
encoded = [tokenizer.encode(prompt) for prompt in prompts]
width = max(map(len, encoded))
batch = mt.tensor([[pad] * (width - len(row)) + row for row in encoded])
together = generate(model, batch, 30, temperature=0)
assert together.tolist() == generate(model, batch, 30, temperature=0, use_cache=False).tolist()
for row, prompt in zip(together.tolist(), encoded):
    alone = generate(model, mt.tensor([prompt]), 30, temperature=0)[0].tolist()
    assert row[width - len(prompt):] == alone
    print(tokenizer.decode([i for i in row if i != pad]))

# %% [markdown]
# ## 6. What a token costs
#
# Without the cache each new token means reading all before it again; with it, one token. With 2 of 4 heads for keys
# and values the cache is half as large.

# %%
mt.manual_seed(0)
long = Llama(LlamaConfig(100, block_size=1101, n_layer=2, n_head=4, n_kv_head=2, n_embd=64))
tokens, cache = mt.randint(0, 100, (1, 1101)), long.new_cache()


def seconds(ids, cache=None):
    """Processor time to read `ids`; unlike a clock's, it is not disturbed by what else the computer does."""
    start = time.thread_time()
    long(ids, cache=cache)
    return time.thread_time() - start


with mt.no_grad():
    cached = [seconds(tokens[:, t:t + 1], cache) for t in range(1100)]
    uncached = {t: seconds(tokens[:, :t]) for t in range(100, 1101, 200)}
at = {t: np.quantile(cached[t - 50:t + 50], 0.25) for t in (100, 1000)}
print(f"milliseconds a token, at 100 and 1000: with cache {at[100] * 1e3:.2f} and {at[1000] * 1e3:.2f}, "
      f"ratio {at[1000] / at[100]:.2f}; without {uncached[100] * 1e3:.1f} and {uncached[1100] * 1e3:.1f}")
assert at[1000] < 1.5 * at[100]
keys, values = cache.layers[0].read()
print("keys in the cache:", keys.shape, "instead of", (1, 4, 1100, 16))

# %%
figure = Figure(figsize=(10, 3.8), layout="constrained")
left, right = figure.subplots(1, 2)
left.semilogy(losses)
left.set(title="Four poems", xlabel="step", ylabel="loss (nats a token)")
right.plot(np.convolve(cached, np.ones(25) / 25, mode="valid") * 1e3, label="with cache")
right.plot(list(uncached), [s * 1e3 for s in uncached.values()], "o-", label="without")
right.set(title="Time for one more token", xlabel="tokens before it", ylabel="milliseconds", yscale="log")
right.legend(frameon=False)
figure.savefig("out/14_llama.png", dpi=110)

# %% [markdown]
# ## To try
#
# 1. Train with `n_kv_head` 4, 2 and 1. What does sharing cost here?
# 2. Set `rope_base` to 100. Up to which length does the model still tell positions apart?
# 3. Take `pad_id` out of the configuration and run section 5 again. Which rows change, and why not the longest?
