"""What CuPy and dpnp spell or do otherwise than NumPy.

`stand_ins` are put over the library's functions of the same name, so that ``xp.zeros(shape, dtype)`` is one spelling
that all of them understand.
"""
import os
import sys

__all__ = ["show_driver", "stand_ins", "whole_memory"]


def show_driver():
    """Tell OpenCL of the processor's driver that dpnp's wheels bring along, before dpnp looks for devices.

    The wheels put it into the environment's lib folder, where the OpenCL loader does not look of itself. What the
    environment variable says already is left alone.
    """
    driver = os.path.join(sys.prefix, "lib", "libintelocl.so")
    if os.path.exists(driver):
        os.environ.setdefault("OCL_ICD_FILENAMES", driver)


def stand_ins(library, module):
    """Functions by name, with NumPy's signatures; none for NumPy itself."""
    if library == "numpy":
        return {}
    own = {"cupy": Cupy, "dpnp": Dpnp}[library](module)
    return {name: getattr(own, name) for name in dir(own) if not name.startswith("_")}


class Cupy:
    """Each method takes the place of the library's function of its name."""

    def __init__(self, module):
        self._own = module

    def bincount(self, x, weights=None, minlength=0):
        """Of no numbers, too."""
        if x.size:
            return self._own.bincount(x, weights=weights, minlength=minlength)
        return self._own.zeros(minlength, dtype="int64" if weights is None else "float64")

    # Both libraries take floor(x / y), which is -0 for a quotient that is too small to be told from it; CuPy's
    # remainder is then NaN where y is infinite. C's fmod is exact. It has the sign of x; where y has the other one,
    # the remainder is one y further and the quotient one less.

    def remainder(self, x, y):
        if x.dtype.kind != "f":
            return self._own.remainder(x, y)
        xp, left = self._own, self._own.fmod(x, y)
        left = xp.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)
        return xp.where(left == 0, xp.copysign(left, y), left)

    def floor_divide(self, x, y):
        if x.dtype.kind != "f":
            return self._own.floor_divide(x, y)
        xp, left = self._own, self._own.fmod(x, y)
        whole = xp.rint((x - left) / y)  # the division may round
        whole = xp.where((left != 0) & ((left < 0) != (y < 0)), whole - 1, whole)
        return xp.where(whole == 0, xp.copysign(whole, x / y), whole)


class Dpnp(Cupy):
    """Needs what CuPy needs, and more."""

    # these arguments dpnp takes by keyword only

    def zeros(self, shape, dtype=None):
        return self._own.zeros(shape, dtype=dtype)

    def ones(self, shape, dtype=None):
        return self._own.ones(shape, dtype=dtype)

    def empty(self, shape, dtype=None):
        return self._own.empty(shape, dtype=dtype)

    def full(self, shape, value, dtype=None):
        return self._own.full(shape, value, dtype=dtype)

    def concatenate(self, arrays, axis=0):
        return self._own.concatenate(arrays, axis=axis)

    def stack(self, arrays, axis=0):
        return self._own.stack(arrays, axis=axis)

    def tril(self, a, k=0):
        return self._own.tril(a, k=k)

    def triu(self, a, k=0):
        return self._own.triu(a, k=k)

    def matmul(self, a, b, out=None):
        """In float16 by way of float32, for dpnp has no product of a matrix and a vector in float16."""
        if a.dtype == "float16":
            return self._kept(self._own.matmul(a.astype("float32"), b.astype("float32")).astype("float16"), out)
        return self._own.matmul(a, b, out=out)

    # these dpnp does not compute in place, where `out` is an operand

    def maximum(self, a, b, out=None):
        return self._kept(self._own.maximum(a, b), out)

    def minimum(self, a, b, out=None):
        return self._kept(self._own.minimum(a, b), out)

    def _kept(self, y, out):
        if out is None:
            return y
        out[...] = y
        return out

    # dpnp's matrix products refuse, or misread, arrays in which one entry stands for many (a stride, the bytes from
    # one entry to the next, of 0)

    def broadcast_to(self, a, shape):
        """A copy, where NumPy makes a view."""
        return self._own.broadcast_to(a, shape).copy()

    def broadcast_arrays(self, *arrays):
        return [a.copy() for a in self._own.broadcast_arrays(*arrays)]


def whole_memory(array):
    """`backend.whole_memory` for dpnp, whose arrays do not know what they are views of, only the block they lie in."""
    block = array.get_array().usm_data
    return array if block.nbytes == array.nbytes else type(array)((block.nbytes,), dtype="uint8", buffer=block)
