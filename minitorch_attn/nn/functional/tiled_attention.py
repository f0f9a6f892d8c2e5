"""Exact attention by tiles: the same result as `scaled_dot_product_attention`, without ever holding (T, S) numbers.

Scores are made for one tile of queries and one tile of keys at a time, used, and thrown away. What makes that exact
is the online softmax: a softmax over keys that arrive tile by tile needs only a running maximum m and a running sum.
Writing l for that sum of e^(a - m), and u for the same sum weighted by the values, a new tile with scores a' gives

    m' = max(m, max a'),   l' = l e^(m - m') + sum e^(a' - m'),   u' = u e^(m - m') + e^(a' - m') V'

and in the end y = u / l. Backward makes each tile's scores again: with L = m + log l, kept from forward, its weights
are e^(a - L). Memory therefore grows with T, not T S, while the arithmetic is that of the plain kernel and half again.

References
----------
Milakov and Gimelshein 2018, "Online normalizer calculation for softmax". Dao 2023, "FlashAttention-2: Faster
Attention with Better Parallelism and Work Partitioning", algorithms 1 and 2.
"""
import math
from dataclasses import dataclass

import numpy

from ... import dtypes
from ...autograd import Tensor
from ...backend import quiet, row_max, xp
from ...ops.broadcast import cast, unbroadcast
from .attention import _check, _grouped, _scale, _widen

__all__ = ["tiled_attention"]


@quiet
def tiled_attention(query, key, value, attn_mask=None, is_causal=False, *, window=None, offset=0, scale=None,
                    enable_gqa=False, tile=256):
    r"""`scaled_dot_product_attention` by tiles, in memory linear in T and S.

    A causal or windowed rule is worked out tile by tile, and tiles that it hides are not visited: causal attention
    costs half, and a window of w costs T w instead of T S. A mask given as a tensor is as large as it is; those of
    its tiles that hide everything are skipped too.

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
    value : Tensor (..., S, E)
        Leading axes broadcast.
    attn_mask : Tensor broadcastable to (..., T, S), optional
        Boolean: True may be seen. Floating point: added to the scores, and differentiable.
    is_causal : bool
        Query t may see keys 0 to t + offset.
    window : int, optional
        Query t may see the `window` keys up to t + offset, itself and `window` - 1 before; implies `is_causal`.
    offset : int
        Where query 0 stands among the keys: S - T for the last T of S tokens.
    scale : float, optional
        1 / sqrt(D) unless given.
    enable_gqa : bool
        As in `scaled_dot_product_attention`.
    tile : int
        How many queries, and how many keys, are in hand at a time.

    Returns
    -------
    Tensor (..., T, E); a query that may see no key reads zeros and sends no gradient.

    Raises
    ------
    RuntimeError
        As `scaled_dot_product_attention`.
    ValueError
        If `window` or `tile` is below 1.
    """
    if (window is not None and window < 1) or tile < 1:
        raise ValueError(f"window and tile must be at least 1, got {window} and {tile}")
    if enable_gqa:
        return _grouped(lambda q, k, v, mask: tiled_attention(q, k, v, mask, is_causal, window=window, offset=offset,
                                                              scale=scale, tile=tile), query, key, value, attn_mask)
    _check(query, key, value, attn_mask, 0.0, False)
    dtype, inputs = query.dtype, _widen(query, key, value, attn_mask)
    q, k, v, *mask = [x.array for x in inputs]
    scale, shapes, needs = _scale(q, scale), [x.shape for x in inputs], [x.requires_grad for x in inputs]
    if mask and mask[0].ndim < 2:
        mask = [mask[0].reshape((1,) * (2 - mask[0].ndim) + mask[0].shape)]
    rule = dict(causal=is_causal or window is not None, window=window, offset=offset, size=tile)
    y, log_total = _forward(Tiles(q, k, scale, *mask, **rule), v)

    def backward(g):
        grads = _backward(Tiles(q, k, scale, *mask, **rule), v, y, log_total, g, needs)
        return tuple(gx if gx is None else gx.reshape(shape) for gx, shape in zip(grads, shapes))

    return cast(Tensor.from_op("tiled_attention", y, inputs, backward), dtype)


@dataclass
class Tiles:
    """The scores of attention, a tile at a time."""
    q: object  # (..., T, D)
    k: object  # (..., S, D)
    scale: float
    mask: object = None  # (..., T or 1, S or 1)
    causal: bool = False
    window: int | None = None
    offset: int = 0
    size: int = 256

    def rows(self):
        """The tiles of queries, as slices."""
        T = self.q.shape[-2]
        return [slice(t, min(t + self.size, T)) for t in range(0, T, self.size)]

    def columns(self, rows):
        """The tiles of keys of which these queries may see something, as slices."""
        first, stop = 0, self.k.shape[-2]
        if self.causal:
            stop = min(stop, rows.stop + self.offset)
        if self.window is not None:
            first = max(0, rows.start + self.offset - self.window + 1)
        return [slice(s, min(s + self.size, stop)) for s in range(first, stop, self.size)]

    def seen(self, rows, columns):
        """The causal and windowed rule for one tile, (rows, columns) of bool; None if it hides nothing there."""
        nearest = rows.start + self.offset - (columns.stop - 1)  # how far back of the query, at two corners
        farthest = rows.stop - 1 + self.offset - columns.start
        if not self.causal or (nearest >= 0 and (self.window is None or farthest < self.window)):
            return None
        back = (xp.arange(rows.start, rows.stop) + self.offset)[:, None] - xp.arange(columns.start, columns.stop)
        return back >= 0 if self.window is None else (back >= 0) & (back < self.window)

    def mask_index(self, rows, columns):
        """Where the mask of this tile stands in the whole mask, whose axes of size 1 stand for all rows or columns."""
        whole = slice(None)
        tall, wide = (n > 1 for n in self.mask.shape[-2:])
        return ..., rows if tall else whole, columns if wide else whole

    def scores(self, rows, columns):
        """scale Q K^T + mask of one tile, -inf at what is hidden; None if that is all of it."""
        mask = None if self.mask is None else self.mask[self.mask_index(rows, columns)]
        hides = mask is not None and mask.dtype == dtypes.bool
        if mask is not None and (not mask.any() if hides else (mask == -math.inf).all()):
            return None
        q = self.q[..., rows, :] * self.scale
        scores = xp.matmul(q, self.k[..., columns, :].swapaxes(-1, -2))  # (..., t, D) (..., D, s) -> (..., t, s)
        if mask is not None and not hides:
            scores = scores + mask
        for seen in (mask if hides else None, self.seen(rows, columns)):
            if seen is not None and not seen.all():
                scores = xp.where(seen, scores, -math.inf)
        return scores


def _forward(tiles, v):
    """y (..., T, E), and L = log of each row's sum of e^score, (..., T, 1); 0 for a row that sees nothing."""
    T = tiles.q.shape[-2]
    lead = numpy.broadcast_shapes(*(x.shape[:-2] for x in (tiles.q, tiles.k, v)))
    like = tiles.q if tiles.q.ndim == len(lead) + 2 else None
    shape = (*lead, T, v.shape[-1])
    y = xp.empty(shape, v.dtype) if like is None else xp.empty_like(like, shape=shape)
    log_total = xp.empty((*lead, T, 1), v.dtype)
    for rows in tiles.rows():
        t = rows.stop - rows.start
        u, total = xp.zeros((*lead, t, v.shape[-1]), v.dtype), xp.zeros((*lead, t, 1), v.dtype)
        top = xp.full((*lead, t, 1), -math.inf, v.dtype)
        for columns in tiles.columns(rows):
            e = tiles.scores(rows, columns)
            if e is None:
                continue
            new_top = xp.maximum(top, row_max(e))
            safe = xp.where(new_top == -math.inf, 0.0, new_top)  # -inf - -inf would be NaN
            e = xp.exp(e - safe)
            shrink = xp.exp(top - safe)  # 0 at a row's first key, as its top is -inf until then
            total *= shrink
            total += xp.matmul(e, xp.ones((e.shape[-1], 1), e.dtype))
            u *= shrink
            u += xp.matmul(e, v[..., columns, :])  # (..., t, s) (..., s, E) -> (..., t, E)
            top = new_top
        blind = total == 0
        total[blind] = 1
        top[blind] = 0  # its scores are -inf, and e^(-inf - 0) is the weight 0 that backward needs
        xp.divide(u, total, out=y[..., rows, :])
        log_total[..., rows, :] = top + xp.log(total)
    return y, log_total


def _backward(tiles, v, y, log_total, g, needs):
    """The gradients of query, key, value and mask; None for those that need none.

    With A the scores and P = e^(A - L) the weights: dV = P^T dY and dP = dY V^T. Softmax turns dP into
    dA = P (dP - delta), delta = dY . y of each row; and then dQ = scale dA K, dK = scale dA^T Q, dM = dA.
    """
    q, k, mask = tiles.q, tiles.k, tiles.mask
    gq, gk, gv, gmask = (xp.zeros(x.shape, x.dtype) if need else None
                         for x, need in zip((q, k, v, mask), (*needs, False)))
    for rows in tiles.rows():
        g_rows, q_rows = g[..., rows, :], q[..., rows, :]
        delta = xp.einsum("...e,...e->...", g_rows, y[..., rows, :])[..., None]
        for columns in tiles.columns(rows):
            p = tiles.scores(rows, columns)
            if p is None:
                continue
            p = xp.exp(p - log_total[..., rows, :])
            v_columns, k_columns = v[..., columns, :], k[..., columns, :]
            if gv is not None:
                gv[..., columns, :] += unbroadcast(xp.matmul(p.swapaxes(-1, -2), g_rows), v_columns.shape)
            ga = xp.matmul(g_rows, v_columns.swapaxes(-1, -2))  # (..., t, E) (..., E, s) -> (..., t, s)
            ga -= delta
            ga *= p
            if gq is not None:
                gq[..., rows, :] += unbroadcast(xp.matmul(ga, k_columns), q_rows.shape)
            if gk is not None:
                gk[..., columns, :] += unbroadcast(xp.matmul(ga.swapaxes(-1, -2), q_rows), k_columns.shape)
            if gmask is not None:
                part = tiles.mask_index(rows, columns)
                gmask[part] += unbroadcast(ga, gmask[part].shape)
    for gx in (gq, gk):
        if gx is not None:
            gx *= tiles.scale
    return gq, gk, gv, gmask
