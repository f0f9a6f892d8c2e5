"""Attention with other scores than dot products: distances (kernel regression), and a small network (Bahdanau).

Each makes weights P (..., T, S) and reads the values by a product with them. Where a mask is taken, it is that of
`scaled_dot_product_attention`: boolean, True may be seen; or numbers added to the scores. A query that may see no key
gets a row of zeros and sends no gradient.
"""
import math

from ... import dtypes
from ...autograd import Tensor
from ...backend import quiet, xp
from ...ops.broadcast import cast, unbroadcast
from ...ops.create import as_tensor
from ...ops.linalg import matmul
from .attention import _check_mask, _exp_rows, _widen
from .linear import linear
from .masks import additive_mask

__all__ = ["additive_attention", "additive_scores", "kernel_pooling", "kernel_weights", "masked_softmax"]


@quiet
def masked_softmax(scores, attn_mask=None):
    r"""Softmax over the last axis with a mask; a row that is hidden throughout gives zeros instead of NaN.

    Parameters
    ----------
    scores : Tensor (..., T, S)
    attn_mask : Tensor broadcastable to `scores`, optional
        Boolean: True may be seen. Floating point: added to the scores.

    Returns
    -------
    Tensor (..., T, S), in the dtype of `scores`; each row sums to 1, or is zero.

    Raises
    ------
    RuntimeError
        If `attn_mask` does not fit, or is of integers.
    """
    if attn_mask is not None:
        _check_mask(attn_mask, scores.shape, False)
    dtype, (scores, *mask) = scores.dtype, _widen(scores, attn_mask)
    for m in mask:
        scores = scores + (additive_mask(m, dtype=scores.dtype) if m.dtype == dtypes.bool else m)
    p = _softmax_rows(scores.array)

    def backward(g):
        return (_softmax_gradient(g, p),)

    return cast(Tensor.from_op("masked_softmax", p, (scores,), backward), dtype)


def _softmax_rows(scores):
    """Softmax of an array's last axis, zero for a row of -inf."""
    e, total = _exp_rows(scores.copy())
    e /= total
    return e


def _softmax_gradient(g, p):
    """dA = P (dP - the mean of dP under P)."""
    ga = g - xp.einsum("...s,...s->...", g, p)[..., None]
    ga *= p
    return ga


@quiet
def kernel_weights(query, key, sigma=1.0):
    r"""The weights of Nadaraya-Watson regression: how near each key lies, by a Gaussian kernel.

    .. math:: P_{ts} = \frac{\exp(-|q_t - k_s|^2 / 2\sigma^2)}{\sum_r \exp(-|q_t - k_r|^2 / 2\sigma^2)}

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
        For points on a line D = 1: ``x[:, None]``.
    sigma : float or Tensor broadcastable to (..., T, S), positive
        The width of the kernel, in the units of query and key; differentiable.

    Returns
    -------
    Tensor (..., T, S); each row sums to 1.

    Raises
    ------
    ValueError
        If `sigma` is not positive, or a query lies so far from every key that the squares overflow.

    References
    ----------
    Nadaraya 1964, "On Estimating Regression". Watson 1964, "Smooth Regression Analysis".
    """
    dtype, (query, key) = query.dtype, _widen(query, key)
    sigma = cast(sigma, query.dtype) if isinstance(sigma, Tensor) else as_tensor(sigma, dtype=query.dtype)
    q, k, width = query.array, key.array, sigma.array
    if not (width > 0).all():
        raise ValueError(f"sigma is the width of the kernel and must be positive, got {width.min()}")
    # (..., T, 1, D) - (..., 1, S, D): unlike q^2 + k^2 - 2qk, a difference keeps its digits for neighbouring points
    apart = q[..., :, None, :] - k[..., None, :, :]
    square = xp.einsum("...d,...d->...", apart, apart)
    if square.size and bool(xp.any(xp.min(square, axis=-1) == math.inf)):
        raise ValueError(f"a query is so far from all keys that the square of the distance overflows {query.dtype}; "
                         "divide query, key and sigma by one large number")
    p = _softmax_rows(square / (-2 * width * width))

    def backward(g):
        # A = -d^2 / (2 sigma^2): dA/dq = -(q - k) / sigma^2 = -dA/dk, and dA/dsigma = d^2 / sigma^3
        ga = _softmax_gradient(g, p)
        ga /= width * width
        gsigma = unbroadcast(ga * square / width, width.shape)
        gq = unbroadcast(xp.einsum("...ts,...tsd->...td", -ga, apart), q.shape)
        gk = unbroadcast(xp.einsum("...ts,...tsd->...sd", ga, apart), k.shape)
        return gq, gk, gsigma

    return cast(Tensor.from_op("kernel_weights", p, (query, key, sigma), backward), dtype)


def kernel_pooling(query, key, value, sigma=1.0):
    r"""Nadaraya-Watson regression: at each query the mean of the values, weighted by how near their keys lie.

    .. math:: f(q) = \sum_s P_s(q)\, v_s

    with the weights of `kernel_weights`. This is attention whose scores are fixed, but for sigma: a small one reads
    only the nearest sample, a large one the mean of all.

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
    value : Tensor (..., S, E)
    sigma : float or Tensor broadcastable to (..., T, S), positive

    Returns
    -------
    Tensor (..., T, E)

    Raises
    ------
    ValueError
        If `sigma` is not positive.
    """
    return matmul(kernel_weights(query, key, sigma), value)


def additive_scores(query, key, v):
    r"""How well each key fits each query, by a network with one hidden layer of width A.

    .. math:: a_{ts} = v \cdot \tanh(q_t + k_s)

    Parameters
    ----------
    query : Tensor (..., T, A)
    key : Tensor (..., S, A)
        Both already projected: a decoder projects its keys once, and its query at each step.
    v : Tensor (A,)

    Returns
    -------
    Tensor (..., T, S)

    Raises
    ------
    RuntimeError
        If the widths differ.

    References
    ----------
    Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
    appendix A.1.2.
    """
    if v.ndim != 1 or not query.shape[-1] == key.shape[-1] == v.shape[0]:
        raise RuntimeError("additive_scores needs query (..., T, A), key (..., S, A) and v (A,), projected to one "
                           f"width A, got {query.shape}, {key.shape} and {v.shape}")
    weight, q_shape, k_shape = v.array, query.shape, key.shape
    h = query.array[..., :, None, :] + key.array[..., None, :, :]  # -> (..., T, S, A)
    xp.tanh(h, out=h)

    def backward(g):
        # a = v . h with h = tanh(q + k) and h' = 1 - h^2
        gv = xp.matmul(g.reshape(-1), h.reshape(-1, weight.size))  # (...TS), (...TS, A) -> (A,)
        gh = 1 - h * h
        gh *= weight
        gh *= g[..., None]
        return unbroadcast(xp.sum(gh, axis=-2), q_shape), unbroadcast(xp.sum(gh, axis=-3), k_shape), gv

    return Tensor.from_op("additive_scores", xp.matmul(h, weight), (query, key, v), backward)


def additive_attention(query, key, value, w_query, w_key, v, attn_mask=None):
    r"""Attention whose scores are those of a small network, so that queries and keys may have different widths.

    .. math:: Y = P V, \qquad P = \mathrm{softmax}(a), \qquad a_{ts} = v \cdot \tanh(W_q q_t + W_k k_s)

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, K)
    value : Tensor (..., S, E)
    w_query : Tensor (A, D)
    w_key : Tensor (A, K)
    v : Tensor (A,)
    attn_mask : Tensor broadcastable to (..., T, S), optional

    Returns
    -------
    y : Tensor (..., T, E)
    weights : Tensor (..., T, S); each row sums to 1, or is zero.

    Raises
    ------
    RuntimeError
        If shapes or the mask do not fit.

    References
    ----------
    As of `additive_scores`.
    """
    weights = masked_softmax(additive_scores(linear(query, w_query), linear(key, w_key), v), attn_mask)
    return matmul(weights, value), weights
