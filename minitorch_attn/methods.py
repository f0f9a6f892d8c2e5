"""The operations as methods and operators of Tensor, in one table, and the conversions to and from other types.

Nothing is computed here: ``x.add(y)`` and ``x + y`` are the function `ops.add` under other names.
"""
import copy

import numpy

from . import dtypes, ops
from .autograd import Tensor
from .backend import DEVICE_KINDS, library_of, quiet, to_host, xp
from .backend import device as named_device
from .memory import Storage
from .ops import create
from .ops.broadcast import OPERANDS, cast
from .switching import bring_over

__all__ = []


def attach(name, function):
    """Make `function`, whose first argument is a tensor, the method `name` of every tensor."""
    setattr(Tensor, name, function)


# The table: which functions of each file of ops are methods of the same name, x.name(...) being name(x, ...). It is
# explicit because `__all__` does not say it: in PyTorch not every function is a method (cat and where, for example,
# are not, or take their arguments in another order), and what a Tensor can do is to be seen in one place.

METHODS = {
    "broadcast": """
        broadcast_to expand expand_as
    """,
    "elementwise": """
        abs absolute acos add allclose arccos arcsin arctan asin atan bitwise_and bitwise_not bitwise_or
        bitwise_xor ceil clamp clamp_max clamp_min clip cos cosh div divide eq equal erf erfinv exp exp2 expm1
        float_power floor floor_divide fmod frac ge greater greater_equal gt isclose isfinite isinf isnan le lerp
        less less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor lt
        masked_fill maximum minimum mul multiply nan_to_num ne neg negative not_equal pow reciprocal remainder
        round rsqrt sigmoid sign sin sinh sqrt square sub subtract tan tanh true_divide trunc
    """,
    "reduce": """
        all amax amin any argmax argmin count_nonzero cumprod cumsum logsumexp max mean min norm prod std sum var
    """,
    "shape": """
        chunk clone contiguous diag diagonal flatten flip moveaxis movedim narrow permute ravel repeat reshape
        reshape_as roll select split squeeze swapaxes swapdims t tile transpose tril triu unbind unflatten unfold
        unsqueeze view view_as
    """,
    "index": """
        argwhere bincount gather index_add index_copy index_fill index_select masked_select nonzero
        repeat_interleave scatter scatter_add take take_along_dim unique
    """,
    "linalg": """
        addmm baddbmm bmm dot inner matmul mm mv outer
    """,
    "sort": """
        argsort kthvalue msort sort topk
    """,
    "create": """
        bernoulli is_floating_point multinomial numel
    """,
    "inplace": """
        abs_ add_ bitwise_and_ bitwise_or_ bitwise_xor_ ceil_ clamp_ clamp_max_ clamp_min_ clip_ copy_ cos_ detach_
        div_ erf_ erfinv_ exp_ expm1_ fill_ floor_ floor_divide_ fmod_ index_add_ index_copy_ index_fill_ lerp_
        log1p_ log_ masked_fill_ mul_ nan_to_num_ neg_ pow_ reciprocal_ relu_ remainder_ requires_grad_ round_
        rsqrt_ scatter_ scatter_add_ sigmoid_ sign_ sin_ sqrt_ square_ squeeze_ sub_ t_ tanh_ transpose_ tril_
        triu_ trunc_ unsqueeze_ zero_
    """,
}
METHODS_ONLY = """
    new_empty new_full new_ones new_tensor new_zeros bernoulli_ exponential_ normal_ random_ uniform_
"""

for names in METHODS.values():
    for name in names.split():
        attach(name, getattr(ops, name))
for name in METHODS_ONLY.split():
    attach(name, getattr(create, name))
attach("where", lambda x, condition, other: ops.where(condition, x, other))
attach("nelement", ops.numel)
attach("T", property(ops.T))
attach("mT", property(ops.mT))

# Operators: the name between the underscores, the function, and the one that works in place

OPERATORS = [
    ("add", ops.add, ops.add_),
    ("sub", ops.sub, ops.sub_),
    ("mul", ops.mul, ops.mul_),
    ("truediv", ops.div, ops.div_),
    ("floordiv", ops.floor_divide, ops.floor_divide_),
    ("mod", ops.remainder, ops.remainder_),
    ("pow", ops.pow, ops.pow_),
    ("matmul", ops.matmul, ops.matmul),
    ("and", ops.bitwise_and, ops.bitwise_and_),
    ("or", ops.bitwise_or, ops.bitwise_or_),
    ("xor", ops.bitwise_xor, ops.bitwise_xor_),
]


def reflected(function):
    """`function` with its two arguments exchanged: what Python calls when the tensor stands on the right."""
    return lambda x, y: function(y, x)


def comparison(function):
    """`function` of a tensor and a tensor or number; with anything else Python decides (``x == None`` is False)."""
    return lambda x, y: function(x, y) if isinstance(y, OPERANDS) else NotImplemented


for name, function, in_place in OPERATORS:
    attach(f"__{name}__", function)
    attach(f"__r{name}__", reflected(function))
    attach(f"__i{name}__", in_place)
for name in ("eq", "ne", "lt", "le", "gt", "ge"):
    attach(f"__{name}__", comparison(getattr(ops, name)))
attach("__neg__", ops.neg)
attach("__pos__", lambda x: x)
attach("__abs__", ops.abs)
attach("__invert__", ops.bitwise_not)
attach("__getitem__", ops.getitem)
attach("__setitem__", ops.setitem)


# What a tensor is

def method(*names):
    """Decorator: make the function a method of Tensor by these names."""
    def put(function):
        for name in names:
            attach(name, function)
        return function

    return put


@method("size")
def size(x, dim=None):
    """The shape, or the length of one dim."""
    if dim is None:
        return x.shape
    if not -x.ndim <= dim < x.ndim:
        raise IndexError(f"dim must lie in [{-x.ndim}, {x.ndim - 1}] for shape {x.shape}, got {dim}")
    return x.shape[dim]


@method("dim", "ndimension")
def dim(x):
    """The number of dims."""
    return x.array.ndim


@method("stride")
def stride(x, dim=None):
    """How many entries of memory lie between neighbours, along each dim or along one."""
    steps = tuple(n // x.array.itemsize for n in x.array.strides)
    return steps if dim is None else steps[dim]


@method("is_contiguous")
def is_contiguous(x):
    """Whether the entries lie in memory in the order in which they are read, last dim first."""
    return bool(x.array.flags.c_contiguous)


@method("element_size")
def element_size(x):
    """How many bytes an entry takes."""
    return x.array.itemsize


def set_data(x, value):
    """``x.data = value``: take over the memory of `value`, outside every graph."""
    if x.requires_grad and value.dtype.kind != "f":
        raise RuntimeError(f"this tensor requires grad, so its data must be floating point, got {value.dtype}")
    x.array, x.storage, x.node = value.array, value.storage, None


attach("data", property(Tensor.detach, set_data))
attach("device", property(lambda x: named_device(DEVICE_KINDS[library_of(x.array)])))
attach("is_cuda", property(lambda x: xp.name == "cupy"))
attach("is_sparse", property(lambda x: False))
attach("grad_fn", property(lambda x: None if x.is_leaf else x.node))


# To Python and NumPy

@method("item")
def item(x):
    """The one entry as a Python number.

    Raises
    ------
    RuntimeError
        If there is not exactly one.
    """
    if x.array.size != 1:
        raise RuntimeError(f"only a tensor with exactly one entry is a number, this one has shape {x.shape}; reduce "
                           "it first, by sum(), mean(), any() or all(), or use tolist()")
    x.check_current()
    return x.array.item()


@method("tolist")
def tolist(x):
    """The entries as nested lists of Python numbers."""
    x.check_current()
    return to_host(x.array).tolist()


@method("numpy")
def as_numpy(x, force=False):
    """The entries as a NumPy array; with the NumPy library on the same memory.

    Raises
    ------
    RuntimeError
        If the tensor requires grad, unless `force`: what NumPy computes would be missing from the graph.
    """
    if x.requires_grad and not force:
        raise RuntimeError("a tensor that requires grad does not become a NumPy array of itself; use detach().numpy()")
    x.check_current()
    return to_host(x.array)


@method("__array__")
def __array__(x, dtype=None, copy=None):
    return numpy.array(as_numpy(x), dtype=dtype, copy=copy)


@method("__bool__")
def __bool__(x):
    return bool(item(x))


@method("__int__")
def __int__(x):
    return int(item(x))


@method("__float__")
def __float__(x):
    return float(item(x))


@method("__index__")
def __index__(x):
    array = x.array
    if array.dtype.kind == "f" or array.size != 1:
        raise TypeError(f"only one whole number can be an index, got a tensor {x.dtype} of shape {x.shape}")
    x.check_current()
    return int(array.item())


@method("__len__")
def __len__(x):
    if x.ndim == 0:
        raise TypeError("a 0-d tensor has no length")
    return x.shape[0]


@method("__iter__")
def __iter__(x):
    if x.ndim == 0:
        raise TypeError("a 0-d tensor cannot be iterated over; item() gives its number")
    return iter(ops.unbind(x, 0))


@method("__contains__")
def __contains__(x, value):
    return bool(ops.eq(x, value).array.any())


# To another dtype or place

DTYPE_METHODS = {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "long": dtypes.int64,
    "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool,
}


def converting(dtype):
    """A method that gives the tensor in `dtype`."""
    def convert(x):
        return cast(x, dtype)

    convert.__doc__ = f"The tensor in {dtype}; itself if it is of that dtype. The gradient is converted back."
    return convert


for name, dtype in DTYPE_METHODS.items():
    attach(name, converting(dtype))


@method("to")
def to(x, *targets, dtype=None, device=None, non_blocking=False, copy=False):
    """The tensor in another dtype, itself if nothing changes; the gradient is converted back.

    Parameters
    ----------
    targets : dtype, Tensor or device
        A dtype; or a tensor whose dtype to take; or a device, which must be the one there is; or a device and a dtype.
        After `use_backend` a device brings the tensor over to the array library now in use.
    copy : bool
        Copy also where nothing changes.
    """
    for target in targets:
        if isinstance(target, (Tensor, numpy.dtype)):
            dtype = target if isinstance(target, numpy.dtype) else target.dtype
        elif isinstance(target, (str, named_device)):
            device = target
        elif not isinstance(target, (bool, type(None))):  # PyTorch takes non_blocking and copy by position too
            raise TypeError(f"to() takes a dtype, a device or a tensor, got {type(target).__name__} {target!r:.60}")
    if device is not None:
        named_device(device)
        x = bring_over(x)
    y = cast(x, dtype or x.dtype)
    return ops.clone(y) if copy and y is x else y


@method("type_as")
def type_as(x, other):
    """The tensor in the dtype of `other`."""
    return cast(x, other.dtype)


@method("type")
def type_(x, dtype=None):
    """The tensor in another dtype, given as such, as `FloatTensor` or "torch.FloatTensor"; without one, that name."""
    if dtype is None:
        return next(f"torch.{kind}" for kind in create.TENSOR_TYPES if kind.dtype == x.dtype)
    if isinstance(dtype, str):
        found = [kind for kind in create.TENSOR_TYPES if kind.name == dtype.rpartition(".")[2]]
        if not found:
            raise ValueError(f"type() knows {', '.join(map(str, create.TENSOR_TYPES))}, got {dtype!r}")
        dtype = found[0]
    return cast(x, getattr(dtype, "dtype", dtype))


@method("cpu")
def cpu(x):
    """The tensor itself: there is one device. Only after `use_backend` one of the former library is brought over."""
    return bring_over(x)


@method("cuda")
def cuda(x, device="cuda", non_blocking=False):
    """The tensor itself if the array library computes there, else RuntimeError; brought over like `cpu`."""
    named_device(device)
    return bring_over(x)


# As text

@method("__repr__")
@quiet
def __repr__(x):
    x.check_current()
    a = to_host(x.array)
    finite = a[numpy.isfinite(a)]
    whole = bool(((finite == numpy.trunc(finite)) & (abs(finite) < 1e8)).all())
    body = numpy.array2string(a, precision=4, separator=", ", prefix="tensor(", threshold=1000, max_line_width=80,
                              floatmode="maxprec" if whole else "fixed")
    notes = [body]
    if a.size == 0 and a.ndim != 1:
        notes.append(f"size={a.shape}")
    if x.dtype not in (dtypes.bool, dtypes.int64, dtypes.get_default_dtype()):
        notes.append(f"dtype={x.dtype}")
    if x.grad_fn is not None:
        notes.append(f"grad_fn=<{x.node.op}>")
    elif x.requires_grad:
        notes.append("requires_grad=True")
    return f"tensor({', '.join(notes)})"


@method("__format__")
def __format__(x, spec):
    if x.ndim == 0:
        return format(item(x), spec)
    if spec:
        raise TypeError(f"only a 0-d tensor can be formatted as {spec!r}, this one has shape {x.shape}")
    return str(x)


# Copying and pickling

@method("__copy__")
def __copy__(x):
    """A leaf on the same memory, without ``.grad``; class, `requires_grad` and own attributes are the same."""
    x.check_current()
    y = Tensor.__new__(type(x))
    y.array, y.storage, y._requires_grad = x.array, x.storage, x._requires_grad
    y.__dict__.update(x.__dict__)
    return y


@method("__deepcopy__")
def __deepcopy__(x, memo):
    """A leaf with memory of its own; class, `requires_grad`, ``.grad`` and own attributes are the same."""
    if not x.is_leaf:
        raise RuntimeError("only leaves can be deep-copied, a computed tensor is part of its graph; detach() it first")
    y = Tensor.__new__(type(x))
    memo[id(x)] = y
    y.array, y.storage, y._requires_grad = x.array.copy(), Storage(), x._requires_grad
    y.grad = copy.deepcopy(x.grad, memo)
    y.__dict__.update(copy.deepcopy(x.__dict__, memo))
    return y


@method("__reduce_ex__")
def __reduce_ex__(x, protocol):
    raise TypeError("tensors are not pickled, for unpickling a file runs what is written in it; "
                    "minitorch_attn.checkpoint saves and loads models, training states and weights")
