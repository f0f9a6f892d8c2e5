"""PyTorch's names for element types, and its rules for mixing them.

A dtype here is NumPy's own dtype object, so ``x.dtype == float32`` and ``numpy.zeros(3, x.dtype)`` both hold.
"""
import functools

import numpy

# In this file bool, int and float are these dtypes, not Python's types.
dtype = numpy.dtype
bool = numpy.dtype("bool")
uint8 = numpy.dtype("uint8")
int8 = numpy.dtype("int8")
int16 = short = numpy.dtype("int16")
int32 = int = numpy.dtype("int32")
int64 = long = numpy.dtype("int64")
float16 = half = numpy.dtype("float16")
float32 = float = numpy.dtype("float32")
float64 = double = numpy.dtype("float64")

CATEGORY = {"b": 0, "u": 1, "i": 1, "f": 2}  # by dtype.kind: boolean, integer, floating point
_default = float32


def get_default_dtype():
    """The dtype of floating-point tensors made without naming one; float32 unless changed."""
    return _default


def set_default_dtype(d):
    """Make `d`, a floating-point dtype, the one that `get_default_dtype` returns."""
    global _default
    d = numpy.dtype(d)
    if d.kind != "f":
        raise TypeError(f"the default dtype must be floating point, got {d}")
    _default = d


def promote_types(a, b):
    """The dtype that holds both `a` and `b` by PyTorch's rule.

    Like NumPy's, but an integer never widens a float: int64 with float32 is float32, not float64.
    """
    if a == b:
        return a
    rank_a, rank_b = CATEGORY[a.kind], CATEGORY[b.kind]
    if rank_a != rank_b:
        return a if rank_a > rank_b else b
    return numpy.promote_types(a, b)


def scalar_dtype(number):
    """The dtype that a Python or NumPy number stands for when no tensor decides."""
    kind = numpy.asarray(number).dtype.kind
    if kind not in CATEGORY:
        raise TypeError(f"expected a real number, got {type(number).__name__}")
    return (bool, int64, get_default_dtype())[CATEGORY[kind]]


def result_type(*operands):
    """The dtype of a result of `operands` (tensors or numbers) by PyTorch's rule.

    Tensors with dimensions decide first; a 0-d tensor, and after it a plain number, changes the result only if
    its category (boolean < integer < floating point) is higher than everything before it.
    """
    by_priority = with_dims, without_dims, numbers = [], [], []
    for x in operands:
        if hasattr(x, "dtype") and not isinstance(x, numpy.generic):
            (with_dims if x.ndim else without_dims).append(x.dtype)
        else:
            numbers.append(scalar_dtype(x))
    result = None
    for found in by_priority:
        if found:
            common = functools.reduce(promote_types, found)
            if result is None or CATEGORY[common.kind] > CATEGORY[result.kind]:
                result = common
    return result
