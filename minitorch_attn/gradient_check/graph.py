"""One recorded run of the function, and the gradients that its backward functions make of cotangents."""
import itertools
import math
import os
import traceback
from typing import NamedTuple

import numpy

from ..autograd import Partial, Tensor, _reverse_order
from ..backend import to_device, to_host, xp
from ..ops.broadcast import unbroadcast


def flat(arrays):
    """Several arrays as one flat float64 array on the host."""
    return numpy.concatenate([to_host(a).astype("float64").reshape(-1) for a in arrays] or [numpy.zeros(0)])


class BackwardError(Exception):
    """What a backward function raised, and where."""

    def __init__(self, op, error):
        place = traceback.extract_tb(error.__traceback__)[-1]
        super().__init__(f"the backward of {op} raised {type(error).__name__}: {error} "
                         f"({os.path.basename(place.filename)}, line {place.lineno})")


class Problem(NamedTuple):
    """A gradient of the wrong form.

    kind : "wrong_form", "wrong_shape", "wrong_dtype" or "no_gradient"
    message : a sentence
    cause : what explains it if the mended gradient has the right values: a cause, or "unclear" if it was not mended
    reached : numbers of the leaves that the gradient is on its way to
    """
    kind: str
    message: str
    cause: str
    reached: tuple


class Graph:
    """One recorded run: its leaves and results.

    problems : list of Problem, what is wrong with the form of what backward functions returned. Looked for only when
        `inspected`; then it is also mended where possible, so that the values can be checked.
    """

    def __init__(self, leaves, results, inspected=False):
        self.leaves, self.results, self.problems = leaves, results, []
        self.sizes = numpy.cumsum([0] + [r.array.size for r in results])
        if inspected:
            for node in {n for r in results for n in _reverse_order([r.graph_node()])[0]}:
                if node.backward is not None:
                    node.backward = self.inspect(node, node.backward)

    def gradients(self, cotangent):
        """The gradient of <results, cotangent> by each leaf, or None where none arrives; the very arrays.

        The ``.grad`` of other tensors that the function uses stays as it is.
        """
        nodes = _reverse_order([r.graph_node() for r in self.results])[0]
        owners = [tensor for tensor in (n.owner() for n in nodes if n.owner is not None) if tensor is not None]
        before = [tensor.grad for tensor in owners]
        for tensor in (*owners, *self.leaves):
            tensor.grad = None
        try:
            for r, start, end in zip(self.results, self.sizes, self.sizes[1:]):
                u = cotangent[start:end]
                if u.any() or not cotangent.any():
                    r.backward(Tensor.wrap(to_device(u.reshape(r.shape)).astype(r.dtype)), retain_graph=True)
            return [None if leaf.grad is None else leaf.grad.array for leaf in self.leaves]
        finally:
            for tensor, grad in zip(owners, before):
                tensor.grad = grad
            for leaf in self.leaves:
                leaf.grad = None

    def inspect(self, node, backward):
        """The function `backward` of `node`, with what it returns looked at and mended."""
        def inspected(g):
            try:
                results = backward(g)
            except Exception as error:
                raise BackwardError(node.op, error) from error
            count = len(node.parents)
            if not isinstance(results, (tuple, list)) or len(results) != count:
                came = f"{len(results)}" if isinstance(results, (tuple, list)) else f"a bare {type(results).__name__}"
                results = tuple(results) if isinstance(results, (tuple, list)) else (results,)
                self.add("wrong_form", f"the backward of {node.op} returned {came} where a tuple of {count} is "
                         "needed: one gradient for each input, and None for one that has none", "wrong_form", node)
                results = (*results, *[None] * count)[:count]
            return tuple([gx if parent is None else self.mended(node, parent, gx, i)
                          for i, (parent, gx) in enumerate(zip(node.parents, results))])
        return inspected

    def mended(self, node, parent, gx, number):
        """The gradient `gx` for input `number` of `node`, with the shape and dtype that it should have."""
        told = f"the backward of {node.op} returned for its input {number}"
        if gx is None:
            self.add("no_gradient", f"{told} None, which says that the result does not depend on it", "zero_gradient",
                     parent)
            return None
        if isinstance(gx, Partial):
            return gx
        if not isinstance(gx, (xp.ndarray, numpy.generic)):
            self.add("wrong_form", f"{told} a {type(gx).__name__}, where an array is needed", "wrong_form", parent)
            gx = getattr(gx, "array", gx)
            if not isinstance(gx, xp.ndarray):
                gx = numpy.broadcast_to(numpy.asarray(gx, dtype="float64"), parent.shape)
        gx = to_device(gx)
        if gx.shape != parent.shape:
            told_shape = f"{told} a gradient of shape {gx.shape}, and that input has shape {parent.shape}"
            gx, cause = reshaped(gx, parent.shape)
            self.add("wrong_shape", told_shape, cause, parent)
        if gx.dtype != parent.dtype:
            self.add("wrong_dtype", f"{told} a gradient of {gx.dtype}, and that input holds {parent.dtype}",
                     "wrong_dtype", parent)
            gx = gx.astype(parent.dtype)
        return gx

    def add(self, kind, message, cause, node):
        """Note a problem with the gradient that goes to `node`, once."""
        behind = set(_reverse_order([node])[0])
        reached = tuple(i for i, leaf in enumerate(self.leaves) if leaf.node in behind)
        problem = Problem(kind, message, cause, reached)
        if problem not in self.problems:
            self.problems.append(problem)


def reshaped(g, shape):
    """The gradient `g` forced into `shape`, and the cause that this would be: repeated axes summed, axes reordered."""
    try:
        if numpy.broadcast_shapes(g.shape, shape) == g.shape:
            return unbroadcast(g, shape), "unsummed_broadcast"
    except ValueError:
        pass
    for order in itertools.permutations(range(g.ndim)) if g.ndim < 5 else ():
        if tuple(g.shape[i] for i in order) == shape:
            return g.transpose(order), "transpose"
    return g.reshape(shape) if g.size == math.prod(shape) else numpy.zeros(shape, g.dtype), "wrong_shape"
