"""Broadcasting: how two shapes become one, and how a gradient finds its way back to the smaller shape."""
import numpy

from .. import dtypes
from ..autograd import Tensor
from ..backend import to_device, xp

__all__ = ["broadcast_tensors", "broadcast_to", "expand"]


def unbroadcast(g, shape):
    """Sum the array `g` over every axis along which an input of `shape` was repeated.

    Broadcasting copies an entry, so the entry's gradient is the sum over its copies: (2, 3) -> (3,) sums the
    leading axis away, (2, 3) -> (2, 1) sums the last one and keeps it.
    """
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    axes = tuple(range(lead)) + tuple(i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1)
    return xp.sum(g, axis=axes).reshape(shape) if axes else g.reshape(shape)


def as_tensor_pair(x, y):
    """Two operands, tensors or numbers, as tensors and as arrays of the dtype of their result.

    Returns
    -------
    x, y : Tensor
        What the operation's node links to.
    x_array, y_array : arrays of the promoted dtype
    """
    if isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype:
        return x, y, x.array, y.array
    dtype = dtypes.result_type(x, y)
    x, y = (v if isinstance(v, Tensor) else Tensor.wrap(to_device(v, dtype)) for v in (x, y))
    return x, y, x.array.astype(dtype, copy=False), y.array.astype(dtype, copy=False)


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
    sizes = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    lead = len(sizes) - x.ndim
    shape = tuple(x.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(sizes))
    if lead < 0 or any(n != old and old != 1 for n, old in zip(shape[max(lead, 0):], x.shape)) or -1 in shape:
        raise RuntimeError(f"cannot expand shape {x.shape} to {tuple(sizes)}: only axes of size 1 can be repeated, "
                           "and new axes, which need an explicit size, come first")
    y = xp.broadcast_to(x.array, shape)

    def backward(g):
        return (unbroadcast(g, x_shape),)

    x_shape = x.shape
    return Tensor.from_op("expand", y, (x,), backward, view=True)


def broadcast_to(x, shape):
    """`expand` with the shape as one argument."""
    return expand(x, tuple(shape))


def broadcast_tensors(*tensors):
    """Expand all `tensors` to their common shape: (3, 1), (4,) -> (3, 4), (3, 4).

    Raises
    ------
    ValueError
        If the shapes do not fit together.
    """
    shape = numpy.broadcast_shapes(*(x.shape for x in tensors))
    return tuple(expand(x, shape) for x in tensors)
