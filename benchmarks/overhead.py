"""Where the time goes: the share of matrix products in a step, and what the engine itself costs a node."""
import importlib

import numpy

from .trainings import LARGE

__all__ = ["LINKS", "NODES", "make", "product_shapes"]

LINKS = 300         # of the chain: each is a product, a sum and a tanh
NODES = 3 * LINKS


def product_shapes(size=LARGE):
    """The operands' shapes of each matrix product in a GPT's forward pass."""
    rows, C, D = size.batch * size.tokens, size.width, size.width // size.heads  # C: model width, D: that of a head
    stack, T = (size.batch, size.heads), size.tokens
    layer = [((rows, C), (C, 3 * C)), ((*stack, T, D), (*stack, D, T)), ((*stack, T, T), (*stack, T, D)),
             ((rows, C), (C, C)), ((rows, C), (C, 4 * C)), ((rows, 4 * C), (4 * C, C))]
    return size.layers * layer + [((rows, C), (C, size.vocabulary))]


def products(torch):
    """A function that does a step's matrix products and nothing else: each forward one, and its two backward ones."""
    pairs = []
    for shape_a, shape_b in product_shapes():
        a, b, g = torch.randn(*shape_a), torch.randn(*shape_b), torch.randn(*shape_a[:-1], shape_b[-1])
        pairs += [(a, b), (g, b.transpose(-1, -2)), (a.transpose(-1, -2), g)]  # y = a b, then g b^T, a^T g

    def step():
        for a, b in pairs:
            torch.matmul(a, b)

    return step


def chain(torch):
    """A function that takes a long chain of cheap operations forward and back, on arrays of four numbers."""
    x = torch.randn(4, requires_grad=True)
    a, b, g = torch.ones(4), torch.zeros(4), torch.ones(4)

    def step():
        x.grad = None
        h = x
        for _ in range(LINKS):
            h = (h * a + b).tanh()
        h.backward(g)

    return step


def chain_in_numpy():
    """The same NumPy calls without an engine: tanh' = 1 - y y, and h a passes its gradient on times a."""
    x, a, b, g = (numpy.ones(4, numpy.float32) for _ in range(4))

    def step():
        h, results = x, []
        for _ in range(LINKS):
            h = numpy.tanh(h * a + b)
            results.append(h)
        gh = g
        for y in reversed(results):
            gh = gh * (1 - y * y) * a

    return step


def nothing(ours):
    """A function that takes a chain of `NODES` operations of one input, which compute nothing, forward and back.

    What is left is the engine: to make a function for backward, to record it, and to come back to it.
    """
    x, g = ours.randn(4, requires_grad=True), ours.ones(4)

    def pass_on(h):
        def backward(gh):
            return (gh,)

        # not called a view, though it is one: most operations are none, and are not asked
        return ours.Tensor.from_op("pass_on", h.array, (h,), backward)

    def step():
        x.grad = None
        h = x
        for _ in range(NODES):
            h = pass_on(h)
        h.backward(g)
        return float(x.grad.sum())

    return step


def make(case, library):
    """The function called `case`, in `library`: "nothing" is ours alone, and of NumPy there is only the chain."""
    if library == "numpy":
        return chain_in_numpy()
    torch = importlib.import_module(library)
    torch.manual_seed(0)
    return {"products": products, "chain": chain, "nothing": nothing}[case](torch)
