"""Position layers: they tell attention where each token stands; `functional.position` has the formulas."""
from ..dtypes import float64
from ..ops import arange, cat, empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["ALiBi", "GridPositions", "LearnedPositions", "RotaryEmbedding", "SinusoidalPositions"]


class _Kept(Module):
    """A layer that keeps what it has worked out for the positions `first`, `first` + 1, ..., to use it again.

    It is kept in float64 and out of sight of ``.half()``, which would round it for good.
    """

    def __init__(self):
        super().__init__()
        self.tables, self.first = None, 0  # tensors (length, ...), each row of one position

    def rows(self, offset, steps):
        """Of each table the rows of `steps` positions from `offset` on."""
        if self.tables is None or not self.first <= offset <= self.first + len(self.tables[0]) - steps:
            self.first = offset
            self.tables = self.make(arange(offset, offset + max(64, 2 * steps)))
        start = offset - self.first
        return [table[start:start + steps] for table in self.tables]


class SinusoidalPositions(_Kept):
    """Add to each token the sines and cosines of its position: ``y = x + functional.sinusoidal_table(...)``.

    Any length works, for nothing is learned.

    Parameters
    ----------
    dim : int, even
        The width C.
    base : float

    Raises
    ------
    ValueError
        If `dim` is odd.
    """

    def __init__(self, dim, base=10000.0):
        super().__init__()
        self.dim, self.base = dim, base
        self.make(arange(1))  # raises for an odd width

    def make(self, positions):
        return [F.sinusoidal_table(positions, self.dim, self.base, float64)]

    def forward(self, x, offset=0, positions=None):
        """(..., T, C) -> (..., T, C); the first token is at `offset`, or all at `positions` (T,) or (B, T)."""
        if positions is not None:
            return x + F.sinusoidal_table(positions, self.dim, self.base, x.dtype)
        return x + self.rows(offset, x.shape[-2])[0].to(x.dtype)

    def extra_repr(self):
        return f"{self.dim}, base={self.base}"


class LearnedPositions(Module):
    """Add to each token a learned vector of its position: ``y = x + weight[position]``.

    Parameters
    ----------
    max_len : int
        How many positions there are.
    dim : int
        The width C.
    device, dtype : "cpu" and the parameter's dtype; optional

    Attributes
    ----------
    weight : Parameter (max_len, dim), normal with standard deviation 0.02 at first
    """

    def __init__(self, max_len, dim, device=None, dtype=None):
        super().__init__()
        self.max_len, self.dim = max_len, dim
        self.weight = Parameter(empty(max_len, dim, device=device, dtype=dtype))
        init.normal_(self.weight, std=0.02)

    def forward(self, x, offset=0, positions=None):
        """Add the positions' vectors.

        Parameters
        ----------
        x : Tensor (..., T, C)
        offset : int
            The position of the first token: with a cache, how many it held before.
        positions : Tensor (T,) or (B, T), optional
            Instead of offset, offset + 1, ...: for batches that are padded on the left.

        Returns
        -------
        Tensor like x

        Raises
        ------
        ValueError
            If the last position is not below `max_len`.
        IndexError
            If one of `positions` is not in [0, max_len).
        """
        if positions is not None:
            return x + F.embedding(positions, self.weight)
        end = offset + x.shape[-2]
        if offset < 0 or end > self.max_len:
            raise ValueError(f"positions {offset} to {end - 1} were asked for, but only 0 to {self.max_len - 1} were "
                             "learned; make the layer with a larger max_len, or shorten the input")
        return x + self.weight[offset:end]

    def extra_repr(self):
        return f"{self.max_len}, {self.dim}"


class GridPositions(Module):
    """Add to each patch of an image a learned vector of its cell; other grids get interpolated ones.

    Parameters
    ----------
    rows, columns : int
        The grid that is learned; patches come line by line.
    dim : int
        The width C.
    prefix : int
        How many tokens stand before the patches, such as 1 for [CLS], each with a vector of its own.
    device, dtype : "cpu" and the parameter's dtype; optional

    Attributes
    ----------
    weight : Parameter (prefix + rows * columns, dim), normal with standard deviation 0.02 at first
    """

    def __init__(self, rows, columns, dim, prefix=0, device=None, dtype=None):
        super().__init__()
        self.rows, self.columns, self.dim, self.prefix = rows, columns, dim, prefix
        self.weight = Parameter(empty(prefix + rows * columns, dim, device=device, dtype=dtype))
        init.normal_(self.weight, std=0.02)

    def forward(self, x, rows=None, columns=None):
        """Add the cells' vectors.

        Parameters
        ----------
        x : Tensor (..., prefix + rows * columns, C)
        rows, columns : int, optional
            The grid of x, if it is not the learned one. The number of patches alone does not say: 2 x 8 is not 4 x 4.

        Returns
        -------
        Tensor like x

        Raises
        ------
        ValueError
            If x has not as many tokens as the grid says.
        """
        rows, columns = self.rows if rows is None else rows, self.columns if columns is None else columns
        if x.shape[-2] != self.prefix + rows * columns:
            raise ValueError(f"a grid of {rows} x {columns} has {rows * columns} patches, after {self.prefix} other "
                             f"tokens, got x {x.shape}; pass rows and columns of x")
        if (rows, columns) == (self.rows, self.columns):
            return x + self.weight
        grid = self.weight[self.prefix:].unflatten(0, (self.rows, self.columns))  # (N, C) -> (H, W, C)
        grid = F.resize_grid(grid, rows, columns).flatten(0, 1)                   # -> (N', C)
        return x + cat([self.weight[:self.prefix], grid], 0)

    def extra_repr(self):
        return f"{self.rows}, {self.columns}, {self.dim}, prefix={self.prefix}"


class RotaryEmbedding(_Kept):
    """Turn queries and keys by their positions: `functional.rotary`, with the tables kept between calls.

    Parameters
    ----------
    dim : int, even
        How many entries of each head are turned; a smaller number than the head's width leaves the rest as it is.
    base : float
    interleaved : bool
        Whether pairs are neighbours or halves; see `functional.apply_rotary`.

    Raises
    ------
    ValueError
        If `dim` is odd.
    """

    def __init__(self, dim, base=10000.0, interleaved=False):
        super().__init__()
        self.dim, self.base, self.interleaved = dim, base, interleaved
        self.make(arange(1))  # raises for an odd width

    def make(self, positions):
        return F.rotary_tables(positions, self.dim, self.base, float64)

    def forward(self, x, offset=0, positions=None):
        """Turn x (B, H, T, D); the first token is at `offset`, or all at `positions` (T,) or (B, T)."""
        if positions is not None:
            return F.rotary(x, positions=positions, dim=self.dim, base=self.base, interleaved=self.interleaved)
        cos, sin = self.rows(offset, x.shape[-2])
        return F.apply_rotary(x, cos, sin, self.interleaved)

    def extra_repr(self):
        return f"{self.dim}, base={self.base}, interleaved={self.interleaved}"


class ALiBi(Module):
    """Masks that lower each head's scores with the distance: see `functional.alibi_bias`.

    Parameters
    ----------
    num_heads : int
    """

    def __init__(self, num_heads):
        super().__init__()
        self.num_heads = num_heads

    def forward(self, T, S=None, mask=None, is_causal=True):
        """The attn_mask for T queries that are the last of S tokens: (H, T, S), or (B, H, T, S) with a `mask` of bool.

        `mask` is (B, 1, 1, S) or (B, 1, T, S), True may be seen.
        """
        if is_causal:
            mask = F.causal_mask(T, S) if mask is None else mask & F.causal_mask(T, S)
        bias = F.alibi_bias(self.num_heads, T, S)
        return bias if mask is None else F.additive_mask(mask, bias)

    def extra_repr(self):
        return f"{self.num_heads}"
