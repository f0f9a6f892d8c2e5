"""Which array library computes.

Every array operation in the package is written once, as ``xp.exp(x)``, and ``xp`` forwards to the library in
use. The few things on which array libraries disagree are the functions below; no operation is forked by library.
How it fits together, and how to add a library, is told in docs/backends.md.
"""
import importlib
import os
import sys

import numpy

from . import differences

HOST_TYPES = (numpy.ndarray, numpy.generic)

# Decorator of functions whose infinities and NaN are the right answer by IEEE 754 (log 0, 1 / 0, 0 / 0):
# NumPy would warn of each, PyTorch does not.
quiet = numpy.errstate(divide="ignore", over="ignore", invalid="ignore")


class ArrayLibrary:
    """The array library in use: ``xp.name`` is that library's ``name``.

    A name is looked up once and then kept as an attribute, because ``__getattr__`` costs fifteen times as much
    as an attribute. Nothing else may keep a name, for `use` could not make it forget: write ``xp.exp(x)`` where it
    is used.
    """
    module = None  # so that `__getattr__` finds an end before `use` was called, as in a copy of this object

    def __init__(self, name):
        self.use(name)

    def use(self, name):
        """Forward to the library called `name` from now on, forgetting every name kept from the one before."""
        module = load(name)
        self.__dict__.clear()
        self.__dict__.update(name=name, module=module, **differences.stand_ins(name, module))

    def __getattr__(self, attribute):
        value = getattr(self.module, attribute)
        self.__dict__[attribute] = value
        return value

    def __repr__(self):
        return f"<array library {self.name} {self.module.__version__}>"


DEVICE_KINDS = {"numpy": "cpu", "cupy": "cuda", "dpnp": "xpu"}  # the libraries that there are, and where they compute


def load(name):
    """The module of the array library `name`, once it has shown that it computes.

    Raises
    ------
    ValueError
        If it is none of those that this package works with.
    ModuleNotFoundError
        If it is not installed.
    RuntimeError
        If it is installed but does not compute here: there is no GPU, or no driver.
    """
    if name not in tuple(DEVICE_KINDS):
        raise ValueError(f"there is no array library {name!r} here; it can be {', '.join(DEVICE_KINDS)}")
    if name == "dpnp":
        differences.show_driver()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"the array library {name} is not installed ({error}); install it by "
                                  f"python -m pip install 'minitorch_attn[{name}]', or from the repository's folder "
                                  f"--editable '.[{name}]'", name=error.name) from None
    if name != "numpy":
        try:
            module.zeros(1).tolist()
        except Exception as error:  # each library has errors of its own for this
            raise RuntimeError(f"{name} is installed, but cannot compute here: {error}") from error
    return module


def first_library():
    """The library that a program starts with; `use_backend` changes it later."""
    wanted = os.environ.get("MINITORCH_BACKEND") or "numpy"
    try:
        return ArrayLibrary(wanted.lower())
    except (ValueError, ModuleNotFoundError, RuntimeError) as error:
        raise type(error)(f"MINITORCH_BACKEND says {wanted!r}, but {error}") from None


xp = first_library()


class device:
    """Where tensors live: one place, that of the array library in use. Its name is only compared and printed.

    ``device("cpu")`` is always accepted and stands for that place; ``device("cuda")`` only while CuPy computes.

    Differs from PyTorch: there is one device of a kind, so no number but 0 is accepted.

    Parameters
    ----------
    kind : str or device
        "cpu", "cuda" or "xpu", with ":0" if you like.
    index : int, optional

    Raises
    ------
    RuntimeError
        If the array library in use does not compute there, or the number is not 0.
    """
    __slots__ = ("index", "type")

    def __init__(self, kind, index=None):
        name, colon, number = str(kind).partition(":")
        if name not in ("cpu", DEVICE_KINDS[xp.name]):
            other = "".join(library for library, k in DEVICE_KINDS.items() if name in (k, library)) or "..."
            raise RuntimeError(f"no device {str(kind)!r} here: {xp.name} computes on {DEVICE_KINDS[xp.name]!r}; which "
                               "device computes is chosen by the array library, for all tensors at once: "
                               f'use_backend("{other}") changes it')
        if number not in ("", "0") or index not in (None, 0) or (colon and not number):
            raise RuntimeError(f"no device {str(kind)!r}{'' if index is None else f' number {index}'} here: there is "
                               "one, number 0")
        self.type, self.index = name, int(number) if number else index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        arguments = f"type={self.type!r}" + ("" if self.index is None else f", index={self.index}")
        return f"device({arguments})"

    def __eq__(self, other):
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self):
        return hash((self.type, self.index))


def library_of(array):
    """The name of the library that `array` belongs to."""
    return type(array).__module__.partition(".")[0]


def is_array(value):
    """Whether `value` is an array of any of the libraries, in use or not."""
    return isinstance(value, HOST_TYPES) or (library_of(value) in DEVICE_KINDS and hasattr(value, "strides"))


def to_host(array):
    """The same values as a NumPy array; a NumPy array is returned as it is."""
    if isinstance(array, HOST_TYPES):
        return array
    return sys.modules[library_of(array)].asnumpy(array)


def to_device(values, dtype=None):
    """An array of the library in use; an array that is one already, of that dtype, is returned as it is."""
    try:
        return xp.asarray(values, dtype=dtype)
    except TypeError:
        if not is_array(values) or isinstance(values, xp.ndarray):
            raise
        return xp.asarray(to_host(values), dtype=dtype)  # another library's array, which NumPy does not read unasked


def synchronize():
    """Wait until the device has finished; NumPy computes at once, so there is nothing to wait for."""
    if xp.name == "cupy":
        xp.cuda.get_current_stream().synchronize()
    elif xp.name == "dpnp":
        xp.zeros(()).sycl_queue.wait()


class Addresses:
    """Where the entries of a device's array lie, as NumPy takes it for an array of its own; they are never read.

    NumPy asks any object that is not its own for the dictionary ``__array_interface__``: the address of the first
    entry, the shape, how many bytes it is from one entry to the next along each dim (the strides), and the dtype.
    """

    def __init__(self, a):
        self.__array_interface__ = {"data": (a.data.ptr, False), "shape": a.shape, "strides": a.strides,
                                    "typestr": a.dtype.str, "version": 3}


def shares_memory(a, b):
    """Whether two arrays, of the library or of NumPy, have an element in common.

    Never a false no; a hard case counts as yes.
    """
    if xp.name != "numpy":
        a, b = [v if isinstance(v, numpy.ndarray) else Addresses(v) for v in (a, b)]
    try:
        return numpy.shares_memory(a, b, max_work=10_000)
    except numpy.exceptions.TooHardError:
        return True


def is_view(view, array):
    """Whether `view`, made from `array` by some operation, lies in its memory."""
    if xp.name == "numpy" and (view.base is array or (view.base is not None and view.base is array.base)):
        return True  # seen five times faster than by `shares_memory`
    return shares_memory(view, array)


def whole_memory(array):
    """An array on all of the memory that `array` shows a part of; `array` itself if it shows all."""
    if xp.name == "dpnp":
        return differences.whole_memory(array)
    return array.base if isinstance(array.base, xp.ndarray) else array


def diagonal_view(a, offset, dim1, dim2):
    """The diagonal of the matrices that two dims of an array span, as its last dim: a view that can be written to."""
    if xp.name != "numpy":
        return xp.diagonal(a, offset, dim1, dim2)
    # NumPy's own diagonal is read-only; einsum's, of a square cut out of the array, is not
    rows, columns = max(-offset, 0), max(offset, 0)
    n = max(min(a.shape[dim1] - rows, a.shape[dim2] - columns), 0)
    index = [slice(None)] * a.ndim
    index[dim1], index[dim2] = slice(rows, rows + n), slice(columns, columns + n)
    letters = [chr(ord("a") + i) for i in range(a.ndim)]
    letters[dim2] = letters[dim1]
    rest = [letter for i, letter in enumerate(letters) if i not in (dim1, dim2)]
    return numpy.einsum(f"{''.join(letters)}->{''.join(rest)}{letters[dim1]}", a[tuple(index)])


def check_index(index, size, what="index"):
    """Raise IndexError unless every entry of the integer array `index` lies in [0, size).

    Done before every lookup: a negative index would wrap to the end, and a device wraps or clips one past the end in
    silence.
    """
    if index.size and (int(index.min()) < 0 or int(index.max()) >= size):
        bad = [int(i) for i in to_host(index).ravel() if not 0 <= i < size][:3]
        raise IndexError(f"{what} must lie in [0, {size}), got {', '.join(map(str, bad))}")


def add_rows(target, index, values):
    """``target[index] += values`` in place, where an index that occurs twice adds twice.

    `index` is an integer array of rows of `target`; `values` has shape ``index.shape + target.shape[1:]``.
    """
    if xp.name == "numpy":
        # on a flat index: ufunc.at is four times slower on whole rows (8192 rows of 256: 18 ms against 4 ms)
        width = target[:1].size
        flat = (index.reshape(-1, 1) * width + numpy.arange(width)).ravel()
        numpy.add.at(target.reshape(-1), flat, values.reshape(-1))
        return
    # Sort the rows, so that equal ones stand together; then let each add the one before it, the one two before, four
    # before ... as long as it has the same index: the last of equal rows ends up with the sum of all. A GPU could
    # also let every row add itself, but then the order of the sums, and their rounding, changes from run to run.
    order = xp.argsort(index.reshape(-1))
    rows, total = index.reshape(-1)[order], values.reshape((index.size, *target.shape[1:]))[order]
    step = 1
    while step < rows.size and bool((same := rows[step:] == rows[:-step]).any()):
        same = same.reshape((-1,) + (1,) * (total.ndim - 1))
        total[step:] += xp.where(same, total[:-step], 0)  # a product with `same` would make NaN of infinity times 0
        step *= 2
    last = xp.ones(rows.size, bool)
    last[:-1] = rows[1:] != rows[:-1]
    target[rows[last]] += total[last]


def write_entries(target, index, values):
    """``target[index] = values`` in place, where of several values for one entry the last stays.

    `index` is a tuple of integer arrays and slices; `values`, an array or a number, broadcasts to what it chooses,
    and may have more dims of size 1 in front.
    """
    if xp.name != "numpy" and numpy.ndim(values):
        # A device writes in any order. So every writer of an entry shall write what the last one of them does: of
        # a, b, c for the entries 3, 5, 3 it is given c, b, c. Backwards, c, b, a for 3, 5, 3, the last writer is the
        # first, and of that `unique` tells the place: c for 3 and b for 5.
        entries = xp.arange(target.size).reshape(target.shape)[index]
        values = values.reshape(values.shape[max(values.ndim - entries.ndim, 0):])
        values = xp.broadcast_to(values, entries.shape)
        _, first, same = xp.unique(entries.reshape(-1)[::-1], return_index=True, return_inverse=True)
        lasts = values.reshape(-1)[::-1][first]  # one for each different entry
        values = lasts[same.reshape(-1)][::-1].reshape(entries.shape)
    target[index] = values


def matrix_product(a, b):
    """``a @ b`` for matrices, or stacks of them, that fit.

    With an inner size of 1, an outer product, `a` gets a second column of zeros and `b` a second row: only then does
    NumPy call the BLAS (512 and 64 numbers of float32: 7 us; 50 us without the zeros, 17 us by broadcasting).
    """
    if a.shape[-1] == 1 and xp.name == "numpy":
        column, row = a, b
        a = xp.zeros((*column.shape[:-1], 2), column.dtype)
        b = xp.zeros((*row.shape[:-2], 2, row.shape[-1]), row.dtype)
        a[..., :1], b[..., :1, :] = column, row
    return xp.matmul(a, b)


def row_max(a):
    """The largest entry of each row of an array, along its last axis, which stays with size 1.

    NumPy spends 40 ns on a row before it looks at the first number. So short rows are turned into columns, over which
    it looks at many rows at a time: 2048 rows of 16 numbers take 25 us, the copy included, and not 100. From about
    fifty numbers on the copy takes longer than it spares.
    """
    n = a.shape[-1]
    if xp.name != "numpy" or n > 48:
        return xp.max(a, axis=-1, keepdims=True)
    columns = numpy.ascontiguousarray(a.reshape(-1, n).T)
    return columns.max(axis=0).reshape(*a.shape[:-1], 1)


def masked(g, mask):
    """The gradient array `g` where `mask` holds, else 0, also where g is infinite.

    On the processor a product takes a fifth of the time of `where`; only where it gives NaN is that needed. A product
    of the result with itself tells, four times faster than a sum: it is finite unless an entry is NaN, or enormous.
    """
    if xp.name == "numpy":
        y = g * mask
        flat = y.ravel(order="K")  # in the order of memory, so that nothing is copied
        if numpy.isfinite(numpy.dot(flat, flat)):
            return y
    return xp.where(mask, g, 0.0)


# erf(x) = x / sqrt(x^2 + s(x^2)^-4) to 1.1e-7 relative for all x, and x p(x^2) / q(x^2) to 3e-17 for |x| <= 5.93,
# where erf rounds to 1. s, p and q are polynomials, lowest power first; all coefficients are positive, so nothing
# cancels. They are those whose largest error is least (minimax), found by Lawson's method: least squares again and
# again, with more weight where the error is large; on Chebyshev points of x^2, in 70 digits (mpmath).
ERF_S = 1.06225187, 0.161085451, 0.025648591, 0.0020779043, 2.01930096e-5, 1.41572787e-5
ERF_P = (1.1283791670955125, 0.22016058691597528, 0.066119436894578404, 0.0068889115387855318, 8.5560068864321112e-4,
         5.6936440852025046e-5, 3.9000126205862253e-6, 1.6945526690050887e-7, 6.7590947445368867e-9,
         1.7195540137064576e-10, 3.3364099889929525e-12, 2.227082039649275e-14, 1.5715935877702758e-17)
ERF_Q = (1.0, 0.52844557338175033, 0.13474534973236628, 0.021985221941364701, 0.0025645365405870059,
         2.2607301156339028e-4, 1.5496864062031484e-5, 8.3491736253185776e-7, 3.51507437028063e-8,
         1.124428362881116e-9, 2.5491683984898086e-11, 3.3193087990829761e-13, 8.8522260224805998e-16)
# Phi(x) = (1 + tanh(x u(x^2))) / 2, with a polynomial u whose error shifts Phi by at most 2.9e-8 for |x| <= 5.6, found
# in the same way, but with coefficients of both signs; beyond, where Phi is within 1.1e-8 of 0 or 1, u only grows.
CDF_U = 0.797884941, 0.0363330844, -3.25947707e-5, -5.53062919e-5, 3.96476468e-6, -1.32265138e-7, 1.75622608e-9
ERF_BLOCK = 1 << 17  # elements that the processor keeps at hand through some twenty passes


def polynomial(coefficients, t):
    """c_0 + c_1 t + c_2 t^2 + ... of the array t, at least of degree 1, by Horner's rule."""
    y = t * coefficients[-1]
    y += coefficients[-2]
    for c in coefficients[-3::-1]:
        y *= t
        y += c
    return y


def erf(x):
    """2/sqrt(pi) times the integral of e^(-t^2) for t from 0 to x, for an array of floating-point numbers.

    Largest error measured in float32 2.3e-7 (relative 4.5e-7), in float64 9e-16 (relative 9e-16); never beyond +-1,
    and exactly that where float32 or float64 has nothing closer. Only plain array arithmetic: a few passes.
    """
    if x.dtype.itemsize == 2:
        return erf(x.astype("float32")).astype(x.dtype)
    block = ERF_BLOCK if xp.name == "numpy" else x.size
    if x.size > block:
        flat, y = x.reshape(-1), xp.empty(x.size, x.dtype)
        for i in range(0, x.size, block):
            y[i:i + block] = erf(flat[i:i + block])
        return y.reshape(x.shape)
    if x.dtype.itemsize == 4:
        x = xp.clip(x, -9.0, 9.0)  # there s is so large that it no longer counts, and x^2 cannot overflow
        t = x * x
        s = polynomial(ERF_S, t)
        s *= s
        s *= s
        t += 1 / s
        x /= xp.sqrt(t)
        return x
    x = xp.clip(x, -5.94, 5.94)  # a point at which rounding does not fall short of 1
    t = x * x
    return xp.clip(x * polynomial(ERF_P, t) / polynomial(ERF_Q, t), -1.0, 1.0)


def normal_cdf(x):
    """Phi(x) = (1 + erf(x / sqrt 2)) / 2 for an array of floating-point numbers, always in [0, 1].

    Largest error measured in float32 1e-7, in float64 6e-16. In float32 a tanh takes fewer passes than `erf`.
    """
    if x.dtype.itemsize == 4:
        y = polynomial(CDF_U, x * x)
        y *= x
        y = xp.tanh(y, out=y)
    else:
        y = erf(x * 0.5 ** 0.5)
    y *= 0.5
    y += 0.5
    return y
