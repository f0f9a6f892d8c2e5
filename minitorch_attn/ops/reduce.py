"""Operations that make fewer elements of many, along some axes or all, and running ones along one axis."""
import math
from collections import namedtuple

from .. import dtypes
from ..autograd import Tensor
from ..backend import quiet, xp
from .broadcast import cast, sum_axes
from .elementwise import array_of, float_array, maximum, minimum

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum", "logsumexp", "max", "mean",
    "min", "norm", "prod", "std", "std_mean", "sum", "var", "var_mean",
]

ValuesIndices = namedtuple("ValuesIndices", ["values", "indices"])


def axis_of(dim, ndim):
    """The dimension `dim`, perhaps negative, as an axis in [0, ndim); a 0-d tensor counts as having one.

    Raises
    ------
    IndexError
        If it lies outside [-ndim, ndim).
    """
    n = ndim or 1
    if not -n <= dim < n:
        raise IndexError(f"dim must lie in [{-n}, {n - 1}] for a tensor with {ndim} dimensions, got {dim}")
    return dim % n


def axes_of(dim, ndim):
    """`dim` (None for all, an int, or several) as ascending axes.

    Raises
    ------
    IndexError
        If one lies outside [-ndim, ndim).
    RuntimeError
        If one is given twice.
    """
    if dim is None or dim == () or dim == []:
        return tuple(range(ndim))
    axes = sorted(axis_of(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim))
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"dim {tuple(dim)} names an axis twice")
    return tuple(axes) if ndim else ()


def without(shape, axes):
    """`shape` without `axes`."""
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def with_ones(shape, axes):
    """`shape` with size 1 at `axes`: that of a result that kept them, which broadcasts against the input."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count(shape, axes):
    """How many elements each result is made of."""
    return math.prod(shape[i] for i in axes)


def summed_dtype(dtype):
    """The dtype of a sum of elements of `dtype`: whole numbers and truth values add up in int64."""
    return dtype if dtype.kind == "f" else dtypes.int64


def floating(x, name):
    """The array of the tensor `x`, which must hold floating-point numbers."""
    if array_of(x).dtype.kind != "f":
        raise RuntimeError(f"{name} needs a floating-point tensor, got {x.dtype}; convert with x.float()")
    return x.array


# Sums

def sum(x, dim=None, keepdim=False, *, dtype=None):
    """The sum along `dim`.

    Parameters
    ----------
    x : Tensor
    dim : int, several, or None for all
    keepdim : bool
        Keep the summed axes, with size 1.
    dtype : dtype, optional
        Convert to this before; by default whole numbers and truth values add up in int64.

    Returns
    -------
    Tensor of x's shape without `dim`; 0 over no elements.

    Raises
    ------
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape, axes = x.array.shape, axes_of(dim, x.array.ndim)
    kept = with_ones(shape, axes)
    y = sum_axes(x.array, axes)

    def backward(g):
        return (xp.broadcast_to(g.reshape(kept), shape),)

    return Tensor.from_op("sum", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


@quiet
def mean(x, dim=None, keepdim=False, *, dtype=None):
    """The mean along `dim`: sum / n.

    Parameters
    ----------
    x : Tensor of floating-point numbers (or of any, if `dtype` is a floating-point one)
    dim : int, several, or None for all
    keepdim : bool
        Keep the axes, with size 1.
    dtype : dtype, optional
        Convert to this before.

    Returns
    -------
    Tensor of x's shape without `dim`; NaN over no elements.

    Raises
    ------
    RuntimeError
        If the elements are whole numbers or truth values.
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    x = x if dtype is None else cast(x, dtype)
    shape, axes = floating(x, "mean").shape, axes_of(dim, x.array.ndim)
    kept, n = with_ones(shape, axes), count(shape, axes)
    y = sum_axes(x.array, axes) / n if n else xp.full(kept, math.nan, x.dtype)

    def backward(g):
        return (xp.broadcast_to((g / n if n else g).reshape(kept), shape),)

    return Tensor.from_op("mean", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


# Spread

@quiet
def moments(a, axes, correction):
    """Mean, deviations from it and variance of the array `a` along `axes`, which stay with size 1; and the divisor."""
    n = count(a.shape, axes)
    average = sum_axes(a, axes) / a.dtype.type(n)
    deviation = a - average
    divisor = n - correction if n > correction else 0
    return average, deviation, sum_axes(deviation * deviation, axes) / a.dtype.type(divisor), divisor


def unbiased_or_correction(dim, unbiased, correction):
    """PyTorch's two ways to write the divisor: ``var(x, False)`` and ``var(x, dim, correction=0)``."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError("give unbiased or correction, not both: unbiased=True is correction=1, False is 0")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    return dim, correction


def var(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The variance along `dim`: sum of (x - mean)^2 / (n - correction).

    Parameters
    ----------
    x : Tensor of floating-point numbers
    dim : int, several, or None for all
    unbiased : bool
        True, the default, is correction 1; False is correction 0.
    keepdim : bool
        Keep the axes, with size 1.
    correction : int
        What is taken from n.

    Returns
    -------
    Tensor of x's shape without `dim`; NaN where n <= correction.
    """
    dim, correction = unbiased_or_correction(dim, unbiased, correction)
    shape, axes = floating(x, "var").shape, axes_of(dim, x.array.ndim)
    _, deviation, y, divisor = moments(x.array, axes, correction)
    kept = y.shape

    def backward(g):
        # the mean's own share vanishes, for the deviations add up to 0
        return (g.reshape(kept) * deviation * (2 / divisor if divisor else math.nan),)

    return Tensor.from_op("var", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


def std(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The standard deviation along `dim`: the square root of `var`, with the same parameters.

    Where all elements are equal, the gradient is 0.
    """
    dim, correction = unbiased_or_correction(dim, unbiased, correction)
    shape, axes = floating(x, "std").shape, axes_of(dim, x.array.ndim)
    _, deviation, variance, divisor = moments(x.array, axes, correction)
    y = xp.sqrt(variance)
    kept = y.shape

    def backward(g):
        # d sqrt(v) = dv / (2 sqrt(v)); at v = 0 all deviations are 0, and so the gradient for any divisor but 0
        scale = g.reshape(kept) / (xp.where(y == 0, 1.0, y) * divisor)
        return (scale * deviation,)

    return Tensor.from_op("std", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


def var_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """`var` and `mean` as a pair."""
    variance = var(x, dim, unbiased, keepdim, correction=correction)
    return variance, mean(x, None if isinstance(dim, bool) else dim, keepdim)


def std_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """`std` and `mean` as a pair."""
    deviation = std(x, dim, unbiased, keepdim, correction=correction)
    return deviation, mean(x, None if isinstance(dim, bool) else dim, keepdim)


# Largest and smallest

def check_not_empty(name, shape, axes):
    """Raise where a largest element is asked of none."""
    for i in axes:
        if shape[i] == 0:
            raise IndexError(f"{name}: dim {i} of shape {shape} has no elements, so there is none to choose")


def amax(x, dim=(), keepdim=False):
    """The largest element along `dim`; elements that tie share the gradient equally.

    Parameters
    ----------
    x : Tensor
    dim : int, several, or () for all
    keepdim : bool
        Keep the axes, with size 1.

    Raises
    ------
    IndexError
        If there is no element, or `dim` lies outside [-ndim, ndim).
    """
    return extreme("amax", xp.max, x, dim, keepdim)


def amin(x, dim=(), keepdim=False):
    """The smallest element along `dim`, see `amax`."""
    return extreme("amin", xp.min, x, dim, keepdim)


def extreme(name, choose, x, dim, keepdim):
    """`amax` or `amin`, by the array function `choose`."""
    xa = array_of(x)
    shape, axes = xa.shape, axes_of(dim, xa.ndim)
    check_not_empty(name, shape, axes)
    y = choose(xa, axis=axes, keepdims=True)
    kept = y.shape

    def backward(g):
        tied = xa == y
        return (tied * (g.reshape(kept) / xp.sum(tied, axis=axes, keepdims=True, dtype=g.dtype)),)

    return Tensor.from_op(name, y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


def max(x, dim=None, keepdim=False):
    """The largest element, or with `dim` the largest along it and where it stands, or of two tensors the larger.

    Parameters
    ----------
    x : Tensor
    dim : int, optional; or a second Tensor, for which see `maximum`
    keepdim : bool
        Keep the axis, with size 1.

    Returns
    -------
    Without `dim`, a 0-d Tensor; elements that tie share its gradient equally. With `dim`, a pair (values, indices),
    both of x's shape without `dim`; the first of several equal elements is named, and gets the whole gradient.

    Raises
    ------
    RuntimeError
        If there is no element and no `dim`.
    IndexError
        If there is no element along `dim`, or `dim` lies outside [-ndim, ndim).
    """
    return chosen("max", maximum, amax, xp.argmax, x, dim, keepdim)


def min(x, dim=None, keepdim=False):
    """The smallest element, with parameters and results as of `max`."""
    return chosen("min", minimum, amin, xp.argmin, x, dim, keepdim)


def chosen(name, of_two, of_all, argument, x, dim, keepdim):
    """`max` or `min`, by the functions for each of their three forms."""
    if isinstance(dim, Tensor):
        return of_two(x, dim)
    if dim is None:
        if array_of(x).size == 0:
            raise RuntimeError(f"{name} of a tensor with no elements needs a dim to go along")
        return of_all(x)
    shape, axis = array_of(x).shape, axis_of(dim, x.array.ndim)
    row = x.array if shape else x.array.reshape(1)
    check_not_empty(name, row.shape, (axis,))
    index = xp.expand_dims(argument(row, axis=axis), axis)
    n = row.shape[axis]
    place = xp.arange(n).reshape((n,) + (1,) * (row.ndim - 1 - axis))  # lies along `axis`
    kept = with_ones(shape, (axis,)) if keepdim else without(shape, (axis,))

    def backward(g):
        return (xp.where(place == index, g.reshape(index.shape), 0.0).reshape(shape),)

    values = xp.take_along_axis(row, index, axis).reshape(kept)
    indices = Tensor.from_op("arg" + name, index.reshape(kept), (x,))
    return ValuesIndices(Tensor.from_op(name, values, (x,), backward), indices)


def argmax(x, dim=None, keepdim=False):
    """Where the largest element along `dim` stands (without it, in the flattened tensor); the first of equal ones.

    Raises
    ------
    IndexError
        If there is no element, or `dim` lies outside [-ndim, ndim).
    """
    return place_of("argmax", xp.argmax, x, dim, keepdim)


def argmin(x, dim=None, keepdim=False):
    """Where the smallest element along `dim` stands, see `argmax`."""
    return place_of("argmin", xp.argmin, x, dim, keepdim)


def place_of(name, argument, x, dim, keepdim):
    """`argmax` or `argmin`, by the array function `argument`."""
    shape = array_of(x).shape
    if dim is None:
        if x.array.size == 0:
            raise IndexError(f"{name} of a tensor with no elements needs a dim to go along")
        return Tensor.from_op(name, argument(x.array).reshape((1,) * len(shape) if keepdim else ()), (x,))
    axis = axis_of(dim, len(shape))
    row = x.array if shape else x.array.reshape(1)
    check_not_empty(name, row.shape, (axis,))
    kept = with_ones(shape, (axis,)) if keepdim else without(shape, (axis,))
    return Tensor.from_op(name, argument(row, axis=axis).reshape(kept), (x,))


@quiet
def logsumexp(x, dim, keepdim=False):
    """log of the sum of e^x along `dim`, without overflow: m + log sum e^(x - m) with m the largest element.

    Over elements that are all -inf (or none) the value is -inf and the gradient zero.

    Parameters
    ----------
    x : Tensor
    dim : int or several
    keepdim : bool
        Keep the axes, with size 1.
    """
    xa = float_array(x)
    shape, axes = xa.shape, axes_of(dim, xa.ndim)
    m = xp.max(xa, axis=axes, keepdims=True, initial=-math.inf)
    m = xp.where(xp.isfinite(m), m, 0.0)  # inf - inf would be NaN
    y = xp.log(sum_axes(xp.exp(xa - m), axes)) + m
    kept = y.shape

    def backward(g):
        softmax = xp.exp(xa - xp.where(y == -math.inf, 0.0, y))
        return (g.reshape(kept) * softmax,)

    return Tensor.from_op("logsumexp", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)


# Products and running sums

def products_before(a, axis):
    """Along `axis`, the product of all elements before each one: (a, b, c) -> (1, a, ab)."""
    one = xp.ones(a.shape[:axis] + (1,) + a.shape[axis + 1:], a.dtype)
    shifted = xp.concatenate([one, a], axis=axis)[(slice(None),) * axis + (slice(0, -1),)]
    return xp.cumprod(shifted, axis=axis)


def prod(x, dim=None, keepdim=False, *, dtype=None):
    """The product along `dim`.

    Parameters
    ----------
    x : Tensor
    dim : int, or None for all
    keepdim : bool
        Keep the axis, with size 1.
    dtype : dtype, optional
        Convert to this before; by default whole numbers and truth values multiply in int64.

    Returns
    -------
    Tensor of x's shape without `dim`; 1 over no elements.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape = x.array.shape
    axis = 0 if dim is None else axis_of(dim, len(shape))
    row = x.array.reshape(-1) if dim is None or not shape else x.array
    y = xp.prod(row, axis=axis, keepdims=True)
    axes = tuple(range(len(shape))) if dim is None else (axis,)

    def backward(g):
        # dy/dx_k = (product before k) (product after k): exact where elements are zero, where y / x_k is not
        before = products_before(row, axis)
        after = xp.flip(products_before(xp.flip(row, axis), axis), axis)
        return ((g.reshape(y.shape) * before * after).reshape(shape),)

    return Tensor.from_op("prod", y.reshape(with_ones(shape, axes) if keepdim else without(shape, axes)), (x,), backward)


def cumsum(x, dim, *, dtype=None):
    """Along `dim`, the sum of all elements up to each one, itself included.

    Parameters
    ----------
    x : Tensor
    dim : int
    dtype : dtype, optional
        Convert to this before; by default whole numbers and truth values add up in int64.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape, axis = x.array.shape, axis_of(dim, x.array.ndim)
    y = xp.cumsum(x.array, axis=axis).reshape(shape)

    def backward(g):
        # an element counts in every sum from its own onwards
        row = g.reshape(shape or (1,))
        return (xp.flip(xp.cumsum(xp.flip(row, axis), axis=axis), axis).reshape(shape),)

    return Tensor.from_op("cumsum", y, (x,), backward)


def cumprod(x, dim, *, dtype=None):
    """Along `dim`, the product of all elements up to each one, itself included.

    Parameters
    ----------
    x : Tensor
    dim : int
    dtype : dtype, optional
        Convert to this before; by default whole numbers and truth values multiply in int64.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape, axis = x.array.shape, axis_of(dim, x.array.ndim)
    row = x.array if shape else x.array.reshape(1)
    y = xp.cumprod(row, axis=axis).reshape(shape)

    def backward(g):
        # gx_k = (product before k) s_k with s_k = g_k + x_{k+1} g_{k+1} + x_{k+1} x_{k+2} g_{k+2} + ...: no division,
        # so exact where elements are zero. s by doubling: once s_k holds `step` terms and p_k the product of `step`
        # factors, s_k + p_k s_{k+step} holds twice as many.
        n, lead = row.shape[axis], (slice(None),) * axis
        s = g.reshape(row.shape).copy()
        p = xp.concatenate([row[(*lead, slice(1, None))], xp.zeros_like(row[(*lead, slice(0, 1))])], axis=axis)
        step = 1
        while step < n:
            early, late = (*lead, slice(0, n - step)), (*lead, slice(step, None))
            s[early] += p[early] * s[late]
            p[early] *= p[late]
            p[(*lead, slice(n - step, None))] = 0.0
            step *= 2
        return ((products_before(row, axis) * s).reshape(shape),)

    return Tensor.from_op("cumprod", y, (x,), backward)


# Truth values

def all(x, dim=None, keepdim=False):
    """Whether all elements along `dim` (int, several, or None for all) are true; true over none."""
    xa = array_of(x)
    return Tensor.from_op("all", xp.all(xa, axis=axes_of(dim, xa.ndim), keepdims=keepdim), (x,))


def any(x, dim=None, keepdim=False):
    """Whether any element along `dim` (int, several, or None for all) is true; false over none."""
    xa = array_of(x)
    return Tensor.from_op("any", xp.any(xa, axis=axes_of(dim, xa.ndim), keepdims=keepdim), (x,))


def count_nonzero(x, dim=None):
    """How many elements along `dim` (int, several, or None for all) are not zero."""
    xa = array_of(x)
    return Tensor.from_op("count_nonzero", xp.sum(xa != 0, axis=axes_of(dim, xa.ndim), dtype=dtypes.int64), (x,))


# Norms

@quiet
def norm(x, p="fro", dim=None, keepdim=False, dtype=None):
    """The p-norm of the elements along `dim`: (sum of |x|^p)^(1/p).

    Parameters
    ----------
    x : Tensor of floating-point numbers
    p : float, or "fro" for 2
        inf is the largest magnitude, -inf the smallest, 0 the number of elements that are not zero.
    dim : int, several, or None for all
    keepdim : bool
        Keep the axes, with size 1.
    dtype : dtype, optional
        Convert to this before.

    Returns
    -------
    Tensor of x's shape without `dim`. The gradient at the zero vector is zero.
    """
    x = x if dtype is None else cast(x, dtype)
    shape, axes = floating(x, "norm").shape, axes_of(dim, x.array.ndim)
    xa, p = x.array, 2.0 if p in ("fro", None) else float(p)
    size = xp.absolute(xa)
    if math.isinf(p):
        check_not_empty("norm", shape, axes)
        y = (xp.max if p > 0 else xp.min)(size, axis=axes, keepdims=True)
    elif p == 0:
        y = xp.sum(size != 0, axis=axes, keepdims=True, dtype=xa.dtype)
    elif p == 2:
        y = xp.sqrt(sum_axes(xa * xa, axes))
    else:
        y = sum_axes(size ** p, axes) ** (1 / p)
    kept = y.shape

    def backward(g):
        g = g.reshape(kept)
        if p == 0:
            return (xp.zeros_like(xa),)
        if math.isinf(p):
            tied = size == y
            return (g / xp.sum(tied, axis=axes, keepdims=True, dtype=g.dtype) * tied * xp.sign(xa),)
        # dy/dx = sign(x) (|x| / y)^(p - 1)
        ratio = size / xp.where(y == 0, 1.0, y)
        return (g * xp.sign(xa) * xp.where(size == 0, 0.0, ratio ** (p - 1)),)

    return Tensor.from_op("norm", y if keepdim else y.reshape(without(shape, axes)), (x,), backward)
