"""Linear attention: weights that are products of features, so that the keys can be summed up before any query comes.

With phi(x) = elu(x) + 1 > 0 in place of the exponential, attention is a ratio of two sums that the query only scales:

    y_t = sum_s (phi(q_t) . phi(k_s)) v_s / sum_s phi(q_t) . phi(k_s) = phi(q_t) Z / phi(q_t) z

with Z = sum_s phi(k_s) v_s^T, a (D, E) matrix, and z = sum_s phi(k_s). The cost is T D E instead of T S D. Causal
attention lets Z and z grow with time, which makes it a recurrent network whose state is (Z, z): `linear_attention` is
its parallel form, `linear_attention_step` the recurrent one.

References
----------
Katharopoulos, Vyas, Pappas and Fleuret 2020, "Transformers are RNNs: Fast Autoregressive Transformers with Linear
Attention", equations 4 to 20.
"""
from ... import dtypes
from ...autograd import Tensor
from ...backend import xp
from ...ops.broadcast import cast
from ...ops.create import ones
from ...ops.elementwise import clamp, exp, masked_fill
from ...ops.shape import cat, unsqueeze
from .activation import relu
from .attention import _check, _widen

__all__ = ["linear_attention", "linear_attention_step"]


def linear_attention(query, key, value, key_mask=None, is_causal=False, *, chunk=64):
    r"""Attention with the weights phi(q) . phi(k), in time and memory linear in T and S.

    .. math:: y_t = \frac{\sum_s (\phi(q_t) \cdot \phi(k_s))\, v_s}{\sum_s \phi(q_t) \cdot \phi(k_s)},
        \qquad \phi(x) = \mathrm{elu}(x) + 1

    Parameters
    ----------
    query : Tensor (..., T, D)
    key : Tensor (..., S, D)
    value : Tensor (..., S, E)
        The same leading axes for all three.
    key_mask : Tensor (..., S) of bool, broadcastable to the leading axes and S; optional
        True may be seen. Masks that differ between queries cannot be had: no (T, S) exists.
    is_causal : bool
        Query t reads the keys 0 to t, which needs T = S.
    chunk : int
        Causal only: how many neighbours are compared with each other, the rest being summed up; changes nothing but
        the speed.

    Returns
    -------
    Tensor (..., T, E); zeros where no key may be seen.

    Raises
    ------
    RuntimeError
        If dtypes or shapes do not fit, or `key_mask` is not boolean.
    """
    _check(query, key, value, None, 0.0, False)
    if not query.shape[:-2] == key.shape[:-2] == value.shape[:-2] or (is_causal and query.shape != key.shape):
        raise RuntimeError("linear_attention needs the same leading axes, and with is_causal as many queries as keys, "
                           f"got {query.shape}, {key.shape} and {value.shape}")
    if key_mask is not None and key_mask.dtype != dtypes.bool:
        raise RuntimeError(f"key_mask must be boolean (True may be seen), got {key_mask.dtype}; a mask of numbers 0 "
                           "and 1 becomes one by .bool()")
    dtype, inputs = query.dtype, _widen(query, key, value)
    q, k, v = [x.array for x in inputs]
    fq, fk = _features(q), _features(k)
    seen = None if key_mask is None else key_mask.array[..., None]
    fk_seen = fk if seen is None else fk * seen
    v1 = xp.concatenate((v, xp.ones((*v.shape[:-1], 1), v.dtype)), axis=-1)  # the 1 sums up the weights: z beside Z
    product = _causal_product if is_causal else _product
    sums = product(fq, fk_seen, v1, chunk)  # (..., T, E + 1)
    total = sums[..., -1:].copy()
    total[total == 0] = 1  # no key to be seen
    y = sums[..., :-1] / total

    def backward(g):
        # y = u / l, so du = dy / l and dl = -dy . y / l; then u and l are sums of (fq_t . fk_s) v1_s, in which each
        # factor's gradient is a sum of the same form. phi' = e^x = phi for x < 0, and 1 above: min(phi, 1).
        gsums = xp.empty(sums.shape, sums.dtype)
        xp.divide(g, total, out=gsums[..., :-1])
        gsums[..., -1] = -xp.einsum("...e,...e->...", gsums[..., :-1], y)
        gq = product(gsums, v1, fk_seen, chunk)
        gk = _flipped(product, v1, gsums, fq, chunk)
        gv = _flipped(product, fk_seen, fq, gsums, chunk)[..., :-1]
        gq *= xp.minimum(fq, 1.0)
        gk *= xp.minimum(fk, 1.0)
        if seen is not None:
            gk *= seen
        return gq, gk, gv

    return cast(Tensor.from_op("linear_attention", y, inputs, backward), dtype)


def _features(x):
    """phi(x) = elu(x) + 1: x + 1 above 0, e^x below, never negative."""
    return xp.exp(xp.minimum(x, 0.0)) + xp.maximum(x, 0.0)


def _product(a, b, c, chunk):
    """y_t = sum_s (a_t . b_s) c_s over all s: a (b^T c), the right product first."""
    return xp.matmul(a, xp.matmul(b.swapaxes(-1, -2), c))


def _causal_product(a, b, c, chunk):
    """y_t = sum over s <= t of (a_t . b_s) c_s.

    Time is cut into chunks. Within one, all pairs are compared; the chunks before it come in as their sum of b c^T.
    """
    steps, chunk = a.shape[-2], max(1, min(chunk, a.shape[-2]))
    a, b, c = (_chunked(x, chunk) for x in (a, b, c))  # (..., T, D) -> (..., n, chunk, D)
    each = xp.matmul(b.swapaxes(-1, -2), c)  # (..., n, D, E)
    before = xp.zeros_like(each)
    before[..., 1:, :, :] = xp.cumsum(each[..., :-1, :, :], axis=-3)
    y = xp.matmul(a, before)  # (..., n, chunk, E)
    near = xp.matmul(a, b.swapaxes(-1, -2))  # (..., n, chunk, chunk)
    near *= xp.tri(chunk, dtype=near.dtype)
    y += xp.matmul(near, c)
    return y.reshape(*y.shape[:-3], -1, y.shape[-1])[..., :steps, :]  # (..., n, chunk, E) -> (..., T, E)


def _chunked(x, chunk):
    """(..., T, D) -> (..., n, chunk, D), with zeros after the end."""
    steps = x.shape[-2]
    n = -(-steps // chunk)
    if n * chunk > steps:
        x = xp.concatenate((x, xp.zeros((*x.shape[:-2], n * chunk - steps, x.shape[-1]), x.dtype)), axis=-2)
    return x.reshape(*x.shape[:-2], n, chunk, x.shape[-1])


def _flipped(product, a, b, c, chunk):
    """The same product with time reversed: the sum over s >= t."""
    if product is _product:
        return product(a, b, c, chunk)
    return product(*(xp.flip(x, -2) for x in (a, b, c)), chunk)[..., ::-1, :]


def linear_attention_step(query, key, value, state=None):
    r"""One step in time of causal `linear_attention`, as a recurrent network whose state does not grow.

    .. math:: Z_t = Z_{t-1} + \phi(k_t) v_t^\top, \quad z_t = z_{t-1} + \phi(k_t), \quad
        y_t = \frac{\phi(q_t) Z_t}{\phi(q_t) z_t}

    Parameters
    ----------
    query, key : Tensor (..., D)
    value : Tensor (..., E)
    state : Tensor (..., D, E + 1), optional
        What the step before returned: Z, and z as its last column. None at the start.

    Returns
    -------
    y : Tensor (..., E); zeros, as in `linear_attention`, where all products of features are 0
    state : Tensor (..., D, E + 1)
    """
    fq, fk = (exp(clamp(x, max=0)) + relu(x) for x in (query, key))  # phi; elu(x) + 1 itself would lose digits below 0
    v1 = cat([value, ones(*value.shape[:-1], 1, dtype=value.dtype)], -1)  # (..., E) -> (..., E + 1)
    new = unsqueeze(fk, -1) * unsqueeze(v1, -2)  # (..., D, 1) (..., 1, E + 1) -> (..., D, E + 1)
    state = new if state is None else state + new
    sums = (unsqueeze(fq, -2) @ state).squeeze(-2)  # (..., 1, D) (..., D, E + 1) -> (..., E + 1)
    total = sums[..., -1:]
    return sums[..., :-1] / masked_fill(total, total == 0, 1.0), state
