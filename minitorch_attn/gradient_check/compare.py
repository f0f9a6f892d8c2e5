"""Backward against finite differences at one point: entry by entry, or along random directions."""
from typing import NamedTuple

import numpy

from .numeric import slopes

__all__ = ["Comparison", "Found"]

COTANGENTS = 2  # random weightings of each result


class Found(NamedTuple):
    """What a comparison found; N entries or directions, K cotangents.

    analytic, numeric : (N, K), the gradient by backward and by differences
    allowed, doubt : (N, K), by how much these may differ, and how far off the differences may be
    kinks, edge, unresolved : (N,), where there is nothing to compare with: on a kink, with backward's gradient between
        the slopes to both sides; at the edge of the domain; where the differences do not converge
    step : (N,), the steps that the differences were taken at
    """
    analytic: numpy.ndarray
    numeric: numpy.ndarray
    allowed: numpy.ndarray
    doubt: numpy.ndarray
    kinks: numpy.ndarray
    edge: numpy.ndarray
    unresolved: numpy.ndarray
    step: numpy.ndarray

    @property
    def compared(self):
        """(N,), where there was something to compare with."""
        return ~(self.kinks | self.edge | self.unresolved)

    @property
    def excess(self):
        """(N, K), the error in units of what is allowed; 0 where nothing was compared."""
        off = numpy.abs(self.analytic - self.numeric) / numpy.maximum(self.allowed, 1e-300)
        return numpy.where(self.compared[:, None], numpy.nan_to_num(off, nan=1e300), 0.0)

    @property
    def wrong(self):
        """(N,), where backward is wrong."""
        return (self.excess > 1).any(axis=1)

    @property
    def steep(self):
        """Whether the true gradient is distinct from zero anywhere that was compared."""
        return bool((numpy.abs(self.numeric) > self.allowed)[self.compared].any())


class Comparison:
    """Compares at a Point.

    us : random cotangents (K, M)
    analytic : for each of them, a list with the flat gradient of every argument, from backward
    atol, rtol : what was asked for, or None
    """

    def __init__(self, point, rng, first_step, atol=None, rtol=None, us=None, analytic=None):
        self.point, self.rng, self.first_step, self.atol, self.rtol = point, rng, first_step, atol, rtol
        self.us = point.cotangents(rng, COTANGENTS) if us is None else us
        self.analytic = point.gradients(self.us) if analytic is None else analytic
        sizes = [numpy.abs(a[numpy.isfinite(a)]).max(initial=0) for a in point.arrays]
        y = numpy.where(numpy.isfinite(point.y), point.y, 0)
        for block in point.blocks:
            y[block] += not y[block].any()  # a result of zeros tells no size
        self.usual = numpy.abs(self.us) @ numpy.abs(y) / (max(sizes, default=0) or 1.0)  # (K,), a slope's usual size

    def entries(self, i, only=None):
        """`Found` for every entry of argument i, or for `only` these, numbered in reading order."""
        point = self.point
        found = slopes(lambda _: point.values(), point.arrays[i], point.noise, self.first_step, only)
        analytic = numpy.stack([g[i] for g in self.analytic], axis=1)
        analytic = analytic if only is None else analytic[only]
        weights = numpy.abs(self.us).T  # (M, K)
        size = numpy.abs(found.value)
        made_of = size @ weights
        # the largest slope among all that act on the same results: backward rounds what they have in common
        acts, most = size > found.error, size.max(axis=0, initial=0)
        with_it = numpy.stack([numpy.where(acts, most * u, 0).max(axis=1, initial=0) for u in weights.T], axis=1)
        rounding = 1e-8 * made_of + 1e-10 * with_it + 1e-14 * made_of.max(axis=0, initial=0)
        between = self.between(found, analytic)
        return self.found(found, analytic, made_of, rounding, between, self.us)

    def found(self, found, analytic, made_of, rounding, between, us):
        """Put `Found` together from measured slopes, backward's gradient, and what the slopes are sums of."""
        numeric, doubt = found.value @ us.T, found.error @ numpy.abs(us).T
        if self.atol is not None or self.rtol is not None:
            allowed = (self.atol or 0.0) + (self.rtol or 0.0) * numpy.abs(numeric)
        else:
            allowed = 10 * doubt + rounding + 1e-15 * self.usual
        counted = (us != 0).any(axis=0)
        edge, kink = (found.edge & counted).any(axis=1), (found.kink & counted).any(axis=1)
        vague = 10 * doubt > numpy.maximum(0.1 * made_of, 1e-2 * made_of.max(axis=0, initial=0))
        rounded = numpy.abs(us) @ self.point.noise / self.first_step  # what a slope that is zero is uncertain by
        vague &= (doubt > 100 * rounded + 1e-280) & (self.atol is None and self.rtol is None)
        step = numpy.median(found.step, axis=1) if found.step.shape[1] else numpy.zeros(len(analytic))
        return Found(analytic, numeric, allowed, doubt, kink & between & ~edge, edge, vague.any(axis=1) & ~kink, step)

    def between(self, found, analytic):
        """Whether the gradient of each entry lies between the slopes to the left and to the right, (N,)."""
        fits = numpy.ones(len(analytic), bool)
        for k, u in enumerate(self.us):
            with numpy.errstate(all="ignore"):
                left, right = found.left * u, found.right * u
            low, high = (numpy.nansum(f(left, right), axis=1) for f in (numpy.fmin, numpy.fmax))
            slack = 1e-3 * (numpy.abs(low) + numpy.abs(high)) + 1e-6 * self.usual[k]
            fits &= (analytic[:, k] >= low - slack) & (analytic[:, k] <= high + slack)
        return fits

    def directions(self, i, count):
        """`Found` for `count` random directions of argument i, and these, each like the argument."""
        shape = self.point.arrays[i].shape
        ways = [self.rng.uniform(0.5, 1.5, shape) * self.rng.choice([-1, 1], shape) for _ in range(count)]
        ways = [numpy.asarray(way / max(1.0, way.size ** 0.5)) for way in ways]
        parts = [self.along(i, way) for way in ways]
        return Found(*map(numpy.concatenate, zip(*parts))), ways

    def along(self, i, way):
        """`Found` for one direction: results on a kink along it are left out of the objective."""
        point, x = self.point, self.point.arrays[i]
        start = x.copy()

        def values(t):
            x[...] = start + t[0] * way
            return point.values()

        try:
            found = slopes(values, numpy.zeros(1), point.noise, self.first_step)
        finally:
            x[...] = start
        us, gradients = self.us, self.analytic
        if found.kink.any():
            us = self.us * ~found.kink[0]
            gradients = point.gradients(us)
        analytic = numpy.array([[g[i] @ way.reshape(-1) for g in gradients]])
        parts = numpy.abs(found.value)
        rounding = 1e-8 * numpy.sqrt(parts ** 2 @ (us ** 2).T)  # roundings of many results are independent
        nothing = numpy.ones(1, bool) if len(us) and not us.any() else numpy.zeros(1, bool)
        result = self.found(found, analytic, parts @ numpy.abs(us).T, rounding, nothing, us)
        return result._replace(kinks=nothing)

    def wrong_entry(self, i, way):
        """The number of an entry whose gradient is wrong, from a direction along which it is: halve, look, halve."""
        entries = numpy.arange(way.size)
        while len(entries) > 1:
            half = entries[:len(entries) // 2]
            part = numpy.zeros(way.size)
            part[half] = way.reshape(-1)[half]
            entries = half if self.along(i, part.reshape(way.shape)).wrong.any() else entries[len(half):]
        return int(entries[0])
