"""What dpnp spells or does otherwise than NumPy.

`stand_ins` are put over the functions of dpnp of the same name, so that ``xp.zeros(shape, dtype)`` is one spelling
that all libraries understand. CuPy keeps to NumPy's names and signatures and needs none.
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


def stand_ins(dpnp):
    """Functions by name, with NumPy's signatures."""
    names = [name for name in vars(StandIns) if not name.startswith("_")]
    own = StandIns(dpnp)
    return {name: getattr(own, name) for name in names}


class StandIns:
    """Each method takes the place of dpnp's function of its name."""

    def __init__(self, dpnp):
        self._dpnp = dpnp

    # these arguments dpnp takes by keyword only

    def zeros(self, shape, dtype=None):
        return self._dpnp.zeros(shape, dtype=dtype)

    def ones(self, shape, dtype=None):
        return self._dpnp.ones(shape, dtype=dtype)

    def empty(self, shape, dtype=None):
        return self._dpnp.empty(shape, dtype=dtype)

    def full(self, shape, value, dtype=None):
        return self._dpnp.full(shape, value, dtype=dtype)

    def concatenate(self, arrays, axis=0):
        return self._dpnp.concatenate(arrays, axis=axis)

    def stack(self, arrays, axis=0):
        return self._dpnp.stack(arrays, axis=axis)

    def tril(self, a, k=0):
        return self._dpnp.tril(a, k=k)

    def triu(self, a, k=0):
        return self._dpnp.triu(a, k=k)

    # dpnp's matrix products refuse, or misread, arrays in which one entry stands for many (strides of 0)

    def broadcast_to(self, a, shape):
        """A copy, where NumPy makes a view."""
        return self._dpnp.broadcast_to(a, shape).copy()

    def broadcast_arrays(self, *arrays):
        return [a.copy() for a in self._dpnp.broadcast_arrays(*arrays)]


def whole_memory(array):
    """`backend.whole_memory` for dpnp, whose arrays do not know what they are views of, only the block they lie in."""
    block = array.get_array().usm_data
    return array if block.nbytes == array.nbytes else type(array)((block.nbytes,), dtype="uint8", buffer=block)
