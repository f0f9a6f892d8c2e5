"""Which array library computes.

Every array operation in the package is written once, as ``xp.exp(x)``, and ``xp`` forwards to the library in
use. The few things on which array libraries disagree are the functions below; no operation is forked by library.
"""
import ctypes
import importlib
import os
import sys

import numpy

HOST_TYPES = (numpy.ndarray, numpy.generic)

# Decorator of functions whose infinities and NaN are the right answer by IEEE 754 (log 0, 1 / 0, 0 / 0):
# NumPy would warn of each, PyTorch does not.
quiet = numpy.errstate(divide="ignore", over="ignore", invalid="ignore")


class ArrayLibrary:
    """The array library in use: ``xp.name`` is that library's ``name``.

    A name is looked up once and then kept as an attribute, because ``__getattr__`` costs fifteen times as much
    as an attribute. For the same reason nothing else may keep it: write ``xp.exp(x)`` where it is used.
    """

    def __init__(self, name):
        self.use(name)

    def use(self, name):
        """Forward to the library called `name` from now on, forgetting every name kept from the one before."""
        module = importlib.import_module(name)
        self.__dict__.clear()
        self.__dict__.update(name=name, module=module)

    def __getattr__(self, attribute):
        value = getattr(self.module, attribute)
        self.__dict__[attribute] = value
        return value

    def __repr__(self):
        return f"<array library {self.name} {self.module.__version__}>"


xp = ArrayLibrary("numpy")

DEVICE_KINDS = {"numpy": "cpu", "cupy": "cuda", "dpnp": "xpu"}


class device:
    """Where tensors live: one place, that of the array library in use. Its name is only compared and printed.

    ``device("cpu")`` is always accepted and stands for that place; ``device("cuda")`` only while CuPy computes.

    Parameters
    ----------
    kind : str or device
        "cpu", "cuda" or "xpu", with ":0" if you like.
    index : int, optional

    Raises
    ------
    RuntimeError
        If the array library in use does not compute there.
    """
    __slots__ = ("index", "type")

    def __init__(self, kind, index=None):
        name, _, number = str(kind).partition(":")
        if name not in ("cpu", DEVICE_KINDS[xp.name]):
            raise RuntimeError(f"no device {str(kind)!r} here: {xp.name} computes on {DEVICE_KINDS[xp.name]!r}; which "
                               "device computes is chosen by the array library, for all tensors at once")
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


def to_host(array):
    """The same values as a NumPy array; a NumPy array is returned as it is."""
    if isinstance(array, HOST_TYPES):
        return array
    return xp.asnumpy(array)


def to_device(values, dtype=None):
    """An array of the library in use; an array that is one already, of that dtype, is returned as it is."""
    return xp.asarray(values, dtype=dtype)


def synchronize():
    """Wait until the device has finished; NumPy computes at once, so there is nothing to wait for."""
    if xp.name == "cupy":
        xp.cuda.get_current_stream().synchronize()


def shares_memory(a, b):
    """Whether two arrays have an element in common (never a false no; a hard case counts as yes)."""
    if xp.name != "numpy":
        return bool(xp.may_share_memory(a, b))
    try:
        return numpy.shares_memory(a, b, max_work=10_000)
    except numpy.exceptions.TooHardError:
        return True


def check_index(index, size, what="index"):
    """Raise IndexError unless every entry of the integer array `index` lies in [0, size).

    Done before every lookup: a negative index would wrap to the end, and a device reads past the end in silence.
    """
    if index.size and (int(index.min()) < 0 or int(index.max()) >= size):
        bad = [int(i) for i in to_host(index).ravel() if not 0 <= i < size][:3]
        raise IndexError(f"{what} must lie in [0, {size}), got {', '.join(map(str, bad))}")


def scatter_add(target, index, values):
    """``target[index] += values`` in place, where an index that occurs twice adds twice.

    `index` is an integer array of rows of `target`; `values` has shape ``index.shape + target.shape[1:]``.
    """
    if xp.name == "numpy":
        # on a flat index: ufunc.at is four times slower on whole rows (8192 rows of 256: 18 ms against 4 ms)
        width = target[:1].size
        flat = (index.reshape(-1, 1) * width + numpy.arange(width)).ravel()
        numpy.add.at(target.reshape(-1), flat, values.reshape(-1))
    elif xp.name == "cupy":
        xp.add.at(target, index, values)
    else:
        # sorted rows, then the sum of each run of equal ones: no library lacks these
        order = xp.argsort(index.ravel())
        rows = index.ravel()[order]
        total = xp.cumsum(values.reshape(rows.size, -1)[order], axis=0)
        last = xp.append(rows[1:] != rows[:-1], xp.asarray([True]))
        ends = total[last]
        ends[1:] -= total[last][:-1]
        target[rows[last]] += ends.reshape((-1,) + target.shape[1:])


def keep_freed_memory():
    """Let glibc keep freed blocks instead of handing each back to the system.

    By default every array over 128 KiB is returned when freed and faulted in again, page by page, when the next
    one is made; that is half the time of a training step (a Transformer layer on (64, 65, 64) float32, forward
    and backward: 41 ms without, 21 ms with). ``MINITORCH_MALLOC=0`` in the environment leaves the allocator
    alone; elsewhere than on glibc nothing happens.
    """
    if not sys.platform.startswith("linux") or os.environ.get("MINITORCH_MALLOC") == "0":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # the numbers that <malloc.h> gives these options
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 1 << 26)


keep_freed_memory()
