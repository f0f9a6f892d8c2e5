"""Functions applied to each element, and softmax.

``y`` is the value and ``g`` its gradient throughout; a result that a backward needs is kept, not computed again.
"""
import functools
import math

from ... import backend, dtypes, grad_mode
from ...autograd import Tensor
from ...backend import masked, quiet, xp
from ...ops.broadcast import cast, number, sum_axes
from ...ops.elementwise import (
    float_array,
    log_one_plus_exp,
    logistic,
    logistic_from,
    sigmoid,
    tanh,
)
from ...ops.reduce import axis_of
from ...ops.shape import reshape
from ...threads import at_once, parts

__all__ = [
    "elu", "gelu", "glu", "hardtanh", "leaky_relu", "log_softmax", "logsigmoid", "relu", "relu6", "sigmoid", "silu",
    "softmax", "softmin", "softplus", "tanh",
]


def through_float32(function):
    """Decorate a function of tensors so that float16 is computed in float32 and the result is rounded once.

    In float16 an eps of 1e-8 is 0, and a sum of squares overflows at 65504. Where only some of the floating-point
    tensors are float16 nothing is changed, so that the function itself sees the mixture, and may refuse it.
    """
    def floating(v):
        return isinstance(v, Tensor) and v.array.dtype.kind == "f"

    def widened(v):
        return cast(v, dtypes.float32) if floating(v) else v

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if args and isinstance(args[0], Tensor) and args[0].array.dtype == dtypes.float32:
            return function(*args, **kwargs)  # the commonest, and it needs no more
        found = {v.array.dtype for v in (*args, *kwargs.values()) if floating(v)}
        if found != {dtypes.float16}:
            return function(*args, **kwargs)
        y = function(*map(widened, args), **{name: widened(v) for name, v in kwargs.items()})
        return cast(y, kwargs.get("dtype") or dtypes.float16)

    return wrapper


# Softmax

@quiet
@through_float32
def softmax(x, dim, *, dtype=None):
    """Positive numbers that sum to 1 along `dim`: y_i = e^(x_i - m) / sum_j e^(x_j - m), with m the largest x_j.

    m changes nothing in exact arithmetic and keeps e^x from overflowing. Where all x_j are -inf, y is NaN.

    Parameters
    ----------
    x : Tensor
    dim : int
        The axis of i and j; a 0-d tensor counts as having one.
    dtype : dtype, optional
        Convert x to this before.

    Returns
    -------
    Tensor like x

    Raises
    ------
    IndexError
        If `dim` lies outside [-ndim, ndim).
    """
    x, axis = x if dtype is None else cast(x, dtype), axis_of(dim, x.ndim)
    if x.ndim == 0:
        return reshape(softmax(reshape(x, (1,)), 0), ())
    y = shifted(float_array(x), axis)
    xp.exp(y, out=y)
    y /= sum_axes(y, (axis,))

    def backward(g):
        # dy_i/dx_j = y_i ([i = j] - y_j), so gx_j = y_j (g_j - sum_i g_i y_i)
        gx = g * y
        total = sum_axes(gx, (axis,))
        xp.subtract(g, total, out=gx)
        gx *= y
        return (gx,)

    return Tensor.from_op("softmax", y, (x,), backward)


@quiet
@through_float32
def log_softmax(x, dim, *, dtype=None):
    """log softmax(x), without taking the log of a number that has underflowed: y_i = x_i - m - log sum_j e^(x_j - m).

    Parameters, Returns and Raises are those of `softmax`.
    """
    x, axis = x if dtype is None else cast(x, dtype), axis_of(dim, x.ndim)
    if x.ndim == 0:
        return reshape(log_softmax(reshape(x, (1,)), 0), ())
    y = shifted(float_array(x), axis)
    e = xp.exp(y)
    total = sum_axes(e, (axis,))
    y -= xp.log(total)

    def backward(g):
        # dy_i/dx_j = [i = j] - softmax_j, and softmax_j = e_j / total
        gx = e * (-sum_axes(g, (axis,)) / total)
        gx += g
        return (gx,)

    return Tensor.from_op("log_softmax", y, (x,), backward)


def softmin(x, dim, *, dtype=None):
    """softmax(-x): the smallest element gets the most."""
    return softmax(-x, dim, dtype=dtype)


def shifted(x, axis):
    """The array x minus numbers m, one for each line along `axis`, such that e^(x - m) is in range and its sums not 0.

    m is the maximum of the line. That is slow to find where lines are short, so where all of x lies within 30 the
    maximum of the whole array takes its place: sums are then at least e^-30, and x - m is rounded to 2e-6 at worst.
    """
    if x.size == 0:
        return x.copy()
    m = x.max()
    if not m - x.min() <= 30:  # put so that NaN and inf come here
        m = x.max(axis=axis, keepdims=True)
    return x - m


# Rectifiers

def relu(x, inplace=False):
    """max(x, 0); the derivative at 0 is 0.

    Parameters
    ----------
    x : Tensor
    inplace : bool
        Write the result to `x`; the same in every function below.
    """
    y = xp.clip(x.array, 0, math.inf if x.dtype.kind == "f" else None)  # three times faster than maximum(x, 0)

    def backward(g):
        return (masked(g, y > 0),)

    return written("relu", y, x, backward, inplace)


def relu6(x, inplace=False):
    """min(max(x, 0), 6)."""
    return hardtanh(x, 0.0, 6.0, inplace)


def hardtanh(x, min_val=-1.0, max_val=1.0, inplace=False):
    """min(max(x, min_val), max_val); the derivative is 1 strictly between the two, else 0."""
    xa, min_val, max_val = x.array, number(min_val), number(max_val)
    y = xp.clip(xa, min_val, max_val).astype(x.dtype, copy=False)

    def backward(g):
        return (masked(g, (xa > min_val) & (xa < max_val)),)

    return written("hardtanh", y, x, backward, inplace)


def leaky_relu(x, negative_slope=0.01, inplace=False):
    """x where x > 0, else negative_slope x; the derivative is 1 or the slope, and the slope at 0."""
    xa, negative_slope = float_array(x), number(negative_slope)
    y = xp.where(xa > 0, xa, negative_slope * xa)

    def backward(g):
        return (xp.where(xa > 0, g, negative_slope * g),)

    return written("leaky_relu", y, x, backward, inplace)


def elu(x, alpha=1.0, inplace=False):
    """x where x > 0, else alpha (e^x - 1), whose derivative is alpha e^x.

    References
    ----------
    Clevert, Unterthiner and Hochreiter, "Fast and accurate deep network learning by exponential linear units (ELUs)",
    ICLR 2016.
    """
    xa, alpha = float_array(x), number(alpha)
    negative = xp.clip(xa, -math.inf, 0)  # e^x overflows for the others
    y = xp.where(xa > 0, xa, alpha * xp.expm1(negative))

    def backward(g):
        return (g * xp.where(xa > 0, 1.0, alpha * xp.exp(negative)),)

    return written("elu", y, x, backward, inplace)


def written(op, y, x, backward, inplace):
    """The result tensor of an operation on x, or x itself after the result was written to it."""
    result = Tensor.from_op(op, y, (x,), backward)
    return x.assign(result) if inplace else result


# Smooth rectifiers and gates

@quiet
@through_float32
def gelu(x, approximate="none"):
    """x Phi(x), where Phi(x) = (1 + erf(x / sqrt 2)) / 2 is the chance that a standard normal number is below x.

    Parameters
    ----------
    x : Tensor
    approximate : {"none", "tanh"}
        "tanh" replaces Phi by (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, off by up to 5e-4; GPT-2's choice.

    Raises
    ------
    ValueError
        If `approximate` is neither.

    References
    ----------
    Hendrycks and Gimpel, "Gaussian error linear units (GELUs)", arXiv:1606.08415, 2016.
    """
    if approximate == "tanh":
        return gelu_tanh(x)
    if approximate != "none":
        raise ValueError(f"approximate must be 'none' or 'tanh', got {approximate!r}")
    xa = float_array(x)
    if xa.ndim == 0:
        return reshape(gelu(reshape(x, (1,))), ())
    y = xp.empty_like(xa)
    slope = xp.empty_like(xa) if grad_mode.enabled and x.requires_grad else None
    slices = parts(len(xa), xa.size)
    at_once([functools.partial(gelu_part, xa[i], y[i], None if slope is None else slope[i]) for i in slices])

    def backward(g):
        return (g * slope,)

    return Tensor.from_op("gelu", y, (x,), backward)


def gelu_part(x, y, slope):
    """Write x Phi(x) to the array `y`; and to `slope`, unless it is None, its derivative Phi(x) + x phi(x).

    phi(x) = e^(-x^2 / 2) / sqrt(2 pi) is the density. With the slope at hand, backward needs neither x nor Phi(x), and
    is one product.
    """
    cdf = backend.normal_cdf(x)
    xp.multiply(cdf, x, out=y)
    if slope is not None:
        xp.multiply(x, x, out=slope)
        slope *= -0.5
        xp.exp(slope, out=slope)
        slope *= 1 / math.sqrt(2 * math.pi)
        slope *= x
        slope += cdf


@quiet
def gelu_tanh(x):
    """`gelu` with the approximation by tanh, which is written as a sigmoid: (1 + tanh u) / 2 = 1 / (1 + e^(-2u)).

    u = sqrt(2/pi) (x + 0.044715 x^3)
    """
    xa = float_array(x)
    scale, cubic = 2 * math.sqrt(2 / math.pi), 0.044715  # 2u = scale (x + cubic x^3)
    square = xa * xa
    s = square * cubic
    s += 1
    s *= xa
    s *= -scale
    s = xp.exp(s)  # inf far below 0, and 1 / inf = 0 is the right answer
    s += 1
    s = 1 / s
    y = xa * s

    def backward(g):
        # y = x s(2u), s' = s (1 - s), so dy/dx = s + y (1 - s) d(2u)/dx
        d_2u = square * (3 * cubic * scale)
        d_2u += scale
        gx = 1 - s
        gx *= y
        gx *= d_2u
        gx += s
        gx *= g
        return (gx,)

    return Tensor.from_op("gelu_tanh", y, (x,), backward)


@quiet
def silu(x, inplace=False):
    """x s(x) with the logistic sigmoid s(x) = 1 / (1 + e^-x); also called swish.

    References
    ----------
    Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units for neural network function approximation in
    reinforcement learning", Neural Networks 107, 2018.
    """
    xa = float_array(x)
    s = logistic(xa)
    y = xa * s

    def backward(g):
        # dy/dx = s + x s (1 - s) = s + y (1 - s)
        gx = 1 - s
        gx *= y
        gx += s
        gx *= g
        return (gx,)

    return written("silu", y, x, backward, inplace)


def softplus(x, beta=1.0, threshold=20.0):
    """log(1 + e^(beta x)) / beta, a smooth max(x, 0); x itself where beta x > threshold.

    The derivative is the sigmoid of beta x, or 1 above the threshold.

    Parameters
    ----------
    x : Tensor
    beta, threshold : float
    """
    xa, beta = float_array(x), number(beta)
    z = xa * beta
    linear = z > threshold
    smooth, small = log_one_plus_exp(z)
    y = xp.where(linear, xa, smooth / beta)

    def backward(g):
        return (g * xp.where(linear, 1.0, logistic_from(z, small)),)

    return Tensor.from_op("softplus", y, (x,), backward)


def logsigmoid(x):
    """log of the sigmoid, -log(1 + e^-x): nearly x far below 0. The derivative is 1 - sigmoid(x)."""
    z = -float_array(x)
    smooth, small = log_one_plus_exp(z)

    def backward(g):
        return (g * logistic_from(z, small),)

    return Tensor.from_op("logsigmoid", -smooth, (x,), backward)


@quiet
def glu(x, dim=-1):
    """a s(b), where a and b are the first and the second half of x along `dim` and s is the logistic sigmoid.

    Parameters
    ----------
    x : Tensor whose size along `dim` is even
    dim : int

    Returns
    -------
    Tensor, half as large along `dim`

    Raises
    ------
    RuntimeError
        If the size along `dim` is odd.

    References
    ----------
    Dauphin, Fan, Auli and Grangier, "Language modeling with gated convolutional networks", ICML 2017.
    """
    axis = axis_of(dim, x.ndim)
    if x.ndim == 0 or x.shape[axis] % 2:
        raise RuntimeError(f"glu halves an axis of even size, got shape {x.shape} and dim {dim}")
    a, b = xp.split(x.array, 2, axis=axis)  # (..., 2n, ...) -> (..., n, ...) twice
    s = logistic(b)
    y = a * s

    def backward(g):
        ga = g * s
        return (xp.concatenate((ga, ga * (a * (1 - s))), axis=axis),)

    return Tensor.from_op("glu", y, (x,), backward)
