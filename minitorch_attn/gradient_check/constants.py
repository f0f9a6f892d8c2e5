"""Naming a constant factor from the shapes that could have made it."""
import math


def name_of(c, arrays):
    """What a factor `c` may be, as text: "1/5: 5 is the size of axis 1 of x"; "" if nothing fits.

    Parameters
    ----------
    c : float
    arrays : {name: (shape, names of the axes)}
    """
    signed, size = ("-" if c < 0 else ""), abs(c)
    for value, text in ((2.0, "2"), (0.5, "1/2"), (4.0, "4"), (0.25, "1/4")):
        if math.isclose(size, value, rel_tol=1e-6) and value in (2.0, 0.5):
            return signed + text
    sizes = {}
    for name, (shape, axes) in arrays.items():
        for n, axis in zip(shape, axes):
            where = axis if axis.startswith("axis ") else f"axis {axis}"
            sizes.setdefault(n, f"{n} is the size of {where} of {name}")
        for end in range(2, len(shape) + 1):
            for part in (shape[:end], shape[-end:]):
                sizes.setdefault(math.prod(part),
                                 f"{math.prod(part)} = {' x '.join(map(str, part))} from the shape of {name}")
    forms = {"{}": lambda n: n, "1/{}": lambda n: 1 / n, "sqrt({})": math.sqrt, "1/sqrt({})": lambda n: n ** -0.5,
             "{0}/({0} - 1)": lambda n: n / (n - 1), "({0} - 1)/{0}": lambda n: (n - 1) / n}
    for text, form in forms.items():
        for n, told in sizes.items():
            if n > 1 and math.isclose(size, form(n), rel_tol=1e-6):
                return f"{signed}{text.format(n)}: {told}"
    return ""
