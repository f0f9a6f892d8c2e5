"""DeZero: it has no product of stacks of matrices and no layer norm, so these are its Function, as its book teaches.

Its softmax_cross_entropy turns the backward pass to float64, so the loss is a Function, too. It uses the name
numpy.int, which NumPy dropped.
"""
import math

import numpy

numpy.int = int

import dezero  # noqa: E402
import dezero.functions as F  # noqa: E402

from .shared import AdamW, batches, causal_mask, one_hot, weights  # noqa: E402

__all__ = ["training"]


class StackedProduct(dezero.Function):
    """(..., m, k), (..., k, n) -> (..., m, n), times a number."""

    def __init__(self, factor=1.0):
        self.factor = factor

    def forward(self, a, b):
        return numpy.matmul(a * self.factor, b)

    def backward(self, g):
        a, b = (x.data.swapaxes(-1, -2) for x in self.inputs)
        g = g.data * self.factor
        return dezero.Variable(numpy.matmul(g, b)), dezero.Variable(numpy.matmul(a, g))


class Slice(dezero.Function):
    """x[key] for a key of slices, without the loop of DeZero's own, which is for keys of any kind."""

    def __init__(self, *key):
        self.key = key

    def forward(self, x):
        return x[self.key]

    def backward(self, g):
        gx = numpy.zeros_like(self.inputs[0].data)
        gx[self.key] = g.data
        return dezero.Variable(gx)


class LayerNorm(dezero.Function):
    """(x - mean) / sqrt(variance + eps), over the last axis."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdims=True)
        self.inverse = 1 / numpy.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        self.y = centred * self.inverse
        return self.y

    def backward(self, g):
        g, y = g.data, self.y
        g = (g - g.mean(-1, keepdims=True) - y * (g * y).mean(-1, keepdims=True)) * self.inverse
        return dezero.Variable(g)


class CrossEntropy(dezero.Function):
    """Mean of -log softmax(x)[target]; its derivative is (softmax(x) - one-hot target) / N."""

    def forward(self, x, target):
        x = x - x.max(-1, keepdims=True)
        p = numpy.exp(x)
        total = p.sum(-1, keepdims=True)
        rows = numpy.arange(len(x))
        self.gx = p / total
        self.gx[rows, target] -= 1
        self.gx /= len(x)
        return (numpy.log(total[:, 0]) - x[rows, target]).mean()

    def backward(self, g):
        return dezero.Variable(self.gx * g.data), None


def training(size):
    """The step of a GPT's training."""
    B, T, C, H, N = size.batch, size.tokens, size.width, size.heads, size.batch * size.tokens
    mask = numpy.broadcast_to(causal_mask(T), (B, H, T, T))  # or its gradient would be summed, for nothing

    def linear(x, w, b):
        return F.linear(x, w.T, b)

    def norm(x, w, b):
        return LayerNorm()(x) * w + b

    def attention(x, p, block):
        qkv = linear(x, p[block + "self_attn.in_proj_weight"], p[block + "self_attn.in_proj_bias"])
        q, k, v = (heads(Slice(slice(None), slice(i * C, (i + 1) * C))(qkv)) for i in range(3))
        scores = StackedProduct(1 / math.sqrt(C // H))(q, F.transpose(k, (0, 1, 3, 2))) + mask
        y = F.transpose(StackedProduct()(F.softmax(scores, axis=-1), v), (0, 2, 1, 3))
        return linear(F.reshape(y, (N, C)), p[block + "self_attn.out_proj.weight"],
                      p[block + "self_attn.out_proj.bias"])

    def heads(x):
        return F.transpose(F.reshape(x, (B, T, H, C // H)), (0, 2, 1, 3))

    def loss_of(p, x, y):
        h = F.reshape(F.matmul(x, p["tok.weight"]), (B, T, C)) + Slice(slice(T))(p["pos.weight"])
        h = F.reshape(h, (N, C))
        for i in range(size.layers):
            block = f"blocks.layers.{i}."
            h = h + attention(norm(h, p[block + "norm1.weight"], p[block + "norm1.bias"]), p, block)
            z = norm(h, p[block + "norm2.weight"], p[block + "norm2.bias"])
            z = F.relu(linear(z, p[block + "linear1.weight"], p[block + "linear1.bias"]))
            h = h + linear(z, p[block + "linear2.weight"], p[block + "linear2.bias"])
        logits = linear(norm(h, p["ln.weight"], p["ln.bias"]), p["head.weight"], p["head.bias"])
        return CrossEntropy()(logits, y)

    p, count = {name: dezero.Parameter(array) for name, array in weights(size).items()}, 0
    optimizer = AdamW({name: parameter.data for name, parameter in p.items()})
    data = [(one_hot(x, size), y.reshape(-1)) for x, y in batches(size)]

    def step():
        nonlocal count
        for parameter in p.values():
            parameter.cleargrad()
        loss = loss_of(p, *data[count % len(data)])
        loss.backward()
        optimizer.step({name: parameter.grad.data for name, parameter in p.items()})
        count += 1
        return float(loss.data)

    return step
