"""Reading and writing entries chosen by an index: ``x[...]``, gather, scatter and their kin.

An index is what stands between the brackets, or the tensor that gather and its kin take; the integers in it are ids,
each counted along one dim. A position is an id in the flattened tensor. Reading may pick an entry twice, so its
gradient adds up what comes back from all readings of an entry. Ids out of range raise IndexError before anything is
read or written, whatever library computes.
"""
import math
import operator
from collections import namedtuple

import numpy

from .. import dtypes, grad_mode
from ..autograd import Partial, Tensor
from ..backend import add_rows, check_index, shares_memory, to_device, to_host, write_entries, xp
from ..memory import Storage
from .broadcast import broadcast_tensors, expand, unbroadcast
from .elementwise import array_of
from .reduce import axis_of
from .shape import piece_of, reshape, same_layout

__all__ = [
    "argwhere", "bincount", "gather", "getitem", "index_add", "index_copy", "index_fill", "index_select",
    "masked_select", "nonzero", "repeat_interleave", "scatter", "scatter_add", "setitem", "take", "take_along_dim",
    "unique",
]


# x[index]

class Place(namedtuple("Place", ["basic", "picks", "repeats"])):
    """What an index chooses, in two steps: ``a[basic]`` is a view, and ``[picks]`` picks from that.

    In NumPy's terms the first step is basic indexing and the second advanced indexing: in ``x[2, :, [0, 3]]``
    basic is ``(2, :, :)``, and picks, from the two dims that this leaves, ``(:, [0, 3])``.

    basic : tuple of int, slice, None and Ellipsis.
    picks : tuple with, for each dim of the view, an array of ids from 0 or ``slice(None)``; empty if there are no ids.
    repeats : bool, whether an entry may be picked twice (a mask picks none twice).
    """
    __slots__ = ()

    def read(self, a):
        """The chosen entries of the array `a`; a view of it if nothing is picked by id."""
        a = a[self.basic]
        if sum([not isinstance(v, slice) for v in self.picks]) == 1:
            return xp.take(a, self.picks[-1], axis=len(self.picks) - 1)
        if not self.picks:
            return a
        a, picks = side_by_side(a, self.picks)
        return xp.asarray(a[picks], order="C")

    def write(self, a, values):
        """Put `values`, which broadcast, in the chosen entries of `a`; of several for one entry the last stays."""
        a, picks = side_by_side(a[self.basic], self.picks)
        if self.repeats:
            write_entries(a, picks, values)
        else:
            a[picks or ...] = values


def side_by_side(a, picks):
    """A view of the array `a` and ids for it that choose as `picks` does, with no dims between those that have ids.

    Where some stand between, these come first, for there the chosen entries' common dims go (dpnp refuses the rest).
    """
    dims = [i for i, v in enumerate(picks) if not isinstance(v, slice)]
    if not dims or dims[-1] - dims[0] < len(dims):
        return a, picks
    return xp.moveaxis(a, dims, tuple(range(len(dims)))), tuple(picks[i] for i in dims)


def as_item(item):
    """One item of an index as an int, slice, None, Ellipsis, mask, or array of ids."""
    if item is None or item is Ellipsis or type(item) is int:
        return item
    if isinstance(item, slice):
        start, stop, step = [v if v is None or type(v) is int else operator.index(v)
                             for v in (item.start, item.stop, item.step)]
        if step is not None and step < 1:
            raise ValueError(f"a slice's step must be at least 1, got {step}; to reverse use flip()")
        return slice(start, stop, step)
    if isinstance(item, (Tensor, xp.ndarray, numpy.ndarray)):
        array = array_of(item) if isinstance(item, Tensor) else item
        array = array != 0 if array.dtype == dtypes.uint8 else array  # uint8 was PyTorch's first dtype for masks
    else:
        if isinstance(item, list):
            item = [to_host(array_of(v)) if isinstance(v, Tensor) else v for v in item]
        array = numpy.array(item)
        array = array if array.size else array.astype("int64")
    if array.dtype.kind not in "iub":
        raise IndexError("an index has ints, slices, None, ... and lists or tensors of integers or booleans, "
                         f"got {item!r}")
    array = to_device(array)
    if array.dtype.kind == "b":
        return array
    return array.astype(dtypes.int64) if array.ndim else int(array)  # a copy: a later write to the ids changes nothing


def from_front(ids, size):
    """Ids from -size to size - 1, of which negative ones count from the end, as ids from 0."""
    if not ids.size:
        return ids
    low, high = int(ids.min()), int(ids.max())
    if low < -size or high >= size:
        raise IndexError(f"index {low if low < -size else high} is out of range for a dim of size {size}")
    return xp.where(ids < 0, ids + size, ids) if low < 0 else ids


def place_of(shape, index):
    """The `Place` that ``x[index]`` means for a tensor of that shape.

    An int or 0-d tensor drops a dim, a slice cuts one, None adds one, ``...`` stands for all dims not named. A list or
    tensor of ids picks along one dim, a mask of k dims picks among the k dims it covers.
    """
    items = [as_item(v) for v in (index if isinstance(index, tuple) else (index,))]
    if not any([isinstance(v, xp.ndarray) for v in items]):
        # with "..." NumPy gives an array also where a single entry is left
        return Place((*items, Ellipsis) if Ellipsis not in items else tuple(items), (), False)
    unnamed = len(shape) - sum([dims_covered(v) for v in items])
    if unnamed < 0:
        raise IndexError(f"{len(shape) - unnamed} indices are too many for shape {shape}")
    dots = next((i for i, v in enumerate(items) if v is Ellipsis), len(items))
    items[dots:dots + 1] = [slice(None)] * unnamed  # what "..." stands for; where it is left out, it stands last
    basic, picks, dim = [], [], 0
    for v in items:
        if v is Ellipsis:
            continue  # a second one, for which nothing is left
        if v is None or isinstance(v, slice):
            for_basic, for_picks = [v], [slice(None)]
        elif isinstance(v, int):
            for_basic, for_picks = place_of_int(v, shape, dim)
        elif v.dtype.kind == "b":
            for_basic, for_picks = place_of_mask(v, shape, dim)
        else:
            for_basic, for_picks = [slice(None)], [from_front(v, shape[dim])]
        basic, picks, dim = basic + for_basic, picks + for_picks, dim + dims_covered(v)
    while picks and isinstance(picks[-1], slice):
        picks.pop()
    shapes = [v.shape for v in picks if not isinstance(v, slice)]
    if len(set(shapes)) > 1:
        check_shapes(shapes)
    repeats = any([isinstance(v, xp.ndarray) and v.dtype.kind != "b" for v in items])
    return Place((*basic, Ellipsis), tuple(picks), repeats)


def dims_covered(item):
    """How many dims of a tensor one item of an index is about; of ``...`` and None, none."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, xp.ndarray) and item.dtype.kind == "b" else 1


def place_of_int(v, shape, dim):
    """What the int `v` adds to basic and picks: it drops the dim, so nothing is left to pick from."""
    if not -shape[dim] <= v < shape[dim]:
        raise IndexError(f"index {v} is out of range for dim {dim} of shape {shape}")
    return [v], []


def place_of_mask(v, shape, dim):
    """What the mask `v`, which begins at `dim`, adds to basic and picks: the ids where it is True."""
    if v.shape != shape[dim:dim + v.ndim]:
        raise IndexError(f"a mask of shape {v.shape} does not fit shape {shape} from dim {dim} on")
    # a single True or False picks, or not, along a new dim
    return [slice(None)] * v.ndim or [None], list(xp.nonzero(v.reshape(v.shape or 1)))


def check_shapes(shapes):
    """Raise IndexError unless ids of these shapes broadcast together."""
    try:
        numpy.broadcast_shapes(*shapes)
    except ValueError:
        raise IndexError(f"the ids have shapes {', '.join(map(str, shapes))}, which do not fit together: each dim "
                         "must have one size, or 1") from None


def getitem(x, index):
    """``x[index]``.

    Ints, slices, None and ``...`` give a view. Lists, arrays and tensors of ids, of which negative ones count from the
    end, and masks give a copy. Several of them broadcast together, and the dims that come of it stand where the first
    stood, or in front if something else stands between them.

    Raises
    ------
    IndexError
        If an id is out of range, a mask has not the shape of the dims it covers, or there are too many indices.
    ValueError
        If a slice steps backwards.
    """
    if type(index) is slice and x.ndim:  # the commonest, and it needs no more
        return piece_of("getitem", x, (as_item(index),))
    return read("getitem", x, place_of(x.shape, index))


def read(op, x, place):
    """The entries of `x` at `place`, as an operation named `op`."""
    x_shape = x.shape
    basic, picks, repeats = place

    def backward(g):
        if not picks:
            return (Partial(basic, g),)
        view_shape = numpy.broadcast_to(0, x_shape)[basic].shape
        if repeats:
            gview = sum_at(view_shape, picks, g)
        else:
            gview = xp.zeros(view_shape, g.dtype)
            view, ids = side_by_side(gview, picks)
            view[ids] = g
        return (gview if view_shape == x_shape else Partial(basic, gview),)

    return Tensor.from_op(op, place.read(x.array), (x,), backward, view=not picks)


def sum_at(shape, picks, values):
    """Zeros of `shape` with ``[picks] += values``, where an entry picked twice is added to twice."""
    dims = [i for i, v in enumerate(picks) if not isinstance(v, slice)]
    front, rest = [shape[i] for i in dims], [n for i, n in enumerate(shape) if i not in dims]
    ids = xp.broadcast_arrays(*[picks[i] for i in dims])
    if dims[-1] - dims[0] < len(dims):  # side by side, so their common dims stand there in `values`, else in front
        common = ids[0].ndim
        values = xp.moveaxis(values, tuple(range(dims[0], dims[0] + common)), tuple(range(common)))
    sums = xp.zeros((math.prod(front), *rest), values.dtype)
    add_rows(sums, flat_ids(ids, front), values)
    return xp.moveaxis(sums.reshape(*front, *rest), tuple(range(len(dims))), dims)  # (front, rest) -> shape


def flat_ids(ids, shape):
    """Ids along the first dims of an array of `shape`, as ids of the same entries once these dims are merged."""
    flat = ids[0]
    for more, size in zip(ids[1:], shape[1:]):
        flat = flat * size + more
    return flat


def setitem(x, index, value):
    """``x[index] = value``: write `value`, which broadcasts and takes the dtype of `x`, into the chosen entries.

    In a graph the write is recorded: `value` receives the gradient of the entries, what they held before none.

    Differs from PyTorch: where an index occurs twice, only the value that stays receives a gradient; PyTorch gives one
    to all of them.

    Raises
    ------
    IndexError, ValueError
        As `getitem`.
    RuntimeError
        If `value` does not broadcast to the chosen entries, or `x` is a leaf that requires grad, outside no_grad.
        Nothing has been written then.
    """
    place = place_of(x.shape, index)
    value = value if isinstance(value, Tensor) else Tensor.wrap(to_device(value))
    try:
        if grad_mode.enabled and x.dtype.kind == "f" and (x.requires_grad or value.requires_grad):
            record_write(x, place, value)
        else:
            x.check_writable()
            value.check_current()
            place.write(x.array, value.array)
            x.mark_written()
    except ValueError as error:
        chosen = place.read(x.array).shape
        raise RuntimeError(f"a value of shape {value.shape} cannot be written to {chosen}: {error}") from error


def record_write(x, place, value):
    """Write `value` to `x` as an operation in the graph.

    ``x[i] += v`` is three steps. With S the storage that `x` has before them, S.replaced is, after each:

        part = x[i]     ()                            part, a view of x, has the storage S as well
        part += v       ((x[i], P),)                  part has gone on with a storage P: x[i] is out of date
        x[i] = part     ((x[i], P), (x, X))           x has gone on with a storage X, and part is a view of it again

    So before the third step x is out of date, but only in the entries that the step overwrites: it may go on.
    """
    storage, array = x.storage, x.array
    chosen = array[place.basic]

    def is_own_view(old, new):
        return not place.picks and value.requires_grad and new is value.storage and same_entries(old, chosen)

    still_stale = tuple([pair for pair in storage.replaced if not is_own_view(*pair)])
    written_back = len(still_stale) < len(storage.replaced)
    if written_back:
        x.storage = Storage()
        x.storage.replaced = still_stale
    try:
        x.assign(with_entries("setitem", x, place, value))
    except Exception:
        x.storage = storage
        raise
    if written_back:
        storage.replaced = (*storage.replaced, (array, x.storage))
        _rebind_view(value, x, place)


def _rebind_view(part, x, place):
    """Make `part`, just written to `x` at `place`, a view of `x` again; other views of its memory are out of date."""
    part.storage.replaced = (*part.storage.replaced, (part.array, x.storage))
    view = read("getitem", x, place)
    part.array, part.node, part.storage = view.array, view.node, view.storage


def same_entries(a, b):
    """Whether two arrays are the same entries of the same memory in the same order."""
    first = (*[slice(1)] * a.ndim, Ellipsis)
    return (a.shape, a.strides) == (b.shape, b.strides) and shares_memory(a[first], b[first])


def with_entries(op, x, place, value):
    """A copy of `x` with `value` at `place`, as an operation named `op`."""
    y = same_layout(x.array)
    place.write(y, value.array)
    x_shape, value_shape, value_dtype = x.shape, value.shape, value.dtype
    x_needs, value_needs = x.requires_grad, value.requires_grad

    def backward(g):
        gx = gvalue = None
        if x_needs:
            gx = g.copy()
            place.write(gx, 0.0)
        if value_needs:
            gvalue = place.read(g)
            if place.repeats:
                gvalue = xp.where(last_writers(place, x_shape, gvalue.shape), gvalue, 0.0)
            gvalue = gvalue.reshape((1,) * (len(value_shape) - gvalue.ndim) + gvalue.shape)
            gvalue = unbroadcast(gvalue, value_shape).astype(value_dtype, copy=False)
        return gx, gvalue

    return Tensor.from_op(op, y, (x, value), backward)


def last_writers(place, x_shape, shape):
    """Which entries of values of `shape` stay when they are written at `place`: of several for one entry, the last."""
    turn = xp.arange(math.prod(shape)).reshape(shape)
    last = xp.zeros(x_shape, turn.dtype)
    place.write(last, turn)
    return place.read(last) == turn


# Whole slices by id

def slices_at(name, x, dim, index):
    """The `Place` of the slices of `x` along `dim` that the 1-d tensor `index` names."""
    if array_of(index).ndim > 1 or index.dtype.kind not in "iu":
        raise IndexError(f"{name} needs an index of one dim of integers, got {index.dtype}, shape {index.shape}")
    dim, ids = axis_of(dim, x.ndim), index.array.reshape(-1).astype(dtypes.int64)  # a copy, see positions_of
    check_index(ids, x.shape[dim], f"{name}: an id")
    return Place((Ellipsis,), (*[slice(None)] * dim, ids), True)


def index_select(x, dim, index):
    """The slices of `x` along `dim` that a 1-d tensor names: (2, 5), 1, [4, 0, 4] -> (2, 3).

    Raises
    ------
    IndexError
        If an id is out of range (negative ones are), or `index` is not of one dim and integers.
    """
    if x.ndim == 0:
        return reshape(index_select(reshape(x, 1), dim, index), ())
    return read("index_select", x, slices_at("index_select", x, dim, index))


def index_fill(x, dim, index, value):
    """`x` with the slices along `dim` that a 1-d tensor names set to `value`, a number or 0-d tensor.

    Raises
    ------
    IndexError
        As `index_select`.
    RuntimeError
        If `value` has dims.
    """
    value = value if isinstance(value, Tensor) else Tensor.wrap(to_device(value, x.dtype))
    if value.ndim:
        raise RuntimeError(f"index_fill needs a number or a 0-d tensor, got shape {value.shape}; see index_copy")
    if x.ndim == 0:
        return reshape(index_fill(reshape(x, 1), dim, index, value), ())
    return with_entries("index_fill", x, slices_at("index_fill", x, dim, index), value)


def check_slices(name, x, place, source):
    """Raise RuntimeError unless `source` has the shape and dtype of the slices of `x` at `place`."""
    *before, ids = place.picks
    shape = (*x.shape[:len(before)], ids.size, *x.shape[len(before) + 1:])
    if array_of(source).shape != shape or source.dtype != x.dtype:
        raise RuntimeError(f"{name} needs a source like the slices that the index names, {x.dtype} of shape {shape}, "
                           f"got {source.dtype} of shape {source.shape}")


def index_copy(x, dim, index, source):
    """`x` with the slices along `dim` that a 1-d tensor names replaced by those of `source`.

    Raises
    ------
    IndexError
        As `index_select`.
    RuntimeError
        If `source` has not the shape and dtype of the slices.
    """
    if x.ndim == 0:
        return reshape(index_copy(reshape(x, 1), dim, index, reshape(source, -1)), ())
    place = slices_at("index_copy", x, dim, index)
    check_slices("index_copy", x, place, source)
    return with_entries("index_copy", x, place, source)


def index_add(x, dim, index, source, *, alpha=1):
    """`x` with alpha times `source` added to the slices along `dim` that a 1-d tensor names, perhaps repeatedly.

    Raises
    ------
    IndexError
        As `index_select`.
    RuntimeError
        If `source` has not the shape and dtype of the slices.
    """
    if x.ndim == 0:
        return reshape(index_add(reshape(x, 1), dim, index, reshape(source, -1), alpha=alpha), ())
    place = slices_at("index_add", x, dim, index)
    check_slices("index_add", x, place, source)
    y = x.array.copy()
    y += sum_at(x.shape, place.picks, (source.array * alpha).astype(x.dtype, copy=False))

    def backward(g):
        return g, place.read(g) * alpha

    return Tensor.from_op("index_add", y, (x, source), backward)


# One id for each entry

def positions_of(name, x, dim, index, src=None):
    """Where in the flattened `x` the entries lie that `index` picks along `dim`: for dim 1, of [i, index[i, j, k], k].

    Raises
    ------
    IndexError
        If an id is out of range, or `x` has no dim `dim`.
    RuntimeError
        If `index` has another number of dims than `x`, or is larger than it (save along `dim`) or than `src`.
    """
    dim, shape = axis_of(dim, x.ndim), x.shape or (1,)
    if array_of(index).dtype.kind not in "iu":
        raise RuntimeError(f"{name} needs an index of integers, got {index.dtype}")
    ids = index.array.reshape(index.shape or (1,)).astype(dtypes.int64)  # a copy, which no later write changes
    if ids.size:
        bounds = [n for i, n in enumerate(shape) if i != dim]
        if ids.ndim != len(shape) or any(n > m for n, m in zip(ids.shape[:dim] + ids.shape[dim + 1:], bounds)):
            raise RuntimeError(f"{name}: an index for shape {x.shape} has as many dims and is no larger, except along "
                               f"dim {dim}; got shape {index.shape}")
        if src is not None and (src.ndim != index.ndim or any(n > m for n, m in zip(index.shape, src.shape))):
            raise RuntimeError(f"{name}: an index of shape {index.shape} is larger than the source, {src.shape}")
        check_index(ids, shape[dim], f"{name}: an id")
        ids = flat_positions(ids, dim, shape)
    return ids.reshape(index.shape)


def flat_positions(ids, dim, shape):
    """`positions_of` for an array `ids` that has been checked, in an array of `shape`."""
    along = [xp.arange(n).reshape(n, *[1] * (ids.ndim - 1 - i)) for i, n in enumerate(ids.shape)]
    return flat_ids([*along[:dim], ids, *along[dim + 1:]], shape)


def at_positions(a, positions):
    """The entries of the array `a`, flattened, at `positions`."""
    return a.reshape(-1)[positions]


def add_at_positions(shape, positions, values):
    """Zeros of `shape`, with `values` added to the entries at flat `positions`: the gradient of reading these."""
    sums = xp.zeros(math.prod(shape), values.dtype)
    add_rows(sums, positions, values)
    return sums.reshape(shape)


def gather(x, dim, index, *, sparse_grad=False):
    """Pick along `dim`, each line for itself: for dim 1, ``y[i, j, k] = x[i, index[i, j, k], k]``.

    Parameters
    ----------
    x : Tensor
    dim : int
    index : Tensor of integers in [0, x.shape[dim])
        With as many dims as `x` and, except along `dim`, no larger than it.
    sparse_grad : accepted and ignored

    Returns
    -------
    Tensor of the shape of `index`.

    Raises
    ------
    IndexError
        If an id is out of range.
    RuntimeError
        If `index` does not fit.
    """
    positions, x_shape = positions_of("gather", x, dim, index), x.shape

    def backward(g):
        return (add_at_positions(x_shape, positions, g),)

    return Tensor.from_op("gather", at_positions(x.array, positions), (x,), backward)


def take_along_dim(x, indices, dim=None):
    """`gather` for an index that broadcasts against `x`, except along `dim`; without `dim` both are flattened first.

    Here, unlike there, negative ids count from the end.

    Raises
    ------
    IndexError
        If an id is out of range.
    RuntimeError
        If `x` and `indices` have different numbers of dims.
    """
    if dim is None:
        x, indices, dim = reshape(x, -1), reshape(indices, -1), 0
    if x.ndim != indices.ndim:
        raise RuntimeError(f"take_along_dim needs as many dims in both, got shapes {x.shape} and {indices.shape}")
    dim = axis_of(dim, x.ndim)
    indices = Tensor.wrap(from_front(array_of(indices), x.shape[dim]))
    lines = numpy.broadcast_shapes(*[(*s[:dim], 1, *s[dim + 1:]) for s in (x.shape, indices.shape)])
    x, indices = (expand(v, *lines[:dim], v.shape[dim], *lines[dim + 1:]) for v in (x, indices))
    return gather(x, dim, indices)


def check_source(name, x, src):
    """Raise RuntimeError unless `src` has the dtype of `x`."""
    if array_of(src).dtype != x.dtype:
        raise RuntimeError(f"{name}: a source of {src.dtype} does not fit a tensor of {x.dtype}; convert one of them")


def scatter_add(x, dim, index, src):
    """`x` with `src` added where `index` says: for dim 1, ``y[i, index[i, j, k], k] += src[i, j, k]``.

    Parameters
    ----------
    x : Tensor
    dim : int
    index : Tensor of integers in [0, x.shape[dim])
        With as many dims as `x` and, except along `dim`, no larger than it.
    src : Tensor, of the dtype of `x`, no smaller than `index`

    Returns
    -------
    Tensor, like `x`.

    Raises
    ------
    IndexError
        If an id is out of range.
    RuntimeError
        If `index` or `src` does not fit.
    """
    check_source("scatter_add", x, src)
    positions, src_shape = positions_of("scatter_add", x, dim, index, src), src.shape
    part = tuple([slice(n) for n in index.shape])
    y = x.array.copy()
    add_rows(y.reshape(-1), positions, src.array[part])

    def backward(g):
        gsrc = xp.zeros(src_shape, g.dtype)
        gsrc[part] = at_positions(g, positions)
        return g, gsrc

    return Tensor.from_op("scatter_add", y, (x, src), backward)


def scatter(x, dim, index, src=None, *, value=None, reduce=None):
    """`x` with `src` written where `index` says: for dim 1, ``y[i, index[i, j, k], k] = src[i, j, k]``.

    Parameters
    ----------
    x : Tensor
    dim : int
    index : Tensor of integers in [0, x.shape[dim])
        With as many dims as `x` and, except along `dim`, no larger than it. Of several writes to one entry the last
        stays, and only that one receives a gradient.
    src : Tensor, of the dtype of `x`, no smaller than `index`; or a number
    value : number, instead of `src`
    reduce : str, optional
        "add" is `scatter_add`.

    Returns
    -------
    Tensor, like `x`.

    Raises
    ------
    IndexError
        If an id is out of range.
    RuntimeError
        If `index` or `src` does not fit.
    """
    src = value if src is None else src
    if not isinstance(src, Tensor):
        src = Tensor.wrap(xp.broadcast_to(to_device(src, x.dtype), array_of(index).shape))
    if reduce == "add":
        return scatter_add(x, dim, index, src)
    if reduce is not None:
        raise NotImplementedError(f'scatter: reduce must be "add" or None, got {reduce!r}')
    check_source("scatter", x, src)
    positions, src_shape = positions_of("scatter", x, dim, index, src), src.shape
    part = tuple([slice(n) for n in index.shape])
    y = x.array.copy()
    write_entries(y.reshape(-1), (positions,), src.array[part])

    def backward(g):
        gx, gsrc = g.copy(), xp.zeros(src_shape, g.dtype)
        stays = last_writers(Place((Ellipsis,), (positions,), True), (g.size,), positions.shape)
        gsrc[part] = xp.where(stays, at_positions(g, positions), 0.0)
        gx.reshape(-1)[positions] = 0.0
        return gx, gsrc

    return Tensor.from_op("scatter", y, (x, src), backward)


def take(x, index):
    """The entries of the flattened `x` at `index`, whose shape they get; negative ids count from the end."""
    return getitem(reshape(x, -1), index)


def repeat_interleave(x, repeats=None, dim=None, *, output_size=None):
    """Repeat each entry, next to itself: [1, 2], 2 -> [1, 1, 2, 2].

    Parameters
    ----------
    x : Tensor
    repeats : int or Tensor of integers
        One count for all entries along `dim`, or a 1-d tensor with one for each. Left out, `x` itself holds the
        counts, and what is repeated are the ids 0, 1, 2, ...
    dim : int, optional
        By default `x` is flattened first.
    output_size : accepted and ignored

    Raises
    ------
    RuntimeError
        If a count is negative, or there are neither one nor as many as entries.
    """
    if repeats is None:
        x, repeats = Tensor.wrap(xp.arange(x.array.size)), x
    if dim is None or x.ndim == 0:
        x, dim = reshape(x, -1), 0
    dim = axis_of(dim, x.ndim)
    counts = to_host(array_of(repeats)).ravel().tolist() if isinstance(repeats, Tensor) else [operator.index(repeats)]
    if min(counts, default=0) < 0 or len(counts) not in (1, x.shape[dim]):
        raise RuntimeError(f"repeat_interleave needs one count from 0 on, or one for each of {x.shape[dim]} entries; "
                           f"got {counts}")
    if len(counts) != 1:
        return index_select(x, dim, Tensor.wrap(xp.repeat(xp.arange(x.shape[dim]), counts)))
    apart = (*x.shape[:dim + 1], counts[0], *x.shape[dim + 1:])

    def backward(g):
        return (g.reshape(apart).sum(axis=dim + 1),)  # (..., n r, ...) -> (..., n, r, ...) -> (..., n, ...)

    return Tensor.from_op("repeat_interleave", xp.repeat(x.array, counts[0], axis=dim), (x,), backward)


# Masks and values

def masked_select(x, mask):
    """The entries of `x` where `mask` is True, in one dim; the two broadcast together.

    Raises
    ------
    RuntimeError
        If `mask` does not hold booleans, or the shapes do not broadcast.
    """
    if array_of(mask).dtype.kind != "b":
        raise RuntimeError(f"masked_select needs a boolean mask, got {mask.dtype}; compare, as in x > 0")
    return getitem(*broadcast_tensors(x, mask))


def nonzero(x, *, as_tuple=False):
    """Where `x` is not zero.

    Returns
    -------
    Tensor (n, x.ndim) of positions, or with `as_tuple` a tuple of x.ndim tensors (n,), which is an index of `x`; for a
    0-d tensor, that of one dim.
    """
    found = xp.nonzero(array_of(x).reshape(x.shape or (1,)))
    if as_tuple:
        return tuple(Tensor.wrap(ids) for ids in found)
    return Tensor.wrap(xp.stack(found, axis=1)[:, :x.ndim])


def argwhere(x):
    """Where `x` is not zero, as a tensor (n, x.ndim)."""
    return nonzero(x)


def unique(x, sorted=True, return_inverse=False, return_counts=False, dim=None):
    """The different entries of `x` or, with `dim`, its different slices along it, in ascending order.

    Returns
    -------
    Tensor (n,), or n slices; if asked for, in a tuple with the index of each entry among them and with how often each
    occurs.
    """
    options = dict(return_inverse=True, return_counts=True, equal_nan=False)
    if dim is None:
        found = xp.unique(array_of(x), **options)
    else:  # on the host: CuPy compares slices by a checksum, which different ones may share
        found = numpy.unique(to_host(array_of(x)), axis=axis_of(dim, x.ndim), **options)
    values, inverse, counts = (Tensor.wrap(a) for a in found)
    if return_inverse or return_counts:
        inverse = reshape(inverse, x.shape if dim is None else -1)
        return (values,) + (inverse,) * return_inverse + (counts,) * return_counts
    return values


def bincount(x, weights=None, minlength=0):
    """How often 0, 1, 2, ... up to the largest occur in a vector of integers; or the sum of their `weights`.

    Raises
    ------
    RuntimeError
        If `x` is not a vector of integers from 0.
    """
    if array_of(x).ndim != 1 or x.dtype.kind not in "iu" or (x.array.size and int(x.array.min()) < 0):
        raise RuntimeError(f"bincount needs a vector of integers from 0, got {x.dtype} of shape {x.shape}")
    return Tensor.wrap(xp.bincount(x.array, None if weights is None else weights.array, minlength))
