"""Broadcasting: how two shapes become one, and how a gradient finds its way back to the smaller shape."""
import math

import numpy

from .. import dtypes
from ..autograd import Tensor
from ..backend import library_of, to_device, xp

__all__ = ["broadcast_tensors", "broadcast_to", "expand", "expand_as"]

OPERANDS = (Tensor, int, float, numpy.ndarray, numpy.generic)


def sum_axes(a, axes):
    """Sum of the array `a` over `axes` (ascending, not negative), which stay as axes of size 1.

    Of 256 floating-point numbers and more, sums over neighbouring axes, but not all, are matrix products with ones:
    NumPy's own loop mostly takes several times as long (float32: over the rows of (4160, 64) 130 us against 30, over
    its columns 160 against 34, over the middle axis of (64, 8, 128) 15 against 7, of (1024, 64, 2) 950 against 50).
    Over a last axis longer than 256, NumPy is as fast, and adds pairwise, which keeps more digits.
    """
    if a.dtype == dtypes.float16:
        return xp.sum(a, axis=axes, keepdims=True, dtype=dtypes.float32).astype(a.dtype)
    if a.dtype.kind != "f" or a.size < 256:
        return xp.sum(a, axis=axes, keepdims=True)
    if not a.flags.c_contiguous:
        order = sorted(range(a.ndim), key=lambda i: -a.strides[i])  # the axes as they lie in memory
        back = [order.index(i) for i in range(a.ndim)]
        if a.transpose(order).flags.c_contiguous:
            return sum_axes(a.transpose(order), tuple(sorted(back[i] for i in axes))).transpose(back)
    elif axes and axes[-1] - axes[0] < len(axes):
        shape, start, stop = a.shape, axes[0], axes[-1] + 1
        kept = shape[:start] + (1,) * len(axes) + shape[stop:]
        lead, n, tail = math.prod(shape[:start]), math.prod(shape[start:stop]), math.prod(shape[stop:])
        if tail > 1 and n > 1:
            parts = a.reshape((lead, n, tail) if start else (n, tail))
            return xp.matmul(xp.ones((1, n), a.dtype), parts).reshape(kept)  # (lead, n, tail) -> (lead, 1, tail)
        if lead > 1 and 1 < n <= 256:
            return xp.matmul(a.reshape(lead, n), xp.ones((n, 1), a.dtype)).reshape(kept)  # (lead, n) -> (lead, 1)
    return xp.sum(a, axis=axes, keepdims=True)


def unbroadcast(g, shape):
    """Sum the array `g` over every axis along which an input of `shape` was repeated.

    Broadcasting copies an entry, so the entry's gradient is the sum over its copies: (2, 3) -> (3,) sums the
    leading axis away, (2, 3) -> (2, 1) sums the last one and keeps it.
    """
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1)
    return (sum_axes(g, axes) if axes else g).reshape(shape)


def cast(x, dtype):
    """The tensor `x` in another dtype, `x` itself if that is its own; the gradient is cast back."""
    x_dtype = x.array.dtype
    if x_dtype == dtype:
        return x

    def backward(g):
        return (g.astype(x_dtype),)

    return Tensor.from_op("cast", x.array.astype(dtype), (x,), backward if dtype.kind == "f" else None)


def number(x):
    """A real number as a Python float, which takes on the dtype of the arrays that it meets.

    NumPy's own numbers do not: ``float32 array * numpy.float64(2)`` is float64. So each function that computes with a
    number passes it through here first. Raises TypeError for a tensor that requires grad, as it would get none.
    """
    if isinstance(x, Tensor) and x.requires_grad:
        raise TypeError("expected a plain number, got a tensor that requires grad, which would get no gradient here; "
                        ".item() makes a number of it")
    return float(x)


def as_tensor_pair(x, y):
    """Two operands, tensors or numbers, as tensors of the dtype of their result, and the arrays of these.

    Returns
    -------
    x, y : Tensor
        What the operation's node links to.
    x_array, y_array : arrays of the promoted dtype

    Raises
    ------
    TypeError
        If an operand is neither a tensor, nor an array, nor a real number.
    RuntimeError
        If the shapes do not fit together.
    """
    x_is_tensor, y_is_tensor = isinstance(x, Tensor), isinstance(y, Tensor)
    if x_is_tensor and y_is_tensor and x.array.dtype == y.array.dtype:
        pass
    elif x_is_tensor and keeps_dtype(y, x.array.dtype.kind):
        y_array = xp.asarray(y, x.array.dtype)
        return x, Tensor.wrap(y_array), x.array, y_array  # a number fits every shape
    elif y_is_tensor and keeps_dtype(x, y.array.dtype.kind):
        x_array = xp.asarray(x, y.array.dtype)
        return Tensor.wrap(x_array), y, x_array, y.array
    else:
        for v in (x, y):
            if not isinstance(v, OPERANDS) and not isinstance(v, xp.ndarray):
                raise TypeError(f"expected a tensor or a number, got {kind_of(v)}; tensor(...) makes one of it")
        dtype = dtypes.result_type(x, y)
        x, y = (cast(v, dtype) if isinstance(v, Tensor) else Tensor.wrap(to_device(v, dtype)) for v in (x, y))
    x_array, y_array = x.array, y.array
    if x_array.shape != y_array.shape:
        check_shapes(x_array.shape, y_array.shape)
    return x, y, x_array, y_array


def kind_of(x):
    """The name of `x`'s type, with its library before it: other libraries have a Tensor, too."""
    library = library_of(x)
    return type(x).__name__ if library == "builtins" else f"{library}.{type(x).__name__}"


def keeps_dtype(number, kind):
    """Whether `number` is a plain one and changes no dtype of that kind, seen faster than by `result_type`."""
    return kind in "if" and (type(number) is int or (type(number) is float and kind == "f"))


def check_shapes(a, b):
    """Raise RuntimeError unless the shapes `a` and `b` broadcast against each other."""
    for i, (n, m) in enumerate(zip(a[::-1], b[::-1])):
        if n != m and n != 1 and m != 1:
            raise RuntimeError(f"shapes {a} and {b} do not fit together: the sizes {n} and {m} at dim {-1 - i} are "
                               "neither equal nor 1; unsqueeze adds an axis of size 1, transpose swaps two")


def expand(x, *sizes):
    """Repeat axes of size 1, and add leading axes, without copying: (3, 1) -> (3, 4), (2, 3, 4).

    Parameters
    ----------
    x : Tensor
    sizes : int ... or one sequence
        The new shape; -1 keeps the size of an existing axis.

    Returns
    -------
    Tensor of that shape; a view.

    Raises
    ------
    RuntimeError
        If an axis whose size is not 1 would change, or a new leading axis is -1.
    """
    sizes = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    x_shape, lead = x.shape, len(sizes) - x.ndim
    shape = tuple(x_shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(sizes))
    if lead < 0 or any(n != old and old != 1 for n, old in zip(shape[lead:], x_shape)) or min(shape, default=0) < 0:
        raise RuntimeError(f"cannot expand shape {x_shape} to {sizes}: only axes of size 1 can be repeated, and new "
                           "axes, which need an explicit size, come first")

    def backward(g):
        return (unbroadcast(g, x_shape),)

    return Tensor.from_op("expand", xp.broadcast_to(x.array, shape), (x,), backward, view=True)


def expand_as(x, other):
    """`expand` to the shape of the tensor `other`."""
    return expand(x, other.shape)


def broadcast_to(x, shape):
    """`expand` with the shape as one argument."""
    return expand(x, tuple(shape))


def broadcast_tensors(*tensors):
    """Expand all `tensors` to their common shape: (3, 1), (4,) -> (3, 4), (3, 4).

    Raises
    ------
    RuntimeError
        If the shapes do not fit together.
    """
    try:
        shape = numpy.broadcast_shapes(*(x.shape for x in tensors))
    except ValueError:
        raise RuntimeError("these shapes do not broadcast: " + ", ".join(str(x.shape) for x in tensors)) from None
    return tuple(expand(x, shape) for x in tensors)
