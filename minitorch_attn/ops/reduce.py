"""Operations that make fewer elements of many, along some axes or all, and running sums and products.

`dim` is a dimension, counted from the end if negative, or several of them where the docstring says so. Inside, `axes`
are the same dimensions, none negative. NumPy's words ``axis`` and ``keepdims`` may stand for ``dim`` and ``keepdim``.
"""
import functools
import math
from collections import namedtuple

from .. import dtypes
from ..autograd import Tensor
from ..backend import masked, quiet, xp
from .broadcast import cast, sum_axes
from .elementwise import array_of, float_array, maximum, minimum

__all__ = [
    "all", "amax", "amin", "any", "argmax", "argmin", "count_nonzero", "cumprod", "cumsum", "logsumexp", "max", "mean",
    "min", "norm", "prod", "std", "std_mean", "sum", "var", "var_mean",
]

ValuesIndices = namedtuple("ValuesIndices", ["values", "indices"])


def numpy_words(op):
    """Let `op` be called with NumPy's words, too."""
    @functools.wraps(op)
    def renamed(*args, **words):
        for theirs, ours in (("axis", "dim"), ("keepdims", "keepdim")):
            if theirs in words:
                words[ours] = words.pop(theirs)
        return op(*args, **words)
    return renamed


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
    axes = sorted(axis_of(d, ndim) for d in ((dim,) if hasattr(dim, "__index__") else dim))
    if len(set(axes)) < len(axes):
        raise RuntimeError(f"dim {tuple(dim)} names an axis twice")
    return tuple(axes) if ndim else ()


def without(shape, axes):
    """`shape` without `axes`."""
    return tuple(n for i, n in enumerate(shape) if i not in axes)


def with_ones(shape, axes):
    """`shape` with size 1 at `axes`: that of a result that kept them, which broadcasts against the input."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def finished(y, axes, keepdim):
    """The array `y` as a result: it kept `axes` with size 1, and without `keepdim` loses them."""
    return y if keepdim else y.reshape(without(y.shape, axes))


def count(shape, axes):
    """How many elements each result is made of."""
    return math.prod(shape[i] for i in axes)


def summed_dtype(dtype):
    """The dtype of a sum of elements of `dtype`: integers and booleans add up in int64."""
    return dtype if dtype.kind == "f" else dtypes.int64


def require_float(x, name):
    """The array of the tensor `x`, which must hold floating-point numbers."""
    if array_of(x).dtype.kind != "f":
        raise RuntimeError(f"{name} needs a floating-point tensor, got {x.dtype}; convert with x.float()")
    return x.array


def wide(a):
    """The array `a` in float32 if it is float16, where sums and squares soon overflow; else itself."""
    return a.astype(dtypes.float32) if a.dtype == dtypes.float16 else a


# Sums

@numpy_words
@quiet
def sum(x, dim=None, keepdim=False, *, dtype=None):
    """The sum along `dim`.

    Parameters
    ----------
    x : Tensor
    dim : int, several, or None for all
    keepdim : bool
        Keep the summed axes, with size 1.
    dtype : dtype, optional
        Convert to this before; by default integers and booleans add up in int64.

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

    return Tensor.from_op("sum", finished(y, axes, keepdim), (x,), backward)


@numpy_words
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
        If the elements are integers or booleans.
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    x = x if dtype is None else cast(x, dtype)
    shape, axes = require_float(x, "mean").shape, axes_of(dim, x.array.ndim)
    kept, n = with_ones(shape, axes), count(shape, axes)
    y = (sum_axes(wide(x.array), axes) / n).astype(x.array.dtype, copy=False)

    def backward(g):
        return (xp.broadcast_to((wide(g) / n).astype(g.dtype, copy=False).reshape(kept), shape),)

    return Tensor.from_op("mean", finished(y, axes, keepdim), (x,), backward)


# Spread

@quiet
def spread(name, x, dim, unbiased, correction):
    """What `var` and `std` start from.

    Returns
    -------
    axes : tuple of int
    deviation : array like x, x - mean; of float16 in float32, as is the variance
    divisor : number, n - correction, but not negative
    variance : array, the mean of the squared deviations by that divisor, with size 1 at `axes`
    """
    if isinstance(dim, bool):  # var(x, False), the older way to write the correction
        dim, unbiased = None, dim
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}: give unbiased or correction, not both; unbiased=True is correction=1, False is 0")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    a = wide(require_float(x, name))
    axes = axes_of(dim, a.ndim)
    n = count(a.shape, axes)
    divisor = n - correction if n > correction else 0
    deviation = a - sum_axes(a, axes) / n
    return axes, deviation, divisor, sum_axes(deviation * deviation, axes) / divisor


@numpy_words
@quiet
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
    Tensor of x's shape without `dim`; infinite or NaN where n <= correction.

    Raises
    ------
    RuntimeError
        If x holds integers or booleans.
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    axes, deviation, divisor, y = spread("var", x, dim, unbiased, correction)
    kept = y.shape

    def backward(g):
        # dy/dx = 2 (x - mean) / divisor: the mean depends on x, too, but the deviations from it add up to 0
        return ((2 * wide(g).reshape(kept) / divisor * deviation).astype(g.dtype, copy=False),)

    result = y.astype(x.dtype, copy=False)
    return Tensor.from_op("var", finished(result, axes, keepdim), (x,), backward)


@numpy_words
@quiet
def std(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """The standard deviation along `dim`: the square root of `var`, with the same parameters.

    Where all elements are equal, the gradient is 0.
    """
    axes, deviation, divisor, variance = spread("std", x, dim, unbiased, correction)
    y = xp.sqrt(variance)
    kept = y.shape

    def backward(g):
        # d sqrt(v) = dv / (2 sqrt(v)); where v = 0 all deviations are 0, so anything but 0 below makes the gradient 0
        gx = wide(g).reshape(kept) / (xp.where(y == 0, 1.0, y) * divisor) * deviation
        return (gx.astype(g.dtype, copy=False),)

    result = y.astype(x.dtype, copy=False)
    return Tensor.from_op("std", finished(result, axes, keepdim), (x,), backward)


@numpy_words
def var_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """`var` and `mean` as a pair."""
    average = mean(x, None if isinstance(dim, bool) else dim, keepdim)
    return var(x, dim, unbiased, keepdim, correction=correction), average


@numpy_words
def std_mean(x, dim=None, unbiased=None, keepdim=False, *, correction=None):
    """`std` and `mean` as a pair."""
    average = mean(x, None if isinstance(dim, bool) else dim, keepdim)
    return std(x, dim, unbiased, keepdim, correction=correction), average


# Largest and smallest

def check_not_empty(name, shape, axes):
    """Raise where a largest element is asked of none."""
    for i in axes:
        if shape[i] == 0:
            raise IndexError(f"{name}: dim {i} of shape {shape} has no elements, so there is none to choose")


def check_any(name, x):
    """Raise where a largest element is asked of a whole tensor that has none."""
    if array_of(x).size == 0:
        raise RuntimeError(f"{name} of shape {x.shape}: there is no element")


@numpy_words
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


@numpy_words
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
        share = g.reshape(kept) / xp.sum(tied, axis=axes, keepdims=True, dtype=g.dtype)
        return (masked(share, tied),)

    return Tensor.from_op(name, finished(y, axes, keepdim), (x,), backward)


@numpy_words
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
    if isinstance(dim, Tensor):
        return maximum(x, dim)
    if dim is not None:
        return extreme_along("max", xp.argmax, x, dim, keepdim)
    check_any("max", x)
    return amax(x)


@numpy_words
def min(x, dim=None, keepdim=False):
    """The smallest element, with parameters and results as of `max`."""
    if isinstance(dim, Tensor):
        return minimum(x, dim)
    if dim is not None:
        return extreme_along("min", xp.argmin, x, dim, keepdim)
    check_any("min", x)
    return amin(x)


def extreme_along(name, find, x, dim, keepdim):
    """`max` or `min` along one `dim`, by the array function `find` that says where."""
    shape, axis = array_of(x).shape, axis_of(dim, x.array.ndim)
    row = xp.atleast_1d(x.array)
    index = xp.atleast_1d(index_of("arg" + name, find, x, dim, keepdim=True).array)
    values = xp.take_along_axis(row, index, axis)
    along = xp.arange(row.shape[axis]).reshape((-1,) + (1,) * (row.ndim - 1 - axis))  # (n, 1, ...), n along `axis`

    def backward(g):
        return (xp.where(along == index, g.reshape(index.shape), 0.0).reshape(shape),)

    out_shape = with_ones(shape, (axis,)) if keepdim else without(shape, (axis,))
    values = Tensor.from_op(name, values.reshape(out_shape), (x,), backward)
    return ValuesIndices(values, Tensor.from_op("arg" + name, index.reshape(out_shape), (x,)))


@numpy_words
def argmax(x, dim=None, keepdim=False):
    """Where the largest element along `dim` stands (without it, in the flattened tensor); the first of equal ones.

    Raises
    ------
    IndexError
        If there is no element, or `dim` lies outside [-ndim, ndim).
    """
    return index_of("argmax", xp.argmax, x, dim, keepdim)


@numpy_words
def argmin(x, dim=None, keepdim=False):
    """Where the smallest element along `dim` stands, see `argmax`."""
    return index_of("argmin", xp.argmin, x, dim, keepdim)


def index_of(name, find, x, dim, keepdim):
    """`argmax` or `argmin`, by the array function `find`."""
    shape = array_of(x).shape
    if dim is None:
        if x.array.size == 0:
            raise IndexError(f"{name} of shape {shape}: there is no element")
        return Tensor.from_op(name, find(x.array).reshape((1,) * len(shape) if keepdim else ()), (x,))
    axis = axis_of(dim, len(shape))
    check_not_empty(name, shape, axes_of(dim, len(shape)))
    index = find(xp.atleast_1d(x.array), axis=axis)
    return Tensor.from_op(name, index.reshape(with_ones(shape, (axis,)) if keepdim else without(shape, (axis,))), (x,))


@numpy_words
@quiet
def logsumexp(x, dim, keepdim=False):
    """log of the sum of e^x along `dim`, without overflow: m + log sum e^(x - m) with m the largest element.

    Over elements that are all -inf (or none) the value is -inf and the gradient zero.

    Differs from PyTorch: over entries that are all -inf the gradient is 0, not NaN.

    Parameters
    ----------
    x : Tensor
    dim : int or several
    keepdim : bool
        Keep the axes, with size 1.
    """
    xa = float_array(x)
    shape, axes = xa.shape, axes_of(dim, xa.ndim)
    m = xp.max(xa, axis=axes, keepdims=True) if xa.size else xp.zeros(with_ones(shape, axes), xa.dtype)
    m = xp.where(xp.isfinite(m), m, 0.0)  # inf - inf would be NaN
    e = xp.exp(xa - m)
    total = sum_axes(e, axes)
    y = xp.log(total) + m
    kept = y.shape

    def backward(g):
        # dy/dx = e^x / sum e^x, the softmax; where every x is -inf, 0 / 1 instead of 0 / 0
        return (g.reshape(kept) / xp.where(total == 0, 1.0, total) * e,)

    return Tensor.from_op("logsumexp", finished(y, axes, keepdim), (x,), backward)


# Products and running sums

def products_before(a, axis):
    """Along `axis`, the product of all elements before each one: (a, b, c) -> (1, a, ab)."""
    one = xp.ones((*a.shape[:axis], 1, *a.shape[axis + 1:]), a.dtype)
    shifted = xp.concatenate([one, a], axis=axis)[(slice(None),) * axis + (slice(0, -1),)]
    return xp.cumprod(shifted, axis=axis)


@numpy_words
@quiet
def prod(x, dim=None, keepdim=False, *, dtype=None):
    """The product along `dim`.

    Parameters
    ----------
    x : Tensor
    dim : int, or None for all
    keepdim : bool
        Keep the axis, with size 1.
    dtype : dtype, optional
        Convert to this before; by default integers and booleans multiply in int64.

    Returns
    -------
    Tensor of x's shape without `dim`; 1 over no elements.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape = x.array.shape
    axis = 0 if dim is None else axis_of(dim, len(shape))
    row = x.array.reshape(-1) if dim is None else xp.atleast_1d(x.array)
    y = xp.prod(row, axis=axis, keepdims=True)
    axes = tuple(range(len(shape))) if dim is None else (axis,)

    def backward(g):
        # dy/dx_k = (product before k) (product after k): exact where elements are zero, where y / x_k is not
        before = products_before(row, axis)
        after = xp.flip(products_before(xp.flip(row, axis), axis), axis)
        return ((g.reshape(y.shape) * before * after).reshape(shape),)

    out_shape = with_ones(shape, axes) if keepdim else without(shape, axes)
    return Tensor.from_op("prod", y.reshape(out_shape), (x,), backward)


@numpy_words
@quiet
def cumsum(x, dim, *, dtype=None):
    """Along `dim`, the sum of all elements up to each one, itself included.

    Parameters
    ----------
    x : Tensor
    dim : int
    dtype : dtype, optional
        Convert to this before; by default integers and booleans add up in int64.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape, axis = x.array.shape, axis_of(dim, x.array.ndim)
    y = xp.cumsum(x.array, axis=axis).reshape(shape)

    def backward(g):
        # an element counts in every sum from its own onwards
        row = xp.flip(xp.atleast_1d(g), axis)
        return (xp.flip(xp.cumsum(row, axis=axis), axis).reshape(shape),)

    return Tensor.from_op("cumsum", y, (x,), backward)


@numpy_words
@quiet
def cumprod(x, dim, *, dtype=None):
    """Along `dim`, the product of all elements up to each one, itself included.

    Parameters
    ----------
    x : Tensor
    dim : int
    dtype : dtype, optional
        Convert to this before; by default integers and booleans multiply in int64.
    """
    x = cast(x, dtype or summed_dtype(array_of(x).dtype))
    shape, axis = x.array.shape, axis_of(dim, x.array.ndim)
    row = xp.atleast_1d(x.array)
    y = xp.cumprod(row, axis=axis).reshape(shape)

    def backward(g):
        # gx_k = (product before k) s_k with s_k = g_k + x_{k+1} s_{k+1}: no division, so exact where an element is 0.
        # Unrolled `step` times: s_k = (first `step` terms) + p_k s_{k+step} with p_k = x_{k+1} ... x_{k+step}; each
        # pass doubles `step`.
        s, p = xp.moveaxis(xp.atleast_1d(g), axis, 0).copy(), xp.moveaxis(row, axis, 0)[1:]
        n, step = len(s), 1
        while step < n:
            s[:n - step] += p[:n - step] * s[step:]
            p = p[:-step] * p[step:]
            step *= 2
        return ((products_before(row, axis) * xp.moveaxis(s, 0, axis)).reshape(shape),)

    return Tensor.from_op("cumprod", y, (x,), backward)


# Booleans

@numpy_words
def all(x, dim=None, keepdim=False):
    """Whether all elements along `dim` (int, several, or None for all) are true; true over none.

    Differs from PyTorch: of uint8 it is bool too; the same holds for `any`.
    """
    xa = array_of(x)
    return Tensor.from_op("all", xp.all(xa, axis=axes_of(dim, xa.ndim), keepdims=keepdim), (x,))


@numpy_words
def any(x, dim=None, keepdim=False):
    """Whether any element along `dim` (int, several, or None for all) is true; false over none."""
    xa = array_of(x)
    return Tensor.from_op("any", xp.any(xa, axis=axes_of(dim, xa.ndim), keepdims=keepdim), (x,))


@numpy_words
def count_nonzero(x, dim=None):
    """How many elements along `dim` (int, several, or None for all) are not zero."""
    xa = array_of(x)
    return Tensor.from_op("count_nonzero", xp.sum(xa != 0, axis=axes_of(dim, xa.ndim), dtype=dtypes.int64), (x,))


# Norms

@numpy_words
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

    Raises
    ------
    NotImplementedError
        If `p` is another name of a matrix norm.
    RuntimeError
        If x holds integers or booleans.
    IndexError
        If `dim` lies outside [-ndim, ndim), or an infinite norm is asked of no elements.
    """
    if isinstance(p, str) and p != "fro":
        raise NotImplementedError(f"norm knows p as a number or 'fro', not {p!r}")
    p = 2.0 if p == "fro" else float(p)
    x = x if dtype is None else cast(x, dtype)
    xa = wide(require_float(x, "norm"))
    shape, axes = xa.shape, axes_of(dim, xa.ndim)
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
        if p == 0:
            return (xp.zeros(shape, g.dtype),)
        ratio = xa / xp.where(y == 0, 1.0, y)
        if p == 2:
            dydx = ratio
        elif math.isinf(p):
            tied = size == y
            dydx = tied / xp.sum(tied, axis=axes, keepdims=True, dtype=xa.dtype) * xp.sign(xa)
        else:  # sign(x) (|x| / y)^(p - 1), and 0 where x is 0, or y because a negative power of a 0 is infinite
            dydx = xp.sign(xa) * xp.where((xa == 0) | (y == 0), 0.0, xp.absolute(ratio) ** (p - 1))
        return ((wide(g).reshape(kept) * dydx).astype(g.dtype, copy=False),)

    result = y.astype(x.dtype, copy=False)
    return Tensor.from_op("norm", finished(result, axes, keepdim), (x,), backward)
