"""Positions: attention alone cannot tell the order of its keys; here are the ways to let it.

Added to the embeddings: `sinusoidal_table`, in two dimensions `sinusoidal_table_2d`, or a learned table, which
`resize_grid` fits to another image size. Turned into queries and keys: `rotary`, in a file of its own. Added to the
scores: `alibi_bias`.

Angles are computed in float64 whatever the input: in float16 position 2049 is 2048.
"""
import math
import numbers

from ... import dtypes
from ...autograd import Tensor
from ...backend import to_device, xp
from ...ops.create import as_tensor
from .masks import steps_back

__all__ = ["alibi_bias", "alibi_slopes", "resize_grid", "sinusoidal_table", "sinusoidal_table_2d"]


def angles_of(positions, dim, base):
    """positions / base^(2i / dim) for i = 0 to dim / 2 - 1, in float64: (...) -> (..., dim / 2)."""
    if dim % 2 or dim < 2:
        raise ValueError(f"sines and cosines come in pairs, so the width must be even and positive, got {dim}")
    rates = base ** (xp.arange(0, dim, 2) / -dim)
    return positions.astype(dtypes.float64)[..., None] * rates


def positions_of(positions):
    """An int stands for 0 to that number minus 1; anything else for itself."""
    return xp.arange(positions) if isinstance(positions, numbers.Integral) else as_tensor(positions).array


def sinusoidal_table(positions, dim, base=10000.0, dtype=None):
    r"""Each position as `dim` sines and cosines, from fast to slow.

    .. math:: p_{t, 2i} = \sin(t / 10000^{2i/C}), \qquad p_{t, 2i+1} = \cos(t / 10000^{2i/C})

    The product of two rows depends on their distance only, and shifting by k turns each pair by a fixed angle.

    Parameters
    ----------
    positions : int or Tensor (...) of numbers
        An int T stands for 0, 1, ..., T - 1.
    dim : int, even
        The width C.
    base : float
    dtype : float32 unless given

    Returns
    -------
    Tensor (..., dim); (T, dim) for an int

    Raises
    ------
    ValueError
        If `dim` is odd.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need", section 3.5.
    """
    angles = angles_of(positions_of(positions), dim, base)
    pairs = xp.stack((xp.sin(angles), xp.cos(angles)), axis=-1)  # (..., C/2) -> (..., C/2, 2)
    return Tensor.wrap(pairs.reshape(*angles.shape[:-1], dim).astype(dtype or dtypes.get_default_dtype()))


def grid_cells(rows, columns):
    """The row and the column of each cell, line by line: two arrays (rows * columns,)."""
    cell = xp.arange(rows * columns)
    return cell // columns, cell % columns


def sinusoidal_table_2d(rows, columns, dim, base=10000.0, dtype=None):
    """Each cell of a grid as the sinusoidal code of its row, then that of its column, each half of the width.

    Parameters
    ----------
    rows, columns : int
    dim : int, a multiple of 4
    base : float
    dtype : float32 unless given

    Returns
    -------
    Tensor (rows * columns, dim), line by line, as patches come

    Raises
    ------
    ValueError
        If 4 does not divide `dim`.
    """
    if dim % 4:
        raise ValueError(f"rows and columns get an even half of the width each, so 4 must divide it, got {dim}")
    row, column = grid_cells(rows, columns)
    halves = [sinusoidal_table(Tensor.wrap(place), dim // 2, base, dtype).array for place in (row, column)]
    return Tensor.wrap(xp.concatenate(halves, axis=-1))


def alibi_slopes(heads):
    """How steeply each head's scores fall with distance: 2^(-8/n), 2^(-16/n), ... for n heads, a power of two.

    For other numbers the slopes of the next lower power of two are followed by every second one of the next higher,
    as in the authors' code. (Their paper's sentence, taken for any n, would give other numbers.)

    Parameters
    ----------
    heads : int, at least 1

    Returns
    -------
    list of float

    Raises
    ------
    ValueError
        If `heads` is below 1.

    References
    ----------
    Press, Smith and Lewis 2022, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation", section 3, and their code.
    """
    if heads < 1:
        raise ValueError(f"the number of heads must be at least 1, got {heads}")
    lower = 1 << int(math.log2(heads))
    slopes = [2.0 ** (-8 * (i + 1) / lower) for i in range(lower)]
    between = [2.0 ** (-4 * (i + 1) / lower) for i in range(0, 2 * lower, 2)]
    return slopes + between[:heads - lower]


def alibi_bias(heads, T, S=None, offset=None, dtype=None):
    """What ALiBi adds to the scores: minus the distance times the head's slope.

    It hides nothing. For causal attention give ``additive_mask(causal_mask(T, S), alibi_bias(heads, T, S))`` as the
    mask.

    Parameters
    ----------
    heads : int
    T : int
        Number of queries.
    S : int, optional
        Number of keys; T unless given.
    offset : int, optional
        Where query 0 stands among the keys; S - T unless given.
    dtype : float32 unless given

    Returns
    -------
    Tensor (heads, T, S)

    Raises
    ------
    ValueError
        If `heads` is below 1.

    References
    ----------
    As of `alibi_slopes`.
    """
    slopes = to_device(alibi_slopes(heads), dtype or dtypes.get_default_dtype())
    far = xp.absolute(steps_back(T, S, offset)).astype(slopes.dtype)
    return Tensor.wrap(-far * slopes[:, None, None])


def resize_grid(x, rows, columns):
    r"""A grid of vectors at another size, by linear interpolation in both directions.

    .. math:: Y = R\, X\, C^\top

    Row i of R holds the two weights of the old rows between which the centre of new row i falls, old and new rows
    being equal parts of one length: (i + 1/2) old / new - 1/2, limited to what is there.

    Parameters
    ----------
    x : Tensor (..., H, W, C)
        Such as a learned table of positions of patches, ``table.reshape(H, W, C)``.
    rows, columns : int
        The new H and W.

    Returns
    -------
    Tensor (..., rows, columns, C)

    Raises
    ------
    ValueError
        If x has fewer than three axes, or a size is not positive.

    References
    ----------
    Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", section 3.2.
    """
    if x.ndim < 3 or min(rows, columns, *x.shape[-3:-1]) < 1:
        raise ValueError(f"resize_grid needs x (..., H, W, C) and sizes of at least 1, got {x.shape} and "
                         f"{rows} x {columns}")
    if x.shape[-3:-1] == (rows, columns):
        return x
    down, across = (_interpolation(old, new, x.dtype) for old, new in zip(x.shape[-3:-1], (rows, columns)))

    def backward(g):
        return (xp.einsum("ih,jw,...ijc->...hwc", down, across, g, optimize=True),)

    y = xp.einsum("ih,jw,...hwc->...ijc", down, across, x.array, optimize=True)
    return Tensor.from_op("resize_grid", y, (x,), backward)


def _interpolation(old, new, dtype):
    """The matrix (new, old) of linear interpolation between centres."""
    centre = (xp.arange(new) + 0.5) * (old / new) - 0.5
    away = xp.absolute(xp.clip(centre, 0, old - 1)[:, None] - xp.arange(old))
    return xp.maximum(1 - away, 0.0).astype(dtype)
