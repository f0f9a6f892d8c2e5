"""Naming a constant factor from the shapes that could have made it."""
import itertools
import math

__all__ = ["name_of"]


def name_of(c, arrays, mixes=True):
    """What a factor `c` may be, as text: "1/5: 5 may be the size of axis 1 of x"; "" if nothing fits.

    Parameters
    ----------
    c : float
    arrays : {name: (shape, names of the axes)}
    mixes : bool
        Whether results depend on several entries, as for a variance; otherwise n/(n - 1) would be chance.
    """
    signed, size = ("-" if c < 0 else ""), abs(c)
    for value, text in ((2.0, "2"), (0.5, "1/2")):
        if math.isclose(size, value, rel_tol=1e-6):
            return signed + text
    sizes = sizes_of(arrays)
    forms = {"{}": lambda n: n, "1/{}": lambda n: 1 / n, "sqrt({})": math.sqrt, "1/sqrt({})": lambda n: n ** -0.5}
    if mixes:
        forms.update({"{0}/({0} - 1)": lambda n: n / (n - 1), "({0} - 1)/{0}": lambda n: (n - 1) / n})
    for text, form in forms.items():
        for n, told in sizes.items():
            if n > 1 and math.isclose(size, form(n), rel_tol=1e-6):
                return f"{signed}{text.format(n)}: {told}"
    for (n, told), (m, also) in itertools.permutations(sizes.items(), 2) if mixes else ():
        if m > 1 and math.isclose(size, n / m, rel_tol=1e-6):
            return f"{signed}{n}/{m}: {told}, {also}"
    return ""


def sizes_of(arrays):
    """{n: where this number may come from}, for all sizes of axes and their products."""
    sizes = {}
    for name, (shape, axes) in arrays.items():
        for n, axis in zip(shape, axes):
            where = axis if axis.startswith("axis ") else f"axis {axis}"
            sizes.setdefault(n, f"{n} may be the size of {where} of {name}")
        for end in range(2, len(shape) + 1):
            for part in (shape[:end], shape[-end:]):
                n = math.prod(part)
                sizes.setdefault(n, f"{n} may be {' x '.join(map(str, part))} from the shape of {name}")
    return sizes
