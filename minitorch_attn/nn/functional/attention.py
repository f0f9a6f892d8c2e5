"""Attention: each query reads a weighted mean of the values, weighted by how well it matches their keys.

Axis letters: T query time, S key time, D width of a query and of a key, E width of a value; "..." stands for any
leading axes, usually batch and heads.

Masks say what may be seen: in a boolean mask True may be seen; a floating-point mask is added to the scores, so
that -inf hides (and a mask of floats 0 and 1 hides nothing). A query that may see no key reads a zero row and sends
no gradient anywhere. Hiding is exact for finite numbers: a NaN or infinity in a hidden key or value still reaches
the result, as 0 times NaN.
"""
import math
from itertools import compress

import numpy

from ... import dtypes
from ...autograd import Tensor
from ...backend import quiet, row_max, xp
from ...ops.broadcast import cast, number, unbroadcast
from ...ops.shape import reshape, unsqueeze
from ...random import keep_mask
from .parallel import over_batch

__all__ = ["attention_weights", "packed_attention", "scaled_dot_product_attention"]


@quiet
def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *,
                                 scale=None, enable_gqa=False):
    r"""Attention with dot products as scores, in one kernel.

    .. math:: Y = \mathrm{dropout}(P)\,V, \qquad P = \mathrm{softmax}(\mathrm{scale} \cdot Q K^\top + M)

    Differs from PyTorch: a query that may see no key reads a zero row and sends no gradient, with every kind of mask;
    with `enable_gqa` keys and values have equally many heads.

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
    value : Tensor (..., S, E)
        Leading axes broadcast.
    attn_mask : Tensor broadcastable to (..., T, S), optional
        Boolean: True may be seen. Floating point: M, added to the scores, and differentiable.
    dropout_p : float in [0, 1]
        Probability with which each weight is zeroed; the others grow by 1 / (1 - dropout_p). Nothing here knows of
        evaluation: pass 0 then.
    is_causal : bool
        Query t may see keys 0..t. The two start together also when T and S differ, so one new query against S cached
        keys sees key 0 only: leave it off while decoding, or pass a mask.
    scale : float, optional
        1 / sqrt(D) unless given.
    enable_gqa : bool
        Grouped-query attention: `query` has a multiple of the heads (third axis from the end) of `key` and `value`,
        and each run of neighbouring query heads shares one of theirs.

    Returns
    -------
    Tensor (..., T, E), its axes in memory in the order of those of `query`, so that heads that were split off by a
    transposed view merge again without a copy.

    Raises
    ------
    RuntimeError
        If dtypes differ or are not floating point, shapes do not fit, `dropout_p` is outside [0, 1], or both
        `attn_mask` and `is_causal` are given.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need", equation 1. Grouped queries: Ainslie et al. 2023, "GQA".
    """
    if enable_gqa:
        return _grouped(lambda q, k, v, mask: scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal,
                                                                           scale=scale), query, key, value, attn_mask)
    scores_shape = _check(query, key, value, attn_mask, dropout_p, is_causal)
    dtype, inputs = query.dtype, _widen(query, key, value, attn_mask)
    return cast(_attention(*inputs, scale=_scale(query, scale), is_causal=is_causal,
                           **_dropped(scores_shape, dropout_p)), dtype)


@over_batch("query", "key", "value", "attn_mask", "keep")
def _attention(query, key, value, attn_mask=None, *, scale, is_causal, keep, keep_scale):
    """`scaled_dot_product_attention` of checked inputs; `keep` (..., T, S) is what dropout leaves, or None."""
    inputs = [x for x in (query, key, value, attn_mask) if x is not None]
    q, k, v, *mask = [x.array for x in inputs]
    q = q * scale
    y, e, total = _weighted_means(q, k, v, *mask, is_causal=is_causal, keep=keep, keep_scale=keep_scale)
    # Without a mask `present` and `compress` leave the mask's place out.
    present, needs = (True, True, True, attn_mask is not None), [x.requires_grad for x in inputs]
    mask_shape = mask[0].shape if mask else None

    def backward(g):
        found = _gradients(g, q, k, v, y, e, total, scale, keep, keep_scale, needs, mask_shape)
        return tuple(compress(found, present))

    return Tensor.from_op("scaled_dot_product_attention", y, inputs, backward)


@quiet
def packed_attention(packed, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None):
    r"""`scaled_dot_product_attention` of queries, keys and values that lie side by side, as one projection makes them.

    The same as ``q, k, v = packed.permute(2, 0, 3, 1, 4)``, then attention, then ``y.transpose(1, 2)``. But backward
    writes the three gradients into one array of the shape of `packed`, where each view's would be added to zeros.

    Parameters
    ----------
    packed : Tensor (B, T, 3, H, D)
        For each position and head a query, a key and a value.
    attn_mask : Tensor broadcastable to (B, H, T, T), optional
    dropout_p, is_causal, scale
        As in `scaled_dot_product_attention`.

    Returns
    -------
    Tensor (B, T, H, D), its axes in memory in the order of those of `packed`.

    Raises
    ------
    RuntimeError
        If `packed` has another shape, and else as `scaled_dot_product_attention`.
    """
    if packed.ndim != 5 or packed.shape[2] != 3:
        raise RuntimeError(f"packed attention needs queries, keys and values (B, T, 3, H, D), got {packed.shape}")
    scores_shape = _check(*_heads_first(packed.array), attn_mask, dropout_p, is_causal)
    dtype, inputs = packed.dtype, _widen(packed, attn_mask)
    return cast(_packed_attention(*inputs, scale=_scale(packed, scale), is_causal=is_causal,
                                  **_dropped(scores_shape, dropout_p)), dtype)


@over_batch("packed", "attn_mask", "keep", fewer=1)
def _packed_attention(packed, attn_mask=None, *, scale, is_causal, keep, keep_scale):
    """`packed_attention` of checked inputs."""
    inputs = [x for x in (packed, attn_mask) if x is not None]
    qkv, *mask = [x.array for x in inputs]
    q, k, v = _heads_first(qkv)
    q = q * scale
    y, e, total = _weighted_means(q, k, v, *mask, is_causal=is_causal, keep=keep, keep_scale=keep_scale)
    y = y.swapaxes(1, 2)  # (B, H, T, D) -> (B, T, H, D)
    present, needs = (True, attn_mask is not None), [packed.requires_grad] * 3 + [x.requires_grad for x in inputs[1:]]
    mask_shape = mask[0].shape if mask else None

    def backward(g):
        gqkv = xp.empty(qkv.shape, qkv.dtype)
        *_, gmask = _gradients(g.swapaxes(1, 2), q, k, v, y.swapaxes(1, 2), e, total, scale, keep, keep_scale, needs,
                               mask_shape, _heads_first(gqkv))
        return tuple(compress((gqkv if needs[0] else None, gmask), present))

    return Tensor.from_op("packed_attention", y, inputs, backward)


def _heads_first(qkv):
    """(B, T, 3, H, D) -> queries, keys and values (B, H, T, D) each: views of the array."""
    return qkv.transpose(2, 0, 3, 1, 4)


def _dropped(shape, p):
    """What dropout with probability `p` leaves of weights of `shape`, and by what these grow."""
    if not p:
        return {"keep": None, "keep_scale": 1.0}
    return {"keep": keep_mask(shape, p), "keep_scale": 1 / (1 - number(p)) if p < 1 else 0.0}


def _weighted_means(q, k, v, mask=None, *, is_causal, keep, keep_scale):
    """The result Y for arrays, q being scaled, and the softmax's two parts: weights are e / total."""
    e, total = _exp_rows(_scores(q, k, mask, is_causal=is_causal))
    # To divide the (T, E) result by the totals spares a pass over (T, S).
    y = _product(e if keep is None else e * keep, v, q)  # (..., T, S) (..., S, E) -> (..., T, E)
    y *= keep_scale / total
    return y, e, total


def _gradients(g, q, k, v, y, e, total, scale, keep, keep_scale, needs, mask_shape, out=(None, None, None)):
    """The gradients of query, key, value and mask from that of the result, written to `out` if given.

    Y = (keep_scale keep P) V with P = softmax(A) = e/total, A the scores. So
      dP = keep_scale keep (g V^T)
      delta = sum over s of P dP = g.y, as y is the sum over s of keep_scale keep P V
      dA = P (dP - delta) = e (dP / total - delta / total), where ga is at first what stands in brackets
    """
    g_share = g * (keep_scale / total)
    gq = gk = gv = gmask = None
    if needs[2]:
        dropped = e if keep is None else e * keep  # made again, which costs less than keeping it until now
        gv = unbroadcast(_product(dropped.swapaxes(-1, -2), g_share, v, out[2]), v.shape)
    if any(needs[:2] + needs[3:]):
        ga = xp.matmul(g_share, v.swapaxes(-1, -2))  # (..., T, E) (..., E, S) -> (..., T, S)
        if keep is not None:
            ga *= keep
        ga -= xp.einsum("...e,...e->...", g, y)[..., None] / total
        ga *= e
        gq, gk, gmask = _score_gradients(ga, q, k, scale, needs, mask_shape, out)
    return gq, gk, gv, gmask


@quiet
def attention_weights(query, key, attn_mask=None, is_causal=False, *, scale=None):
    r"""The weights P of `scaled_dot_product_attention`, to look at or to multiply with values.

    .. math:: P = \mathrm{softmax}(\mathrm{scale} \cdot Q K^\top + M)

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
    attn_mask, is_causal, scale
        As in `scaled_dot_product_attention`.

    Returns
    -------
    Tensor (..., T, S); each row sums to 1, or is zero where the query may see no key.

    Raises
    ------
    RuntimeError
        As `scaled_dot_product_attention`.
    """
    _check(query, key, key, attn_mask, 0.0, is_causal)
    dtype, inputs = query.dtype, _widen(query, key, attn_mask)
    q, k, *mask = [x.array for x in inputs]
    scale = _scale(query, scale)
    q = q * scale
    p, total = _exp_rows(_scores(q, k, *mask, is_causal=is_causal))
    p /= total
    present, needs = (True, True, attn_mask is not None), [x.requires_grad for x in inputs]
    mask_shape = mask[0].shape if mask else None

    def backward(g):
        ga = g - xp.einsum("...s,...s->...", g, p)[..., None]  # dA = P (g - mean of g under P), A the scores
        ga *= p
        return tuple(compress(_score_gradients(ga, q, k, scale, needs, mask_shape), present))

    return cast(Tensor.from_op("attention_weights", p, inputs, backward), dtype)


def _grouped(attend, query, key, value, attn_mask):
    """`attend` with each head of `key` and `value` serving a run of heads of `query`, without being copied."""
    heads, groups = (x.shape[-3] if x.ndim > 2 else 0 for x in (query, key))
    if not groups or heads % groups or value.ndim < 3 or value.shape[-3] != groups:
        raise RuntimeError("enable_gqa needs query (..., H, T, D), key (..., K, S, D) and value (..., K, S, E) with K "
                           f"dividing H, got {query.shape}, {key.shape} and {value.shape}")

    def split(x):  # (..., H, T, D) -> (..., K, H/K, T, D)
        sizes = (groups, heads // groups) if x.shape[-3] == heads else (1, 1)
        return reshape(x, *x.shape[:-3], *sizes, *x.shape[-2:])

    if attn_mask is not None and attn_mask.ndim > 2:
        attn_mask = split(attn_mask)
    y = attend(split(query), unsqueeze(key, -3), unsqueeze(value, -3), attn_mask)
    return reshape(y, *y.shape[:-4], heads, *y.shape[-2:])  # (..., K, H/K, T, E) -> (..., H, T, E)


def _check(query, key, value, attn_mask, dropout_p, is_causal):
    """The shape (..., T, S) of the scores; RuntimeError with the likely fix unless attention is defined for these.

    Query, key and value may be tensors or arrays.
    """
    if not query.dtype == key.dtype == value.dtype or query.dtype.kind != "f":
        raise RuntimeError("query, key and value must have one floating-point dtype, got "
                           f"{query.dtype}, {key.dtype} and {value.dtype}")
    shapes = query.shape, key.shape, value.shape
    fits = min(map(len, shapes)) > 1
    if not fits or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError("attention needs query (..., T, D), key (..., S, D) and value (..., S, E), "
                           "got {}, {} and {}".format(*shapes))
    lead, *others = (shape[:-2] for shape in shapes)
    if others != [lead, lead]:
        try:
            lead = numpy.broadcast_shapes(lead, others[0])
            numpy.broadcast_shapes(lead, others[1])
        except ValueError:
            raise RuntimeError("the leading axes of query, key and value do not broadcast, got {}, {} and {}; where "
                               "key and value have fewer heads, pass enable_gqa=True".format(*shapes)) from None
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout_p must lie in [0, 1], got {dropout_p}")
    shape = (*lead, query.shape[-2], key.shape[-2])
    if attn_mask is not None:
        _check_mask(attn_mask, shape, is_causal)
    return shape


def _check_mask(attn_mask, shape, is_causal):
    """Raise RuntimeError unless the mask fits scores of this shape and says clearly what may be seen."""
    if is_causal:
        raise RuntimeError("give attn_mask or is_causal=True, not both; a causal mask of your own is "
                           "ones(T, S, dtype=bool).tril(), to be combined with another by &")
    if attn_mask.dtype.kind not in "bf":
        raise RuntimeError(f"attn_mask must be boolean (True may be seen) or floating point (added to the scores), "
                           f"got {attn_mask.dtype}; a mask of integers 0 and 1 becomes one by .bool()")
    lead = len(shape) - attn_mask.ndim
    if lead < 0 or any(n not in (1, full) for n, full in zip(attn_mask.shape, shape[lead:])):
        raise RuntimeError(f"attn_mask {attn_mask.shape} does not broadcast to the scores' (..., T, S) = {shape}")


def _widen(*inputs):
    """The tensors among `inputs`, all in the dtype of the first, or in float32 if that is float16.

    NumPy has no fast product of float16, and scores easily pass 65504, its largest number.
    """
    dtype = dtypes.float32 if inputs[0].dtype == dtypes.float16 else inputs[0].dtype
    return [x if x.dtype == dtypes.bool else cast(x, dtype) for x in inputs if x is not None]


def _scale(q, scale):
    """The factor of the scores: 1 / sqrt(D), which keeps their variance that of one entry, unless given."""
    return 1 / math.sqrt(q.shape[-1] or 1) if scale is None else number(scale)


def _scores(q, k, mask=None, is_causal=False):
    """``q @ k^T`` plus the mask; -inf at what may not be seen."""
    scores = xp.matmul(q, k.swapaxes(-1, -2))  # (..., T, D) (..., D, S) -> (..., T, S)
    if is_causal:
        mask = xp.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None and mask.dtype == dtypes.bool:
        seen, mask = mask, xp.zeros(mask.shape, scores.dtype)
        mask[~seen] = -math.inf
    if mask is not None:
        scores += mask
    return scores


def _exp_rows(scores):
    """Softmax in two parts: e = exp(scores - row's maximum), written over `scores`, and each row's sum of e.

    Where all scores lie within +-10, as most do, no maximum is subtracted: to find that of each row takes more than
    half as long as the exponentials. e is then from 5e-5 to 2e4, which leaves values and gradients their range.
    Beyond, the maximum keeps digits, too: where one key takes all the weight, e and sum are 1, and terms of the
    gradient cancel exactly. A row that is -inf throughout has no softmax; e = 0 and sum 1 make its weights zero.
    """
    if scores.size and not (xp.min(scores) >= -10 and xp.max(scores) <= 10):  # put so that NaN comes here
        top = row_max(scores)
        top[top == -math.inf] = 0  # -inf - -inf would be NaN
        scores -= top
    e = xp.exp(scores, out=scores)
    total = xp.matmul(e, xp.ones((e.shape[-1], 1), e.dtype))  # a product with ones is NumPy's fastest row sum
    total[total == 0] = 1
    return e, total


def _product(a, b, like, out=None):
    """``a @ b``, written to `out` if given; else in memory that has its axes in the order of those of `like`.

    The result or gradient of a view of heads is then such a view too, and undoing the view copies nothing.
    """
    if out is not None:
        return xp.matmul(a, b, out=out)
    if not a.shape[:-2] == b.shape[:-2] == like.shape[:-2]:
        return xp.matmul(a, b)
    order = [*sorted(range(a.ndim - 1), key=lambda i: -like.strides[i]), a.ndim - 1]
    shape = (*a.shape[:-1], b.shape[-1])
    out = xp.empty([shape[i] for i in order], a.dtype).transpose([order.index(i) for i in range(a.ndim)])
    return xp.matmul(a, b, out=out)


def _score_gradients(ga, q, k, scale, needs, mask_shape, out=(None, None)):
    """From the gradient of the scores A = (scale Q) K^T + M, here with q = scale Q, to those of query, key and mask.

    dQ = scale dA K, dK = dA^T (scale Q), dM = dA.
    """
    # where `out` is given, gq and gk are the arrays in there: shapes are equal then, so `unbroadcast` makes no others
    gq = gk = gmask = None
    if needs[0]:
        gq = unbroadcast(_product(ga, k, q, out[0]), q.shape)
        gq *= scale
    if needs[1]:
        gk = unbroadcast(_product(ga.swapaxes(-1, -2), q, k, out[1]), k.shape)
    if mask_shape is not None and needs[-1]:
        gmask = unbroadcast(ga, mask_shape)
    return gq, gk, gmask
