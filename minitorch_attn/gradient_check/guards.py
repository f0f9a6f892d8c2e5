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

VACUOUS = """the true gradient is zero everywhere (as for the sum of a softmax), so that any backward near zero would
pass: weight the results with random numbers, or return them unsummed"""
SMALL_INPUT = """{}: less than float64, so the check ran on float64 copies; differences in float32 have 3 digits at
best, too few to see a mistake"""
SMALL_RESULT = """a result is of {} although the inputs are float64: the differences are as uncertain as that dtype's
rounding"""
KINK = """entries of {} on a kink, a tie or a jump, or at the edge of the domain: {}; there is no gradient to compare
with there, so move them, or check at random values"""
RANDOM = """the same inputs gave another result at the second call; make the function fix its random numbers, for
example by calling manual_seed(0) first"""
WRITTEN = """the function writes to its input {}; a check calls it many times with the same inputs, so let it work on
x.clone()"""
SHARED = """the gradient of {} shares memory with {}: writing to one changes the other; backward must return a fresh
array"""
EXPANDED = """{} is an expanded tensor, whose entries share memory; it was checked on a copy in which each entry has
its own"""
NOT_CONTIGUOUS = "{} is not contiguous; it was checked as it lies in memory, entry by entry in its logical order"
INTEGER = "{}: whole numbers or truth values have no gradient; passed on as they are"
NOT_REPEATABLE = """the same backward gave another gradient at the second call; it must not write to arrays that the
forward made"""
NOT_FINITE = "the gradient of {} has infinite entries or NaN"
RESULT_NOT_FINITE = "{} of {} results are infinite or NaN; they are left out of the objective"
NO_INPUT = """there is no floating-point input to differentiate by; make one with tensor(..., dtype=float64,
requires_grad=True)"""
NO_RESULT = """no floating-point result depends on the checked inputs through recorded operations: is something
computed with detach(), under no_grad(), or from integers?"""


def guard(kind, sentence, *facts, fatal=True):
    """The guard that says `sentence` with `facts` in its places."""
    return Guard(kind, " ".join(sentence.format(*facts).split()), fatal)


def about_inputs(subject):
    """Guards about the inputs as they came."""
    small = [a.name for a in subject.arguments if a.dtype.itemsize < 8]
    if small:
        yield guard("low_precision", SMALL_INPUT, ", ".join(small), fatal=False)
    for a in subject.arguments:
        if a.parameter is None:
            array = subject.inputs[a.slots[0]].array
            if 0 in [stride for stride, n in zip(array.strides, array.shape) if n > 1]:
                yield guard("layout", EXPANDED, a.name, fatal=False)
            elif not array.flags.c_contiguous:
                yield guard("layout", NOT_CONTIGUOUS, a.name, fatal=False)
    if subject.integers:
        yield guard("integer", INTEGER, ", ".join(subject.integers), fatal=False)
    if not subject.arguments:
        yield guard("nothing_to_check", NO_INPUT)


def about_calls(subject):
    """Guards found by calling the function twice."""
    before = [a.copy() for a in subject.arrays]
    given = [x.array.copy() if hasattr(x, "array") else None for x in subject.inputs]
    try:
        first, second = subject.values(subject.arrays), subject.values(subject.arrays)
    finally:
        written = {a.name for a, b in zip(subject.arguments, before) if not equal(a.array, b)}
        for a, b in zip(subject.arguments, before):
            a.array[...] = b
    written |= {name for name, x, b in zip(subject.names, subject.inputs, given)
                if b is not None and not equal(x.array, b)}
    if written:
        yield guard("changed_in_place", WRITTEN, ", ".join(sorted(written)))
    elif not equal(first, second):
        yield guard("random", RANDOM)


def equal(a, b):
    """Whether two arrays are equal, NaN where the other has NaN."""
    return numpy.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def about_gradients(subject, first, second, copies):
    """Guards about the gradient arrays of two calls with the same cotangent; `copies` were made between the calls."""
    named = [(a.name, g, h, c) for a, g, h, c in zip(subject.arguments, first, second, copies) if g is not None]
    if any(h is None or not equal(c, h) for _, _, h, c in named):
        yield guard("not_repeatable", NOT_REPEATABLE)
    arrays = [(f"the input {a.name}", x) for a, x in zip(subject.arguments, subject.arrays)]
    for k, (name, g, h, _) in enumerate(named):
        others = arrays + [(f"the gradient of {n}", other) for n, other, _, _ in named[:k]]
        others += [] if h is None else [("the next call's gradient", h)]
        yield from [guard("shared_memory", SHARED, name, other) for other, array in others
                    if g.size and shares_memory(g, array)]
    bad = [name for name, g, _, _ in named if not numpy.isfinite(g).all()]
    if bad:
        yield guard("not_finite", NOT_FINITE, ", ".join(bad))
