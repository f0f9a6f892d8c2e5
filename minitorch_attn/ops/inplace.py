"""Operations in place, named as in PyTorch with an underscore at the end: ``x.add_(y)`` is x from then on.

Each is the operation it is named after, followed by ``Tensor.assign``: outside a graph the result is written into
the memory of `x`, where its views see it; in a graph the write is recorded, so that gradients stay right. What
`assign` refuses, it refuses before anything has changed.
"""
from .. import grad_mode
from . import elementwise, index, shape
from .broadcast import cast

WRITTEN = {
    elementwise: """
        abs add bitwise_and bitwise_or bitwise_xor ceil clamp clamp_max clamp_min clip cos div erf erfinv exp expm1
        floor floor_divide fmod lerp log log1p masked_fill mul nan_to_num neg pow reciprocal remainder round rsqrt
        sigmoid sign sin sqrt square sub tanh trunc
    """,
    index: "index_add index_copy index_fill scatter scatter_add",
    shape: "tril triu",
}  # the operations, by file, whose result is written into the tensor: add makes add_
RESHAPED = "squeeze t transpose unsqueeze"  # those of ops/shape.py whose result takes the place of the tensor


def in_place(operation):
    """`operation`, its result written into its first tensor, which is returned.

    A float64 result fits a float32 tensor and an int64 one an int32 tensor; a fraction fits no tensor of
    integers, and a result of another shape none.
    """
    def write(x, *args, **kwargs):
        y = operation(x, *args, **kwargs)
        return x.assign(cast(y, x.dtype) if y.dtype.kind == x.dtype.kind else y)

    write.__name__ = write.__qualname__ = operation.__name__ + "_"
    write.__doc__ = f"`{operation.__name__}`, its result written into the first tensor, which is returned."
    return write


for file, names in WRITTEN.items():
    for name in names.split():
        globals()[name + "_"] = in_place(getattr(file, name))


def relu_(x):
    """max(x, 0) in place; at 0 the gradient is 0, and NaN stays."""
    return x.assign(elementwise.masked_fill(x, elementwise.le(x, 0), 0))


def copy_(x, source, non_blocking=False):
    """Overwrite `x` with `source`, which broadcasts and takes the dtype of `x`."""
    index.setitem(x, ..., source)
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
    index.setitem(x, ..., value)
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


for name in RESHAPED.split():
    globals()[name + "_"] = reshaped_in_place(getattr(shape, name))


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


__all__ = [name for name in globals() if name.endswith("_") and not name.startswith("_")]
