"""Keeping gradients small: clipping by norm and by value; parameters as one vector."""
import math

from .. import dtypes
from ..autograd import Tensor
from ..backend import xp
from ..ops import cat

__all__ = ["clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
           "vector_to_parameters"]


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all entries of all tensors together, as if they were one long vector.

    norm = (sum_i |x_i|^p)^(1/p), or max_i |x_i| for p = inf. It does not overflow where only the powers would: a
    hundred float32 entries of 1e20 have norm 1e21.

    Parameters
    ----------
    tensors : iterable of Tensors, or one
    norm_type : float > 0
        p.
    error_if_nonfinite : bool
        Raise if the norm is infinite or NaN.
    foreach : ignored

    Returns
    -------
    Tensor (), of the tensors' dtype; 0 if there are none

    Raises
    ------
    RuntimeError
        If the norm is not finite and `error_if_nonfinite` is set.
    """
    tensors = _listed(tensors)
    p = float(norm_type)
    if not p > 0:
        raise ValueError(f"norm_type must be positive, got {norm_type}")
    norm = _norm([x.array for x in tensors if x.array.size], p)
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(f"the total norm of order {p} is {norm}, so the gradients cannot be clipped; with "
                           "error_if_nonfinite=False they would be left as they are")
    return Tensor.wrap(xp.asarray(norm, dtype=dtypes.result_type(*tensors) if tensors else dtypes.get_default_dtype()))


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """Scale all gradients by one factor, in place, so that their norm together is at most `max_norm`.

    g <- g min(1, max_norm / (norm + 1e-6)), with the norm of `get_total_norm`

    Differs from PyTorch: if the norm is infinite or NaN the gradients are left as they are, and the returned norm says
    so; PyTorch then multiplies by 0 or NaN, which turns infinite entries, or all of them, into NaN.

    Parameters
    ----------
    parameters : iterable of Tensors, or one
        Those whose ``.grad`` is None are passed over.
    max_norm : float
    norm_type : float > 0
        p; ``float("inf")`` for the largest entry.
    error_if_nonfinite : bool
        Raise if the norm is infinite or NaN.
    foreach : ignored

    Returns
    -------
    Tensor (), the norm before scaling

    Raises
    ------
    RuntimeError
        If the norm is not finite and `error_if_nonfinite` is set.

    References
    ----------
    Pascanu, Mikolov and Bengio, On the difficulty of training recurrent neural networks, ICML 2013, algorithm 1.
    """
    parameters = _listed(parameters)
    norm = get_total_norm([x.grad for x in parameters if x.grad is not None], norm_type, error_if_nonfinite)
    clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """The second half of `clip_grad_norm_`, for a norm that is known already."""
    norm = float(total_norm.array)
    factor = float(max_norm) / (norm + 1e-6)
    if factor >= 1 or not math.isfinite(norm):
        return
    for x in _listed(parameters):
        if x.grad is not None:
            x.grad.array *= factor
            x.grad.mark_written()


def clip_grad_value_(parameters, clip_value, foreach=None):
    """Clip every entry of every gradient to [-clip_value, clip_value], in place."""
    for x in _listed(parameters):
        if x.grad is not None:
            xp.clip(x.grad.array, -float(clip_value), float(clip_value), out=x.grad.array)
            x.grad.mark_written()


def parameters_to_vector(parameters):
    """All parameters, flattened and joined end to end: shapes (2, 3), (3,) -> (9,). Differentiable."""
    return cat([x.reshape(-1) for x in parameters])


def vector_to_parameters(vec, parameters):
    """Copy the entries of the vector `vec` into `parameters`, in order: the inverse of `parameters_to_vector`.

    Differs from PyTorch: the values are copied; the parameters do not become views of the vector.

    Raises
    ------
    TypeError
        If `vec` is not a Tensor.
    ValueError
        If it has not as many entries as all parameters together.
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected a Tensor, got {type(vec).__name__}")
    parameters = _listed(parameters)
    total = sum(x.array.size for x in parameters)
    if vec.shape != (total,):
        raise ValueError(f"the parameters have {total} entries together, the vector has shape {vec.shape}")
    start = 0
    for x in parameters:
        end = start + x.array.size
        x.array[...] = vec.array[start:end].reshape(x.shape)
        x.mark_written()
        start = end


def _listed(tensors):
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _norm(arrays, p):
    """The p-norm, a Python float, of all entries of `arrays`, which are not empty."""
    if not arrays:
        return 0.0
    arrays = [a.astype(dtypes.float32) if a.dtype == dtypes.float16 else a for a in arrays]
    if p == 2:
        # a product of a vector with itself is the fastest sum of squares; trust it unless squares left the range
        total = sum(float(xp.vdot(a, a)) for a in arrays)
        limits = [xp.finfo(a.dtype) for a in arrays]
        if max(float(f.tiny) / float(f.eps) for f in limits) < total < math.inf:
            return math.sqrt(total)
    # in general every entry is divided by the largest first, which keeps the powers within [0, 1]
    largest = [float(xp.abs(a).max()) for a in arrays]
    if any(map(math.isnan, largest)):
        return math.nan
    top = max(largest)
    if top in (0.0, math.inf) or p == math.inf:
        return top
    return top * sum(float(xp.sum((xp.abs(a) / top)**p)) for a in arrays)**(1 / p)
