"""Masks: boolean tensors that say which keys each query may see. True may be seen, everywhere in this file.

Every mask broadcasts to (B, H, T, S): batch, heads, queries, keys. So masks combine by `&` (both must allow it) and
`|` (one is enough), are negated by `~`, and go as `attn_mask` into `scaled_dot_product_attention` and the other
attention functions::

    causal_mask(T) & padding_mask(lengths)                    # (B, 1, T, S): only the past, and no padding
    sliding_window_mask(T, 128) | (arange(T) < 4)             # the last 128 tokens, and always the first four

`nn.MultiheadAttention` and what is built of it want the opposite sign, as in PyTorch: give them `~mask`.

Queries and keys stand on one line of positions: key s at s, query t at t + offset. The offset is S - T unless given,
which puts the last query beside the last key: so a mask for one new token beside S cached ones needs no thought, and
with more queries than keys the first ones see nothing. PyTorch's `is_causal=True` has offset 0 instead.
"""
import math

from ... import dtypes
from ...autograd import Tensor
from ...backend import to_device, xp
from ...ops.create import as_tensor, zeros
from ...ops.elementwise import masked_fill

__all__ = ["additive_mask", "block_causal_mask", "block_mask", "causal_mask", "dilated_mask", "padding_mask",
           "sliding_window_mask"]


def padding_mask(x, size=None, *, pad_id=None, left=False):
    """Hide padding keys: those beyond each sample's length, or those whose token is the padding token.

    Parameters
    ----------
    x : Tensor or list
        Lengths (B,), whole numbers in [0, size]; or with `pad_id` token ids (B, S).
    size : int, optional
        S; the largest length unless given. With `pad_id` it is that of the ids.
    pad_id : int, optional
        The id that stands for padding, of this sequence: source and target may have different ones.
    left : bool
        Padding stands before the tokens, as in a batch of prompts to be continued. Only for lengths.

    Returns
    -------
    Tensor (B, 1, 1, S), bool

    Raises
    ------
    ValueError
        If lengths are not (B,) whole numbers, or one lies outside [0, size]; or ids are not (B, S).
    """
    x = as_tensor(x)
    if x.dtype.kind not in "iu" or x.ndim != (1 if pad_id is None else 2):
        raise ValueError(f"padding_mask needs lengths (B,), or ids (B, S) and pad_id, in whole numbers, got {x.dtype}"
                         f"{x.shape}" + ("; to find padding in ids, pass pad_id" if x.ndim == 2 else ""))
    if pad_id is not None:
        return Tensor.wrap((x.array != pad_id)[:, None, None])  # (B, S) -> (B, 1, 1, S)
    longest = int(x.array.max()) if x.array.size else 0
    size = longest if size is None else size
    if longest > size or (x.array.size and int(x.array.min()) < 0):
        raise ValueError(f"lengths must lie in [0, {size}], got {x.array.min()} to {longest}")
    place, length = xp.arange(size), x.array[:, None]
    seen = place >= size - length if left else place < length  # (B, 1), (S,) -> (B, S)
    return Tensor.wrap(seen[:, None, None])  # (B, S) -> (B, 1, 1, S)


def steps_back(T, S, offset):
    """How far before each query each key stands, (T, S): 0 at its own place, negative after it."""
    S = T if S is None else S
    offset = S - T if offset is None else offset
    return (xp.arange(T) + offset)[:, None] - xp.arange(S)


def causal_mask(T, S=None, offset=None):
    """Each query sees its own place and what is before it: keys s <= t + offset.

    Parameters
    ----------
    T : int
        Number of queries.
    S : int, optional
        Number of keys; T unless given.
    offset : int, optional
        Where query 0 stands among the keys; S - T unless given.

    Returns
    -------
    Tensor (T, S), bool
    """
    return Tensor.wrap(steps_back(T, S, offset) >= 0)


def sliding_window_mask(T, window, S=None, offset=None):
    """Each query sees its own place and the `window` - 1 places before it.

    The number of pairs is linear in T, which a kernel that skips hidden tiles, such as `tiled_attention`, uses.

    Parameters
    ----------
    T : int
    window : int, at least 1
    S, offset : int, optional
        As in `causal_mask`.

    Returns
    -------
    Tensor (T, S), bool

    Raises
    ------
    ValueError
        If `window` is below 1.

    References
    ----------
    Beltagy et al. 2020, "Longformer", section 3.1. Jiang et al. 2023, "Mistral 7B", section 2.
    """
    return dilated_mask(T, window, 1, S, offset)


def dilated_mask(T, window, dilation, S=None, offset=None):
    """Each query sees `window` places, its own and before it, each `dilation` apart: 0, r, 2r, ..., (w - 1) r back.

    Parameters
    ----------
    T : int
    window : int, at least 1
    dilation : int, at least 1
    S, offset : int, optional
        As in `causal_mask`.

    Returns
    -------
    Tensor (T, S), bool

    Raises
    ------
    ValueError
        If `window` or `dilation` is below 1.

    References
    ----------
    Beltagy et al. 2020, "Longformer", section 3.1. Child et al. 2019, "Generating Long Sequences with Sparse
    Transformers", section 4.2.
    """
    if window < 1 or dilation < 1:
        raise ValueError(f"window and dilation must be at least 1, got {window} and {dilation}: a window of 1 is the "
                         "query's own place alone")
    back = steps_back(T, S, offset)
    return Tensor.wrap((back >= 0) & (back < window * dilation) & (back % dilation == 0))


def block_mask(sizes, may_read):
    """The tokens of segment i see those of segment j, all of them, where ``may_read[i][j]``.

    Parameters
    ----------
    sizes : sequence of int
        The numbers of tokens of the n segments, which follow each other.
    may_read : n rows of n truth values

    Returns
    -------
    Tensor (T, T), bool, T being the sum of `sizes`

    Raises
    ------
    ValueError
        If `may_read` is not n by n.
    """
    table, n = to_device(may_read, dtypes.bool), len(sizes)
    if table.shape != (n, n):
        raise ValueError(f"{n} segments need may_read {(n, n)}, got {table.shape}")
    ends = xp.cumsum(to_device(sizes, dtypes.int64))
    segment = xp.sum(xp.arange(sum(sizes))[:, None] >= ends, axis=1)  # of each token: (T, n) -> (T,)
    return Tensor.wrap(table[segment[:, None], segment])  # (n, n) -> (T, T)


def block_causal_mask(sizes):
    """Each segment sees itself, in both directions, and the segments before it.

    With the segments observation, state, actions that is how an action model keeps what it observes from depending
    on the actions; with segments of one token it is `causal_mask`.

    Parameters
    ----------
    sizes : sequence of int
        The numbers of tokens of the segments, which follow each other.

    Returns
    -------
    Tensor (T, T), bool, T being the sum of `sizes`

    References
    ----------
    Black et al. 2024, "pi0: A Vision-Language-Action Flow Model for General Robot Control", appendix B.
    """
    return block_mask(sizes, xp.tri(len(sizes), dtype=bool))


def additive_mask(mask, bias=None, dtype=None):
    """The boolean mask as numbers to be added to scores: -inf where hidden, `bias` or exactly 0 where seen.

    Parameters
    ----------
    mask : Tensor of bool
    bias : Tensor broadcastable to the mask, or the mask to it; optional
        Such as `alibi_bias`.
    dtype : dtype, optional
        That of the result without a bias; float32 unless given.

    Returns
    -------
    Tensor of the common shape

    Raises
    ------
    TypeError
        If `mask` is not boolean: a mask of numbers 0 and 1 would hide nothing.
    """
    if mask.dtype != dtypes.bool:
        raise TypeError(f"additive_mask needs a boolean mask (True may be seen), got {mask.dtype}; .bool() makes one "
                        "of zeros and ones")
    if bias is None:
        bias = zeros(mask.shape, dtype=dtype)
    return masked_fill(bias, ~mask, -math.inf)
