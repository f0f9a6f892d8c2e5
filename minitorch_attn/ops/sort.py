"""Sorting along a dim. The gradient of a sorted value goes to the place that it came from."""
import numpy

from ..autograd import Tensor
from ..backend import to_device, xp
from .index import add_at_positions, at_positions, flat_positions
from .reduce import ValuesIndices, axis_of
from .shape import squeeze
from .ties import LONGEST, sort_order, top_order

__all__ = ["argsort", "kthvalue", "msort", "sort", "topk"]


def order_of(a, axis, descending):
    """Ids that sort the array `a` along `axis`: equal entries keep their order, NaN counts as the largest."""
    if not descending:
        return xp.argsort(a, axis=axis, kind="stable")
    # the ascending order of the reversed array, read backwards, has equal entries in their first order again
    back = (*[slice(None)] * axis, slice(None, None, -1))
    return a.shape[axis] - 1 - xp.argsort(a[back], axis=axis, kind="stable")[back]


def picked(op, x, axis, ids):
    """The entries of `x` with these `ids` along `axis`, and the ids, as a named tuple of tensors."""
    x_shape, kept = x.shape, ids.shape if x.ndim or not ids.size else ()
    positions = flat_positions(ids, axis, x_shape or (1,))

    def backward(g):
        return (add_at_positions(x_shape, positions, g),)

    values = Tensor.from_op(op, at_positions(x.array, positions).reshape(kept), (x,), backward)
    return ValuesIndices(values, Tensor.wrap(ids.reshape(kept)))


def settle_ties(a, axis, ids, row_order):
    """Write ``row_order(row)`` over the `ids` along `axis` of each row of `a` that ties leave more than one order for.

    `ids` are the first places of the sorted order, all of them or only some.
    """
    n, k = a.shape[axis], ids.shape[axis]
    if not 0 < k <= n <= LONGEST:
        return
    rows, ids = a.swapaxes(axis, -1).reshape(-1, n), ids.swapaxes(axis, -1)  # ids: a view, to be written through
    found = xp.take_along_axis(rows, ids.reshape(-1, k), -1)
    last = found[:, -1:]
    among = (found[:, 1:] == found[:, :-1]).any(axis=-1)
    beyond = (rows == last).sum(axis=-1) > (found == last).sum(axis=-1)
    tied = xp.nonzero(among | beyond | (rows != rows).any(axis=-1))[0].tolist()
    for row in tied:
        ids[numpy.unravel_index(row, ids.shape[:-1])] = to_device(row_order(rows[row]))


def sort(x, dim=-1, descending=False, stable=False):
    """Sort along `dim`; NaN counts as the largest.

    Differs from PyTorch: none on the CPU in rows of up to 8192 entries; in longer ones equal entries keep their order,
    stable or not.

    Parameters
    ----------
    x : Tensor
    dim : int
    descending : bool
    stable : bool
        Equal entries keep their order. Otherwise they come as PyTorch's CPU build leaves them (see `ops.ties`), which
        in rows of up to 16 and of more than 8192 entries is the same.

    Returns
    -------
    values, indices : Tensor, like `x`
        A named tuple; ``values = x.gather(dim, indices)``.

    Raises
    ------
    IndexError
        If `x` has no dim `dim`.
    """
    axis = axis_of(dim, x.ndim)
    a = x.array.reshape(x.shape or (1,))
    ids = order_of(a, axis, descending)
    if not stable and a.shape[axis] > 16:
        settle_ties(a, axis, ids, lambda row: sort_order(row, descending))
    return picked("sort", x, axis, ids)


def argsort(x, dim=-1, descending=False, stable=False):
    """The indices of `sort`."""
    return sort(x, dim, descending, stable).indices


def msort(x):
    """The values of `sort` along the first dim."""
    return sort(x, 0).values


def topk(x, k, dim=-1, largest=True, sorted=True):
    """The `k` largest entries along `dim`, largest first; of equal ones those that PyTorch takes (see `ops.ties`).

    Parameters
    ----------
    x : Tensor
    k : int
    dim : int
    largest : bool
        False takes the smallest, smallest first.
    sorted : bool
        Accepted for PyTorch's sake; the results are always in order.

    Returns
    -------
    values, indices : Tensor, like `x` but `k` along `dim`
        A named tuple.

    Raises
    ------
    IndexError
        If `x` has no dim `dim`.
    RuntimeError
        If `k` is negative or larger than the size of `dim`.
    """
    axis = axis_of(dim, x.ndim)
    a = x.array.reshape(x.shape or (1,))
    n = a.shape[axis]
    if not 0 <= k <= n:
        raise RuntimeError(f"topk: k must lie in [0, {n}], the size of dim {dim} of shape {x.shape}, got {k}")
    first = (*[slice(None)] * axis, slice(k))
    if 0 < k < n // 8 and bool((a == a).all()):  # few of many, no NaN: found first, sorted then
        candidates = candidates_of(a.swapaxes(axis, -1), k, largest).swapaxes(axis, -1)
        within = order_of(xp.take_along_axis(a, candidates, axis), axis, largest)[first]
        ids = xp.take_along_axis(candidates, within, axis)
    else:
        ids = order_of(a, axis, largest)[first]
    settle_ties(a, axis, ids, lambda row: top_order(row, k, largest))
    return picked("topk", x, axis, ids)


def candidates_of(a, k, largest):
    """Ids, in ascending order, of the `k` largest or smallest entries in each row of the array `a`, without NaN."""
    n = a.shape[-1]
    last = n - k if largest else k - 1
    threshold = xp.partition(a, last, axis=-1)[..., last:last + 1]
    beyond, tied = a > threshold if largest else a < threshold, a == threshold
    room = k - beyond.sum(axis=-1, keepdims=True)  # for so many of the tied entries, the first ones
    chosen = beyond | (tied & (xp.cumsum(tied, axis=-1) <= room))
    return xp.nonzero(chosen)[-1].reshape(*a.shape[:-1], k)


def kthvalue(x, k, dim=-1, keepdim=False):
    """The `k`-th smallest entry along `dim` (1 is the smallest), and where it stands, as a named tuple.

    Raises
    ------
    IndexError
        If `x` has no dim `dim`.
    RuntimeError
        Unless 1 <= k <= the size of `dim`.
    """
    axis = axis_of(dim, x.ndim)
    a = x.array.reshape(x.shape or (1,))
    if not 1 <= k <= a.shape[axis]:
        raise RuntimeError(f"kthvalue: k must lie in [1, {a.shape[axis]}], the size of dim {dim}, got {k}")
    ids = order_of(a, axis, False)[(*[slice(None)] * axis, slice(k - 1, k))]
    found = picked("kthvalue", x, axis, ids)
    return found if keepdim or not x.ndim else ValuesIndices(*[squeeze(v, axis) for v in found])
