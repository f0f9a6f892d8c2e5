"""What can make a check worthless or misleading; each kind has its own sentence."""
import numpy

from ..backend import shares_memory, to_host
from ..grad_mode import no_grad
from .report import Guard
from .subject import tensors_in

__all__ = ["GUARDS"]

GUARDS = {
    "vacuous": "an objective whose true gradient is zero, so that nothing is proved",
    "flat": "an input that has no influence on the result",
    "untested": "entries at the edge of the domain, or where finite differences cannot tell the slope",
    "low_precision": "inputs or results of less than float64",
    "kink": "entries on a kink or tie",
    "nonlinear": "a backward that does not treat g as a factor",
    "elsewhere": "a gradient that is right at the given values only",
    "random": "another result at a later call",
    "changed_in_place": "inputs that the function writes to",
    "shared_memory": "gradients that share memory",
    "layout": "inputs that are not contiguous, or expanded",
    "integer": "inputs of whole numbers or truth values",
    "not_checked": "inputs that do not require grad, where others do",
    "wrong_form": "a backward that does not return a tuple of arrays",
    "wrong_shape": "a backward that returns another shape",
    "wrong_dtype": "a backward that returns another dtype",
    "no_gradient": "a backward that returns None",
    "backward_raised": "a backward that raises an exception",
    "not_repeatable": "a backward that returns something else at the second call",
    "not_finite": "infinite values or NaN",
    "nothing_to_check": "no floating-point input, or no result that depends on one",
}

VACUOUS = """the true gradient is zero everywhere (as for the sum of a softmax), so that any backward near zero would
pass: weight the results with random numbers, or return them unsummed"""
LOOSE = """the given tolerance is above every slope of {}, so that any gradient would pass: make atol and rtol
smaller"""
FLAT = """the true gradient of {} is zero, compared with the others' slopes, and so is backward's: if it should have
an influence, check at other values"""
EDGE = """{} entries of {} lie at the edge of the function's domain, or where it is infinitely steep: nothing to
compare with there, so move them inwards"""
UNRESOLVED = """{} entries of {}: finite differences cannot tell the slope, for the function is too coarse there (less
than float64 inside?), too steep or too wild; check at other values"""
NO_DIRECTION = """no random direction of {} could be compared: every result is on a kink along each of them, or at the
edge of the domain; check at random values"""
NONLINEAR = """the backward that gives the gradient of {} is not linear in g: backward(-g) must be -backward(g), and
backward(g1 + g2) the sum; is g tested or squared where x is meant, or something added to it?"""
ELSEWHERE = """the gradient of {} agrees at the given values and is wrong at others nearby, so it is right by chance
(an input of zeros or ones hides a missing factor); the report shows the other values"""
SMALL_INPUT = """{}: less than float64, so the check ran on copies in float64; differences in float32 typically have 3
or 4 digits, too few to see a small mistake"""
SMALL_RESULT = """a result is of {} although the inputs are float64: the differences are as uncertain as that dtype's
rounding"""
KINK = """entries of {} on a kink, a tie or a jump: {}; there is no gradient to compare with there, so move them, or
check at random values"""
RANDOM = """the same inputs gave another result at a later call; make the function fix its random numbers, for
example by calling manual_seed(0) first"""
WRITTEN = """the function writes to its input {}; a check calls it many times with the same inputs, so let it work on
x.clone()"""
SHARED = """the gradient of {} shares memory with {}: writing to one changes the other; backward must return a fresh
array"""
EXPANDED = """{} is an expanded tensor, whose entries share memory; it was checked on a copy in which each entry has
its own"""
NOT_CONTIGUOUS = "{} is not contiguous; it was checked as it lies in memory, entry by entry in its logical order"
INTEGER = "{}: whole numbers or truth values have no gradient; passed on as they are"
NOT_CHECKED = "not checked, because requires_grad is False: {}"
NOT_REPEATABLE = """the same backward gave another gradient at the second call; it must neither write to arrays that
the forward made nor draw random numbers anew (keep the forward's mask)"""
NOT_FINITE = "the gradient of {} has infinite entries or NaN"
RESULT_NOT_FINITE = "{} of {} results are infinite or NaN; they are left out of the objective"
NO_INPUT = """there is no floating-point input to differentiate by ({}); make one with tensor(..., dtype=float64,
requires_grad=True)"""
NO_TENSOR = "the function returned {}, which holds no Tensor"
NO_RESULT = """no floating-point result depends on the checked inputs through recorded operations: is something
computed with detach(), .item() or numpy, under no_grad(), or from integers?"""


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
            array = subject.given[a.slots[0]].array
            if array.size == 0:
                continue
            if 0 in [stride for stride, n in zip(array.strides, array.shape) if n > 1]:
                yield guard("layout", EXPANDED, a.name, fatal=False)
            elif not array.flags.c_contiguous:
                yield guard("layout", NOT_CONTIGUOUS, a.name, fatal=False)
    if subject.integers:
        yield guard("integer", INTEGER, ", ".join(subject.integers), fatal=False)
    left_out = [subject.names[slot] for slot in subject.constants]
    if left_out:
        yield guard("not_checked", NOT_CHECKED, ", ".join(left_out), fatal=False)
    if not subject.arguments:
        came = ", ".join(f"{name} is a {type(x).__name__}" for name, x in zip(subject.names, subject.given))
        yield guard("nothing_to_check", NO_INPUT, came or "there is no input at all")


def about_calls(subject):
    """Guards found by calling the function twice, before anything else; what it writes to is put back."""
    watched = [(a.name, a.array) for a in subject.arguments if a.parameter is None]
    watched += [(name, x.array) for name, x in zip(subject.names, subject.given) if hasattr(x, "array")]
    before = [array.copy() for _, array in watched]
    calls = []
    try:
        with no_grad():
            for _ in range(2):
                result = subject.run(subject.leaves(subject.arrays))
                calls.append([to_host(t.array).copy() for t in tensors_in(result)])
    finally:
        written = {name for (name, array), b in zip(watched, before) if not equal(to_host(array), to_host(b))}
        for (_, array), b in zip(watched, before):
            if getattr(array.flags, "writeable", True):  # only NumPy knows arrays that are not
                array[...] = b
    if written:
        yield guard("changed_in_place", WRITTEN, ", ".join(sorted(written)))
    elif len(calls[0]) != len(calls[1]) or not all(map(equal, *calls)):
        yield guard("random", RANDOM)
    if not calls[0]:
        yield guard("nothing_to_check", NO_TENSOR, f"a {type(result).__name__}")


def equal(a, b):
    """Whether two arrays are equal, NaN where the other has NaN."""
    return a.shape == b.shape and numpy.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def about_gradients(subject, first, second, copies):
    """Guards about the gradient arrays of two calls with the same cotangent; `copies` were made between the calls."""
    named = [(a.name, g, h, c) for a, g, h, c in zip(subject.arguments, first, second, copies) if g is not None]
    if any(h is None or not equal(to_host(c), to_host(h)) for _, _, h, c in named):
        yield guard("not_repeatable", NOT_REPEATABLE)
    inputs = [(f"the input {a.name}", x) for a, x in zip(subject.arguments, subject.arrays)]
    for name, g, h, _ in named:
        others = [*inputs, ("the next call's gradient", h)]
        yield from [guard("shared_memory", SHARED, name, other) for other, array in others
                    if array is not None and g.size and shares_memory(g, array)]
    bad = [name for name, g, _, _ in named if not numpy.isfinite(to_host(g)).all()]
    if bad:
        yield guard("not_finite", NOT_FINITE, ", ".join(bad))
