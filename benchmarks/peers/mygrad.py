"""MyGrad: tensors around NumPy's arrays. Memory guarding, which locks arrays against writing, is switched off."""
import math

import mygrad as mg
from mygrad.nnet.activations import relu, softmax
from mygrad.nnet.losses import softmax_crossentropy

from .shared import AdamW, batches, causal_mask, one_hot, weights

__all__ = ["training"]


def training(size):
    """The step of a GPT's training."""
    mg.turn_memory_guarding_off()
    B, T, C, H, N = size.batch, size.tokens, size.width, size.heads, size.batch * size.tokens
    mask = causal_mask(T)

    def linear(x, w, b):
        return mg.matmul(x, w.T) + b

    def norm(x, w, b):
        centred = x - mg.mean(x, axis=-1, keepdims=True)
        return centred / mg.sqrt(mg.mean(mg.square(centred), axis=-1, keepdims=True) + 1e-5) * w + b

    def attention(x, p, block):
        qkv = linear(x, p[block + "self_attn.in_proj_weight"], p[block + "self_attn.in_proj_bias"])
        qkv = mg.transpose(qkv.reshape(B, T, 3, H, C // H), (2, 0, 3, 1, 4))
        q, k, v = qkv[0], qkv[1], qkv[2]
        scores = mg.matmul(q * (1 / math.sqrt(C // H)), mg.swapaxes(k, 2, 3)) + mask
        y = mg.transpose(mg.matmul(softmax(scores), v), (0, 2, 1, 3)).reshape(N, C)
        return linear(y, p[block + "self_attn.out_proj.weight"], p[block + "self_attn.out_proj.bias"])

    def loss_of(p, x, y):
        h = (mg.matmul(x, p["tok.weight"]).reshape(B, T, C) + p["pos.weight"][:T]).reshape(N, C)
        for i in range(size.layers):
            block = f"blocks.layers.{i}."
            h = h + attention(norm(h, p[block + "norm1.weight"], p[block + "norm1.bias"]), p, block)
            z = norm(h, p[block + "norm2.weight"], p[block + "norm2.bias"])
            z = relu(linear(z, p[block + "linear1.weight"], p[block + "linear1.bias"]))
            h = h + linear(z, p[block + "linear2.weight"], p[block + "linear2.bias"])
        logits = linear(norm(h, p["ln.weight"], p["ln.bias"]), p["head.weight"], p["head.bias"])
        return softmax_crossentropy(logits, y)

    p, count = {name: mg.tensor(array) for name, array in weights(size).items()}, 0
    optimizer = AdamW({name: tensor.data for name, tensor in p.items()})
    data = [(one_hot(x, size), y.reshape(-1)) for x, y in batches(size)]

    def step():
        nonlocal count
        loss = loss_of(p, *data[count % len(data)])
        loss.backward()
        optimizer.step({name: tensor.grad for name, tensor in p.items()})
        for tensor in p.values():
            tensor.null_grad()
        count += 1
        return float(loss.data)

    return step
