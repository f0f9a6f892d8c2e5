"""Causes that can be tested on any function: each makes the gradient that it would lead to.

A hypothesis takes a Case and yields (detail, matrix), a sentence and the Jacobian that backward would then have, and
where a number was measured to make that, (detail, matrix, number). The same detail must explain the wrong gradient,
with the same number, at two independent points. No matrix is made from the wrong gradient but for that number.
Conditions keep hypotheses apart where two descriptions would mean the same mistake.
"""
import itertools
import math

import numpy

from .kernels import attention_parts, coupled_parts, normalization_parts

__all__ = ["explanations", "likely_cause", "only_ignores_g"]

TINY = 1e-9  # what counts as zero, as a part of the largest slope


def sign(case):
    if not passes_on(case) or proportional(case, everywhere=True):
        yield "", case.only_bad(-case.J)
    for name, part in case.paths:
        yield f"of the path through {name}", case.J - 2 * part


def zero_gradient(case):
    """Nothing arrives at all, or nothing at a block of places that is the same at both points."""
    if not case.bad.any():
        return
    used = numpy.abs(case.J).max(axis=0, initial=0) > 0
    if (case.bad >= used).all():
        yield "", case.only_bad(numpy.zeros_like(case.J))
        return
    bad = case.bad.reshape(case.x.shape)
    sides = [numpy.flatnonzero(numpy.moveaxis(bad, a, 0).reshape(n, -1).any(axis=1))
             for a, n in enumerate(bad.shape)]
    one_block = bad[numpy.ix_(*sides)].all() and all((numpy.diff(s, 2) == 0).all() for s in sides)
    if bad.ndim > 1 and one_block:
        yield "at " + " x ".join(f"{s[0]}...{s[-1]}" for s in sides), case.only_bad(numpy.zeros_like(case.J))


def factor(case):
    if passes_on(case) and not proportional(case, everywhere=True):
        return  # then g itself is the simpler description
    c = constant(case.J, case)
    if c is not None and min(abs(c), abs(c - 1), abs(c + 1)) > 1e-7:
        yield "", case.only_bad(c * case.J), c
    for name, part in case.paths:
        c = constant(part, case, case.A - (case.J - part))
        if c is not None and min(abs(c), abs(c - 1), abs(c + 1)) > 1e-7:
            yield f"on the path through {name}", case.J + (c - 1) * part, c


def constant(B, case, A=None):
    """The c for which c B comes nearest to A where the gradient is wrong, or None."""
    B, A = B[:, case.bad], (case.A if A is None else A)[:, case.bad]
    scale = numpy.abs(B).max(initial=0) or 1.0
    below = ((B / scale) ** 2).sum()
    return float((B / scale * (A / scale)).sum() / below) if below > 0 else None


def proportional(case, everywhere=False):
    """Whether the wrong gradient is a constant times the true one, so that no finer cause is called for."""
    c = constant(case.J, case)
    return c is not None and case.explains(c * case.J if everywhere else case.only_bad(c * case.J))


def rearranges(J):
    """Whether the Jacobian only moves entries: at most one 1 in every row and column."""
    moved = numpy.abs(J - 1) < TINY
    return bool(((numpy.abs(J) < TINY) | moved).all() and moved.sum(axis=0).max(initial=0) <= 1
                and moved.sum(axis=1).max(initial=0) <= 1)


def permutes(J):
    """Whether the Jacobian only puts all entries in another order."""
    return rearranges(J) and bool((numpy.abs(J - 1) < TINY).sum(axis=0).all())


def places(x):
    """The numbers of the entries of x in reading order, in x's shape."""
    return numpy.arange(x.size).reshape(x.shape)


def transpose(case):
    x, J = case.x, case.J
    if case.alike and not rearranges(J):
        yield "the matrix itself is applied where its transpose belongs", J.T
    reduces = case.y is not None and case.y.ndim < x.ndim  # then an exchanged axis is a wrong axis
    if 1 < x.ndim < 5 and not reduces:
        for order in itertools.permutations(range(x.ndim)):
            if list(order) != sorted(order):
                yield f"axes in the order {order}", case.placed(places(x).transpose(order).reshape(-1))
    for k, name, other in case.others():
        if other.ndim > 1 and other.shape[-1] == other.shape[-2] > 1:
            yield f"{name} is not transposed, or once too often", case.if_near(case.point.changed(
                {k: other.swapaxes(-1, -2).copy()}))


def misplaced(case):
    x, J = case.x, case.J
    for axis, n in enumerate(x.shape):
        if n > 1:
            yield f"{case.argument.axes[axis]} in reverse order", case.placed(numpy.flip(places(x), axis).reshape(-1))
        for shift in range(1, n):
            by = shift if 2 * shift <= n else shift - n
            yield (f"shifted by {by} along {case.argument.axes[axis]}",
                   case.placed(numpy.roll(places(x), shift, axis).reshape(-1)))
    if case.alike and permutes(J) and not any(case.explains(c) for _, c in transpose(case)):
        yield "g is passed on in the result's order", numpy.eye(x.size)
        yield "the forward's rearrangement is made once more, and not undone", J.T
    for k, name, other in case.others():
        if other.ndim > 1 and case.y is not None:
            for axes in (-1, (-2, -1)):
                yield f"{name} is read in reverse order", case.if_near(case.point.changed(
                    {k: numpy.flip(other, axes).copy()}))


def unsummed_broadcast(case):
    """Only one of the copies that an input was repeated into counts: one slice of the result, or one block of it."""
    if case.y is None or (case.subject.integers and looks_up(case)):
        return
    rows, shape = places(case.y), case.y.shape
    wide = [axis for axis, n in enumerate(shape) if n > 1][:4]
    for count in range(1, len(wide) + 1):
        for axes in itertools.combinations(wide, count):
            for name in ("first", "last"):
                for sizes in ((1,) * count, blocks(case, axes)):
                    cut = {a: slice(0, n) if name == "first" else slice(shape[a] - n, None)
                           for a, n in zip(axes, sizes)}
                    kept = rows[tuple([cut.get(a, slice(None)) for a in range(len(shape))])].reshape(-1)
                    here = numpy.isin(numpy.arange(len(case.J)), kept)
                    if cut and repeats(case, here, axes, sizes):
                        along = " and ".join(f"axis {a}" for a in axes)
                        yield (f"only the {name} of the copies along the result's {along} counts",
                               numpy.where(here[:, None], case.J, 0.0))


def blocks(case, axes):
    """The input's sizes at the result's `axes`, where the result is so many times as long; () if it is not."""
    if case.x.ndim != case.y.ndim:
        return ()
    sizes = tuple(case.x.shape[a] for a in axes)
    return sizes if all(1 < n < case.y.shape[a] and case.y.shape[a] % n == 0 for a, n in zip(axes, sizes)) else ()


def repeats(case, here, axes, sizes):
    """Whether the results in `here` and the others are made of the same entries, each slice in the same way.

    They are if no other argument reaches across slices: what a state gives to later time steps is no repetition.
    """
    inside, outside = (numpy.abs(case.J[rows]).max(axis=0, initial=0) > TINY * case.size for rows in (here, ~here))
    if not (inside & outside)[case.bad].all():
        return False
    if max(sizes) > 1 or constant_along(case.J.reshape(*case.y.shape, -1), axes):
        return True
    for k, _, other in case.others():
        J = case.point.true(k)
        for axis in axes:
            same = [p for p in range(other.ndim) if other.shape[p] == case.y.shape[axis]]
            if same and not any(apart(J, case.y.shape, axis, other.shape, p) for p in same):
                return False
    return True


def constant_along(a, axes):
    """Whether the array is the same all along `axes`."""
    return all(numpy.ptp(a, axis=axis).max(initial=0) <= TINY * numpy.abs(a).max(initial=0) for axis in axes)


def apart(J, y_shape, q, x_shape, p):
    """Whether results at one place of their axis q depend only on entries at that place of their axis p."""
    row, column = numpy.indices(y_shape)[q].reshape(-1), numpy.indices(x_shape)[p].reshape(-1)
    return numpy.abs(J[row[:, None] != column]).max(initial=0) <= TINY * numpy.abs(J).max(initial=0)


def lost_path(case):
    """The tensor is read by several operations, or passed as several inputs, and one of these does not count."""
    for name, part in case.paths:
        yield f"the path through {name} is missing", case.J - part
        yield f"only the path through {name} is there", part
    yield from lost_product(case)
    yield from lost_read(case)
    yield from lost_choice(case)


def lost_product(case):
    """y = x h(x), element by element: one of the two x is treated as a constant."""
    if case.alike and not proportional(case) and diagonal(case.J) and (numpy.abs(case.x) > 1e-6).all():
        h = numpy.diag((case.y / case.x).reshape(-1))
        yield "y = x h(x): the path through h is missing", h
        yield "y = x h(x): the path through the factor x is missing", case.J - h


def diagonal(J):
    """Whether the square matrix J is zero off its diagonal."""
    return bool(numpy.abs(J - numpy.diag(numpy.diag(J))).max(initial=0) <= TINY * numpy.abs(J).max(initial=0))


def looks_up(case):
    """Whether each result is a copy of one entry."""
    read = numpy.abs(case.J) > TINY * case.size
    return bool(read.sum(axis=1).max(initial=0) == 1 and (numpy.abs(case.J[read] - 1) < TINY).all())


def lost_read(case):
    """Each result is made of one entry, some entries are read several times, and only one reading counts."""
    read = numpy.abs(case.J) > TINY * case.size
    if read.sum(axis=1).max(initial=0) != 1 or any(case.explains(c) for _, c in unsummed_broadcast(case)):
        return
    order = read.cumsum(axis=0)
    for name, kept in (("first", read & (order == 1)), ("last", read & (order == order[-1:]))):
        yield f"of several reads of one entry only the {name} counts", numpy.where(kept, case.J, 0.0)


def lost_choice(case):
    """A loss reads one entry of each row directly, and that entry's own term is missing."""
    for name in case.subject.integers:
        chosen = chosen_entries(case, name)
        if chosen is None:
            continue
        term = numpy.where(chosen & (numpy.abs(case.A - case.J) > TINY * case.size), 1.0, 0.0)
        c = constant(term, case, case.A - case.J)
        if c:
            yield f"the direct path through the entry that {name} picks is missing", case.J + c * term, c


def chosen_entries(case, name):
    """Which entries of x the class numbers of the input `name` pick along axis 1 (or the only one); None if none."""
    ids = case.subject.integer_array(name)
    axis = 1 if case.x.ndim > 1 else 0
    if ids.shape != case.x.shape[:axis] + case.x.shape[axis + 1:]:
        return None
    along = numpy.arange(case.x.shape[axis]).reshape([-1 if a == axis else 1 for a in range(case.x.ndim)])
    return (along == numpy.expand_dims(ids, axis)).reshape(-1)


def diagonal_only(case):
    if case.alike:
        yield "", numpy.diag(numpy.diag(case.J))
    if case.y is None:
        return
    for p, q in itertools.product(range(case.x.ndim), range(case.y.ndim)):
        if case.x.shape[p] == case.y.shape[q] > 1:
            column, row = (numpy.indices(a.shape)[axis].reshape(-1) for a, axis in ((case.x, p), (case.y, q)))
            yield (f"along {case.argument.axes[p]}: only the result at the same place counts",
                   numpy.where(row[:, None] == column, case.J, 0.0))


def only_ignores_g(case):
    """Whether backward gives for every g what the right one gives for g = 1."""
    total, u = case.J.sum(axis=0), numpy.random.default_rng(2).standard_normal(len(case.J))
    near = 1e-6 * numpy.abs(total) + 20 * len(case.J) * case.doubt + 1e-12 * case.size
    return numpy.abs(total).max(initial=0) > TINY * case.size and all(
        bool((numpy.abs(g[case.i] - total) <= near).all()) for g in case.point.gradients((u, -u, 1.7 * u)))


def wrong_axis(case):
    """The function on an input with two axes exchanged works along the other of them."""
    x = case.x
    if x.ndim > 4 or rearranges(case.J):
        return
    for p, q in itertools.combinations(range(x.ndim), 2):
        if x.shape[p] > 1 or x.shape[q] > 1:
            yield f"{case.argument.axes[p]} and {case.argument.axes[q]} are exchanged", exchanged(case, p, q)


def exchanged(case, p, q):
    """The Jacobian of f(x with axes p and q exchanged), its result put back if it has x's shape."""
    point, x = case.point, case.x.copy()
    arrays = list(point.arrays)

    def values():
        arrays[case.i] = numpy.ascontiguousarray(x.swapaxes(p, q))
        y = case.subject.results(arrays, point.constants)
        if len(y) != 1 or case.y is None or y[0].ndim != case.y.ndim:
            raise ValueError("another form of result")
        return (y[0].swapaxes(p, q) if case.alike and y[0].shape == arrays[case.i].shape else y[0]).reshape(-1)

    return case.if_near(values, x)


def mask_ignored(case):
    if not case.A[:, case.bad].any():
        return  # zeros are another mistake
    silent = silent_entries(case)
    if case.alike and silent.any() and not silent.all() and diagonal(case.J):
        slopes = numpy.diag(case.J)[~silent]
        usual = slopes[0] if numpy.ptp(slopes) <= 1e-9 * abs(slopes[0]) else 1.0
        yield ("entries without influence get what the others get",
               numpy.where(silent, usual * numpy.eye(case.x.size), case.J))
    if (silent >= case.bad).all() and not silent.all():
        yield "entries that others outdo, or that are cut off, get a gradient", opened(case, silent)
    for slot, name, mask in case.subject.mask_slots():
        for value in (True, False):
            yield f"{name} is not applied", case.if_near(case.point.replaced({slot: numpy.full_like(mask, value)}))
    for altered, key, name, bias in case.other_inputs():
        if (bias == -numpy.inf).any():
            yield f"{name} is not applied", case.if_near(altered({key: numpy.where(bias == -numpy.inf, 0.0, bias)}))


def mask_inverted(case):
    for slot, name, mask in case.subject.mask_slots():
        yield f"{name} is inverted", case.if_near(case.point.replaced({slot: ~mask}))
    silent = silent_entries(case)
    if case.alike and diagonal(case.J) and silent.any() and not silent.all():
        yield ("g itself arrives exactly where the entries have no influence",
               numpy.diag(numpy.where(silent, 1.0, 0.0)))


def silent_entries(case):
    """Which entries have no influence on any result."""
    return numpy.abs(case.J).max(axis=0, initial=0) <= TINY * case.size


def opened(case, silent):
    """J with, for the wrong `silent` entries, the slopes that they have beyond all others: as if let through.

    None if an entry has none there either, neither far up nor far down.
    """
    J, x = case.J.copy(), case.x.reshape(-1)
    far = 1.0 + 2 * numpy.abs(case.x[numpy.isfinite(case.x)]).max(initial=0)
    for entry in numpy.flatnonzero(silent & case.bad):
        for place in (far, -far):
            moved = x.copy()
            moved[entry] = place
            moved = moved.reshape(case.x.shape)
            row = case.point.jacobian(case.point.changed({case.i: moved}), moved, [entry])[:, 0]
            if numpy.abs(row).max(initial=0) > TINY * case.size:
                J[:, entry] = row
                break
        else:
            return None
        if len(row) != len(J) or numpy.abs(row - case.A[:, entry]).max() > 1e-3 * case.size:
            return None
    return J


def passed_on(case):
    if passes_on(case) and not proportional(case, everywhere=True) and not any(
            case.explains(c) for _, c in left_out(case)):
        yield "", (numpy.abs(case.J) > TINY * case.size).astype(float)


def left_out(case):
    """Another input is treated as if it were 1."""
    if not case.A[:, case.bad].any():
        return  # zeros are another mistake
    for altered, key, name, other in case.other_inputs():
        if not (other == 1).all():
            ones = altered({key: numpy.ones_like(other)})
            yield f"{name} is left out, as if it were 1 everywhere", case.if_near(ones)


def wrong_factor(case):
    yield from left_out(case)
    if proportional(case) or passes_on(case):
        return
    used = numpy.abs(case.J) > TINY * case.size
    for name, q, by_result in quantities(case):
        with numpy.errstate(all="ignore"):
            candidate = case.J * (q[:, None] if by_result else q)
        candidate = numpy.where(used, candidate, 0.0)
        if numpy.isfinite(candidate).all() and numpy.ptp(q):
            c = constant(candidate, case)
            if c and math.isclose(c, 1, rel_tol=1e-6):
                yield f"it is the true one times {name}", case.only_bad(candidate)
            elif c:
                yield f"it is the true one times {name}, up to a constant", case.only_bad(c * candidate), c


def quantities(case):
    """Numbers that often are factors of a derivative: (name, flat array, whether one number for each result)."""
    found = [(case.argument.name, case.x, False)]
    if case.y is not None:
        found += [("the result", case.y, True)] + [("the result", case.y, False)] * case.alike
        for _, name, other in case.others():
            if other.shape == case.x.shape:
                found.append((name, other, False))
            elif fits(other.shape, case.y.shape):
                found.append((name, numpy.broadcast_to(other, case.y.shape), True))
    for name, v, by_result in found:
        v = v.reshape(-1)
        with numpy.errstate(all="ignore"):
            forms = {f"{name}": v, f"{name}^2": v * v, f"(1 - {name})": 1 - v, f"(1 - {name}^2)": 1 - v * v,
                     f"log {name}": numpy.log(v), f"{name} (1 - {name})": v * (1 - v)}
            for form, q in forms.items():
                for shown, factors in ((form, q), (f"1/{form}" if " (" not in form else f"1/({form})", 1 / q)):
                    if numpy.isfinite(factors).all():
                        yield shown, factors, by_result


def fits(shape, into):
    """Whether an array of `shape` broadcasts to exactly the shape `into`."""
    try:
        return numpy.broadcast_shapes(shape, into) == into
    except ValueError:
        return False


def passes_on(case):
    """Whether g goes on without a factor to every entry that has an influence, which is read once."""
    used = numpy.abs(case.J) > TINY * case.size
    return case.explains(used.astype(float)) and len(case.point.uses(case.i)) < 2


def swapped(case):
    for k, name, other in case.others():
        if other.shape != case.x.shape or not case.explains(case.point.true(k)):
            continue
        if case.alike and diagonal(case.A) and (numpy.abs(numpy.diag(case.A) - 1) < TINY).all():
            continue  # g itself, which need not be meant for the other
        # unless the other's gradient is this one's in exchange, a simpler mistake may come to the same
        mutual = type(case)(case.point, k).explains(case.J)
        simpler = passes_on(case) or any(case.explains(c) for _, c in (*sign(case), *mask_inverted(case)))
        if mutual or not simpler:
            yield f"this is the gradient of {name}", case.point.true(k)


GENERAL = {f.__name__: f for f in (
    sign, factor, zero_gradient, transpose, misplaced, unsummed_broadcast, lost_path, diagonal_only, wrong_axis,
    mask_ignored, mask_inverted, passed_on, wrong_factor, swapped)}
OF_KERNELS = (normalization_parts, coupled_parts, attention_parts)


def explanations(case):
    """{(cause, detail): number or None} whose gradient is the wrong one, see `Case.explains`."""
    found = {}
    if not (numpy.isfinite(case.J).all() and numpy.isfinite(case.A).all()):
        return found
    for cause, hypothesis in GENERAL.items():
        for detail, candidate, *number in hypothesis(case):
            if case.explains(candidate):
                found[cause, detail] = number[0] if number else None
    for hypothesis in OF_KERNELS if numpy.isfinite(case.x).all() else ():
        for cause, detail, candidate in hypothesis(case):
            if case.explains(candidate):
                found[cause, detail] = None
    return found


def likely_cause(first, second):
    """The one cause that explains the wrong gradient at both points.

    Returns
    -------
    cause : str
        "unclear" if none does, or more than one, or one in two ways that need different numbers.
    fits : {(cause, detail): number or None}
        What explains it at both points, with the same number.
    """
    here, there = explanations(first), explanations(second)
    fits = {key: c for key, c in here.items()
            if key in there and (c is None or math.isclose(c, there[key], rel_tol=1e-6))}
    causes = {cause for cause, _ in fits}
    if len(causes) != 1 or (causes <= {"factor", "sign"} and len(fits) > 1):
        return "unclear", fits
    return causes.pop(), fits
