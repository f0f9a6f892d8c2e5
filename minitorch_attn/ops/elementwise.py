"""Operations that act on each element alone.

Operands are tensors or numbers and broadcast against each other; a number never changes a tensor's floating-point
dtype. Integers given to a function with fractional values become the default floating-point dtype.
A derivative that is zero almost everywhere (sign, floor, ...) is zero.
"""
import math

from .. import backend, dtypes
from ..autograd import Tensor
from ..backend import masked, quiet, to_device, xp
from .broadcast import as_tensor_pair, cast, kind_of, unbroadcast

__all__ = [
    "abs", "absolute", "acos", "add", "allclose", "arccos", "arcsin", "arctan", "asin", "atan", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp", "clamp_max", "clamp_min", "clip", "cos", "cosh",
    "div", "divide", "eq", "equal", "erf", "erfinv", "exp", "exp2", "expm1", "float_power", "floor", "floor_divide",
    "fmod", "frac", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isinf", "isnan", "le", "lerp",
    "less", "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "lt", "masked_fill", "maximum", "minimum", "mul", "multiply", "nan_to_num", "ne", "neg", "negative",
    "not_equal", "pow", "reciprocal", "remainder", "round", "rsqrt", "rsub", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "square", "sub", "subtract", "tan", "tanh", "true_divide", "trunc", "where",
]


def array_of(x):
    """The array of the tensor `x`; TypeError if it is none."""
    if not isinstance(x, Tensor):
        raise TypeError(f"expected a Tensor, got {kind_of(x)}; make one of it with tensor(...)")
    if x.storage.replaced:  # not every operation ends in `from_op`, which asks this too
        x.check_current()
    return x.array


def float_array(x):
    """The array of the tensor `x`, in the default floating-point dtype if it holds integers or booleans."""
    a = array_of(x)
    return a if a.dtype.kind == "f" else a.astype(dtypes.get_default_dtype())


# Arithmetic of two operands
#
# add, sub and mul alone are not quiet: that costs as much as a small sum itself, and inf - inf or 0 * inf, of which
# NumPy then warns, is hardly ever meant. Every backward runs quiet, in `autograd._propagate`.

def add(x, y, *, alpha=1):
    """x + alpha y. Of booleans: x or y.

    Parameters
    ----------
    x, y : Tensor or number
    alpha : number

    Raises
    ------
    RuntimeError
        If `alpha` is a fraction and both operands hold integers.
    """
    x, y, xa, ya = as_tensor_pair(x, y)
    z = xa + ya if alpha == 1 else xa + scaled(alpha, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = unbroadcast(g, x_shape) if x_needs else None
        gy = unbroadcast(g if alpha == 1 else scaled(alpha, g), y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("add", z, (x, y), backward)


def scaled(alpha, a):
    """alpha a in the dtype of the array `a`."""
    if a.dtype.kind != "f" and isinstance(alpha, float):
        raise RuntimeError(f"alpha must be an integer for operands of {a.dtype}, got {alpha}")
    return a & bool(alpha) if a.dtype.kind == "b" else a * a.dtype.type(alpha)


def sub(x, y, *, alpha=1):
    """x - alpha y.

    Parameters
    ----------
    x, y : Tensor or number
    alpha : number

    Raises
    ------
    RuntimeError
        If an operand holds booleans, or `alpha` is a fraction and both operands hold integers.
    """
    for v in (x, y):
        if isinstance(v, bool) or (isinstance(v, Tensor) and v.array.dtype.kind == "b"):
            raise RuntimeError("sub is not defined for booleans; use logical_xor, or logical_not to invert a mask")
    x, y, xa, ya = as_tensor_pair(x, y)
    z = xa - ya if alpha == 1 else xa - scaled(alpha, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = unbroadcast(g, x_shape) if x_needs else None
        gy = unbroadcast(scaled(-alpha, g), y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("sub", z, (x, y), backward)


def rsub(x, y, *, alpha=1):
    """y - alpha x."""
    return sub(y, x, alpha=alpha)


def mul(x, y):
    """x y, element by element. Of booleans: x and y."""
    x, y, xa, ya = as_tensor_pair(x, y)
    z = xa * ya
    x_shape, y_shape = xa.shape, ya.shape
    dzdx = ya if x._requires_grad else None  # what no gradient needs is not kept
    dzdy = xa if y._requires_grad else None

    def backward(g):
        gx = unbroadcast(g * dzdx, x_shape) if dzdx is not None else None
        gy = unbroadcast(g * dzdy, y_shape) if dzdy is not None else None
        return gx, gy

    return Tensor.from_op("mul", z, (x, y), backward)


@quiet
def div(x, y, *, rounding_mode=None):
    """x / y, of integers too; rounded where asked.

    Parameters
    ----------
    x, y : Tensor or number
    rounding_mode : None, "floor" (down, as Python's //) or "trunc" (towards zero, as C's /)
        Rounded quotients of integers are integers, and the gradient of any rounded quotient is zero.

    Raises
    ------
    RuntimeError
        If integers are divided by zero with a rounding mode, or `rounding_mode` is anything else.
    """
    if rounding_mode is not None:
        return rounded_quotient(x, y, rounding_mode)
    x, y, xa, ya = as_tensor_pair(x, y)
    if xa.dtype.kind != "f":
        xa, ya = float_array(x), float_array(y)
    z = xa / ya
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = g / ya
        gy = unbroadcast(-gx * z, y_shape) if y_needs else None  # d(x / y)/dy = -x / y^2
        return unbroadcast(gx, x_shape) if x_needs else None, gy

    return Tensor.from_op("div", z, (x, y), backward)


def check_divisor(name, a):
    """Raise if the array `a` holds integers and a 0; dividing floating-point numbers by 0 gives inf or NaN."""
    if a.dtype.kind != "f" and bool((a == 0).any()):
        raise RuntimeError(f"{name}: integers cannot be divided by zero; floating-point ones can, by x.float()")


@quiet
def rounded_quotient(x, y, rounding_mode):
    """x / y rounded by `rounding_mode`, see `div`."""
    x, y, xa, ya = as_tensor_pair(x, y)
    check_divisor("div", ya)
    if rounding_mode == "floor":
        z = xp.floor_divide(xa, ya)
        if xa.dtype.kind == "f":
            z = xp.where(ya == 0, xa / ya, z)  # x / 0 is infinite, which some libraries' floor_divide misses
    elif rounding_mode == "trunc":
        z = xp.trunc(xa / ya) if xa.dtype.kind == "f" else (xa - xp.fmod(xa, ya)) // ya
    else:
        raise RuntimeError(f"rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
    x_shape, y_shape = xa.shape, ya.shape

    def backward(g):
        return xp.zeros(x_shape, g.dtype), xp.zeros(y_shape, g.dtype)

    return Tensor.from_op("div", z, (x, y), backward)


def floor_divide(x, y):
    """The largest integer not above x / y, in the operands' dtype."""
    return div(x, y, rounding_mode="floor")


@quiet
def remainder(x, y):
    """x - y floor(x / y): what division leaves, with the sign of y, as Python's %.

    Raises
    ------
    RuntimeError
        If integers are divided by zero.
    """
    x, y, xa, ya = as_tensor_pair(x, y)
    check_divisor("remainder", ya)
    z = xp.remainder(xa, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = unbroadcast(g, x_shape) if x_needs else None
        gy = unbroadcast(-g * xp.floor_divide(xa, ya), y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("remainder", z, (x, y), backward)


@quiet
def fmod(x, y):
    """x - y trunc(x / y): what division leaves, with the sign of x, as C's fmod.

    Raises
    ------
    RuntimeError
        If integers are divided by zero.
    """
    x, y, xa, ya = as_tensor_pair(x, y)
    check_divisor("fmod", ya)
    z = xp.fmod(xa, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = unbroadcast(g, x_shape) if x_needs else None
        gy = unbroadcast(-g * xp.trunc(xa / ya), y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("fmod", z, (x, y), backward)


@quiet
def pow(x, y):
    """x to the power y: z = x^y, dz/dx = y x^(y-1), dz/dy = x^y log x.

    Parameters
    ----------
    x, y : Tensor or number
        0^0 = 1. Instead of NaN the gradient is 0: for x where y = 0, for y where x = 0 and y >= 0.

    Raises
    ------
    RuntimeError
        If a tensor of integers is raised to a negative integer.
    """
    exponent = y if type(y) in (int, float) else None
    x, y, xa, ya = as_tensor_pair(x, y)
    if xa.dtype.kind != "f" and exponent is not None and exponent < 0:
        raise RuntimeError(f"an integer to the power {exponent} is no integer; convert x to floating point")
    if exponent == 1:
        z = xa.copy()  # the result must not share x's memory
    else:
        z = power(xa, ya if exponent is None else exponent)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = gy = None
        if x_needs and exponent is None:
            gx = unbroadcast(xp.where(ya == 0, 0.0, g * (ya * xp.power(xa, ya - 1))), x_shape)
        elif x_needs:
            gx = g * (exponent * power(xa, exponent - 1)) if exponent != 0 else xp.zeros_like(g)
        if y_needs:  # log x only if it is asked for: x may be negative under a constant exponent
            gy = unbroadcast(xp.where((xa == 0) & (ya >= 0), 0.0, g * (z * xp.log(xa))), y_shape)
        return gx, gy

    return Tensor.from_op("pow", z, (x, y), backward)


def power(a, exponent):
    """The array `a` to the power `exponent`, an array or number; by products where that serves: far faster."""
    if isinstance(exponent, (int, float)):
        if exponent == 1:
            return a
        if exponent == 2:
            return a * a
        if exponent == 3:
            return a * a * a
        if exponent == 0.5:
            return xp.sqrt(a)
        if exponent in (-1, -2, -0.5):
            return 1 / power(a, -exponent)
    elif a.dtype.kind == "b":
        return a | ~exponent  # false only for 0^1
    elif a.dtype.kind == "i":
        # towards zero, only 1 and -1 leave anything of a negative power: 1, and (-1)^exponent
        negative = xp.where(a == -1, 1 - 2 * (exponent % 2), a == 1)
        return xp.where(exponent < 0, negative, xp.power(a, xp.maximum(exponent, 0))).astype(a.dtype)
    return xp.power(a, exponent)


def float_power(x, y):
    """x to the power y, computed in float64."""
    return pow(*(cast(v, dtypes.float64) if isinstance(v, Tensor) else v for v in (x, y)))


def maximum(x, y):
    """The larger of x and y; NaN where either is. Equal operands share the gradient half and half."""
    x, y, xa, ya = as_tensor_pair(x, y)
    z = xp.maximum(xa, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        half = masked(0.5 * g, xa == ya)
        gx = unbroadcast(masked(g, xa > ya) + half, x_shape) if x_needs else None
        gy = unbroadcast(masked(g, ya > xa) + half, y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("maximum", z, (x, y), backward)


def minimum(x, y):
    """The smaller of x and y; NaN where either is. Equal operands share the gradient half and half."""
    x, y, xa, ya = as_tensor_pair(x, y)
    z = xp.minimum(xa, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        half = masked(0.5 * g, xa == ya)
        gx = unbroadcast(masked(g, xa < ya) + half, x_shape) if x_needs else None
        gy = unbroadcast(masked(g, ya < xa) + half, y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("minimum", z, (x, y), backward)


@quiet
def logaddexp(x, y):
    """log(e^x + e^y), without overflow: m + log(1 + e^-|x - y|) with m the larger one.

    Differs from PyTorch: where both are -inf the gradient is 0, not NaN.
    """
    x, y, xa, ya = as_tensor_pair(x, y)
    if xa.dtype.kind != "f":
        xa, ya = float_array(x), float_array(y)
    z = xp.logaddexp(xa, ya)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        # dz/dx = e^x / (e^x + e^y) = 1 / (1 + e^(y - x)), and 0 where both operands are -inf
        g = xp.where(z == -math.inf, 0.0, g)
        difference = xp.where(xa == ya, 0.0, xa - ya)  # not inf - inf
        gx = unbroadcast(g / (1 + xp.exp(-difference)), x_shape) if x_needs else None
        gy = unbroadcast(g / (1 + xp.exp(difference)), y_shape) if y_needs else None
        return gx, gy

    return Tensor.from_op("logaddexp", z, (x, y), backward)


def lerp(start, end, weight):
    """start + weight (end - start): `start` at weight 0, `end` at 1.

    Parameters
    ----------
    start, end : Tensor
    weight : Tensor or number
    """
    return add(start, mul(sub(end, start), weight))


# Sign and rounding

def neg(x):
    """-x.

    Raises
    ------
    RuntimeError
        If x holds booleans.
    """
    if array_of(x).dtype.kind == "b":
        raise RuntimeError("neg is not defined for booleans; use logical_not to invert a mask")

    def backward(g):
        return (-g,)

    return Tensor.from_op("neg", -x.array, (x,), backward)


def abs(x):
    """|x|; the gradient at 0 is 0.

    Differs from PyTorch: at NaN the gradient is NaN, not 0.
    """
    xa = array_of(x)

    def backward(g):
        return (g * xp.sign(xa),)

    return Tensor.from_op("abs", xp.absolute(xa), (x,), backward)


def sign(x):
    """-1, 0 or 1 by the sign of x; 0 for NaN."""
    xa = array_of(x)
    y = xa.copy() if xa.dtype.kind == "b" else (xa > 0).astype(xa.dtype) - (xa < 0)  # not xp.sign: NaN gives 0

    def backward(g):
        return (xp.zeros_like(g),)

    return Tensor.from_op("sign", y, (x,), backward)


def floor(x):
    """The largest integer not above x."""
    xa = array_of(x)

    def backward(g):
        return (xp.zeros_like(g),)

    return Tensor.from_op("floor", xp.floor(xa) if xa.dtype.kind == "f" else xa.copy(), (x,), backward)


def ceil(x):
    """The smallest integer not below x."""
    xa = array_of(x)

    def backward(g):
        return (xp.zeros_like(g),)

    return Tensor.from_op("ceil", xp.ceil(xa) if xa.dtype.kind == "f" else xa.copy(), (x,), backward)


def trunc(x):
    """x without its fraction."""
    xa = array_of(x)

    def backward(g):
        return (xp.zeros_like(g),)

    return Tensor.from_op("trunc", xp.trunc(xa) if xa.dtype.kind == "f" else xa.copy(), (x,), backward)


def frac(x):
    """x - trunc(x): the fraction of x, with its sign."""
    xa = float_array(x)

    def backward(g):
        return (g,)

    return Tensor.from_op("frac", xa - xp.trunc(xa), (x,), backward)


def round(x, *, decimals=0):
    """The nearest number with `decimals` digits after the point; of two equally near ones the even one."""
    xa = array_of(x)

    def backward(g):
        return (xp.zeros_like(g),)

    return Tensor.from_op("round", xp.round(xa, decimals), (x,), backward)


# Powers, exponentials, logarithms

def square(x):
    """x^2."""
    array_of(x)
    return pow(x, 2)


@quiet
def sqrt(x):
    """The square root of x; NaN below 0."""
    y = xp.sqrt(float_array(x))

    def backward(g):
        return (g / (2 * y),)

    return Tensor.from_op("sqrt", y, (x,), backward)


@quiet
def rsqrt(x):
    """1 / sqrt(x)."""
    y = 1 / xp.sqrt(float_array(x))

    def backward(g):
        return (-0.5 * g * y * y * y,)  # d x^(-1/2)/dx = -x^(-3/2) / 2

    return Tensor.from_op("rsqrt", y, (x,), backward)


@quiet
def reciprocal(x):
    """1 / x."""
    y = 1 / float_array(x)

    def backward(g):
        return (-g * y * y,)

    return Tensor.from_op("reciprocal", y, (x,), backward)


@quiet
def exp(x):
    """e^x."""
    y = xp.exp(float_array(x))

    def backward(g):
        return (g * y,)

    return Tensor.from_op("exp", y, (x,), backward)


@quiet
def exp2(x):
    """2^x."""
    y = xp.exp2(float_array(x))

    def backward(g):
        return (g * (y * math.log(2)),)

    return Tensor.from_op("exp2", y, (x,), backward)


@quiet
def expm1(x):
    """e^x - 1, accurate for small x."""
    y = xp.expm1(float_array(x))

    def backward(g):
        return (g * (y + 1),)

    return Tensor.from_op("expm1", y, (x,), backward)


@quiet
def log(x):
    """The natural logarithm of x; -inf at 0, NaN below."""
    xa = float_array(x)

    def backward(g):
        return (g / xa,)

    return Tensor.from_op("log", xp.log(xa), (x,), backward)


@quiet
def log2(x):
    """The logarithm of x to base 2; -inf at 0, NaN below."""
    xa = float_array(x)

    def backward(g):
        return (g / (xa * math.log(2)),)

    return Tensor.from_op("log2", xp.log2(xa), (x,), backward)


@quiet
def log10(x):
    """The logarithm of x to base 10; -inf at 0, NaN below."""
    xa = float_array(x)

    def backward(g):
        return (g / (xa * math.log(10)),)

    return Tensor.from_op("log10", xp.log10(xa), (x,), backward)


@quiet
def log1p(x):
    """log(1 + x), accurate for small x; -inf at -1, NaN below."""
    xa = float_array(x)

    def backward(g):
        return (g / (xa + 1),)

    return Tensor.from_op("log1p", xp.log1p(xa), (x,), backward)


@quiet
def sigmoid(x):
    """1 / (1 + e^-x): between 0 and 1."""
    y = logistic(float_array(x))

    def backward(g):
        return (g * (y * (1 - y)),)

    return Tensor.from_op("sigmoid", y, (x,), backward)


def logistic(a):
    """1 / (1 + e^-a) of an array, for `quiet` callers: far below 0 e^-a is inf, and 1 / inf = 0 is right."""
    s = xp.exp(-a)
    s += 1
    return 1 / s


def log_one_plus_exp(a):
    """log(1 + e^a) of an array as max(a, 0) + log(1 + small), where nothing overflows, and small = e^-|a|."""
    small = xp.exp(-xp.absolute(a))
    return xp.clip(a, 0, None) + xp.log1p(small), small


def logistic_from(a, small):
    """1 / (1 + e^-a), the derivative of log(1 + e^a), by small = e^-|a|."""
    return xp.where(a > 0, 1.0, small) / (1 + small)


# Trigonometric and hyperbolic functions, angles in radians

@quiet
def sin(x):
    """sin x."""
    xa = float_array(x)

    def backward(g):
        return (g * xp.cos(xa),)

    return Tensor.from_op("sin", xp.sin(xa), (x,), backward)


@quiet
def cos(x):
    """cos x."""
    xa = float_array(x)

    def backward(g):
        return (-g * xp.sin(xa),)

    return Tensor.from_op("cos", xp.cos(xa), (x,), backward)


@quiet
def tan(x):
    """tan x."""
    y = xp.tan(float_array(x))

    def backward(g):
        return (g * (1 + y * y),)

    return Tensor.from_op("tan", y, (x,), backward)


@quiet
def asin(x):
    """The angle in [-pi/2, pi/2] whose sine is x; NaN outside [-1, 1]."""
    xa = float_array(x)

    def backward(g):
        return (g / xp.sqrt(1 - xa * xa),)

    return Tensor.from_op("asin", xp.arcsin(xa), (x,), backward)


@quiet
def acos(x):
    """The angle in [0, pi] whose cosine is x; NaN outside [-1, 1]."""
    xa = float_array(x)

    def backward(g):
        return (-g / xp.sqrt(1 - xa * xa),)

    return Tensor.from_op("acos", xp.arccos(xa), (x,), backward)


def atan(x):
    """The angle in (-pi/2, pi/2) whose tangent is x."""
    xa = float_array(x)

    def backward(g):
        return (g / (1 + xa * xa),)

    return Tensor.from_op("atan", xp.arctan(xa), (x,), backward)


@quiet
def sinh(x):
    """(e^x - e^-x) / 2."""
    xa = float_array(x)

    def backward(g):
        return (g * xp.cosh(xa),)

    return Tensor.from_op("sinh", xp.sinh(xa), (x,), backward)


@quiet
def cosh(x):
    """(e^x + e^-x) / 2."""
    xa = float_array(x)

    def backward(g):
        return (g * xp.sinh(xa),)

    return Tensor.from_op("cosh", xp.cosh(xa), (x,), backward)


def tanh(x):
    """sinh x / cosh x: between -1 and 1."""
    y = xp.tanh(float_array(x))

    def backward(g):
        return (g * (1 - y * y),)

    return Tensor.from_op("tanh", y, (x,), backward)


# The error function

def erf(x):
    """2/sqrt(pi) times the integral of e^(-t^2) for t from 0 to x."""
    xa = float_array(x)

    def backward(g):
        return (g * (2 / math.sqrt(math.pi) * xp.exp(-xa * xa)),)

    return Tensor.from_op("erf", backend.erf(xa), (x,), backward)


@quiet
def erfinv(x):
    """The number whose erf is x: -inf at -1, inf at 1, NaN outside [-1, 1].

    A closed formula right to 0.2 % starts Halley's iteration, which trebles the correct digits each time.

    References
    ----------
    S. Winitzki, "A handy approximation for the error function and its inverse", 2008, equation 7.
    """
    xa = float_array(x)
    abs_x, a = xp.absolute(xa).astype("float64"), 0.147  # by symmetry, for |x|
    # L = log(1 - x^2), b = 2/(pi a) + L/2, y^2 = sqrt(b^2 - L/a) - b, written without cancellation
    L = xp.log1p(-abs_x * abs_x)
    b = 2 / (math.pi * a) + L / 2
    y = xp.sqrt(-L / a / (xp.sqrt(b * b - L / a) + b))
    for _ in range(3):  # Halley with f(y) = erf(y) - |x|, u = f/f', f'' = -2y f': y - u/(1 + y u)
        f = xp.where(abs_x < 0.99, backend.erf(y) - abs_x, (1 - abs_x) - erfc_tail(y))
        u = f * (math.sqrt(math.pi) / 2 * xp.exp(y * y))
        y = y - u / (1 + y * u)
    y = xp.copysign(xp.where(abs_x == 1, math.inf, y), xa).astype(xa.dtype)

    def backward(g):
        return (g * (math.sqrt(math.pi) / 2 * xp.exp(y * y)),)  # 1 / erf'(y)

    return Tensor.from_op("erfinv", y, (x,), backward)


def erfc_tail(y):
    """1 - erf(y) for an array y > 1.8, to full relative accuracy where it is tiny.

    e^(-y^2) / sqrt(pi) / (y + (1/2) / (y + (2/2) / (y + (3/2) / ...))), Laplace's continued fraction.
    """
    fraction = y
    for n in range(60, 0, -1):
        fraction = y + n / 2 / fraction
    return xp.exp(-y * y) / (math.sqrt(math.pi) * fraction)


# Limits and choices

def clamp(x, min=None, max=None):
    """x, but not below `min` and not above `max`; `max` everywhere where `min` is larger than `max`.

    The gradient goes to x where min <= x <= max, and to a bound that is a tensor where that bound was the result.

    Parameters
    ----------
    x : Tensor
    min, max : Tensor, number or None (no bound)

    Raises
    ------
    RuntimeError
        If there is neither bound.
    """
    if min is None and max is None:
        raise RuntimeError("clamp needs min, max or both")
    if min is not None:
        x = clamp_min(x, min)
    return x if max is None else clamp_max(x, max)


def clamp_min(x, min):
    """x, but not below `min`, a number or tensor; at x = min the gradient goes to x."""
    x, low, xa, la = as_tensor_pair(x, min)
    x_shape, low_shape = xa.shape, la.shape
    x_needs, low_needs = x.requires_grad, low.requires_grad

    def backward(g):
        gx = unbroadcast(masked(g, xa >= la), x_shape) if x_needs else None
        return gx, unbroadcast(masked(g, xa < la), low_shape) if low_needs else None

    return Tensor.from_op("clamp_min", xp.maximum(xa, la), (x, low), backward)


def clamp_max(x, max):
    """x, but not above `max`, a number or tensor; at x = max the gradient goes to x."""
    x, high, xa, ha = as_tensor_pair(x, max)
    x_shape, high_shape = xa.shape, ha.shape
    x_needs, high_needs = x.requires_grad, high.requires_grad

    def backward(g):
        gx = unbroadcast(masked(g, xa <= ha), x_shape) if x_needs else None
        return gx, unbroadcast(masked(g, xa > ha), high_shape) if high_needs else None

    return Tensor.from_op("clamp_max", xp.minimum(xa, ha), (x, high), backward)


def where(condition, x=None, y=None):
    """x where `condition` holds, y elsewhere; with `condition` alone, the indices where it holds.

    An operand gets a zero gradient where it was not chosen. Zero times the infinite derivative of what computed
    that operand is NaN all the same (``where(x > 0, log(x), 0)`` at x = 0): choose a harmless x before, too.

    Parameters
    ----------
    condition : Tensor of booleans
    x, y : Tensor or number

    Returns
    -------
    Tensor of the common shape; with `condition` alone, a tuple of one index tensor per axis.

    Raises
    ------
    RuntimeError
        If `condition` does not hold booleans.
    """
    ca = array_of(condition)
    if x is None and y is None:
        return tuple(Tensor.wrap(index) for index in xp.nonzero(xp.atleast_1d(ca)))
    if ca.dtype.kind != "b":
        raise RuntimeError(f"where needs a boolean condition, got {ca.dtype}; write it as a comparison")
    x, y, xa, ya = as_tensor_pair(x, y)
    x_shape, y_shape = xa.shape, ya.shape
    x_needs, y_needs = x._requires_grad, y._requires_grad

    def backward(g):
        gx = unbroadcast(xp.where(ca, g, 0.0), x_shape) if x_needs else None
        gy = unbroadcast(xp.where(ca, 0.0, g), y_shape) if y_needs else None
        return gx, gy, None

    return Tensor.from_op("where", xp.where(ca, xa, ya), (x, y, condition), backward)


def masked_fill(x, mask, value):
    """x, but `value` where `mask` holds.

    Parameters
    ----------
    x : Tensor
    mask : Tensor of booleans, broadcast against x
    value : number or 0-d Tensor, in x's dtype whatever its own

    Raises
    ------
    RuntimeError
        If `mask` does not hold booleans, or `value` has dimensions.
    """
    xa, ma = array_of(x), array_of(mask)
    if ma.dtype.kind != "b":
        raise RuntimeError(f"masked_fill needs a boolean mask, got {ma.dtype}; write it as a comparison")
    value = value if isinstance(value, Tensor) else Tensor.wrap(number_array(value, xa.dtype))
    if value.ndim:
        raise RuntimeError(f"masked_fill needs one value, got a tensor of shape {value.shape}; use where")
    value = cast(value, xa.dtype)
    x_shape = xa.shape
    x_needs, value_needs = x.requires_grad, value.requires_grad

    def backward(g):
        gx = unbroadcast(xp.where(ma, 0.0, g), x_shape) if x_needs else None
        return gx, unbroadcast(xp.where(ma, g, 0.0), ()) if value_needs else None, None

    return Tensor.from_op("masked_fill", xp.where(ma, value.array, xa), (x, value, mask), backward)


@quiet
def number_array(value, dtype):
    """A number as a 0-d array; -1e9 in float16 is -inf."""
    return to_device(value).astype(dtype)


def nan_to_num(x, nan=0.0, posinf=None, neginf=None):
    """x with numbers for NaN, inf and -inf.

    Parameters
    ----------
    x : Tensor
    nan, posinf, neginf : number
        What to put for each; by default 0 and the largest and smallest number of x's dtype. The gradient there is 0.
    """
    xa = array_of(x)
    if xa.dtype.kind != "f":
        return Tensor.from_op("nan_to_num", xa.copy(), (x,))
    limit = float(xp.finfo(xa.dtype).max)
    y = xp.where(xp.isnan(xa), float(nan or 0.0), xa)
    y = xp.where(xa == math.inf, limit if posinf is None else float(posinf), y)
    y = xp.where(xa == -math.inf, -limit if neginf is None else float(neginf), y)

    def backward(g):
        return (xp.where(xp.isfinite(xa), g, 0.0),)

    return Tensor.from_op("nan_to_num", y, (x,), backward)


# Questions: booleans, not differentiable

def isnan(x):
    """Whether each element is NaN."""
    return Tensor.from_op("isnan", xp.isnan(array_of(x)), (x,))


def isinf(x):
    """Whether each element is infinite."""
    return Tensor.from_op("isinf", xp.isinf(array_of(x)), (x,))


def isfinite(x):
    """Whether each element is neither infinite nor NaN."""
    return Tensor.from_op("isfinite", xp.isfinite(array_of(x)), (x,))


def eq(x, y):
    """x = y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("eq", xa == ya, (x, y))


def ne(x, y):
    """x != y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("ne", xa != ya, (x, y))


def lt(x, y):
    """x < y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("lt", xa < ya, (x, y))


def le(x, y):
    """x <= y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("le", xa <= ya, (x, y))


def gt(x, y):
    """x > y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("gt", xa > ya, (x, y))


def ge(x, y):
    """x >= y, element by element."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("ge", xa >= ya, (x, y))


def equal(x, y):
    """Whether x and y have the same shape and the same elements, as a Python bool; NaN equals nothing."""
    return array_of(x).shape == array_of(y).shape and bool(xp.all(x.array == y.array))


@quiet
def isclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=False):
    """|x - y| <= atol + rtol |y|, element by element; infinities are close to themselves alone.

    Parameters
    ----------
    x, y : Tensor, of one dtype
    rtol, atol : float
    equal_nan : bool
        Whether NaN is close to NaN.

    Raises
    ------
    RuntimeError
        If the dtypes differ.
    """
    xa, ya = array_of(x), array_of(y)
    if xa.dtype != ya.dtype:
        raise RuntimeError(f"isclose compares tensors of one dtype, got {xa.dtype} and {ya.dtype}")
    close = xa == ya
    if xa.dtype.kind != "f":  # uint8 would wrap around
        xa, ya = xa.astype(dtypes.float64), ya.astype(dtypes.float64)
    close = close | (xp.isfinite(ya) & (xp.absolute(xa - ya) <= atol + xp.absolute(rtol * ya)))
    if equal_nan:
        close = close | (xp.isnan(xa) & xp.isnan(ya))
    return Tensor.from_op("isclose", close, (x, y))


def allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Whether all elements are close, as a Python bool; see `isclose`."""
    return bool(xp.all(isclose(x, y, rtol, atol, equal_nan).array))


# Logic on booleans (zero is false, all else true), and bit by bit

def logical_not(x):
    """not x, element by element."""
    return Tensor.from_op("logical_not", xp.logical_not(array_of(x)), (x,))


def logical_and(x, y):
    """x and y, element by element."""
    return Tensor.from_op("logical_and", xp.logical_and(array_of(x), array_of(y)), (x, y))


def logical_or(x, y):
    """x or y, element by element."""
    return Tensor.from_op("logical_or", xp.logical_or(array_of(x), array_of(y)), (x, y))


def logical_xor(x, y):
    """Exactly one of x and y, element by element."""
    return Tensor.from_op("logical_xor", xp.logical_xor(array_of(x), array_of(y)), (x, y))


def bitwise_not(x):
    """Every bit of x flipped; of booleans: not x."""
    return Tensor.from_op("bitwise_not", ~bits(array_of(x)), (x,))


def bitwise_and(x, y):
    """The bits set in both x and y; of booleans: x and y."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("bitwise_and", bits(xa) & ya, (x, y))


def bitwise_or(x, y):
    """The bits set in x or y; of booleans: x or y."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("bitwise_or", bits(xa) | ya, (x, y))


def bitwise_xor(x, y):
    """The bits set in exactly one of x and y; of booleans: exactly one of x and y."""
    x, y, xa, ya = as_tensor_pair(x, y)
    return Tensor.from_op("bitwise_xor", bits(xa) ^ ya, (x, y))


def bits(a):
    """The array `a`, if it has bits."""
    if a.dtype.kind == "f":
        raise TypeError(f"bitwise operations need booleans or integers, got {a.dtype}; compare first (x > 0)")
    return a


# PyTorch's other names for the same functions
absolute, negative, clip = abs, neg, clamp
arcsin, arccos, arctan = asin, acos, atan
subtract, multiply, divide, true_divide = sub, mul, div, div
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
