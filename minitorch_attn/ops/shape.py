"""Operations that rearrange, join and cut tensors without computing anything.

Most results are views: they share the memory of the input, so nothing is copied and a write to one is seen in the
other. The gradient of a rearrangement is the rearrangement undone.
"""
import math
import operator

from .. import dtypes
from ..autograd import Partial, Tensor
from ..backend import diagonal_view, xp
from .broadcast import expand
from .elementwise import array_of
from .reduce import axis_of

__all__ = [
    "T", "cat", "chunk", "clone", "concat", "concatenate", "contiguous", "diag", "diagonal", "flatten", "flip",
    "hstack", "mT", "meshgrid", "moveaxis", "movedim", "narrow", "permute", "ravel", "repeat", "reshape",
    "reshape_as", "roll", "select", "split", "squeeze", "stack", "swapaxes", "swapdims", "t", "tile",
    "transpose", "tril", "triu", "unbind", "unflatten", "unfold", "unsqueeze", "view", "view_as", "vstack",
]


def as_ints(values):
    """``f(2, 3)``, ``f((2, 3))`` and ``f([2, 3])`` all as (2, 3)."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = values[0]
    return tuple([operator.index(v) for v in values])


def distinct_dims(dims, ndim):
    """The `dims` counted from the front; RuntimeError if one occurs twice."""
    found = tuple([axis_of(d, ndim) for d in dims])
    if len(set(found)) < len(found):
        raise RuntimeError(f"each dim may be named once, got {tuple(dims)}")
    return found


# Another shape, the same entries in the same order

def reshape(x, *sizes, shape=()):
    """The same entries in another shape: (2, 6) -> (3, 4), (-1, 4).

    Parameters
    ----------
    x : Tensor
    sizes : int ... or one sequence
        The new shape; one size may be -1, and is then found from the others.

    Returns
    -------
    Tensor of that shape; a view where the memory's layout allows, else a copy.

    Raises
    ------
    RuntimeError
        If the new shape holds another number of entries.
    """
    sizes, x_shape = as_ints(sizes or (shape,)), x.shape
    if min(sizes, default=0) < -1:
        raise RuntimeError(f"a size is a number from 0 on, or -1 for the one to be found, got {sizes}")
    try:
        y = x.array.reshape(sizes)
    except ValueError:
        raise RuntimeError(f"shape {x_shape}, with {x.array.size} entries, cannot become {sizes}") from None

    def backward(g):
        return (g.reshape(x_shape),)

    return Tensor.from_op("reshape", y, (x,), backward, view=True)


def view(x, *sizes):
    """`reshape` that never copies.

    Raises
    ------
    RuntimeError
        As `reshape`, or if the entries do not lie in memory in the new order (after transpose or permute): then
        use ``reshape(...)`` or ``contiguous().view(...)``.
    """
    y = reshape(x, *sizes)
    if y.storage is not x.storage and y.array.size:
        raise RuntimeError(f"shape {x.shape} cannot be viewed as {y.shape}, for its entries lie in memory in another "
                           "order; use reshape(...), or contiguous() before view(...)")
    return y


def view_as(x, other):
    """`view` with the shape of `other`."""
    return view(x, other.shape)


def reshape_as(x, other):
    """`reshape` to the shape of `other`."""
    return reshape(x, other.shape)


def flatten(x, start_dim=0, end_dim=-1):
    """Merge the dims from `start_dim` to `end_dim`, both included, into one: (2, 3, 5), 1, 2 -> (2, 15)."""
    first, last = axis_of(start_dim, x.ndim), axis_of(end_dim, x.ndim)
    if first > last:
        raise RuntimeError(f"start_dim {start_dim} stands after end_dim {end_dim}")
    merged = math.prod(x.shape[first:last + 1])
    return reshape(x, *x.shape[:first], merged, *x.shape[last + 1:])


def ravel(x):
    """All entries in one dim."""
    return reshape(x, -1)


def unflatten(x, dim, sizes):
    """Split `dim` into several, of the given `sizes`, of which one may be -1: (2, 15), 1, (3, -1) -> (2, 3, 5)."""
    dim, sizes = axis_of(dim, x.ndim), as_ints((sizes,))
    known = math.prod([n for n in sizes if n != -1])
    if -1 in sizes:  # found here: reshape could not, should another dim be empty
        sizes = tuple(x.shape[dim] // max(known, 1) if n == -1 else n for n in sizes)
    if math.prod(sizes) != x.shape[dim]:
        raise RuntimeError(f"dim {dim} of shape {x.shape} cannot be split into sizes {sizes}")
    return reshape(x, *x.shape[:dim], *sizes, *x.shape[dim + 1:])


def squeeze(x, dim=None):
    """Drop dims of size 1: all of them, or those named by `dim` (int or tuple); a named dim of another size stays."""
    dims = range(x.ndim) if dim is None else distinct_dims((dim,) if isinstance(dim, int) else dim, x.ndim)
    return reshape(x, [n for i, n in enumerate(x.shape) if n != 1 or i not in dims])


def unsqueeze(x, dim):
    """Insert a dim of size 1 before position `dim`: (2, 3), 1 -> (2, 1, 3); -1 appends it."""
    dim = axis_of(dim, x.ndim + 1)
    return reshape(x, *x.shape[:dim], 1, *x.shape[dim:])


# Another order of the dims

def permute(x, *order, dims=()):
    """Put the dims in another order: (2, 3, 5), (2, 0, 1) -> (5, 2, 3).

    Parameters
    ----------
    x : Tensor
    order : int ... or one sequence, also by the keyword `dims`
        Which dim of `x` stands at each place of the result.

    Returns
    -------
    Tensor; a view.

    Raises
    ------
    RuntimeError
        If a dim is missing or occurs twice.
    """
    order = as_ints(order or (dims,))
    if len(order) != x.ndim:
        raise RuntimeError(f"permute needs each of the {x.ndim} dims of shape {x.shape} once, got {order}")
    order = distinct_dims(order, x.ndim)
    undo = sorted(range(x.ndim), key=order.__getitem__)  # the inverse permutation

    def backward(g):
        return (g.transpose(undo),)

    return Tensor.from_op("permute", x.array.transpose(order), (x,), backward, view=True)


def transpose(x, dim0, dim1):
    """Exchange two dims: (2, 3, 5), 0, 2 -> (5, 3, 2); a view."""
    dim0, dim1 = axis_of(dim0, x.ndim), axis_of(dim1, x.ndim)
    if x.ndim == 0:
        return permute(x)

    def backward(g):
        return (g.swapaxes(dim0, dim1),)

    return Tensor.from_op("transpose", x.array.swapaxes(dim0, dim1), (x,), backward, view=True)


swapaxes = swapdims = transpose


def t(x):
    """The transpose of a matrix; tensors of one dim or none stay as they are."""
    if x.ndim > 2:
        raise RuntimeError(f"t() needs at most 2 dims, got shape {x.shape}; use transpose(dim0, dim1) or mT")
    return permute(x, *range(x.ndim)[::-1])


def T(x):
    """All dims in reverse order."""
    return permute(x, *range(x.ndim)[::-1])


def mT(x):
    """The last two dims exchanged: a batch of matrices, each transposed."""
    if x.ndim < 2:
        raise RuntimeError(f"mT needs at least 2 dims, got shape {x.shape}")
    return transpose(x, -2, -1)


def movedim(x, source, destination):
    """Move the dim (or dims) `source` to `destination`; the others keep their order: (2, 3, 5), 0, -1 -> (3, 5, 2)."""
    source, destination = ((d,) if isinstance(d, int) else tuple(d) for d in (source, destination))
    if len(source) != len(destination):
        raise RuntimeError(f"movedim needs as many sources as destinations, got {source} and {destination}")
    source, destination = distinct_dims(source, x.ndim), distinct_dims(destination, x.ndim)
    order = [d for d in range(x.ndim) if d not in source]
    for position, d in sorted(zip(destination, source)):  # ascending, so earlier insertions do not shift later ones
        if x.ndim:
            order.insert(position, d)
    return permute(x, order)


moveaxis = movedim


# Joining

def cat(tensors, dim=0):
    """Join tensors along an existing dim: (2, 3), (5, 3) -> (7, 3).

    Parameters
    ----------
    tensors : sequence of Tensor
        Of one shape except along `dim`; of mixed dtypes, which are promoted. An empty tensor of shape (0,) fits
        everywhere and adds nothing, as in PyTorch.
    dim : int

    Raises
    ------
    RuntimeError
        If the sequence is empty or the shapes differ elsewhere than along `dim`.
    """
    tensors = tuple(tensors)
    if not tensors:
        raise RuntimeError("cat needs at least one tensor")
    arrays = [array_of(x) for x in tensors]
    like = next((a for a in arrays if a.shape != (0,)), arrays[0])
    dim = axis_of(dim, like.ndim)
    rest = like.shape[:dim] + like.shape[dim + 1:]
    kept = [a.shape != (0,) or like.ndim == 1 for a in arrays]
    for a, keep in zip(arrays, kept):
        if keep and (a.ndim == 0 or a.ndim != like.ndim or a.shape[:dim] + a.shape[dim + 1:] != rest):
            raise RuntimeError(f"cat along dim {dim} needs equal shapes elsewhere, got "
                               + ", ".join(str(a.shape) for a in arrays))
    input_dtypes = [a.dtype for a in arrays]
    if any([d != like.dtype for d in input_dtypes]):
        dtype = dtypes.result_type(*tensors)
        arrays = [a.astype(dtype, copy=False) for a in arrays]
    pieces = [a for a, keep in zip(arrays, kept) if keep]
    y = xp.asarray(xp.concatenate(pieces, axis=dim), order="C")  # of transposed inputs NumPy makes a transposed result
    sizes = [a.shape[dim] if keep else 0 for a, keep in zip(arrays, kept)]
    before = (slice(None),) * dim

    def backward(g):
        pieces, start = [], 0
        for keep, size, input_dtype in zip(kept, sizes, input_dtypes):
            piece = g[(*before, slice(start, start + size))] if keep else xp.zeros(0, g.dtype)
            pieces.append(piece.astype(input_dtype, copy=False))
            start += size
        return tuple(pieces)

    return Tensor.from_op("cat", y, tensors, backward)


concat = concatenate = cat


def stack(tensors, dim=0):
    """Join tensors of one shape along a new dim: three of (2, 5) -> (3, 2, 5).

    Raises
    ------
    RuntimeError
        If the sequence is empty or the shapes differ.
    """
    tensors = tuple(tensors)
    if not tensors:
        raise RuntimeError("stack needs at least one tensor")
    arrays = [array_of(x) for x in tensors]
    shape = arrays[0].shape
    if any([a.shape != shape for a in arrays]):
        raise RuntimeError("stack needs equal shapes, got " + ", ".join(str(a.shape) for a in arrays))
    dim = axis_of(dim, len(shape) + 1)
    input_dtypes = [a.dtype for a in arrays]
    if len(set(input_dtypes)) > 1:
        dtype = dtypes.result_type(*tensors)
        arrays = [a.astype(dtype, copy=False) for a in arrays]
    if dim < len(shape):  # three of (2, 5) -> (6, 5) -> (3, 2, 5); NumPy's `stack` makes a view of each array first
        y = xp.concatenate(arrays, axis=dim).reshape(*shape[:dim], len(arrays), *shape[dim:])
    else:
        y = xp.stack(arrays, axis=dim)
    y = xp.asarray(y, order="C")
    before = (slice(None),) * dim

    def backward(g):
        return tuple(g[(*before, i, ...)].astype(d, copy=False) for i, d in enumerate(input_dtypes))

    return Tensor.from_op("stack", y, tensors, backward)


def hstack(tensors):
    """Join along the second dim, or along the only one: (2, 3), (2, 5) -> (2, 8)."""
    tensors = [reshape(x, 1) if x.ndim == 0 else x for x in tensors]
    return cat(tensors, dim=0 if not tensors or tensors[0].ndim == 1 else 1)


def vstack(tensors):
    """Join along the first dim, tensors of one dim as rows: (3,), (2, 3) -> (3, 3)."""
    return cat([reshape(x, 1, -1) if x.ndim < 2 else x for x in tensors], dim=0)


def meshgrid(*tensors, indexing="ij"):
    """The coordinates of a grid: (2,), (3,) -> (2, 3), (2, 3), the first constant along rows.

    Parameters
    ----------
    tensors : Tensor (n_i,) ..., or one sequence of them
    indexing : str
        "ij": result dims in the order of the tensors; "xy": the first two dims exchanged.

    Returns
    -------
    tuple of Tensor, one for each of `tensors`; views.
    """
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        tensors = tuple(tensors[0])
    if indexing not in ("ij", "xy"):
        raise RuntimeError(f'meshgrid: indexing must be "ij" or "xy", got {indexing!r}')
    shape = [x.array.size for x in tensors]
    along = [reshape(x, *[1] * i, -1, *[1] * (len(shape) - i - 1)) for i, x in enumerate(tensors)]
    grids = [expand(x, shape) for x in along]  # (1, ..., n_i, ..., 1) -> (n_0, n_1, ...)
    return tuple(transpose(grid, 0, 1) if indexing == "xy" and len(shape) > 1 else grid for grid in grids)


# Cutting: every result is a view, and its gradient is zero outside the piece

def piece_of(op, x, index):
    """``x[index]`` for a tuple of ints, slices and None: a view, also where one entry is left."""
    index = index if Ellipsis in index else (*index, Ellipsis)  # with it NumPy returns an array, not a scalar

    def backward(g):
        return (Partial(index, g),)

    return Tensor.from_op(op, x.array[index], (x,), backward, view=True)


def narrow(x, dim, start, length):
    """The `length` entries along `dim` from `start`, which may count from the end."""
    dim, start, length = axis_of(dim, x.ndim), operator.index(start), operator.index(length)
    size = x.shape[dim]
    if not -size <= start <= size:
        raise IndexError(f"narrow: start must lie in [{-size}, {size}], got {start}")
    start += size if start < 0 else 0
    if length < 0 or start + length > size:
        raise RuntimeError(f"narrow: start {start} and length {length} exceed size {size} of dim {dim}")
    return piece_of("narrow", x, (*[slice(None)] * dim, slice(start, start + length)))


def select(x, dim, index):
    """Entry `index` along `dim`, which goes: (2, 3, 5), 1, 0 -> (2, 5)."""
    if x.ndim == 0:
        raise IndexError("select needs a tensor with at least one dim")
    dim, index = axis_of(dim, x.ndim), operator.index(index)
    if not -x.shape[dim] <= index < x.shape[dim]:
        raise IndexError(f"index {index} is out of range for dim {dim} of shape {x.shape}")
    return piece_of("select", x, (*[slice(None)] * dim, index))


def split(x, split_size_or_sections, dim=0):
    """Cut along `dim` into pieces of one size (the last may be smaller), or of the sizes listed.

    Raises
    ------
    RuntimeError
        If listed sizes do not add up to the size of `dim`, or a size is negative.
    """
    dim = axis_of(dim, x.ndim)
    size, sizes = x.shape[dim], split_size_or_sections
    if not isinstance(sizes, (tuple, list)):
        step = operator.index(sizes)
        if step < 0 or (step == 0 and size):
            raise RuntimeError(f"split needs pieces of at least 1, got {step}")
        sizes = [min(step, size - start) for start in range(0, size, step or 1)] or [0]
    elif sum(sizes) != size or min(sizes, default=0) < 0:
        raise RuntimeError(f"split: the sizes {list(sizes)} must add up to {size}, the size of dim {dim}")
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    before = (slice(None),) * dim
    return tuple(piece_of("split", x, (*before, slice(end - n, end))) for n, end in zip(sizes, ends))


def chunk(x, chunks, dim=0):
    """Cut along `dim` into at most `chunks` pieces of one size, of which the last may be smaller."""
    if chunks < 1:
        raise RuntimeError(f"chunk needs at least 1 chunk, got {chunks}")
    size = x.shape[axis_of(dim, x.ndim)]
    piece = -(-size // chunks)  # size / chunks, rounded up
    return split(x, piece, dim) if size else split(x, [0] * chunks, dim)


def unbind(x, dim=0):
    """All entries along `dim`, which goes: (2, 3), 0 -> two of (3,)."""
    dim = axis_of(dim, x.ndim)
    before = (slice(None),) * dim
    return tuple([piece_of("unbind", x, (*before, i)) for i in range(x.shape[dim])])


def diagonal(x, offset=0, dim1=0, dim2=1):
    """The diagonal of the matrix that `dim1` and `dim2` span, as the last dim: (2, 3, 3), 0, 1, 2 -> (2, 3); a view.

    `offset` above 0 takes one above the main diagonal, below 0 one below it.
    """
    return read_diagonal(x, offset, *distinct_dims((dim1, dim2), x.ndim))


def read_diagonal(x, offset, dim1, dim2):
    """`diagonal`, for checked dims."""
    x_shape = x.shape

    def backward(g):
        gx = xp.zeros(x_shape, g.dtype)
        diagonal_view(gx, offset, dim1, dim2)[...] = g
        return (gx,)

    return Tensor.from_op("diagonal", diagonal_view(x.array, offset, dim1, dim2), (x,), backward, view=True)


def diag(x, diagonal=0):
    """A vector as the diagonal of a square matrix, or a matrix's diagonal as a vector."""
    if x.ndim == 2:
        return clone(read_diagonal(x, diagonal, 0, 1))
    if x.ndim != 1:
        raise RuntimeError(f"diag needs a vector or a matrix, got shape {x.shape}")
    n = x.shape[0] + abs(diagonal)
    y = xp.zeros((n, n), x.dtype)
    diagonal_view(y, diagonal, 0, 1)[...] = x.array

    def backward(g):
        return (diagonal_view(g, diagonal, 0, 1),)

    return Tensor.from_op("diag", y, (x,), backward)


def unfold(x, dimension, size, step):
    """All windows of `size` entries along a dim, one every `step`; the window becomes the last dim.

    (2, 7), 1, 3, 2 -> (2, 3, 3): windows starting at 0, 2 and 4. Windows may overlap, so an entry's gradient is
    the sum over the windows that it is in.
    """
    dim, x_shape = axis_of(dimension, x.ndim), x.shape
    if x.ndim == 0:
        return select(unfold(reshape(x, 1), 0, size, step), 0, 0)
    if not 0 <= size <= x_shape[dim] or step < 1:
        raise RuntimeError(f"unfold: a window of {size} with step {step} does not fit dim {dim} of shape {x_shape}")
    last = (x_shape[dim] - size) // step  # the index of the last window
    indices = [(*[slice(None)] * dim, slice(k, k + last * step + 1, step)) for k in range(size)]
    y = xp.empty((*x_shape[:dim], last + 1, *x_shape[dim + 1:], size), x.dtype)
    for k, index in enumerate(indices):  # entry k of every window at once
        y[..., k] = x.array[index]

    def backward(g):
        gx = xp.zeros(x_shape, g.dtype)
        for k, index in enumerate(indices):
            gx[index] += g[..., k]
        return (gx,)

    return Tensor.from_op("unfold", y, (x,), backward)


# Copies

def contiguous(x):
    """`x` itself if its entries lie in memory in the order of its dims, else a copy in which they do."""
    if x.array.flags.c_contiguous:
        return x

    def backward(g):
        return (g,)

    return Tensor.from_op("contiguous", x.array.copy(order="C"), (x,), backward)


def clone(x):
    """A copy, which gradients flow through."""
    def backward(g):
        return (g,)

    return Tensor.from_op("clone", same_layout(x.array), (x,), backward)


def same_layout(a):
    """A copy of the array `a`, transposed in memory if `a` is: as in PyTorch, its transpose is then contiguous."""
    return a.copy(order="C" if 0 in a.strides else "K")


def flip(x, *order, dims=()):
    """Reverse the order along the given dims; a copy."""
    axes = distinct_dims(as_ints(order or (dims,)), x.ndim)
    index = tuple([slice(None, None, -1 if d in axes else 1) for d in range(x.ndim)])

    def backward(g):
        return (g[index],)

    return Tensor.from_op("flip", x.array[index].copy(), (x,), backward)


def roll(x, shifts, dims=None):
    """Shift the entries along dims; those pushed out at one end come in at the other.

    Parameters
    ----------
    x : Tensor
    shifts : int or tuple of int
        How far, towards larger indices.
    dims : int or tuple of int, as many as `shifts`; by default the tensor is rolled as if it were flat
    """
    shifts = as_ints((shifts,))
    axes = None if dims is None or dims == () else tuple([axis_of(d, x.ndim) for d in as_ints((dims,))])
    if len(shifts) != (1 if axes is None else len(axes)):
        raise RuntimeError(f"roll needs one shift for each dim, got shifts {shifts} and dims {dims}")
    if axes is None or x.ndim == 0:
        shifts, axes = sum(shifts), None
    back = tuple([-s for s in shifts]) if axes else -shifts

    def backward(g):
        return (xp.roll(g, back, axis=axes),)

    return Tensor.from_op("roll", xp.asarray(xp.roll(x.array, shifts, axis=axes), order="C"), (x,), backward)


def repeat(x, *repeats):
    """Lay copies of the tensor side by side: (2, 3), (2, 1) -> (4, 3); extra leading repeats add dims.

    Raises
    ------
    RuntimeError
        If there are fewer repeats than dims (`tile` allows it), or one is negative.
    """
    repeats = as_ints(repeats)
    if len(repeats) < x.ndim or min(repeats, default=0) < 0:
        raise RuntimeError(f"repeat needs a count of 0 or more for each dim of shape {x.shape}, got {repeats}")
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    apart = [n for pair in zip(repeats, shape) for n in pair]
    copies = tuple(range(0, 2 * len(shape), 2))
    x_shape = x.shape

    def backward(g):
        return (g.reshape(apart).sum(axis=copies).reshape(x_shape),)  # (r0 n0, ...) -> (r0, n0, ...) -> (n0, ...)

    return Tensor.from_op("repeat", xp.tile(x.array, repeats), (x,), backward)


def tile(x, *counts, dims=()):
    """`repeat`, where missing leading counts are 1."""
    counts = as_ints(counts or (dims,))
    return repeat(x, *[1] * (x.ndim - len(counts)), *counts)


def tril(x, diagonal=0):
    """Zero above the main diagonal of each matrix, or above the one `diagonal` places higher."""
    if x.ndim < 2:
        raise RuntimeError(f"tril needs at least 2 dims, got shape {x.shape}")

    def backward(g):
        return (xp.tril(g, diagonal),)

    return Tensor.from_op("tril", xp.asarray(xp.tril(x.array, diagonal), order="C"), (x,), backward)


def triu(x, diagonal=0):
    """Zero below the main diagonal of each matrix, or below the one `diagonal` places higher."""
    if x.ndim < 2:
        raise RuntimeError(f"triu needs at least 2 dims, got shape {x.shape}")

    def backward(g):
        return (xp.triu(g, diagonal),)

    return Tensor.from_op("triu", xp.asarray(xp.triu(x.array, diagonal), order="C"), (x,), backward)
