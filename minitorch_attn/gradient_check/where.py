"""Saying in words where in an array the wrong entries are."""
import numpy

__all__ = ["where_in_words"]

WORDS = {"B": "sample", "N": "sample", "T": "time step", "L": "time step", "S": "key", "H": "head", "C": "channel",
         "D": "feature", "V": "token id", "E": "feature", "F": "hidden unit"}


def where_in_words(wrong, argument, x, numeric, masks):
    """A sentence part such as "only masked keys" or "last time step".

    Parameters
    ----------
    wrong : boolean array, the wrong entries
    argument : Argument
    x : its values
    numeric : array like it, the true gradient
    masks : {name: boolean array} of the function's boolean inputs
    """
    if wrong.all():
        return "everywhere"
    for name, mask in masks.items():
        for value in (False, True):
            if mask.shape == wrong.shape and (wrong <= (mask == value)).all() and (mask == value).any():
                return f"only where {name} is {value}"
        keys = axis_with_keys(argument, mask)
        if keys is not None:
            hidden = ~mask.reshape(-1, mask.shape[-1]).any(axis=0)
            bad = numpy.moveaxis(wrong, keys, -1).reshape(-1, mask.shape[-1]).any(axis=0)
            if hidden.any() and bad.any() and (bad <= hidden).all():
                return "only masked keys"
    true_zero = numpy.abs(numeric) <= 1e-9 * numpy.abs(numeric).max(initial=0)
    for condition, words in ((true_zero, "the true gradient is zero"), (x < 0, f"{argument.name} is negative"),
                             (x > 0, f"{argument.name} is positive")):
        if wrong.sum() > 2 and not condition.all() and (wrong == condition).all():
            return f"only where {words}"
    sides = [numpy.moveaxis(wrong, a, 0).reshape(n, -1).any(axis=1) for a, n in enumerate(wrong.shape)]
    found = ", ".join(filter(None, map(axis_in_words, argument.axes, sides)))
    if found and wrong[numpy.ix_(*sides)].mean() > 0.5:
        return f"only {found}"
    some = f"{wrong.sum()} of {wrong.size} entries"
    return f"{some}, only {found}" if found else some


def axis_with_keys(argument, mask):
    """The axis of the argument that the mask's last axis (..., T, S) is about, or None."""
    if mask.ndim > 1 and "S" in argument.axes and argument.array.shape[argument.axes.index("S")] == mask.shape[-1]:
        return argument.axes.index("S")
    return None


def axis_in_words(name, bad):
    """Which places along an axis called `name` have wrong entries (`bad`); None if all do."""
    n, at = len(bad), numpy.flatnonzero(bad)

    def several(places):
        return f"{WORDS[name]} {places}" if name in WORDS else f"index {places} of {name}"

    if len(at) == n or n < 2:
        return None
    if len(at) == 1:
        place = {0: "first ", n - 1: "last "}.get(int(at[0]), "")
        return f"the {place}{WORDS[name]}" if place and name in WORDS else several(at[0])
    if (numpy.diff(at) == 1).all():
        half = {0: "first", n - n // 2: "second"}.get(int(at[0])) if len(at) == n // 2 and n % 2 == 0 else None
        return f"the {half} half of {name}" if half else several(f"{at[0]} to {at[-1]}")
    if len(at) == n - 1:
        return several(f"other than {int(numpy.flatnonzero(~bad)[0])}")
    for start, parity in ((0, "even"), (1, "odd")):
        if len(at) == len(range(start, n, 2)) and (at == numpy.arange(start, n, 2)).all():
            return f"the {parity} places along {name}"
    return several(", ".join(map(str, at))) if len(at) <= 4 else f"{len(at)} of {n} places along {name}"
