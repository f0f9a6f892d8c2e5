"""The function at one set of values of its inputs: its results and its Jacobian, the true one and backward's.

The Jacobian is the table of all slopes: a row for each number in the results, a column for each entry of an input.
"""
import functools
import itertools

import numpy

from ..autograd import Tensor
from ..backend import to_device
from ..grad_mode import no_grad
from .graph import flat
from .numeric import rounding_noise, slopes

__all__ = ["Point", "second_point"]

MAGNITUDE = 1.7  # of the one-hot g that asks backward for one row: not 1, so that a backward that ignores g is seen


class Point:
    """The function at one set of values of its inputs.

    arrays : the arguments' values; a method that changes them puts them back
    constants : {number: array} of the floating-point inputs that are not checked
    results, y : the results that count, as arrays and as one flat array (M,)
    noise : (M,), the size of their rounding errors
    true(i), doubt(i) : (M, N_i), slopes of the results by the entries of argument i from finite differences, and how
        far off they may be
    wrong(i) : (M, N_i), the same slopes from backward, one result at a time
    """

    def __init__(self, subject, arrays, constants, rng, inspected=False):
        self.subject, self.arrays, self.constants, self.inspected = subject, arrays, constants, inspected
        self.results = subject.results(arrays, constants)
        self.y = flat(self.results)
        self.noise = rounding_noise(self.values, arrays, rng)
        sizes = numpy.cumsum([0] + [r.size for r in self.results])
        self.blocks = [slice(start, end) for start, end in itertools.pairwise(sizes)]
        for r, block in zip(self.results, self.blocks):
            if r.dtype.itemsize < 8:
                largest = numpy.abs(self.y[block][numpy.isfinite(self.y[block])]).max(initial=0)
                self.noise[block] = numpy.maximum(self.noise[block], float(numpy.finfo(r.dtype).eps) * largest)
        self.known, self.from_backward = {}, None

    def values(self, changes=None, replace=None):
        """The flat results; while some arguments have other values, `changes` {number: array}, or some inputs."""
        arrays = [(changes or {}).get(k, a) for k, a in enumerate(self.arrays)]
        return self.subject.values(arrays, {**self.constants, **(replace or {})})

    @functools.cached_property
    def graph(self):
        """One recorded run here."""
        return self.subject.graph(self.arrays, self.inspected, self.constants)

    def gradients(self, us):
        """Backward's gradients for cotangents `us`: for each a list with the flat gradient of every argument."""
        return [[numpy.zeros(a.size) if g is None else flat([g]) for g, a in zip(self.graph.gradients(u), self.arrays)]
                for u in us]

    def cotangents(self, rng, count):
        """Random weights (K, M) for the results: for each result tensor by itself `count`, zero for the others."""
        us = numpy.zeros((count * len(self.blocks), len(self.y)))
        for k, block in enumerate(self.blocks):
            us[count * k:count * (k + 1), block] = rng.standard_normal((count, len(self.y[block])))
        return us * numpy.isfinite(self.y)

    def true(self, i):
        return self.measured(i)[0]

    def doubt(self, i):
        return self.measured(i)[1]

    def measured(self, i):
        if i not in self.known:
            found = slopes(lambda _: self.values(), self.arrays[i], self.noise)
            self.known[i] = numpy.nan_to_num(found.value.T), numpy.nan_to_num(found.error.T)
        return self.known[i]

    def jacobian(self, values, x, entries=None):
        """Slopes of ``values()``, a flat array, by the entries of `x`, or by some of them."""
        noise = self.noise if values().shape == self.noise.shape else self.noise.max(initial=0)
        return numpy.nan_to_num(slopes(lambda _: values(), x, noise, entries=entries).value.T)

    def changed(self, changes):
        """The function `values` while arguments have the values `changes`: {number: array}."""
        return lambda: self.values(changes)

    def replaced(self, replace):
        """The function `values` while inputs (a mask, say) have the values `replace`: {number: array}."""
        return lambda: self.values(None, replace)

    def wrong(self, i):
        if self.from_backward is None:
            rows = self.gradients(MAGNITUDE * unit for unit in numpy.eye(len(self.y)))
            self.from_backward = [numpy.stack([r[k] for r in rows]) / MAGNITUDE for k in range(len(self.arrays))]
        return self.from_backward[i]

    def is_linear(self, i):
        """Whether backward's gradient for a random g, and for -g, is what its Jacobian gives: linear in g."""
        u = numpy.random.default_rng(1).standard_normal(len(self.y))
        A, near = self.wrong(i), 1e-9 if all(r.dtype.itemsize == 8 for r in self.results) else 1e-4
        scale = numpy.abs(u) @ numpy.abs(A) + 1e-6 * numpy.abs(A).max(initial=0)
        return all(bool((numpy.abs(g[i] - v @ A) <= near * scale).all())
                   for v, g in zip((u, -u), self.gradients((u, -u))))

    def by_slot(self, i, slot):
        """The true Jacobian by argument i, passed as several inputs, if only the one at `slot` changes."""
        changed = self.arrays[i].copy()
        return self.jacobian(self.replaced({slot: changed}), changed)

    def uses(self, i):
        """The names of the operations that read argument i, in order."""
        ops = []
        self.run_watched(i, lambda op, leaf: ops.append(op))
        return ops

    def by_use(self, i, number):
        """The true Jacobian by argument i if only the operation that reads it as the `number`-th sees the change.

        Every operation reads its inputs before it hands its result to ``Tensor.from_op``, so from one such call with
        this tensor to the next all reads belong to one operation.
        """
        usual, changed = to_device(self.arrays[i]), self.arrays[i].copy()

        def values():
            count = 0

            def after_each(op, leaf):
                nonlocal count
                count += 1
                leaf.array = to_device(changed) if count == number else usual

            first = changed if number == 0 else usual
            return flat(self.subject.counted(self.run_watched(i, after_each, to_device(first))))

        return self.jacobian(values, changed)

    def run_watched(self, i, after_each, start=None):
        """Run the function and call ``after_each(name, tensor)`` for every operation that has read argument i.

        The first operation reads the array `start` there.
        """
        leaves = self.subject.leaves(self.arrays)
        leaf, original, usual = leaves[i], Tensor.from_op, to_device(self.arrays[i])

        def from_op(op, array, inputs, backward=None, view=False):
            if any(x is leaf for x in inputs):
                after_each(op, leaf)
            return original(op, array, inputs, backward, view)

        leaf.array = usual if start is None else start
        Tensor.from_op = staticmethod(from_op)
        try:
            with no_grad():
                return self.subject.run(leaves, self.constants)
        finally:
            Tensor.from_op = staticmethod(original)
            leaf.array = usual


def second_point(subject, rng):
    """Other values of all floating-point inputs, as (arrays, constants); None if none are found in the domain."""
    was_finite, spread = numpy.isfinite(subject.values(subject.arrays)), 0.3
    for _ in range(12):
        arrays = [moved(a, spread, rng) for a in subject.arrays]
        constants = {slot: a if is_mask(a) else moved(a, spread, rng) for slot, a in subject.constants.items()}
        try:
            y = subject.values(arrays, constants)
            if y.shape == was_finite.shape and numpy.isfinite(y[was_finite]).all():
                return arrays, constants
        except (ArithmeticError, ValueError, RuntimeError, IndexError):
            pass
        spread /= 2
    return None


def moved(a, spread, rng):
    """`a` with every entry moved by up to `spread` of their root mean square."""
    finite = a[numpy.isfinite(a)]
    size = numpy.sqrt(numpy.mean(finite ** 2)) if finite.any() else 1.0
    return numpy.asarray(a + spread * size * rng.uniform(-1, 1, a.shape))


def is_mask(a):
    """Whether an array is an additive mask: zeros and minus infinity."""
    return bool(((a == 0) | (a == -numpy.inf)).all()) and a.size > 0
