"""First values of parameters. Each function fills a tensor in place, outside the graph, and returns it.

With the same seed the numbers are PyTorch's.
"""
import math
import warnings

import numpy

from ..autograd import Tensor
from ..backend import to_device, to_host, xp
from ..grad_mode import no_grad
from ..ops import create, inplace

__all__ = ["calculate_gain", "constant_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
           "orthogonal_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_"]

GAINS = {"linear": 1, "conv1d": 1, "conv2d": 1, "sigmoid": 1, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 3 / 4}


@no_grad()
def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Uniform in [a, b)."""
    return create.uniform_(tensor, a, b, generator)


@no_grad()
def normal_(tensor, mean=0.0, std=1.0, generator=None):
    """Normal, with this mean and standard deviation."""
    return create.normal_(tensor, mean, std, generator)


@no_grad()
def constant_(tensor, val):
    """`val` everywhere."""
    return inplace.fill_(tensor, val)


def ones_(tensor):
    """1 everywhere."""
    return constant_(tensor, 1.0)


def zeros_(tensor):
    """0 everywhere."""
    return constant_(tensor, 0.0)


@no_grad()
def eye_(tensor):
    """1 on the diagonal of a matrix, 0 elsewhere: a Linear with it passes on as many inputs as it can."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_ needs 2 dims, got shape {tensor.shape}")
    return _write(tensor, xp.eye(*tensor.shape, dtype=tensor.dtype))


def _write(tensor, array):
    """Copy `array` into the memory of `tensor`."""
    return inplace.copy_(tensor, Tensor.wrap(array))


def calculate_gain(nonlinearity, param=None):
    """The factor on the standard deviation of weights that makes up for what the function after them takes away.

    ===============================  =====================
    linear, conv1d, conv2d, sigmoid  1
    tanh                             5/3
    relu                             sqrt(2)
    leaky_relu                       sqrt(2 / (1 + slope^2))
    selu                             3/4
    ===============================  =====================

    Parameters
    ----------
    nonlinearity : str
    param : float, optional
        The slope of leaky_relu; 0.01 by default.

    Raises
    ------
    ValueError
        If `nonlinearity` is not in the table, or the slope is not a number.
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ValueError(f"the slope of leaky_relu must be a number, got {param!r}")
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in GAINS:
        raise ValueError(f"no gain is known for {nonlinearity!r}, only for {', '.join([*GAINS, 'leaky_relu'])}")
    return GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor):
    """How many inputs each output of a weight (out, in, *kernel) sees, and how many outputs each input reaches."""
    if tensor.ndim < 2:
        raise ValueError(f"fan in and fan out need a weight with 2 dims or more, got shape {tensor.shape}")
    fan_out, fan_in, *kernel = tensor.shape
    return fan_in * math.prod(kernel), fan_out * math.prod(kernel)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    """Uniform in [-a, a) with ``a = gain * sqrt(6 / (fan_in + fan_out))``.

    References
    ----------
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010, eq. 16.
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    a = math.sqrt(3.0) * std  # a uniform variable in [-a, a) has variance a^2 / 3
    return uniform_(tensor, -a, a, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    """Normal with mean 0 and ``std = gain * sqrt(2 / (fan_in + fan_out))``.

    References
    ----------
    Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010, eq. 12.
    """
    std = gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))
    return normal_(tensor, 0.0, std, generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    """gain / sqrt(fan), or None with a warning where there is nothing to fill."""
    if 0 in tensor.shape:
        warnings.warn(f"a tensor of shape {tensor.shape} has no values to initialise", stacklevel=3)
        return None
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode is 'fan_in' or 'fan_out', got {mode!r}")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan_in if mode == "fan_in" else fan_out)


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Uniform in [-b, b) with ``b = gain * sqrt(3 / fan)``.

    Parameters
    ----------
    tensor : Tensor (out, in, *kernel)
    a : float
        The slope of leaky_relu, where that is the `nonlinearity`.
    mode : "fan_in" or "fan_out"
        Keep the variance of the forward pass, or of the backward pass.
    nonlinearity : str
        What follows the weight; see `calculate_gain`.
    generator : Generator, optional

    References
    ----------
    He et al., "Delving Deep into Rectifiers", 2015, equations 10 and 14.
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    """Normal with mean 0 and ``std = gain / sqrt(fan)``; parameters and source as in `kaiming_uniform_`."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


def linear_default_(weight, bias):
    """What Linear and the convolutions start from: weight and bias uniform in [-b, b) with b = 1 / sqrt(fan_in).

    `bias` may be None.
    """
    kaiming_uniform_(weight, a=math.sqrt(5))  # this slope makes the bound 1 / sqrt(fan_in)
    if bias is not None:
        fan_in, _ = _calculate_fan_in_and_fan_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        uniform_(bias, -bound, bound)


@no_grad()
def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal with this mean and standard deviation, values outside [a, b] drawn again.

    Where fewer than three in ten normal values would fall into [a, b], values are drawn uniformly there instead and
    each kept with a probability proportional to its density (rejection sampling).
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(f"mean {mean} is more than 2 std outside [{a}, {b}]; the distribution may be off", stacklevel=3)
    inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
    draw = _redraw_normal if inside > 0.3 else _reject_uniform
    return _write(tensor, draw(Tensor.wrap(xp.empty_like(tensor.array)), mean, std, a, b, generator))


def _normal_cdf(x):
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _redraw_normal(scratch, mean, std, a, b, generator):
    """An array of normal values, those outside [a, b] replaced from whole new draws until none is left."""
    a, b = xp.asarray([a, b], dtype=scratch.dtype)
    result = create.normal_(scratch, mean, std, generator=generator).array.copy()
    while True:
        outside = (result < a) | (result > b)
        if not bool(outside.any()):
            return result
        create.normal_(scratch, mean, std, generator=generator)
        result = xp.where(outside, scratch.array, result)


def _reject_uniform(scratch, mean, std, a, b, generator):
    """An array of values uniform in [a, b), each redrawn until it is accepted with probability pdf / max pdf."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2  # log of the largest density in [a, b], up to a constant
    result, pending = scratch.array.copy(), xp.ones(scratch.shape, dtype=bool)
    while bool(pending.any()):
        result = xp.where(pending, create.uniform_(scratch, a, b, generator=generator).array, result)
        log_density = ((result - mean) / std) ** 2 * -0.5 - peak
        with numpy.errstate(divide="ignore"):  # log(0) = -inf is accepted never, or only where the density is 0 too
            pending = pending & (xp.log(create.uniform_(scratch, generator=generator).array) > log_density)
    return result


@no_grad()
def orthogonal_(tensor, gain=1, generator=None):
    """`gain` times a matrix with orthonormal rows or columns, whichever are fewer, uniformly distributed.

    A tensor with more than 2 dims is filled as the matrix (first dim, all others).

    References
    ----------
    Saxe et al., "Exact solutions to the nonlinear dynamics of learning in deep linear neural networks", 2013.
    Mezzadri, "How to generate random matrices from the classical compact groups", 2007 (the signs).
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_ needs 2 dims or more, got shape {tensor.shape}")
    if 0 in tensor.shape:
        return tensor
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    wide = rows < columns
    matrix = create.normal_(Tensor.wrap(xp.empty((rows, columns), dtype=tensor.dtype)), generator=generator)
    matrix = to_host(matrix.array)
    q, r = numpy.linalg.qr(matrix.T if wide else matrix)
    q = q * numpy.sign(numpy.diagonal(r))  # q alone depends on the signs that QR happens to choose
    return _write(tensor, to_device((q.T if wide else q).reshape(tensor.shape)) * gain)
