"""HIPS autograd: NumPy's functions, differentiated."""
import math

import autograd.numpy as np
from autograd import value_and_grad

from .shared import AdamW, batches, causal_mask, one_hot, weights

__all__ = ["training"]


def training(size):
    """The step of a GPT's training."""
    B, T, C, H, N = size.batch, size.tokens, size.width, size.heads, size.batch * size.tokens
    mask = causal_mask(T)

    def linear(x, w, b):
        return np.dot(x, w.T) + b

    def norm(x, w, b):
        centred = x - np.mean(x, axis=-1, keepdims=True)
        return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * w + b

    def attention(x, p, block):
        qkv = linear(x, p[block + "self_attn.in_proj_weight"], p[block + "self_attn.in_proj_bias"])
        q, k, v = np.transpose(np.reshape(qkv, (B, T, 3, H, C // H)), (2, 0, 3, 1, 4))
        scores = np.matmul(q * (1 / math.sqrt(C // H)), np.swapaxes(k, 2, 3)) + mask
        weight = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        weight = weight / np.sum(weight, axis=-1, keepdims=True)
        y = np.reshape(np.transpose(np.matmul(weight, v), (0, 2, 1, 3)), (N, C))
        return linear(y, p[block + "self_attn.out_proj.weight"], p[block + "self_attn.out_proj.bias"])

    def loss(p, x, y):
        h = np.reshape(np.dot(x, p["tok.weight"]), (B, T, C)) + p["pos.weight"][:T]
        h = np.reshape(h, (N, C))
        for i in range(size.layers):
            block = f"blocks.layers.{i}."
            h = h + attention(norm(h, p[block + "norm1.weight"], p[block + "norm1.bias"]), p, block)
            z = norm(h, p[block + "norm2.weight"], p[block + "norm2.bias"])
            z = np.maximum(linear(z, p[block + "linear1.weight"], p[block + "linear1.bias"]), 0)
            h = h + linear(z, p[block + "linear2.weight"], p[block + "linear2.bias"])
        logits = linear(norm(h, p["ln.weight"], p["ln.bias"]), p["head.weight"], p["head.bias"])
        logits = logits - np.max(logits, axis=-1, keepdims=True)
        return np.mean(np.log(np.sum(np.exp(logits), axis=-1)) - np.sum(logits * y, axis=-1))

    p, step_of, count = weights(size), value_and_grad(loss), 0
    optimizer = AdamW(p)
    data = [[one_hot(ids, size) for ids in batch] for batch in batches(size)]

    def step():
        nonlocal count
        value, gradients = step_of(p, *data[count % len(data)])
        optimizer.step(gradients)
        count += 1
        return float(value)

    return step
