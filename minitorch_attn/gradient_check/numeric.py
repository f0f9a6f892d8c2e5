"""Slopes by finite differences, each with an estimate of its own error.

The central difference D(h) = (f(x + h) - f(x - h)) / 2h is off by c1 h^2 + c2 h^4 + ... from the curve's bending, and
by about noise / h from rounding. So the step is halved again and again, and neighbouring steps are combined so that
c1, then c2, drop out (Richardson's extrapolation). How far combinations of different order and step lie apart says
how uncertain they are; the least uncertain one is taken, for each pair of an input entry and a result by itself.

References
----------
Richardson 1911, "The approximate arithmetical solution by finite differences"; Ridders 1982, "Accurate computation of
F'(x) and F'(x)F''(x)". Rounding noise from high differences: More and Wild 2011, "Estimating computational noise".
"""
from typing import NamedTuple

import numpy

FIRST_STEP = 2.0 ** -6  # for an entry up to 1; larger entries get a proportionally larger step
ROUNDS = (4, 5, 6)      # how many halvings to try: few for all entries, more for those that are still uncertain
GOAL = 1e-9             # uncertain by less than this part of an entry's largest slope: no more steps


class Slopes(NamedTuple):
    """Slopes of M results by N entries of an input; every array has shape (N, M).

    value, error : the slope, and how far it may be off
    kink : whether the slope to the right differs from the slope to the left, or there is none
    left, right : these two slopes, at the smallest step
    step : the step at which the best estimate was found
    """
    value: numpy.ndarray
    error: numpy.ndarray
    kink: numpy.ndarray
    left: numpy.ndarray
    right: numpy.ndarray
    step: numpy.ndarray


def slopes(values, x, noise, first_step=FIRST_STEP, entries=None, rounds=ROUNDS):
    """Slopes of ``values(x)`` by every entry of x.

    Parameters
    ----------
    values : function from an array like x to the results as one flat array (M,); it may raise outside its domain
    x : array
        Put back as it was; in between its entries are changed in place.
    noise : array (M,)
        The size of the rounding errors in the results, see `rounding_noise`.
    first_step : float
    entries : sequence of int, optional
        Only these entries of x, numbered in reading order.
    rounds : sequence of int

    Returns
    -------
    Slopes
    """
    y = values(x)
    entries = numpy.arange(x.size) if entries is None else numpy.asarray(entries)
    found = Slopes(*(numpy.zeros((len(entries), len(y)), kind) for kind in "ddbddd"))._replace(
        kink=numpy.zeros((len(entries), len(y)), bool))
    todo = numpy.arange(len(entries))
    ups, downs = (numpy.zeros((0, len(entries), len(y))) for _ in range(2))
    steps = numpy.zeros((0, len(entries), 2))
    for count in rounds:
        if not todo.size:
            break
        ups, downs, steps = take_steps(values, x, entries[todo], count, first_step, ups, downs, steps)
        part = extrapolate(y, ups, downs, steps, noise)
        for whole, piece in zip(found, part):
            whole[todo] = piece
        scale = numpy.abs(part.value).max(axis=1, keepdims=True, initial=0)
        coarse = numpy.abs(steps[min(3, len(steps) - 1)]).max(axis=1)[:, None]
        unsure = (part.error > numpy.maximum(GOAL * scale, 16 * noise / coarse)).any(axis=1)
        todo, ups, downs, steps = todo[unsure], ups[:, unsure], downs[:, unsure], steps[:, unsure]
    return found._replace(error=numpy.where(numpy.isinf(found.error), 0.0, found.error))  # a kink: no slope


def take_steps(values, x, entries, count, first_step, ups, downs, steps):
    """`count` more halvings, appended to the results above and below and the steps taken, (steps, entries, ...)."""
    width, done = ups.shape[2], len(ups)
    more_up, more_down = (numpy.full((count, len(entries), width), numpy.nan) for _ in range(2))
    more_steps = numpy.zeros((count, len(entries), 2))
    for e, entry in enumerate(entries):
        index = numpy.unravel_index(entry, x.shape)
        middle = x[index]
        for k in range(count):
            h = first_step * max(1.0, abs(middle)) / 2.0 ** (done + k)
            for way, (sign, results) in enumerate(((1, more_up), (-1, more_down))):
                x[index] = middle + sign * h
                more_steps[k, e, way] = x[index] - middle  # the step after rounding
                try:
                    results[k, e] = values(x)
                except (ArithmeticError, ValueError, RuntimeError):
                    pass  # outside the domain: stays NaN
        x[index] = middle
    return (numpy.concatenate([ups, more_up]), numpy.concatenate([downs, more_down]),
            numpy.concatenate([steps, more_steps]))


@numpy.errstate(all="ignore")
def extrapolate(y, ups, downs, steps, noise):
    """`Slopes` from results y (M,) at x, and `ups` and `downs` (steps, entries, M) at `steps` (steps, entries, 2)."""
    plus, minus = steps[:, :, :1], -steps[:, :, 1:]
    centred = (ups - downs) / (plus + minus)
    value, error, step = centred[0].copy(), numpy.full(centred.shape[1:], numpy.inf), numpy.zeros(centred.shape[1:])
    above = []
    for k, row in enumerate(centred):
        row, rounding = [row], 4 * noise / plus[k]
        for m in range(1, min(k, 3) + 1):
            better = row[m - 1] + (row[m - 1] - above[m - 1]) / (4 ** m - 1)
            apart = numpy.maximum(numpy.abs(better - row[m - 1]), numpy.abs(better - above[m - 1])) + rounding
            wins = apart < error  # never for NaN
            value, error = numpy.where(wins, better, value), numpy.where(wins, apart, error)
            step = numpy.where(wins, plus[k], step)
            row.append(better)
        above = row
    right, left = (ups - y) / plus, (y - downs) / minus
    bend, before = right[-1] - left[-1], right[-2] - left[-2]
    size = numpy.nanmax(numpy.abs(numpy.where(numpy.isfinite(value), value, 0)), axis=1, initial=0, keepdims=True)
    # a smooth curve's two slopes approach each other like h, a kink's do not
    kink = (numpy.abs(bend) > 0.7 * numpy.abs(before)) & (numpy.abs(bend) > 1e-5 * size + 50 * noise / plus[-1])
    nowhere = ~numpy.isfinite(y)  # a result that is infinite or NaN at x itself has no slope
    value, error = numpy.where(nowhere | numpy.isinf(error), 0.0, value), numpy.where(nowhere, 0.0, error)
    return Slopes(value, error, (kink | numpy.isinf(error)) & ~nowhere, left[-1], right[-1], step)


@numpy.errstate(all="ignore")
def rounding_noise(values, arrays, rng):
    """The size of the rounding errors in every result (M,).

    The results at five points that are closer together than any feature of the function: what remains of them after
    taking differences four times is rounding (their coefficients' squares add up to 70). Never less than what one
    rounding of the largest result makes.
    """
    start = [a.copy() for a in arrays]
    ways = [rng.standard_normal(a.shape) * numpy.maximum(1.0, numpy.abs(a)) for a in arrays]
    seen = []
    for k in range(5):
        for a, a0, way in zip(arrays, start, ways):
            a[...] = a0 + (k - 2) * 1e-10 * way
        try:
            seen.append(values())
        except (ArithmeticError, ValueError, RuntimeError):
            seen.append(numpy.zeros(0))
    for a, a0 in zip(arrays, start):
        a[...] = a0
    y = values()
    spread = numpy.zeros(y.shape)
    if all(len(v) == len(y) for v in seen):
        spread = numpy.abs(numpy.diff(numpy.stack(seen), n=4, axis=0)[0]) / numpy.sqrt(70)
    finite = numpy.abs(y[numpy.isfinite(y)])
    floor = numpy.finfo("f8").eps * finite.max(initial=1e-300)
    return numpy.maximum(numpy.where(numpy.isfinite(spread), 3 * spread, 0), floor)
