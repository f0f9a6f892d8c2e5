"""Tensors made of values, by a rule, or of random numbers, and the random writes in place.

Everywhere `dtype` is by default float32 (or what `set_default_dtype` chose) where nothing else is said; `device` is
accepted if it names the one device there is; `requires_grad` makes the new tensor a leaf that gets a gradient; and
a size is given as ``f(2, 3)``, ``f((2, 3))`` or ``f(size=(2, 3))``. `generator` is the stream to draw from, by
default the one that `manual_seed` seeds.
"""
import math
import operator

import numpy

from .. import dtypes
from ..autograd import Tensor
from ..backend import device as named_device
from ..backend import is_array, quiet, to_device, to_host, xp
from ..random import source
from .elementwise import array_of

__all__ = [
    "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor",
    "ShortTensor", "arange", "as_tensor", "asarray", "bernoulli", "empty", "empty_like", "eye", "from_numpy", "full",
    "full_like", "is_floating_point", "is_tensor", "linspace", "logspace", "multinomial", "normal", "numel", "ones",
    "ones_like", "rand", "rand_like", "randint", "randint_like", "randn", "randn_like", "randperm", "scalar_tensor",
    "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
]

PLAIN = frozenset({bool, int, float})


def made(array, device=None, requires_grad=False):
    """A leaf on `array`."""
    if device is not None:
        named_device(device)  # raises if there is no such place
    x = Tensor.wrap(array)
    if requires_grad:
        x.requires_grad = True
    return x


def size_of(sizes, size=None):
    """The shape meant by ``f(2, 3)``, ``f((2, 3))`` or ``f(size=(2, 3))``."""
    if not sizes and size is None:
        raise TypeError("a size is missing: f(2, 3), f((2, 3)) or f(()) for a single number")
    if size is not None:
        sizes = (size,)
    if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)):
        sizes = sizes[0]
    shape = tuple(operator.index(n) for n in sizes)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"a size cannot be negative, got {shape}")
    return shape


def float_dtype(dtype):
    """`dtype`, or the default one for None; RuntimeError if it is not floating point."""
    dtype = dtypes.get_default_dtype() if dtype is None else dtype
    if dtype.kind != "f":
        raise RuntimeError(f"these random numbers are floating point and cannot be {dtype}; use randint for integers")
    return dtype


def number(value):
    """A Python number of a number or a tensor with one element."""
    return array_of(value).item() if isinstance(value, Tensor) else value


# Of values

@quiet
def tensor(data, dtype=None, device=None, requires_grad=False):
    """A tensor on a copy of `data`.

    Parameters
    ----------
    data : number, array, Tensor, or nested lists and tuples of them
    dtype : dtype, optional
        By default that of an array or Tensor; Python numbers give bool, int64 or the default floating-point dtype;
        a mixed list takes the dtype that holds all of its entries.
    device, requires_grad : see the module

    Raises
    ------
    ValueError
        If nested lists are ragged.
    TypeError
        If an entry is not a real number, or an integer outside int64.
    RuntimeError
        If an integer does not fit `dtype`, or `requires_grad` is asked of one that is not floating point.
    """
    if isinstance(data, Tensor):
        data = array_of(data)
    if isinstance(data, xp.ndarray) and data.dtype.kind in dtypes.CATEGORY:
        return made(xp.array(data, dtype=dtype), device, requires_grad)
    values, natural = host_values(data)
    dtype = natural if dtype is None else dtype
    if values.dtype.kind == "i" and dtype.kind in "iu" and dtype != values.dtype and values.size:
        limits = numpy.iinfo(dtype)
        if values.min() < limits.min or values.max() > limits.max:
            raise RuntimeError(f"{dtype} holds {limits.min} to {limits.max}, got {values.min()} to {values.max()}")
    return made(xp.array(values, dtype=dtype), device, requires_grad)


def host_values(data):
    """Nested sequences of numbers, arrays and tensors as one NumPy array, and the dtype that they stand for."""
    if isinstance(data, Tensor):
        data = array_of(data)
    if isinstance(data, (list, tuple)) and not PLAIN.issuperset(map(type, data)):
        parts, found = zip(*map(host_values, data))
        shapes = sorted({part.shape for part in parts})
        if len(shapes) > 1:
            raise ValueError(f"the entries of a list must all have one shape, got {shapes[0]} beside {shapes[1]}")
        dtype = found[0]
        for other in found[1:]:
            dtype = dtypes.promote_types(dtype, other)
        return numpy.stack(parts), dtype
    values = numpy.asarray(to_host(data) if is_array(data) else data)
    own = hasattr(data, "dtype")  # Python numbers have none
    if values.dtype.kind not in ("biuf" if own else "bif"):
        raise TypeError("a tensor is made of real numbers (integers in the range of int64), "
                        f"got {type(data).__name__} {data!r:.60}")
    if own:
        return values, values.dtype
    return values, dtypes.scalar_dtype(values) if values.size else dtypes.get_default_dtype()


def as_tensor(data, dtype=None, device=None):
    """`data` as a tensor: itself if it is one of that dtype, on its memory if it is an array of it, else a copy."""
    if isinstance(data, (Tensor, numpy.ndarray)) and (dtype is None or dtype == data.dtype):
        return data if isinstance(data, Tensor) else from_numpy(data)
    return tensor(data, dtype, device)


def asarray(obj, dtype=None, device=None, copy=None, requires_grad=False):
    """`as_tensor`; with ``copy=True`` always a copy."""
    x = tensor(obj, dtype, device) if copy else as_tensor(obj, dtype, device)
    if requires_grad:
        x.requires_grad = True
    return x


def from_numpy(array):
    """A tensor on the memory of a NumPy array: a write to one is seen in the other.

    Raises
    ------
    TypeError
        If `array` is not a NumPy array of real numbers.
    """
    if not isinstance(array, numpy.ndarray) or array.dtype.kind not in dtypes.CATEGORY:
        kind = type(array)
        got = f"one of {array.dtype}" if kind is numpy.ndarray else f"{kind.__module__}.{kind.__qualname__}"
        raise TypeError(f"from_numpy needs a NumPy array of real numbers, got {got}; tensor(...) takes numbers, lists "
                        "and other libraries' arrays, and copies")
    return Tensor.wrap(to_device(array))


def scalar_tensor(value, dtype=None, device=None, requires_grad=False):
    """A 0-d tensor, floating point unless `dtype` says otherwise."""
    return full((), value, dtype or dtypes.get_default_dtype(), device, requires_grad)


class TensorType:
    """What PyTorch calls ``torch.FloatTensor`` and so on: makes tensors of one dtype, and tells whether one is.

    ``LongTensor([1, 2])`` holds these values, ``LongTensor(2, 3)`` has that shape and arbitrary values.
    """

    def __init__(self, name, dtype):
        self.name, self.dtype = name, dtype

    def __call__(self, *values):
        if len(values) == 1 and not isinstance(values[0], int):
            return tensor(values[0], self.dtype)
        return empty(values or (0,), dtype=self.dtype)

    def __instancecheck__(self, x):
        return isinstance(x, Tensor) and x.dtype == self.dtype

    def __repr__(self):
        return self.name


TENSOR_TYPES = (
    BoolTensor := TensorType("BoolTensor", dtypes.bool),
    ByteTensor := TensorType("ByteTensor", dtypes.uint8),
    CharTensor := TensorType("CharTensor", dtypes.int8),
    ShortTensor := TensorType("ShortTensor", dtypes.int16),
    IntTensor := TensorType("IntTensor", dtypes.int32),
    LongTensor := TensorType("LongTensor", dtypes.int64),
    HalfTensor := TensorType("HalfTensor", dtypes.float16),
    FloatTensor := TensorType("FloatTensor", dtypes.float32),
    DoubleTensor := TensorType("DoubleTensor", dtypes.float64),
)


# By a rule

def empty(*sizes, size=None, dtype=None, device=None, requires_grad=False):
    """Arbitrary values, whatever the memory held."""
    return made(xp.empty(size_of(sizes, size), dtype or dtypes.get_default_dtype()), device, requires_grad)


def zeros(*sizes, size=None, dtype=None, device=None, requires_grad=False):
    """0 everywhere."""
    return made(xp.zeros(size_of(sizes, size), dtype or dtypes.get_default_dtype()), device, requires_grad)


def ones(*sizes, size=None, dtype=None, device=None, requires_grad=False):
    """1 everywhere."""
    return made(xp.ones(size_of(sizes, size), dtype or dtypes.get_default_dtype()), device, requires_grad)


def full(size, fill_value, dtype=None, device=None, requires_grad=False):
    """One number everywhere; by default in the dtype that the number stands for (True: bool, 1: int64)."""
    value = number(fill_value)
    return made(xp.full(size_of((size,)), value, dtype or dtypes.scalar_dtype(value)), device, requires_grad)


def eye(n, m=None, dtype=None, device=None, requires_grad=False):
    """1 on the diagonal of a matrix (n, m), 0 elsewhere; `m` is by default `n`."""
    n, m = size_of((n, n if m is None else m))
    return made(xp.eye(n, m, dtype=dtype or dtypes.get_default_dtype()), device, requires_grad)


def arange(start=0, end=None, step=1, dtype=None, device=None, requires_grad=False):
    """start, start + step, start + 2 step, ... as far as they lie before `end`.

    Parameters
    ----------
    start, end, step : number
        With one number that is the end, and the start is 0. `step` may be negative.
    dtype : dtype, optional
        By default int64 if all three are integers.

    Returns
    -------
    Tensor (ceil((end - start) / step),)

    Raises
    ------
    RuntimeError
        If `step` is 0 or leads away from `end`, or a bound is not finite.
    """
    start, end, step = [number(v) for v in ((0, start, step) if end is None else (start, end, step))]
    if not all(math.isfinite(v) for v in (start, end, step)):
        raise RuntimeError(f"arange needs finite bounds, got {start}, {end}, {step}")
    if dtype == dtypes.int64:
        start, end, step = int(start), int(end), int(step)  # as PyTorch
    whole = all(isinstance(v, (int, numpy.integer)) for v in (start, end, step))
    if step == 0 or (end - start) * step < 0:
        raise RuntimeError(f"a step of {step} does not lead from {start} to {end}")
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    if dtype is None:
        dtype = dtypes.int64 if whole else dtypes.get_default_dtype()
    if dtype.kind in "iu":
        start, step = int(start), int(step)
    return made((start + step * xp.arange(int(count))).astype(dtype), device, requires_grad)


def linspace(start, end, steps, dtype=None, device=None, requires_grad=False):
    """`steps` numbers evenly spaced from `start` to `end`, both included.

    The first half is start + i d and the second end - (steps - 1 - i) d, with d = (end - start) / (steps - 1), so
    that both ends are exact and rounding is symmetric; each sum is rounded once, as PyTorch's fused multiply-add does.

    Raises
    ------
    RuntimeError
        If `steps` is negative, or a bound is a tensor of more than one number.
    """
    dtype = dtype or dtypes.get_default_dtype()
    return made(to_device(spaced(start, end, steps, dtype).astype(dtype)), device, requires_grad)


def spaced(start, end, steps, dtype):
    """The values of `linspace`, in float64 if `dtype` is one of integers: a host array."""
    if any(isinstance(v, Tensor) and v.ndim for v in (start, end)):
        raise RuntimeError("linspace and logspace need numbers or 0-d tensors as bounds")
    (steps,) = size_of((steps,))
    kind = dtype.type if dtype.kind == "f" else numpy.float64
    start, end = (dtype.type(number(v)) for v in (start, end))
    width = (kind(end) - kind(start)) / kind(max(steps - 1, 1))
    i = numpy.arange(steps, dtype=numpy.longdouble)
    values = numpy.where(i < max(steps // 2, 1), start + width * i, end - width * (steps - 1 - i))
    return values.astype(kind)


def logspace(start, end, steps, base=10.0, dtype=None, device=None, requires_grad=False):
    """`base` to the power of the numbers that `linspace` gives."""
    dtype = dtype or dtypes.get_default_dtype()
    exponents = spaced(start, end, steps, dtype).astype(numpy.float64)
    return made(to_device((float(base) ** exponents).astype(dtype)), device, requires_grad)


def tril_indices(row, col, offset=0, dtype=None, device=None):
    """Where the lower triangle of a matrix (row, col) is: row and column of each entry, as a tensor (2, n).

    `offset` above 0 takes as many diagonals above the main one in, below 0 leaves as many out.
    """
    inside = numpy.tri(*size_of((row, col)), offset, dtype=bool)
    return made(to_device(numpy.stack(numpy.nonzero(inside)), dtype or dtypes.int64), device)


def triu_indices(row, col, offset=0, dtype=None, device=None):
    """Where the upper triangle of a matrix (row, col) is; `tril_indices` mirrored."""
    inside = ~numpy.tri(*size_of((row, col)), offset - 1, dtype=bool)
    return made(to_device(numpy.stack(numpy.nonzero(inside)), dtype or dtypes.int64), device)


# In the shape of another tensor, or only of its dtype

def empty_like(x, dtype=None, device=None, requires_grad=False):
    """Arbitrary values in the shape and dtype of `x`."""
    return empty(x.shape, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def zeros_like(x, dtype=None, device=None, requires_grad=False):
    """0 everywhere, in the shape and dtype of `x`."""
    return zeros(x.shape, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def ones_like(x, dtype=None, device=None, requires_grad=False):
    """1 everywhere, in the shape and dtype of `x`."""
    return ones(x.shape, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def full_like(x, fill_value, dtype=None, device=None, requires_grad=False):
    """One number everywhere, in the shape and dtype of `x`."""
    return full(x.shape, fill_value, dtype or x.dtype, device, requires_grad)


def new_empty(x, *sizes, size=None, dtype=None, device=None, requires_grad=False):
    """Arbitrary values of the dtype of `x`."""
    return empty(*sizes, size=size, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def new_zeros(x, *sizes, size=None, dtype=None, device=None, requires_grad=False):
    """0 everywhere, of the dtype of `x`."""
    return zeros(*sizes, size=size, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def new_ones(x, *sizes, size=None, dtype=None, device=None, requires_grad=False):
    """1 everywhere, of the dtype of `x`."""
    return ones(*sizes, size=size, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def new_full(x, size, fill_value, dtype=None, device=None, requires_grad=False):
    """One number everywhere, of the dtype of `x`."""
    return full(size, fill_value, dtype or x.dtype, device, requires_grad)


def new_tensor(x, data, dtype=None, device=None, requires_grad=False):
    """`data` as a tensor of the dtype of `x`."""
    return tensor(data, dtype or x.dtype, device, requires_grad)


# Of random numbers

def rand(*sizes, size=None, generator=None, dtype=None, device=None, requires_grad=False):
    """Uniform numbers in [0, 1)."""
    return made(source(generator).uniform(size_of(sizes, size), float_dtype(dtype)), device, requires_grad)


def randn(*sizes, size=None, generator=None, dtype=None, device=None, requires_grad=False):
    """Normally distributed numbers with mean 0 and standard deviation 1."""
    return made(source(generator).normal(size_of(sizes, size), float_dtype(dtype)), device, requires_grad)


def randint(low=0, high=None, size=None, generator=None, dtype=None, device=None, requires_grad=False):
    """Integers from low to high - 1, all equally likely: ``randint(10, (2, 3))``, ``randint(5, 10, (2, 3))``.

    Raises
    ------
    RuntimeError
        If there is no number from `low` to `high` - 1, or `dtype` cannot hold one of them.
    """
    if size is None:
        high, size = None, high
    low, high = (0, low) if high is None else (low, high)
    dtype = dtype or dtypes.int64
    return made(integers(size_of((size,)), low, high, dtype, generator), device, requires_grad)


def integers(shape, low, high, dtype, generator):
    """An array of random integers in [low, high)."""
    low, high = operator.index(low), operator.index(high)
    limits = numpy.iinfo(dtype) if dtype.kind in "iu" else None
    if low >= high:
        raise RuntimeError(f"random integers need low < high, got low={low} and high={high}")
    if limits and (low < limits.min or high - 1 > limits.max):
        raise RuntimeError(f"{dtype} cannot hold all integers from {low} to {high - 1}")
    return source(generator).integers(shape, low, high).astype(dtype)


def randperm(n, generator=None, dtype=None, device=None, requires_grad=False):
    """The integers from 0 to n - 1 in random order."""
    (n,) = size_of((n,))
    return made(source(generator).permutation(n).astype(dtype or dtypes.int64), device, requires_grad)


def rand_like(x, generator=None, dtype=None, device=None, requires_grad=False):
    """`rand` in the shape and dtype of `x`."""
    return rand(x.shape, generator=generator, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def randn_like(x, generator=None, dtype=None, device=None, requires_grad=False):
    """`randn` in the shape and dtype of `x`."""
    return randn(x.shape, generator=generator, dtype=dtype or x.dtype, device=device, requires_grad=requires_grad)


def randint_like(x, low=0, high=None, generator=None, dtype=None, device=None, requires_grad=False):
    """`randint` in the shape and dtype of `x`."""
    low, high = (0, low) if high is None else (low, high)
    return made(integers(x.shape, low, high, dtype or x.dtype, generator), device, requires_grad)


def normal(mean, std=1.0, size=None, generator=None, dtype=None, device=None, requires_grad=False):
    """Normally distributed numbers.

    Parameters
    ----------
    mean, std : number or Tensor
        With tensors each number has its own mean or standard deviation; they broadcast.
    size : int ... or sequence
        Needed if both are numbers, else left out.

    Raises
    ------
    RuntimeError
        If a standard deviation is negative.
    """
    given = [v for v in (mean, std) if isinstance(v, Tensor)]
    if not given:
        array = source(generator).normal(size_of((size,)), float_dtype(dtype), mean, not_negative(std))
        return made(array, device, requires_grad)
    mean, std = (array_of(v) if isinstance(v, Tensor) else v for v in (mean, std))
    shape = numpy.broadcast_shapes(*(v.shape for v in given))
    z = source(generator).normal(shape, float_dtype(dtype or dtypes.result_type(*given)))
    return made((z * not_negative(std) + mean).astype(z.dtype, copy=False), device, requires_grad)


def not_negative(std):
    """The standard deviation; RuntimeError if it, or an entry of it, is below 0."""
    if not (std >= 0 if isinstance(std, (int, float)) else bool((std >= 0).all())):
        raise RuntimeError(f"a standard deviation cannot be negative or NaN, got {std}")
    return std


def bernoulli(x, p=None, generator=None):
    """1 with probability `x` (or with `p` everywhere), else 0, in the shape and dtype of `x`.

    Raises
    ------
    RuntimeError
        If a probability lies outside [0, 1] or is NaN.
    """
    float_dtype(x.dtype)
    return Tensor.wrap(coins(x if p is None else p, x.shape, generator).astype(x.dtype))


def coins(p, shape, generator):
    """A boolean array, True with probability `p`: a number, or a tensor that broadcasts to `shape`."""
    # float16 is too coarse to compare in: numbers that it rounds to 1 would be
    p, dtype = (array_of(p), dtypes.promote_types(p.dtype, dtypes.float32)) if isinstance(p, Tensor) else (
        p, dtypes.float64)
    if not (0 <= p <= 1 if isinstance(p, (int, float)) else bool(((p >= 0) & (p <= 1)).all())):
        raise RuntimeError(f"a probability must lie in [0, 1], got {p}")
    return source(generator).uniform(shape, dtype) < p


@quiet
def multinomial(x, num_samples, replacement=False, generator=None):
    """Draw indices with probability proportional to the entries there.

    Parameters
    ----------
    x : Tensor (V,) or (B, V), floating point
        Weights, at least 0; they need not sum to 1. An index of weight 0 is never drawn.
    num_samples : int
        How many to draw from each row.
    replacement : bool
        Whether an index may be drawn again.

    Returns
    -------
    Tensor (num_samples,) or (B, num_samples), int64; without replacement in the order in which they were drawn.

    Raises
    ------
    RuntimeError
        If a weight or the sum of a row is negative, infinite or NaN; if a row has no positive weight or, without
        replacement, fewer of them than `num_samples`; or if `x` is not as said above.

    Notes
    -----
    Without replacement, and for a single draw: with e exponentially distributed, the order of falling x / e is a
    draw one by one (the exponential race; Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006).
    """
    if x.ndim not in (1, 2) or x.dtype.kind != "f" or num_samples < 1:
        raise RuntimeError("multinomial needs floating-point weights (V,) or (B, V) and num_samples of 1 or more, "
                           f"got {x.dtype} of shape {x.shape} and {num_samples}")
    weights = to_host(array_of(x)).reshape(math.prod(x.shape[:-1]), x.shape[-1])  # (V,) -> (1, V)
    if not bool((weights >= 0).all() and numpy.isfinite(weights.sum(axis=1)).all()):
        raise RuntimeError("a weight (or their sum) is negative, infinite or NaN; give probabilities or counts")
    positive = numpy.count_nonzero(weights, axis=1)
    needed = 1 if replacement else num_samples
    if (positive < needed).any():
        raise RuntimeError(f"multinomial needs {needed} positive weights or more in each row, row "
                           f"{int(positive.argmin())} has {positive.min()}")
    if replacement and num_samples > 1:
        drawn = drawn_with_replacement(weights, num_samples, source(generator))
    else:
        race = weights / to_host(source(generator).exponential(weights.shape, weights.dtype))
        drawn = numpy.argsort(-race, axis=1, kind="stable")[:, :num_samples]
    return Tensor.wrap(to_device(drawn.astype(numpy.int64).reshape(*x.shape[:-1], num_samples)))


def drawn_with_replacement(weights, count, generator):
    """For each row of host weights, `count` indices: where their running sum first exceeds a u drawn from [0, 1)."""
    total = numpy.cumsum(weights, axis=1)
    total /= total[:, -1:]  # however it was rounded, exactly 1 from the last positive weight on: above every u
    u = to_host(generator.uniform((len(weights), count), dtypes.float64))
    drawn = numpy.empty(u.shape, dtype=numpy.int64)
    for row in range(len(weights)):
        drawn[row] = numpy.searchsorted(total[row], u[row], side="right")
    return drawn


# Random writes in place: what may not be written to is refused before a number is drawn

def uniform_(x, from_=0.0, to=1.0, generator=None):
    """Overwrite `x` with uniform numbers in [from_, to)."""
    if not from_ <= to:
        raise RuntimeError(f"uniform_ needs bounds in order, got {from_} and {to}")
    x.check_writable()
    return x.assign(Tensor.wrap(source(generator).uniform(x.shape, float_dtype(x.dtype), from_, to)))


def normal_(x, mean=0.0, std=1.0, generator=None):
    """Overwrite `x` with normally distributed numbers."""
    x.check_writable()
    return x.assign(Tensor.wrap(source(generator).normal(x.shape, float_dtype(x.dtype), mean, not_negative(std))))


def bernoulli_(x, p=0.5, generator=None):
    """Overwrite `x` with 1 with probability `p` (a number, or a tensor that broadcasts), else 0."""
    x.check_writable()
    return x.assign(Tensor.wrap(coins(p, x.shape, generator).astype(x.dtype)))


def exponential_(x, lambd=1.0, generator=None):
    """Overwrite `x` with exponentially distributed numbers with mean 1 / lambd."""
    if not lambd > 0:
        raise RuntimeError(f"exponential_ needs lambd above 0, got {lambd}")
    x.check_writable()
    return x.assign(Tensor.wrap(source(generator).exponential(x.shape, float_dtype(x.dtype), lambd)))


def random_(x, from_=None, to=None, generator=None):
    """Overwrite `x` with integers: ``random_(to)`` from 0 to to - 1, ``random_(from_, to)`` from from_ to to - 1.

    Without bounds, from 0 to the largest number up to which the dtype holds every integer.
    """
    x.check_writable()
    if from_ is None and to is None:
        draws = source(generator).integers(x.shape, 0, largest_integer(x.dtype) + 1, long=x.dtype.itemsize == 8)
        return x.assign(Tensor.wrap(draws.astype(x.dtype)))
    if to is None:
        from_, to = 0, from_
    return x.assign(Tensor.wrap(integers(x.shape, from_ or 0, to, x.dtype, generator)))


def largest_integer(dtype):
    """The number up to which `dtype` holds every integer from 0."""
    if dtype.kind == "f":
        return 2 ** (numpy.finfo(dtype).nmant + 1)
    return 1 if dtype.kind == "b" else int(numpy.iinfo(dtype).max)


# Questions about any object

def is_tensor(obj):
    """Whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)


def is_floating_point(x):
    """Whether the dtype of the tensor `x` is float16, float32 or float64."""
    return x.dtype.kind == "f"


def numel(x):
    """How many entries the tensor `x` has."""
    return x.array.size
