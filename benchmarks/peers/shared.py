"""What every peer starts from: weights, batches, and AdamW for those that have none."""
import math

import numpy

__all__ = ["LEARNING_RATE", "AdamW", "batches", "causal_mask", "one_hot", "weights"]

LEARNING_RATE = 3e-3


def weights(size):
    """The parameters of a GPT as NumPy arrays, by PyTorch's names; linear weights are (out, in)."""
    rng, C = numpy.random.default_rng(0), size.width
    shapes = {"tok.weight": (size.vocabulary, C), "pos.weight": (size.longest, C)}
    for i in range(size.layers):
        block = f"blocks.layers.{i}."
        shapes.update({
            f"{block}self_attn.in_proj_weight": (3 * C, C), f"{block}self_attn.in_proj_bias": (3 * C,),
            f"{block}self_attn.out_proj.weight": (C, C), f"{block}self_attn.out_proj.bias": (C,),
            f"{block}linear1.weight": (4 * C, C), f"{block}linear1.bias": (4 * C,),
            f"{block}linear2.weight": (C, 4 * C), f"{block}linear2.bias": (C,),
            f"{block}norm1.weight": (C,), f"{block}norm1.bias": (C,),
            f"{block}norm2.weight": (C,), f"{block}norm2.bias": (C,)})
    shapes.update({"ln.weight": (C,), "ln.bias": (C,), "head.weight": (size.vocabulary, C),
                   "head.bias": (size.vocabulary,)})
    made = {}
    for name, shape in shapes.items():
        if len(shape) == 2:
            made[name] = rng.standard_normal(shape, numpy.float32) * numpy.float32(1 / math.sqrt(C))
        else:
            gain = name.endswith("weight")  # of a layer norm
            made[name] = numpy.full(shape, float(gain), numpy.float32)
    return made


def batches(size):
    """Batches of ids (B, T) and of the ids that come next, to be seen in turn."""
    rng, T = numpy.random.default_rng(1), size.tokens
    text = rng.integers(0, size.vocabulary, 6 * T)
    made = []
    for _ in range(32):
        starts = rng.integers(0, len(text) - T, size.batch)
        made.append(tuple(numpy.stack([text[i + shift:i + shift + T] for i in starts]) for shift in (0, 1)))
    return made


def causal_mask(T):
    """What is added to the scores (T, T): nothing where a key may be seen, a very negative number elsewhere."""
    return numpy.triu(numpy.full((T, T), -1e9, numpy.float32), 1)


def one_hot(ids, size):
    """(B, T) -> (B*T, V): a product with it is an embedding whose derivative is a product, too, and no loop."""
    return numpy.eye(size.vocabulary, dtype=numpy.float32)[ids.reshape(-1)]


class AdamW:
    """On NumPy arrays by name, which it changes in place."""

    def __init__(self, arrays, lr=LEARNING_RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        self.arrays, self.lr, self.betas, self.eps, self.decay, self.t = arrays, lr, betas, eps, weight_decay, 0
        self.m = {name: numpy.zeros_like(p) for name, p in arrays.items()}
        self.v = {name: numpy.zeros_like(p) for name, p in arrays.items()}

    def step(self, gradients):
        self.t += 1
        (b1, b2), t = self.betas, self.t
        c1, c2 = 1 - b1**t, math.sqrt(1 - b2**t)
        for name, p in self.arrays.items():
            g, m, v = gradients[name], self.m[name], self.v[name]
            assert g.dtype == numpy.float32, f"the gradient of {name} came as {g.dtype}"
            p *= 1 - self.lr * self.decay
            m *= b1
            m += (1 - b1) * g
            v *= b2
            v += (1 - b2) * (g * g)
            p -= self.lr / c1 * m / (numpy.sqrt(v) / c2 + self.eps)
