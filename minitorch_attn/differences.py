"""What dpnp spells or does otherwise than NumPy: functions that stand in for its own.

`ArrayLibrary.use` puts every public method of the class below over the function of dpnp of the same name, so that
``xp.zeros(shape, dtype)`` is one spelling that all libraries understand. CuPy keeps to NumPy's names and signatures
and needs no such class.
"""
import numpy

__all__ = ["Dpnp"]


class Dpnp:
    """dpnp behind NumPy's signatures; ``self.own`` is the module itself."""

    def __init__(self, module):
        self.own = module

    # dpnp takes these arguments by keyword only

    def zeros(self, shape, dtype=None):
        return self.own.zeros(shape, dtype=dtype)

    def ones(self, shape, dtype=None):
        return self.own.ones(shape, dtype=dtype)

    def empty(self, shape, dtype=None):
        return self.own.empty(shape, dtype=dtype)

    def full(self, shape, value, dtype=None):
        return self.own.full(shape, value, dtype=dtype)

    def concatenate(self, arrays, axis=0):
        return self.own.concatenate(arrays, axis=axis)

    def stack(self, arrays, axis=0):
        return self.own.stack(arrays, axis=axis)

    def tril(self, a, k=0):
        return self.own.tril(a, k=k)

    def triu(self, a, k=0):
        return self.own.triu(a, k=k)

    # dpnp lacks these

    def shares_memory(self, a, b, max_work):
        """Asked of two NumPy arrays that claim to lie where `a` and `b` do, and are never read."""
        return numpy.shares_memory(Place(a), Place(b), max_work)


class Place:
    """The addresses of an array's entries, in the form in which NumPy takes over an array without copying it."""

    def __init__(self, a):
        self.__array_interface__ = {"data": (a.data.ptr, False), "shape": a.shape, "strides": a.strides,
                                    "typestr": a.dtype.str, "version": 3}
