"""Memory and time of attention against its length: ``python -m benchmarks.attention``.

One forward and backward pass of each kind, float32, H heads of width D. Memory is the most that was in use at once
beyond the inputs (results and gradients included), as tracemalloc counts NumPy's arrays; time is the fastest of three.
"""
import argparse
import time
import tracemalloc

import numpy

import minitorch_attn as mt
from minitorch_attn.nn import functional as F

KINDS = {
    "plain": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
    "tiled": lambda q, k, v: F.tiled_attention(q, k, v, is_causal=True),
    "window 256": lambda q, k, v: F.tiled_attention(q, k, v, window=256),
    "linear": lambda q, k, v: F.linear_attention(q, k, v, is_causal=True),
}


def inputs(T, heads, width):
    """Query, key, value and the gradient of the result."""
    rng = numpy.random.default_rng(0)
    x = [mt.tensor(rng.standard_normal((1, heads, T, width), dtype=numpy.float32)) for _ in range(4)]
    for leaf in x[:3]:
        leaf.requires_grad = True
    return x


def step(attend, q, k, v, g):
    """Forward and backward."""
    q.grad = k.grad = v.grad = None
    attend(q, k, v).backward(g)


def peak_memory(attend, T, heads=1, width=64):
    """Bytes in use at the worst moment of a step, beyond its inputs."""
    x = inputs(T, heads, width)
    tracemalloc.start()
    try:
        step(attend, *x)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def seconds(attend, T, heads=1, width=64, repeats=3):
    """The fastest of `repeats` steps."""
    x, times = inputs(T, heads, width), []
    for _ in range(repeats):
        start = time.perf_counter()
        step(attend, *x)
        times.append(time.perf_counter() - start)
    return min(times)


def main(argv=None):
    """Print a table: a line a kind and length."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attention", description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--longest-plain", type=int, default=4096, help="the plain kernel needs 10 T^2 bytes a head")
    options = parser.parse_args(argv)
    if min(options.lengths) < 1:
        parser.error("a length is at least 1")
    print(f"{'kind':12}{'T':>7}{'memory, MB':>13}{'time, ms':>11}")
    for kind, attend in KINDS.items():
        for T in options.lengths:
            if kind != "plain" or T <= options.longest_plain:
                print(f"{kind:12}{T:7}{peak_memory(attend, T) / 1e6:13.2f}{1e3 * seconds(attend, T):11.1f}")


if __name__ == "__main__":
    main()
