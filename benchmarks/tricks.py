"""What each trick of docs/performance.md gains: ``python -m benchmarks.tricks``.

Each line is one trick, left out and used, in turns; the times are the medians. Those that concern a whole process
run a training's steps in processes of their own.
"""
import argparse
import math
import os
import statistics
import subprocess
import sys
import time

import numpy

import minitorch_attn as mt
from minitorch_attn import backend, random, threads
from minitorch_attn.nn import functional as F
from minitorch_attn.nn.functional.attention import _exp_rows
from minitorch_attn.ops.broadcast import sum_axes

ROWS, WIDTH = 4096, 256
STEPS = """
import statistics, sys, time
import minitorch_attn as mt
from benchmarks.trainings import TRAININGS
mt.manual_seed(0)
optimizer, loss_of = TRAININGS[sys.argv[1]](mt)
def step():
    loss = loss_of()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
times = []
for _ in range(20):
    began = time.perf_counter()
    step()
    times.append(time.perf_counter() - began)
print(statistics.median(times[5:]))  # the first ones warm up
"""


def seconds_of_training(name, **variables):
    """The median time of a step, in a process with these variables in its environment."""
    got = subprocess.run([sys.executable, "-c", STEPS, name], env={**os.environ, **variables}, text=True,
                         capture_output=True, check=True)
    return float(got.stdout)


def both_ways(f, *shapes):
    """A function that takes `f` of random tensors forward and backward."""
    inputs = [mt.randn(*shape).requires_grad_() for shape in shapes]
    g = mt.randn(f(*inputs).shape)
    return lambda: f(*inputs).backward(g)


def softmax(x):
    """Softmax of elementary operations."""
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def cross_entropy(x):
    """Cross-entropy of elementary operations: the mean over rows whose target is class 0."""
    shifted = x - x.amax(-1, keepdim=True)
    return (shifted.exp().sum(-1).log() - shifted[:, 0]).mean()


def layer_norm(x):
    """To mean 0 and variance 1."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def gelu(x):
    """x Phi(x)."""
    return x * (1 + (x * 0.5**0.5).erf()) * 0.5


def attention(q, k, v):
    """The weights, and then the values."""
    return softmax(q @ k.transpose(-1, -2) * q.shape[-1]**-0.5) @ v


def apart(packed):
    """Attention of queries, keys and values that lie side by side, taken apart first."""
    q, k, v = packed.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2)


def fused():
    """Kernels whose backward is one formula, against elementary operations."""
    x, heads = (ROWS, WIDTH), (32, 4, 65, 16)
    zeros = mt.zeros(ROWS, dtype=mt.int64)
    yield "softmax in one kernel", both_ways(softmax, x), both_ways(lambda x: F.softmax(x, -1), x)
    yield "cross-entropy in one kernel", both_ways(cross_entropy, x), both_ways(lambda x: F.cross_entropy(x, zeros), x)
    yield "layer norm in one kernel", both_ways(layer_norm, x), both_ways(lambda x: F.layer_norm(x, (WIDTH,)), x)
    yield "GELU in one kernel", both_ways(gelu, x), both_ways(F.gelu, x)
    yield "attention in one kernel", both_ways(attention, *[heads] * 3), both_ways(F.scaled_dot_product_attention,
                                                                                  *[heads] * 3)
    packed = 32, 16, 3, 4, 16
    yield "queries, keys, values side by side", both_ways(apart, packed), both_ways(F.packed_attention, packed)


def arrays():
    """Ways to say the same to NumPy."""
    rng = numpy.random.default_rng(0)
    a, ones = rng.standard_normal((ROWS, 64), dtype="f4"), numpy.ones(64, "f4")
    yield "row sums by a product with ones", lambda: a.sum(-1), lambda: a @ ones
    b = a.reshape(-1, 8, 64)
    yield "sums over a middle axis by products", lambda: b.sum(1), lambda: sum_axes(b, (1,))
    column, row = a[:, :1].copy(), a[:1].copy()
    yield "outer product with an inner zero", lambda: column * row, lambda: backend.matrix_product(column, row)
    short = rng.standard_normal((ROWS, 16), dtype="f4")
    yield "maxima of short rows by columns", lambda: short.max(-1, keepdims=True), lambda: backend.row_max(short)
    scores, key_ones = rng.standard_normal((32, 4, 65, 65), dtype="f4"), numpy.ones((65, 1), "f4")
    yield ("no row maxima where scores are moderate",
           lambda: numpy.exp(scores - scores.max(-1, keepdims=True)) @ key_ones, lambda: _exp_rows(scores.copy()))
    yield "masks of 16-bit numbers", lambda: mt.rand(ROWS, WIDTH) >= 0.1, lambda: random.keep_mask((ROWS, WIDTH), 0.1)
    ids, table = rng.integers(0, 1000, 2 * ROWS), numpy.zeros((1000, WIDTH), "f4")
    g = numpy.ones((2 * ROWS, WIDTH), "f4")
    yield ("an embedding's gradient on a flat index", lambda: numpy.add.at(table, ids, g),
           lambda: backend.add_rows(table, ids, g))
    yield ("names of the array library kept (1000)", lambda: [type(backend.xp).__getattr__(backend.xp, "exp")
                                                              for _ in range(1000)],
           lambda: [backend.xp.exp for _ in range(1000)])


def in_threads():
    """Large kernels as a whole, and in parts by several threads."""
    def whole(f):
        def run():
            large, threads.LARGE = threads.LARGE, math.inf
            try:
                f()
            finally:
                threads.LARGE = large
        return run

    gelu = both_ways(F.gelu, (ROWS, WIDTH))
    attention = both_ways(F.scaled_dot_product_attention, *[(64, 4, 65, 16)] * 3)
    yield "GELU in parts, in threads", whole(gelu), gelu
    yield "attention in parts, in threads", whole(attention), attention


def optimizers():
    """AdamW over one buffer, and over the parameters one by one."""
    def step(split):
        parameters = [mt.nn.Parameter(mt.randn(64, 64)) for _ in range(30)]
        for p in parameters:
            p.grad = mt.randn(64, 64)
        return mt.optim.AdamW([{"params": [p]} for p in parameters] if split else parameters).step

    yield "AdamW over one flat buffer", step(True), step(False)


def seconds(f):
    """The time of a call, out of as many as take some milliseconds."""
    count, spent = 0, 0.0
    began = time.perf_counter()
    while spent < 0.01:
        f()
        count, spent = count + 1, time.perf_counter() - began
    return spent / count


def main():
    """Print a table: a line a trick."""
    argparse.ArgumentParser(prog="python -m benchmarks.tricks", description=__doc__.splitlines()[0]).parse_args()
    print(f"{mt.get_num_threads()} threads\n{'trick':42}{'without':>12}{'with':>12}{'ratio':>8}")

    def show(name, pairs):
        without, used = (statistics.median(column) for column in zip(*pairs))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{name:42}{1e3 * without:9.3f} ms{1e3 * used:9.3f} ms{ratio:8.2f}", flush=True)

    for name, variables in (("freed memory kept (a step of vit)", {"MINITORCH_MALLOC": "0"}),
                            ("idle threads asleep soon (a step of vit)", {"OPENBLAS_THREAD_TIMEOUT": "26"})):
        show(name, [(seconds_of_training("vit", **variables), seconds_of_training("vit")) for _ in range(5)])
    for tricks in (fused, arrays, in_threads, optimizers):
        for name, without, used in tricks():
            seconds(without), seconds(used)
            show(name, [(seconds(without), seconds(used)) for _ in range(15)])


if __name__ == "__main__":
    main()
