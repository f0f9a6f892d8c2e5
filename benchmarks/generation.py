"""Cached generation: tokens a second from position 1 on, with the widths of the larger GPT, greedily, batch 1.

Ours is models.gpt with its KV cache. PyTorch's is what a competent user writes there: a cache allocated once and
filled in place, inference mode, the fused attention. Both start from the same weights and make the same tokens.
"""
import math

import numpy

from .trainings import LARGE

__all__ = ["make"]

V, C, H, L = LARGE.vocabulary, LARGE.width, LARGE.heads, LARGE.layers


def weights(longest):
    """The parameters by their names, as NumPy arrays; linear weights are (out, in)."""
    rng = numpy.random.default_rng(0)
    linears = {"attn.qkv": (3 * C, C), "attn.proj": (C, C), "mlp.fc": (4 * C, C), "mlp.proj": (C, 4 * C)}
    made = {"tok_emb.weight": rng.standard_normal((V, C)), "pos_emb.weight": rng.standard_normal((longest, C)),
            "head.weight": rng.standard_normal((V, C))}
    for block in (f"blocks.{i}." for i in range(L)):
        for name, shape in linears.items():
            made[f"{block}{name}.weight"] = rng.standard_normal(shape) / math.sqrt(shape[1])
            made[f"{block}{name}.bias"] = numpy.zeros(shape[0])
        for name in ("ln_1", "ln_2"):
            made[f"{block}{name}.weight"], made[f"{block}{name}.bias"] = numpy.ones(C), numpy.zeros(C)
    made["ln_f.weight"], made["ln_f.bias"] = numpy.ones(C), numpy.zeros(C)
    return {name: array.astype(numpy.float32) for name, array in made.items()}


def ours(positions):
    """A function that generates and returns the tokens."""
    import minitorch_attn as mt
    from minitorch_attn.generate import generate
    from minitorch_attn.models.gpt import GPT, GPTConfig
    model = GPT(GPTConfig(vocab_size=V, block_size=positions, n_layer=L, n_head=H, n_embd=C, tied=False))
    model.load_state_dict({name: mt.from_numpy(array) for name, array in weights(positions).items()})
    model.eval()
    start = mt.zeros(1, 1, dtype=mt.int64)
    return lambda: generate(model, start, positions, temperature=0.0)[0, 1:].tolist()


def pytorch(positions):
    """The same in PyTorch."""
    import torch
    F = torch.nn.functional
    w = {name: torch.from_numpy(array) for name, array in weights(positions).items()}

    def linear(x, name):
        return F.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (C,), w[f"{name}.weight"], w[f"{name}.bias"])

    def next_token(token, t, keys, values):
        x = w["tok_emb.weight"][token] + w["pos_emb.weight"][t]                        # (1, 1) -> (1, 1, C)
        for i in range(L):
            qkv = linear(norm(x, f"blocks.{i}.ln_1"), f"blocks.{i}.attn.qkv")
            q, k, v = qkv.view(1, 3, H, 1, C // H).unbind(1)                           # -> three of (1, H, 1, D)
            keys[i][:, :, t:t + 1], values[i][:, :, t:t + 1] = k, v
            y = F.scaled_dot_product_attention(q, keys[i][:, :, :t + 1], values[i][:, :, :t + 1])
            x = x + linear(y.reshape(1, 1, C), f"blocks.{i}.attn.proj")
            h = F.gelu(linear(norm(x, f"blocks.{i}.ln_2"), f"blocks.{i}.mlp.fc"))
            x = x + linear(h, f"blocks.{i}.mlp.proj")
        return F.linear(norm(x, "ln_f"), w["head.weight"])[:, -1].argmax(-1, keepdim=True)

    @torch.inference_mode()
    def generate():
        keys, values = torch.empty(2, L, 1, H, positions, C // H)
        tokens = [torch.zeros(1, 1, dtype=torch.int64)]
        for t in range(positions):
            tokens.append(next_token(tokens[-1], t, keys, values))
        return torch.cat(tokens, 1)[0, 1:].tolist()

    return generate


def make(positions, library):
    """A pass of generation over so many positions."""
    return (pytorch if library == "torch" else ours)(int(positions))
