"""What the search for a cause has to go on: the whole Jacobian, true and as backward has it, at two points."""
import numpy

from ..autograd import Tensor
from ..backend import to_device
from ..grad_mode import no_grad
from .graph import flat
from .numeric import rounding_noise, slopes

EXPLAINED = 1e-6  # a candidate must reproduce the wrong gradient up to this part of the error


class Point:
    """The function at one set of values of its arguments.

    true(i) : (M, N_i), slopes of the M results by the entries of argument i, from finite differences
    wrong(i) : (M, N_i), the same from backward, one result at a time
    magnitude : the cotangent of that result, not 1, so that a backward that ignores its cotangent is seen
    """

    def __init__(self, subject, arrays, magnitude, inspected, rng):
        self.subject, self.arrays, self.magnitude = subject, arrays, magnitude
        self.results = subject.results(arrays)
        self.y = flat(self.results)
        self.graph = subject.graph(arrays, inspected)
        self.noise = rounding_noise(lambda: subject.values(arrays), arrays, rng)
        self.known, self.from_backward = {}, None

    def true(self, i):
        if i not in self.known:
            self.known[i] = self.jacobian(i, lambda: self.subject.values(self.arrays))
        return self.known[i]

    def jacobian(self, i, values, x=None):
        """Slopes of ``values()``, a flat array, by the entries of `x` (argument i's array unless given)."""
        x = self.arrays[i] if x is None else x
        noise = self.noise if values().shape == self.noise.shape else self.noise.max(initial=0)
        return numpy.nan_to_num(slopes(lambda _: values(), x, noise).value.T)

    def wrong(self, i):
        if self.from_backward is None:
            rows = []
            for m in range(len(self.y)):
                unit = numpy.zeros(len(self.y))
                unit[m] = self.magnitude
                rows.append([None if g is None else flat([g]) / self.magnitude for g in self.graph.gradients(unit)])
            self.from_backward = [numpy.stack([numpy.zeros(a.size) if r[k] is None else r[k] for r in rows])
                                  for k, a in enumerate(self.arrays)]
        return self.from_backward[i]

    def altered(self, i, changes):
        """The function `values` of `Case.if_near` while other arguments have the values `changes`: {number: array}."""
        arrays = [changes.get(k, a) for k, a in enumerate(self.arrays)]
        return lambda: self.subject.values(arrays)

    def replaced(self, slot, array):
        """The same while the input number `slot` (a mask, say) is `array`."""
        return lambda: self.subject.values(self.arrays, {slot: Tensor.wrap(to_device(array))})

    def by_slot(self, i, slot):
        """The true Jacobian by argument i, passed as several inputs, if only the one at `slot` changes."""
        changed = self.arrays[i].copy()
        return self.jacobian(i, lambda: self.subject.values(self.arrays, {slot: Tensor.wrap(to_device(changed))}),
                             changed)

    def uses(self, i):
        """How many operations read argument i."""
        return self.count_uses(i, None, None)

    def by_use(self, i, number):
        """The true Jacobian by argument i if only the operation that reads it as the `number`-th sees the change."""
        changed = self.arrays[i].copy()
        return self.jacobian(i, lambda: self.count_uses(i, number, changed), changed)

    def count_uses(self, i, number, changed):
        """Run the function; with `changed`, let operation `number` read that instead, and return the flat results.

        Every operation reads its inputs before it hands its result to ``Tensor.from_op``, so from one such call with
        this tensor to the next all reads belong to one operation.
        """
        leaves, count = self.subject.leaves(self.arrays), 0
        leaf, original, usual = leaves[i], Tensor.from_op, to_device(self.arrays[i])

        def from_op(op, array, inputs, backward=None, view=False):
            nonlocal count
            if any(x is leaf for x in inputs):
                count += 1
                if changed is not None:
                    leaf.array = to_device(changed) if count == number else usual
            return original(op, array, inputs, backward, view)

        if changed is not None and number == 0:
            leaf.array = to_device(changed)
        Tensor.from_op = staticmethod(from_op)
        try:
            with no_grad():
                result = self.subject.run(leaves)
        finally:
            Tensor.from_op = staticmethod(original)
            leaf.array = usual
        return count if changed is None else self.subject.flat_results(result)


class Case:
    """One argument at one point: what a hypothesis is tested on.

    J, A : (M, N), the true and the wrong Jacobian; M results, N entries of the argument
    bad : (N,), the entries of the argument where they differ
    x, y : the argument and, if there is only one result, that; else None
    """

    def __init__(self, point, i):
        self.point, self.i, self.subject = point, i, point.subject
        self.argument = point.subject.arguments[i]
        self.x = point.arrays[i]
        self.y = point.results[0] if len(point.results) == 1 else None
        self.J, self.A = point.true(i), point.wrong(i)
        self.error = numpy.abs(self.A - self.J)
        self.size = numpy.abs(self.J).max(initial=0)
        self.way = numpy.random.default_rng(0).standard_normal(self.x.shape)
        self.bad = (self.error > 1e-7 * max(self.size, self.error.max(initial=0))).any(axis=0)

    def explains(self, candidate):
        """Whether the matrix `candidate` (None for none) is what backward computes."""
        if candidate is None:
            return False
        worst = self.error.max(initial=0)
        return candidate.shape == self.A.shape and worst > 1e-7 * self.size and bool(
            numpy.abs(self.A - candidate).max(initial=0) <= EXPLAINED * worst)

    def if_near(self, values, x=None):
        """The Jacobian of ``values()`` by `x` (the argument's array unless given), if it may be backward's.

        Its slope along one random direction decides; otherwise, and where the function is not defined, None.
        """
        x = self.x if x is None else x
        start, way = x.copy(), self.way
        try:
            y = values()
            if y.shape != self.point.y.shape:
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
            return self.point.jacobian(self.i, values, x)
        except (ArithmeticError, ValueError, RuntimeError, IndexError, TypeError):
            return None
        finally:
            x[...] = start

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


def second_point(subject, rng):
    """Other values of the arguments, near enough to lie in the function's domain."""
    spread = 0.3
    for _ in range(12):
        arrays = []
        for a in subject.arrays:
            finite = a[numpy.isfinite(a)]
            size = finite.std() if finite.size > 1 and finite.std() > 0 else numpy.abs(finite).max(initial=0) or 1.0
            moved = a.copy()
            moved += spread * size * rng.uniform(-1, 1, a.shape)
            arrays.append(moved)
        try:
            y = subject.values(arrays)
            if numpy.isfinite(y).all() or not numpy.isfinite(subject.values(subject.arrays)).all():
                return arrays
        except (ArithmeticError, ValueError, RuntimeError):
            pass
        spread /= 2
    return [a.copy() for a in subject.arrays]
