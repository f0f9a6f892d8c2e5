"""How many processors a matrix product uses.

NumPy works on one; only the BLAS below it splits a matrix product over several. By itself it does so for almost every
product, though a small one is finished before another thread has woken up: a GRU's training takes a third longer on
two threads than on one. So each product here says how many it wants.
"""
import ctypes
import os

import numpy

from .backend import xp

__all__ = ["get_num_threads", "matrix_product", "set_num_threads"]

LARGE = 1 << 22  # multiplications from which on a product takes less time on two threads (64 x 256 x 256, say)


def _blas_setter():
    """The function by which NumPy's BLAS is told its number of threads; one that does nothing if there is none."""
    try:
        blas = ctypes.PyDLL(numpy._core._multiarray_umath.__file__)  # finds the names of the libraries that it loads
    except (AttributeError, OSError):
        return lambda n: None
    for name in ("scipy_openblas_set_num_threads64_", "openblas_set_num_threads64_", "openblas_set_num_threads"):
        if hasattr(blas, name):
            return getattr(blas, name)
    return lambda n: None


def _processors():
    """How many threads the environment asks for, or how many processors this process may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_set_blas_threads, _threads = _blas_setter(), _processors()


def get_num_threads():
    """How many processors a large matrix product uses."""
    return _threads


def set_num_threads(n):
    """Use `n` processors in each large matrix product; at first as many as OMP_NUM_THREADS says, or as there are.

    Raises
    ------
    RuntimeError
        If `n` is not a positive whole number.
    """
    global _threads
    if type(n) is not int or n < 1:
        raise RuntimeError(f"set_num_threads needs a positive whole number, got {n!r}")
    _threads = n
    _set_blas_threads(n)


def matrix_product(a, b, out=None):
    """``a @ b`` of two arrays, on one thread if it is small."""
    if _threads == 1 or xp.name != "numpy" or a.shape[-1] * b.shape[-1] * a.shape[-2] >= LARGE:
        return xp.matmul(a, b, out=out)
    _set_blas_threads(1)
    try:
        return numpy.matmul(a, b, out=out)
    finally:
        _set_blas_threads(_threads)
