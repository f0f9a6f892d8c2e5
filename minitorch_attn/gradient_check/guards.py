"""What can make a check worthless or misleading; each kind has its own sentence."""
import numpy

from ..backend import shares_memory
from .report import Guard

__all__ = ["GUARDS"]

GUARDS = {
    "vacuous": "an objective whose true gradient is zero",
    "low_precision": "inputs or results of less than float64",
    "kink": "entries on a kink or tie",
    "random": "another result at the second call",
    "changed_in_place": "inputs that the function writes to",
    "shared_memory": "gradients that share memory",
    "layout": "inputs that are not contiguous, or expanded",
    "integer": "inputs of whole numbers or truth values",
    "wrong_shape": "a backward that returns another shape",
    "wrong_dtype": "a backward that returns another dtype",
    "no_gradient": "a backward that returns None",
    "not_repeatable": "a backward that returns something else at the second call",
    "not_finite": "infinite values or NaN",
    "nothing_to_check": "no floating-point input, or no result that depends on one",
}


def about_inputs(subject):
    """Guards about the inputs as they came."""
    small = [a.name for a in subject.arguments if a.dtype.itemsize < 8]
    if small:
        yield Guard("low_precision", f"{', '.join(small)}: less than float64, so the check ran on float64 copies; "
                    "differences in float32 have 3 digits at best, too few to see a mistake", False)
    for a in subject.arguments:
        if a.parameter is None:
            strides = subject.inputs[a.slots[0]].array.strides
            if 0 in [s for s, n in zip(strides, a.array.shape) if n > 1]:
                yield Guard("layout", f"{a.name} is an expanded tensor, whose entries share memory; it was checked "
                                      f"on a "
                            "copy in which each entry has its own", False)
            elif not subject.inputs[a.slots[0]].array.flags.c_contiguous:
                yield Guard("layout", f"{a.name} is not contiguous; it was checked as it lies in memory, entry by "
                                      f"entry "
                            "in its logical order", False)
    if subject.integers:
        yield Guard("integer", f"{', '.join(subject.integers)}: whole numbers or truth values have no gradient; "
                               f"passed on "
                    "as they are", False)
    if not subject.arguments:
        yield Guard("nothing_to_check", "there is no floating-point input to differentiate by; make one with "
                    "tensor(..., dtype=float64, requires_grad=True)", True)


def about_calls(subject):
    """Guards found by calling the function twice."""
    before = [a.copy() for a in subject.arrays]
    given = [x.array.copy() if hasattr(x, "array") else None for x in subject.inputs]
    try:
        first, second = subject.values(subject.arrays), subject.values(subject.arrays)
    finally:
        written = [a.name for a, b in zip(subject.arguments, before)
                   if not numpy.array_equal(a.array, b, equal_nan=True)]
        for a, b in zip(subject.arguments, before):
            a.array[...] = b
    written += [name for name, x, b in zip(subject.names, subject.inputs, given)
                if b is not None and not numpy.array_equal(x.array, b, equal_nan=b.dtype.kind == "f")]
    if written:
        yield Guard("changed_in_place", f"the function writes to its input {', '.join(sorted(set(written)))}; a "
                                        f"check calls it "
                    "many times with the same inputs, so let it work on x.clone()", True)
    elif not numpy.array_equal(first, second, equal_nan=True):
        yield Guard("random", "the same inputs gave another result at the second call; make the function fix its "
                              "random "
                    "numbers, for example by calling manual_seed(0) first", True)


def about_gradients(subject, first, second, copies):
    """Guards about gradient arrays of two calls with the same cotangent; `copies` were made between the calls."""
    named = [(a.name, g, h, c) for a, g, h, c in zip(subject.arguments, first, second, copies) if g is not None]
    if any(h is None or not numpy.array_equal(c, h, equal_nan=True) for _, _, h, c in named):
        yield Guard("not_repeatable", "the same backward gave another gradient at the second call; it must not "
                                      "write to arrays "
                    "that the forward made", True)
    arrays = [(f"the input {a.name}", x) for a, x in zip(subject.arguments, subject.arrays)]
    for k, (name, g, h, _) in enumerate(named):
        others = arrays + [(f"the gradient of {n}", o) for n, o, _, _ in named[:k]]
        if h is not None:
            others.append(("the next call's gradient", h))
        for other, array in others:
            if g.size and shares_memory(g, array):
                yield Guard("shared_memory",
                            f"the gradient of {name} shares memory with {other}: writing to one changes the "
                            "other; backward must return a fresh array", True)
    if any(not numpy.isfinite(g).all() for _, g, _, _ in named):
        bad = [name for name, g, _, _ in named if not numpy.isfinite(g).all()]
        yield Guard("not_finite", f"the gradient of {', '.join(bad)} has infinite entries or NaN", True)
