"""What a hypothesis about the cause is tested on."""
import functools

import numpy

from .numeric import slopes

__all__ = ["Case"]

EXPLAINED = 1e-6  # a candidate must reproduce the gradient of each entry up to this part of its error, at most


class Case:
    """One argument at one point.

    J, A : (M, N), the true and the wrong Jacobian; M results, N entries of the argument
    error : (M, N), their difference
    bad : (N,), the entries of the argument where they differ
    x, y : the argument and, if there is only one result, that; else None
    """

    def __init__(self, point, i):
        self.point, self.i, self.subject = point, i, point.subject
        self.argument = point.subject.arguments[i]
        self.x = point.arrays[i]
        self.y = point.results[0] if len(point.results) == 1 else None
        self.J, self.A, self.doubt = point.true(i), point.wrong(i), point.doubt(i).max(axis=0, initial=0)
        self.error = numpy.abs(self.A - self.J)
        self.size = numpy.abs(self.J).max(initial=0)
        self.way = numpy.random.default_rng(0).standard_normal(self.x.shape)
        own = numpy.maximum(numpy.abs(self.J), numpy.abs(self.A)).max(axis=0, initial=0)
        worst = self.error.max(axis=0, initial=0)
        self.bad = worst > 1e-7 * own + 10 * self.doubt
        # as near as the differences allow; where the gradient is right, the candidate must be right as well
        self.allowed = numpy.where(self.bad, numpy.minimum(EXPLAINED * worst, 1e-8 * worst + 20 * self.doubt),
                                   1e-7 * own + 20 * self.doubt) + 1e-16 * self.size

    def explains(self, candidate):
        """Whether the matrix `candidate` (None for none) is what backward computes, entry by entry of the argument."""
        return candidate is not None and candidate.shape == self.A.shape and self.bad.any() and bool(
            (numpy.abs(self.A - candidate) <= self.allowed).all())

    def placed(self, order):
        """J with its columns in another order, if it may be backward's: its worst row decides, otherwise None."""
        row = int(self.error.max(axis=1, initial=0).argmax()) if self.error.size else 0
        if (numpy.abs(self.A[row] - self.J[row, order]) > self.allowed).any():
            return None
        return self.J[:, order]

    def if_near(self, values, x=None):
        """The Jacobian of ``values()`` by `x` (the argument's array unless given), if it may be backward's.

        Its slope along one random direction decides; otherwise, and where the function is not defined, None.
        """
        x = self.x if x is None else x
        start, way = x.copy(), self.way
        try:
            y = values()
            if y.shape != self.point.y.shape or not numpy.isfinite(y).all():
                return None

            def along(t):
                x[...] = start + t[0] * way
                return values()

            slope = slopes(along, numpy.zeros(1), self.point.noise, rounds=(4,)).value[0]
            x[...] = start
            found = self.A @ way.reshape(-1)
            scale = numpy.abs(self.error @ numpy.abs(way.reshape(-1))).max(initial=1e-300)
            if numpy.abs(slope - found).max(initial=0) > 1e-4 * scale:
                return None
            return self.point.jacobian(values, x)
        except (ArithmeticError, ValueError, RuntimeError, IndexError, TypeError):
            return None
        finally:
            x[...] = start

    @functools.cached_property
    def paths(self):
        """(name, Jacobian) of the ways to the result, if several operations or inputs read the tensor; else []."""
        slots, point = self.argument.slots, self.point
        if len(slots) > 1:
            found = [(f"the input {self.subject.names[slot]}", point.by_slot(self.i, slot)) for slot in slots]
        else:
            ops = point.uses(self.i)
            several = range(len(ops)) if 2 <= len(ops) <= 12 else ()
            found = [(f"use {k + 1} of {len(ops)} ({ops[k]})", point.by_use(self.i, k)) for k in several]
        # an operation that reads it in several steps gives no sum
        complete = found and numpy.allclose(sum(J for _, J in found), self.J, rtol=1e-7, atol=1e-7 * self.size)
        return found if complete else []

    def only_bad(self, matrix):
        """`matrix` in the columns where the gradient is wrong, and J in the others."""
        return numpy.where(self.bad, matrix, self.J)

    @property
    def alike(self):
        """Whether there is one result, of the argument's own shape."""
        return self.y is not None and self.y.shape == self.x.shape

    def others(self):
        """(number, name, array) of the other arguments."""
        return [(k, a.name, self.point.arrays[k]) for k, a in enumerate(self.subject.arguments) if k != self.i]

    def other_inputs(self):
        """(function of {key: array} that gives the altered function, key, name, array) of the other float inputs."""
        found = [(self.point.changed, k, name, other) for k, name, other in self.others()]
        constants = self.point.constants.items()
        return found + [(self.point.replaced, slot, self.subject.names[slot], a) for slot, a in constants]
