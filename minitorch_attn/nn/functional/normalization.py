"""Normalisation: by mean and variance, by the root mean square, by a norm.

Throughout, x_hat is the normalised input before weight and bias, r the reciprocal that scales it, and `present` says
which of the inputs (x, weight, bias) are given.
"""
import math
from itertools import compress

from ... import dtypes
from ...autograd import Tensor
from ...backend import matrix_product, quiet, xp
from ...ops.broadcast import as_tensor_pair, number, sum_axes, unbroadcast
from ...ops.elementwise import clamp_min, div
from ...ops.reduce import axis_of, norm
from .activation import through_float32

__all__ = ["batch_norm", "cosine_similarity", "group_norm", "layer_norm", "normalize", "rms_norm"]


@quiet
@through_float32
def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Give each sample mean 0 and variance 1 over its last axes, then scale and shift.

    y = x_hat w + b with x_hat = (x - mean) r and r = 1 / sqrt(variance + eps), the variance being the mean square.

    Parameters
    ----------
    x : Tensor (..., *normalized_shape)
    normalized_shape : int or several
        The sizes of the axes that are normalised together.
    weight, bias : Tensor normalized_shape, optional
    eps : float
        Keeps the root away from 0.

    Returns
    -------
    Tensor like x

    Raises
    ------
    RuntimeError
        If x does not end in `normalized_shape`, or weight or bias has another shape or dtype.

    References
    ----------
    Ba, Kiros and Hinton, "Layer normalization", arXiv:1607.06450, 2016, eq. 3 and 4.
    """
    shape, tail, eps = x.shape, ends_in("layer_norm", x, normalized_shape, weight, bias), number(eps)
    n = math.prod(tail)
    w = xp.ones(n, x.dtype) if weight is None else weight.array.reshape(n)
    rows = x.array.reshape(math.prod(shape[:len(shape) - len(tail)]), n)  # (..., *tail) -> (N, n)
    ones = xp.ones((n, 1), x.dtype)
    mean = xp.matmul(rows, ones) / n  # (N, n) -> (N, 1)
    x_hat = rows - mean
    variance = xp.einsum("ij,ij->i", x_hat, x_hat)[:, None] / n + eps
    far = mean_is_coarse(mean, variance)
    if bool(far.any()):
        x_hat -= xp.where(far, xp.matmul(x_hat, ones) / n, 0.0)
        variance = xp.einsum("ij,ij->i", x_hat, x_hat)[:, None] / n + eps
    r = 1 / xp.sqrt(variance)
    x_hat *= r
    y = x_hat * w
    if bias is not None:
        y += bias.array.reshape(n)
    present = (True, weight is not None, bias is not None)

    def backward(g):
        # dr/dx_j = -r^2 x_hat_j / n, so dx_hat_i/dx_j = r ([i = j] - 1/n - x_hat_i x_hat_j / n). Summed with h = g w:
        # gx_j = r (h_j - mean(h) - x_hat_j mean(h x_hat)), means over the row.
        # The means, as mean(h) = g (w/n), and gw, gb are products with vectors; r h = g (r w), where r w is one with a
        # row: on rows this is faster than `standardised_backward`.
        g = g.reshape(x_hat.shape)
        t = g * x_hat
        ones, share = xp.ones((1, len(t)), g.dtype), (w / n)[:, None]
        gw, gb = xp.matmul(ones, t), xp.matmul(ones, g)  # (1, N) (N, n) -> (1, n)
        mean_h, mean_hx = xp.matmul(g, share), xp.matmul(t, share)  # (N, n) (n, 1) -> (N, 1)
        lost = xp.multiply(x_hat, r * mean_hx, out=t)  # what r h loses; t's memory is used again
        lost += r * mean_h
        gx = matrix_product(r, w[None])  # (N, 1) (1, n) -> (N, n)
        gx *= g
        gx -= lost
        return tuple(compress((gx.reshape(shape), gw.reshape(tail), gb.reshape(tail)), present))

    return Tensor.from_op("layer_norm", y.reshape(shape), tuple(compress((x, weight, bias), present)), backward)


@quiet
@through_float32
def rms_norm(x, normalized_shape, weight=None, eps=None):
    """Scale each sample to root mean square 1 over its last axes, then by a weight.

    y = x r w with r = 1 / sqrt(mean(x^2) + eps).

    Parameters
    ----------
    x : Tensor (..., *normalized_shape)
    normalized_shape : int or several
        The sizes of the axes that are normalised together.
    weight : Tensor normalized_shape, optional
    eps : float, optional
        Keeps the root away from 0; by default the distance from 1 to the next number of x's dtype.

    Returns
    -------
    Tensor like x

    Raises
    ------
    RuntimeError
        If x does not end in `normalized_shape`, or weight has another shape or dtype.

    References
    ----------
    Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019, eq. 4.
    """
    shape, tail = x.shape, ends_in("rms_norm", x, normalized_shape, weight)
    n = math.prod(tail)
    w = xp.ones(n, x.dtype) if weight is None else weight.array.reshape(n)
    rows = x.array.reshape(math.prod(shape[:len(shape) - len(tail)]), n)  # (..., *tail) -> (N, n)
    eps = float(xp.finfo(x.dtype).eps) if eps is None else number(eps)
    r = 1 / xp.sqrt(xp.einsum("ij,ij->i", rows, rows) / n + eps)[:, None]  # (N, 1)
    x_hat = rows * r
    y = x_hat * w
    present = (True, weight is not None)

    def backward(g):
        # With h = g w: gx = r (h - x_hat mean(h x_hat)), where the second part is what x contributes through r.
        g = g.reshape(x_hat.shape)
        t = g * x_hat
        gw, mean_hx = xp.matmul(xp.ones((1, len(t)), g.dtype), t), xp.matmul(t, (w / n)[:, None])
        through_r = xp.multiply(x_hat, r * mean_hx, out=t)  # t's memory is used again
        gx = matrix_product(r, w[None])  # (N, 1) (1, n) -> (N, n)
        gx *= g
        gx -= through_r
        return tuple(compress((gx.reshape(shape), gw.reshape(tail)), present))

    return Tensor.from_op("rms_norm", y.reshape(shape), tuple(compress((x, weight), present)), backward)


def sizes(normalized_shape):
    """One size, or a sequence of them, as a tuple."""
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def ends_in(name, x, normalized_shape, *parameters):
    """`sizes(normalized_shape)`; RuntimeError unless x ends in it and each parameter (or None) has that shape."""
    tail = sizes(normalized_shape)
    if not tail or x.shape[-len(tail):] != tail:
        raise RuntimeError(f"{name} needs x whose last axes are normalized_shape {tail}, got {x.shape}")
    check_parameters(name, x, tail, *parameters)
    return tail


def check_parameters(name, x, shape, *parameters):
    """RuntimeError unless each parameter is None or has that shape and x's dtype."""
    for p in parameters:
        if p is not None and (p.shape != shape or p.dtype != x.dtype):
            raise RuntimeError(f"{name} needs weight and bias {x.dtype}{shape} for x {x.dtype}{x.shape}, got "
                               f"{p.dtype}{p.shape}")


@quiet
@through_float32
def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """Give each group of channels of each sample mean 0 and variance 1, then scale and shift each channel.

    y = x_hat w_c + b_c with x_hat = (x - mean) / sqrt(variance + eps), over C / num_groups channels and all positions.

    Parameters
    ----------
    x : Tensor (N, C, ...)
    num_groups : int
        Divides C.
    weight, bias : Tensor (C,), optional
    eps : float

    Returns
    -------
    Tensor like x

    Raises
    ------
    RuntimeError
        If `num_groups` does not divide C, or weight or bias is not (C,) of x's dtype.

    References
    ----------
    Wu and He, "Group normalization", ECCV 2018, eq. 1 to 5.
    """
    shape = x.shape
    if len(shape) < 2 or num_groups < 1 or shape[1] % num_groups:
        raise RuntimeError(f"group_norm needs x (N, C, ...) and a number of groups that divides C, got {shape} and "
                           f"{num_groups}")
    check_parameters("group_norm", x, shape[1:2], weight, bias)
    grouped = (shape[0], num_groups, math.prod(shape[1:]) // num_groups)
    x_hat, r = standardised(x.array.reshape(grouped), (2,), eps)  # (N, C, ...) -> (N, groups, rest)
    x_hat = x_hat.reshape(shape)
    w, y = affine(x_hat, weight, bias)
    present = (True, weight is not None, bias is not None)

    def backward(g):
        over = (0, *range(2, g.ndim))
        gx = standardised_backward((g * w).reshape(grouped), x_hat.reshape(grouped), r, (2,)).reshape(shape)
        return tuple(compress((gx, xp.sum(g * x_hat, axis=over), xp.sum(g, axis=over)), present))

    return Tensor.from_op("group_norm", y, tuple(compress((x, weight, bias), present)), backward)


@quiet
def batch_norm(x, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """Give each channel mean 0 and variance 1 over the batch and all positions, then scale and shift it.

    y = x_hat w_c + b_c with x_hat = (x - mean) / sqrt(variance + eps). In training mean and variance are those of
    this batch, and the running ones move towards them by `momentum` (the variance unbiased, divisor n - 1); otherwise
    the running ones are used as they are.

    Parameters
    ----------
    x : Tensor (N, C, ...)
    running_mean, running_var : Tensor (C,) or None
        Written to in training.
    weight, bias : Tensor (C,), optional
    training : bool
    momentum, eps : float

    Returns
    -------
    Tensor like x

    Raises
    ------
    ValueError
        If in training there is only one value per channel.
    RuntimeError
        If `running_mean` or `running_var` is missing out of training, or weight or bias is not (C,) of x's dtype.

    References
    ----------
    Ioffe and Szegedy, "Batch normalization", ICML 2015, algorithm 1.
    """
    y = batch_normalised(x, running_mean, running_var, weight, bias, training, eps)
    if training:
        update_running(running_mean, running_var, x.array, momentum)
    return y


@through_float32
def batch_normalised(x, running_mean, running_var, weight, bias, training, eps):
    """`batch_norm` without a change of the running mean and variance."""
    shape, over = x.shape, (0, *range(2, x.ndim))
    check_parameters("batch_norm", x, shape[1:2], running_mean, running_var, weight, bias)
    if training:
        if x.array.size == math.prod(shape[1:2]):
            raise ValueError(f"batch_norm needs more than one value per channel in training, got x {shape}")
        x_hat, r = standardised(x.array, over, eps)
    else:
        if running_mean is None or running_var is None:
            raise RuntimeError("batch_norm out of training needs running_mean and running_var")
        r = by_channel(1 / xp.sqrt(running_var.array + number(eps)), x.ndim)
        x_hat = (x.array - by_channel(running_mean.array, x.ndim)) * r
    w, y = affine(x_hat, weight, bias)
    present = (True, weight is not None, bias is not None)

    def backward(g):
        h = g * w
        gx = standardised_backward(h, x_hat, r, over) if training else h * r
        return tuple(compress((gx, xp.sum(g * x_hat, axis=over), xp.sum(g, axis=over)), present))

    return Tensor.from_op("batch_norm", y, tuple(compress((x, weight, bias), present)), backward)


def update_running(running_mean, running_var, x, momentum):
    """Move the running mean and variance (tensors or None) towards those of the array x by `momentum`."""
    over, count = (0, *range(2, x.ndim)), x.size // max(x.shape[1], 1)
    if x.dtype == dtypes.float16:
        x = x.astype(dtypes.float32)
    batch_mean, batch_var = xp.mean(x, axis=over), xp.var(x, axis=over) * (count / (count - 1))
    for running, now in ((running_mean, batch_mean), (running_var, batch_var)):
        if running is not None:
            running.array[...] = (1 - momentum) * running.array + momentum * now
            running.mark_written()


def by_channel(p, ndim):
    """(C,) -> (C, 1, ...), which broadcasts along the channels of an array of `ndim` axes."""
    return p.reshape(-1, *[1] * (ndim - 2))


def affine(x_hat, weight, bias):
    """The weight as an array that broadcasts along channels, and y = x_hat w + b."""
    w = xp.ones(x_hat.shape[1], x_hat.dtype) if weight is None else weight.array
    w = by_channel(w, x_hat.ndim)
    y = x_hat * w
    if bias is not None:
        y += by_channel(bias.array, x_hat.ndim)
    return w, y


def standardised(x, axes, eps):
    """x_hat = (x - mean) r and r = 1 / sqrt(variance + eps), over `axes`."""
    n, eps = math.prod(x.shape[i] for i in axes), number(eps)
    mean = sum_axes(x, axes) / n
    x_hat = x - mean
    variance = sum_axes(x_hat * x_hat, axes) / n + eps
    far = mean_is_coarse(mean, variance)
    if bool(far.any()):
        x_hat -= xp.where(far, sum_axes(x_hat, axes) / n, 0.0)
        variance = sum_axes(x_hat * x_hat, axes) / n + eps
    r = 1 / xp.sqrt(variance)
    x_hat *= r
    return x_hat, r


def mean_is_coarse(mean, variance):
    """Where a mean is so large beside its standard deviation that its rounding shows in x - mean.

    There the mean of x - mean is taken away as well: for equal numbers around 1e6 it is all that is left of them.
    """
    return mean * mean > 64 * variance


def standardised_backward(h, x_hat, r, axes):
    """The gradient of x, from that of x_hat: r (h - mean(h) - x_hat mean(h x_hat)), as in `layer_norm`."""
    n = math.prod(h.shape[i] for i in axes)
    gx = x_hat * (sum_axes(h * x_hat, axes) / -n)
    gx -= sum_axes(h, axes) / n
    gx += h
    gx *= r
    return gx


def normalize(x, p=2.0, dim=1, eps=1e-12):
    """x / max(||x||_p, eps), the norm being taken along `dim`.

    Parameters
    ----------
    x : Tensor
    p : float
        The order of the norm.
    dim : int or several
    eps : float
        The least number to divide by.

    Returns
    -------
    Tensor like x
    """
    return div(x, clamp_min(norm(x, p, dim, keepdim=True), eps))


@quiet
def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """The cosine of the angle between two vectors: <u, v> with u = x1 / max(|x1|, eps) and v = x2 / max(|x2|, eps).

    Differs from PyTorch: where `eps` takes the place of a norm the gradient is that of the formula; PyTorch lets the
    gradient of the norm through.

    Parameters
    ----------
    x1, x2 : Tensor
        Broadcast against each other.
    dim : int
        The axis of the vectors, in the broadcast shape.
    eps : float
        The least number to divide by.

    Returns
    -------
    Tensor of the broadcast shape without `dim`, in [-1, 1]

    Raises
    ------
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    eps = number(eps)
    x1, x2, a, b = as_tensor_pair(x1, x2)
    a_shape, b_shape = a.shape, b.shape
    a, b = xp.broadcast_arrays(xp.atleast_1d(a), xp.atleast_1d(b))
    axis = axis_of(dim, a.ndim)
    a_norm, b_norm = (xp.sqrt(sum_axes(v * v, (axis,))) for v in (a, b))
    u, v = a / xp.maximum(a_norm, eps), b / xp.maximum(b_norm, eps)
    y = sum_axes(u * v, (axis,))

    def backward(g):
        # |u| = 1 unless eps took the place of the norm, so that a change of x1 along u changes nothing:
        # gx1 = g (v - <u, v> u) / |x1|, without the second part where eps did
        g = g.reshape(y.shape)
        ga = g * (v - xp.where(a_norm > eps, y, 0.0) * u) / xp.maximum(a_norm, eps)
        gb = g * (u - xp.where(b_norm > eps, y, 0.0) * v) / xp.maximum(b_norm, eps)
        return unbroadcast(ga, a_shape), unbroadcast(gb, b_shape)

    return Tensor.from_op("cosine_similarity", xp.squeeze(y, axis=axis), (x1, x2), backward)
