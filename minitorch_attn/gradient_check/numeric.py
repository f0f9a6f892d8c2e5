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

FIRST_STEP = 0.0143  # for an entry up to 1; larger ones get a proportionally larger step. Not round: see `slopes`
ROUNDS = (4, 5, 6, 8, 8)  # how many halvings to try: few for all entries, more for those that are still uncertain
GOAL = 1e-9               # uncertain by less than this part of an entry's largest slope: no more steps


class Slopes(NamedTuple):
    """Slopes of M results by N entries of an input; every array has shape (N, M).

    value, error : the slope, and how far it may be off
    kink : whether the slope to the right differs from the slope to the left, or there is none
    edge : whether there is none, because the function is infinitely steep or undefined next to it
    left, right : these two slopes, at the smallest step
    step : the step at which the best estimate was found
    """
    value: numpy.ndarray
    error: numpy.ndarray
    kink: numpy.ndarray
    edge: numpy.ndarray
    left: numpy.ndarray
    right: numpy.ndarray
    step: numpy.ndarray


def slopes(values, x, noise, first_step=FIRST_STEP, entries=None, rounds=ROUNDS):
    """Slopes of ``values(x)`` by every entry of x.

    The steps go down to 1e-11 where nothing larger will do, so that steep functions and small entries are resolved.
    The first one is no round number, so that no step is a whole number of periods of a function.

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
    found = Slopes(*(numpy.zeros((len(entries), len(y)), kind) for kind in "dd??ddd"))
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
    return found._replace(error=numpy.where(found.edge, 0.0, found.error))


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
    coarse = stepped(y, ups, downs, noise)
    if coarse.any():  # then the smallest change seen is the rounding
        changes = numpy.abs(numpy.concatenate([ups - y, downs - y]))
        smallest = numpy.where(changes > 0, changes, numpy.inf).min(axis=0)
        noise = numpy.where(coarse.any(axis=0), numpy.maximum(noise, smallest), noise)
    centred = numpy.where(coarse, numpy.nan, (ups - downs) / (plus + minus))
    value, error, step = richardson(centred, plus, noise, 4)
    right, left = (ups - y) / plus, (y - downs) / minus
    for one_sided in (right, left):  # at the edge of the domain
        other, doubt, where = richardson(one_sided, plus, 2 * noise, 2)
        better = numpy.isinf(error) & (doubt < 1e-3 * numpy.abs(other))
        value, error = numpy.where(better, other, value), numpy.where(better, doubt, error)
        step = numpy.where(better, where, step)
    untouched = (ups == y).all(axis=0) & (downs == y).all(axis=0)
    error = numpy.where(untouched, 0.01 * error, error)  # only rounding, and there was none
    nowhere = ~numpy.isfinite(y)  # a result that is infinite or NaN at x itself has no slope
    edge = numpy.isinf(error) & ~nowhere
    value, error = numpy.where(nowhere | edge, 0.0, value), numpy.where(nowhere, 0.0, error)
    return Slopes(value, error, (kinked(value, left, right, plus, noise) | edge) & ~nowhere, edge, left[-1], right[-1],
                  step)


def richardson(estimates, plus, noise, base):
    """The best combination of `estimates` (steps, entries, M) of a slope at steps `plus`, each half of the one before.

    base : what one halving divides the error of an estimate by: 4 for central differences, 2 for one-sided ones.

    Returns its value, its uncertainty (infinite if there is none) and its step, (entries, M).
    """
    value, error = estimates[0].copy(), numpy.full(estimates.shape[1:], numpy.inf)
    step, above = numpy.zeros(estimates.shape[1:]), []
    for k, row in enumerate(estimates):
        row, rounding = [row], 4 * noise / plus[k]
        for m in range(1, min(k, 3) + 1):
            better = row[m - 1] + (row[m - 1] - above[m - 1]) / (base ** m - 1)
            apart = numpy.maximum(numpy.abs(better - row[m - 1]), numpy.abs(better - above[m - 1])) + rounding
            # coarse steps may agree by chance; then finer ones contradict them
            chance = (error > 1e-7 * numpy.abs(value)) & (numpy.abs(better - value) > 30 * (error + apart))
            wins = (apart < error) | (chance & (apart < 0.05 * numpy.abs(better)))  # never for NaN
            value, error = numpy.where(wins, better, value), numpy.where(wins, apart, error)
            step = numpy.where(wins, plus[k], step)
            row.append(better)
        above = row
    return value, error, step


def stepped(y, ups, downs, noise):
    """Where a result no longer moves, up or down, although it did at larger steps: too coarse to tell a slope."""
    still = (ups == y) & (downs == y)
    moved = numpy.minimum(numpy.abs(ups - y), numpy.abs(downs - y)) > 30 * noise
    return still & numpy.logical_or.accumulate(moved, axis=0)


def kinked(value, left, right, plus, noise):
    """Whether the slopes to both sides stay apart as the step gets smaller, (entries, M).

    A smooth curve's two slopes approach each other like the step, a kink's do not. What counts is the smallest step at
    which rounding cannot be the reason.
    """
    size = numpy.nanmax(numpy.abs(numpy.where(numpy.isfinite(value), value, 0)), axis=1, initial=0, keepdims=True)
    bend, kink = numpy.abs(right - left), numpy.zeros(value.shape, bool)
    for k in range(1, len(bend)):
        clear = bend[k] > 1e-9 * size + 50 * noise / plus[k]
        kink = numpy.where(clear, bend[k] > 0.7 * bend[k - 1], kink)
    return kink


@numpy.errstate(all="ignore")
def rounding_noise(values, arrays, rng):
    """The size of the rounding errors in every result (M,).

    The results at five points that are closer together than any feature of the function: what remains of them after
    taking differences four times is rounding (their coefficients' squares add up to 70). The largest of three such
    measurements, and never less than what one rounding of the result makes.
    """
    start = [a.copy() for a in arrays]
    y = values()
    most = numpy.finfo("f8").eps * numpy.where(numpy.isfinite(y), numpy.abs(y), 0) + 1e-300
    for _ in range(3):
        ways = [rng.standard_normal(a.shape) * numpy.maximum(1e-3, numpy.abs(a)) for a in arrays]
        seen = []
        for k in (-2, -1, 0, 1, 2):
            for a, a0, way in zip(arrays, start, ways):
                a[...] = a0 + k * 1e-11 * way
            try:
                seen.append(values())
            except (ArithmeticError, ValueError, RuntimeError):
                break
        if len(seen) == 5 and all(len(v) == len(y) for v in seen):
            spread = 3 * numpy.abs(numpy.diff(numpy.stack(seen), n=4, axis=0)[0]) / numpy.sqrt(70)
            most = numpy.maximum(most, numpy.where(numpy.isfinite(spread), spread, 0))
    for a, a0 in zip(arrays, start):
        a[...] = a0
    return most
