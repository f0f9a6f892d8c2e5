"""Operations in place, named as in PyTorch with an underscore at the end: ``x.add_(y)`` is x from then on.

Each is the operation it is named after, followed by ``Tensor.assign``: outside a graph the result is written into
the memory of `x`, where its views see it; in a graph the write is recorded, so that gradients stay right. What
`assign` refuses, it refuses before anything has changed.
"""
from .. import grad_mode
from .broadcast import cast
from .elementwise import (
    abs,
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    ceil,
    clamp,
    clamp_max,
    clamp_min,
    cos,
    div,
    erf,
    erfinv,
    exp,
    expm1,
    floor,
    floor_divide,
    fmod,
    le,
    lerp,
    log,
    log1p,
    masked_fill,
    mul,
    nan_to_num,
    neg,
    pow,
    reciprocal,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sqrt,
    square,
    sub,
    tanh,
    trunc,
)
from .index import index_add, index_copy, index_fill, scatter, scatter_add, setitem
from .shape import squeeze, t, transpose, tril, triu, unsqueeze

__all__ = [
    "abs_", "add_", "bitwise_and_", "bitwise_or_", "bitwise_xor_", "ceil_", "clamp_", "clamp_max_",
    "clamp_min_", "clip_", "copy_", "cos_", "detach_", "div_", "erf_", "erfinv_", "exp_", "expm1_", "fill_",
    "floor_", "floor_divide_", "fmod_", "index_add_", "index_copy_", "index_fill_", "lerp_", "log1p_", "log_",
    "masked_fill_", "mul_", "nan_to_num_", "neg_", "pow_", "reciprocal_", "relu_", "remainder_",
    "requires_grad_", "round_", "rsqrt_", "scatter_", "scatter_add_", "sigmoid_", "sign_", "sin_", "sqrt_",
    "square_", "squeeze_", "sub_", "t_", "tanh_", "transpose_", "tril_", "triu_", "trunc_", "unsqueeze_",
    "zero_",
]


def in_place(operation):
    """`operation`, its result written into its first tensor, which is returned.

    A float64 result fits a float32 tensor and an int64 one an int32 tensor; a fraction fits no tensor of whole
    numbers, and a result of another shape none.
    """
    def write(x, *args, **kwargs):
        y = operation(x, *args, **kwargs)
        return x.assign(cast(y, x.dtype) if y.dtype.kind == x.dtype.kind else y)

    write.__name__ = write.__qualname__ = operation.__name__ + "_"
    write.__doc__ = f"`{operation.__name__}`, its result written into the first tensor, which is returned."
    return write


add_, sub_, mul_, div_ = in_place(add), in_place(sub), in_place(mul), in_place(div)
pow_, floor_divide_, remainder_, fmod_ = in_place(pow), in_place(floor_divide), in_place(remainder), in_place(fmod)
bitwise_and_, bitwise_or_, bitwise_xor_ = in_place(bitwise_and), in_place(bitwise_or), in_place(bitwise_xor)
abs_, neg_, sign_ = in_place(abs), in_place(neg), in_place(sign)
square_, reciprocal_ = in_place(square), in_place(reciprocal)
floor_, ceil_, round_, trunc_ = in_place(floor), in_place(ceil), in_place(round), in_place(trunc)
exp_, expm1_, log_, log1p_ = in_place(exp), in_place(expm1), in_place(log), in_place(log1p)
sqrt_, rsqrt_, sin_, cos_ = in_place(sqrt), in_place(rsqrt), in_place(sin), in_place(cos)
sigmoid_, tanh_, erf_, erfinv_ = in_place(sigmoid), in_place(tanh), in_place(erf), in_place(erfinv)
clamp_, clamp_min_, clamp_max_ = in_place(clamp), in_place(clamp_min), in_place(clamp_max)
masked_fill_, nan_to_num_, lerp_ = in_place(masked_fill), in_place(nan_to_num), in_place(lerp)
tril_, triu_ = in_place(tril), in_place(triu)
index_add_, index_copy_, index_fill_ = in_place(index_add), in_place(index_copy), in_place(index_fill)
scatter_, scatter_add_ = in_place(scatter), in_place(scatter_add)
clip_ = clamp_


def relu_(x):
    """max(x, 0) in place; at 0 the gradient is 0, and NaN stays."""
    return masked_fill_(x, le(x, 0), 0)


def copy_(x, source, non_blocking=False):
    """Overwrite `x` with `source`, which broadcasts and takes the dtype of `x`."""
    setitem(x, ..., source)
    return x


def fill_(x, value):
    """Overwrite every entry with `value`, a number or 0-d tensor.

    Raises
    ------
    RuntimeError
        If `value` has dims; `copy_` broadcasts.
    """
    if getattr(value, "ndim", 0):
        raise RuntimeError(f"fill_ needs a number or a 0-d tensor, got shape {tuple(value.shape)}; use copy_")
    setitem(x, ..., value)
    return x


def zero_(x):
    """Overwrite every entry with 0."""
    return fill_(x, 0)


# The tensor itself gets another shape; its memory is not written to

def reshaped_in_place(operation):
    """`operation`, which gives a view, its result taking the place of its first tensor."""
    def change(x, *args, **kwargs):
        x.check_writable()
        with grad_mode.enable_grad():  # a tensor in a graph stays in it
            y = operation(x, *args, **kwargs)
        x.node = None if x.is_leaf else y.node
        x.array, x.storage = y.array, y.storage
        return x

    change.__name__ = change.__qualname__ = operation.__name__ + "_"
    change.__doc__ = f"`{operation.__name__}`, its result taking the place of the tensor, which is returned."
    return change


squeeze_, unsqueeze_ = reshaped_in_place(squeeze), reshaped_in_place(unsqueeze)
transpose_, t_ = reshaped_in_place(transpose), reshaped_in_place(t)


# Its place in the graph

def detach_(x):
    """Take the tensor out of the graph that computed it."""
    x.check_current()
    x.node, x._requires_grad = None, False
    return x


def requires_grad_(x, requires_grad=True):
    """Have `backward` compute a gradient for this leaf, or no longer."""
    x.requires_grad = requires_grad
    return x
