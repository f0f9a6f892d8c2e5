"""Rotary positions: queries and keys are turned by angles, so that their products see how far apart they stand.

Angles are computed in float64 and kept in float32 or float64, never in float16, in which position 2049 is 2048.
"""
from ... import dtypes
from ...autograd import Tensor
from ...backend import xp
from ...ops.broadcast import cast
from ...ops.shape import unsqueeze
from .position import angles_of, grid_cells, positions_of

__all__ = ["apply_rotary", "rotary", "rotary_tables", "rotary_tables_2d"]


def rotary_tables(positions, dim, base=10000.0, dtype=None):
    """The cosines and sines by which `apply_rotary` turns: of t / base^(2i / dim) for position t and pair i.

    Parameters
    ----------
    positions : int or Tensor (...) of numbers
        An int T stands for 0, 1, ..., T - 1.
    dim : int, even
        How many entries of each vector are turned.
    base : float
    dtype : float32 unless given

    Returns
    -------
    cos, sin : Tensors (..., dim / 2)

    Raises
    ------
    ValueError
        If `dim` is odd, or `dtype` is float16, in which positions would collide.
    """
    if dtype == dtypes.float16:
        raise ValueError("angles are not kept in float16, in which position 2049 equals 2048; use float32")
    angles, dtype = angles_of(positions_of(positions), dim, base), dtype or dtypes.get_default_dtype()
    return Tensor.wrap(xp.cos(angles).astype(dtype)), Tensor.wrap(xp.sin(angles).astype(dtype))


def rotary_tables_2d(rows, columns, dim, base=10000.0, dtype=None):
    """`rotary_tables` for a grid: the first half of the pairs turns with the row, the second with the column.

    Parameters
    ----------
    rows, columns : int
    dim : int, a multiple of 4
    base, dtype
        As in `rotary_tables`.

    Returns
    -------
    cos, sin : Tensors (rows * columns, dim / 2), line by line

    Raises
    ------
    ValueError
        If 4 does not divide `dim`, or `dtype` is float16.
    """
    if dim % 4:
        raise ValueError(f"rows and columns turn half of the pairs each, so 4 must divide the width, got {dim}")
    tables = [rotary_tables(Tensor.wrap(place), dim // 2, base, dtype) for place in grid_cells(rows, columns)]
    cos, sin = (xp.concatenate([half.array for half in both], axis=-1) for both in zip(*tables))
    return Tensor.wrap(cos), Tensor.wrap(sin)


def apply_rotary(x, cos, sin, interleaved=False):
    r"""Turn each pair of entries (a, b) of every vector by its position's angle.

    .. math:: a' = a \cos - b \sin, \qquad b' = b \cos + a \sin

    Turning queries by the angle of t and keys by that of s leaves products that depend on t - s alone, and no length.
    Backward turns back.

    Parameters
    ----------
    x : Tensor (..., T, D)
        Queries or keys; the first R = 2 * (width of `cos`) entries of each vector are turned.
    cos, sin : Tensors broadcastable to (..., T, R / 2), from `rotary_tables`
    interleaved : bool
        Pairs are neighbours, (0, 1), (2, 3), ... (the paper, GPT-J), instead of halves, (0, R/2), (1, R/2 + 1), ...
        (GPT-NeoX, Llama as commonly published). Weights trained with one layout do not fit the other.

    Returns
    -------
    Tensor like x

    Raises
    ------
    RuntimeError
        If the tables are wider than x, or do not broadcast to it.

    References
    ----------
    Su et al. 2021, "RoFormer: Enhanced Transformer with Rotary Position Embedding", equation 34.
    """
    lead = x.ndim - cos.ndim
    if (x.ndim < 2 or cos.ndim < 1 or lead < 0 or cos.shape != sin.shape or 2 * cos.shape[-1] > x.shape[-1]
            or any(n not in (1, full) for n, full in zip(cos.shape[:-1], x.shape[lead:-1]))):
        raise RuntimeError(f"rotary needs x (..., T, D) and cos, sin (..., T, R/2) with R at most D, got {x.shape}, "
                           f"{cos.shape} and {sin.shape}")
    dtype, x = x.dtype, cast(x, dtypes.float32) if x.dtype == dtypes.float16 else x
    cos, sin = (table.array.astype(x.dtype, copy=False) for table in (cos, sin))

    def backward(g):
        return (_turned(g, cos, -sin, interleaved),)

    return cast(Tensor.from_op("apply_rotary", _turned(x.array, cos, sin, interleaved), (x,), backward), dtype)


def _turned(x, cos, sin, interleaved):
    """The array x with its pairs turned; entries beyond the tables' pairs as they are."""
    half = cos.shape[-1]
    first, second = slice(0, half), slice(half, 2 * half)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    a, b, y = x[..., first], x[..., second], xp.empty_like(x)
    xp.multiply(a, cos, out=y[..., first])
    y[..., first] -= b * sin
    xp.multiply(b, cos, out=y[..., second])
    y[..., second] += a * sin
    y[..., 2 * half:] = x[..., 2 * half:]
    return y


def rotary(x, offset=0, *, positions=None, dim=None, base=10000.0, interleaved=False):
    """`apply_rotary` for consecutive positions, or for given ones.

    Parameters
    ----------
    x : Tensor (..., T, D)
        Queries or keys, usually (B, H, T, D).
    offset : int
        The position of the first: with a cache, how many tokens it held before.
    positions : Tensor (T,), or (B, T) for x (B, H, T, D) or (B, T, D); optional
        Instead of offset, offset + 1, ...: for batches that are padded on the left.
    dim : int, even, optional
        How many entries of each vector are turned; all of them unless given.
    base, interleaved
        As in `rotary_tables` and `apply_rotary`.

    Returns
    -------
    Tensor like x

    Raises
    ------
    ValueError
        If the width to be turned is odd.
    RuntimeError
        If `positions` does not fit x.
    """
    if positions is None:
        positions = Tensor.wrap(xp.arange(offset, offset + x.shape[-2]))
    elif positions.ndim > 1 and x.ndim > 3:
        positions = unsqueeze(positions, -2)  # (B, T) -> (B, 1, T), the same for all heads
    wide = dtypes.float32 if x.dtype == dtypes.float16 else x.dtype
    cos, sin = rotary_tables(positions, x.shape[-1] if dim is None else dim, base, wide)
    return apply_rotary(x, cos, sin, interleaved)
