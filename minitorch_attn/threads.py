"""How many processors compute at once.

The BLAS below NumPy splits a matrix product over several processors: as many as OMP_NUM_THREADS or
OPENBLAS_NUM_THREADS says when the program starts, or as there are. Everything else NumPy does on one. But it lets
other threads of the program run while it loops over an array, so kernels of many passes over large arrays cut them
into `parts` and compute these by `at_once`.
"""
import ctypes
import functools
import itertools
import os

import numpy

from .backend import quiet, xp

__all__ = ["LARGE", "at_once", "get_num_threads", "parts", "set_num_threads"]

LARGE = 1 << 17  # numbers in an array from which parts pay: to wake a thread costs as much as a pass over them


def _blas_function(name):
    """The function of OpenBLAS with this name, or None if NumPy's BLAS is another."""
    try:
        blas = ctypes.PyDLL(numpy._core._multiarray_umath.__file__)  # finds the names of the libraries that it loads
    except (AttributeError, OSError):
        return None
    spellings = f"scipy_{name}64_", f"{name}64_", name
    return next((getattr(blas, spelling) for spelling in spellings if hasattr(blas, spelling)), None)


_get, _set = _blas_function("openblas_get_num_threads"), _blas_function("openblas_set_num_threads")


def get_num_threads():
    """How many processors compute at once; 1 if BLAS does not tell."""
    return _get() if _get else 1


def set_num_threads(n):
    """Use `n` processors in each matrix product, those of NumPy outside this package too, and in each large kernel.

    With a BLAS that is not OpenBLAS this changes nothing.

    Raises
    ------
    RuntimeError
        If `n` is not a positive whole number.
    """
    if type(n) is not int or n < 1:
        raise RuntimeError(f"set_num_threads needs a positive whole number, got {n!r}")
    if _set:
        _set(n)


def parts(rows, size):
    """Slices that together are ``range(rows)``: one for each thread, if an array of `size` numbers is worth it."""
    n = min(get_num_threads(), rows) if size >= LARGE and xp.name == "numpy" else 1
    if n < 2:
        return [slice(0, rows)]
    ends = [rows * i // n for i in range(n + 1)]
    return [slice(start, end) for start, end in itertools.pairwise(ends)]


def at_once(tasks):
    """What the functions `tasks`, which take no argument, return, in order; each thread takes the next one left.

    Meanwhile matrix products stay on one processor each, as the others are busy.
    """
    if len(tasks) == 1:
        return [tasks[0]()]
    results, left, threads = [None] * len(tasks), iter(enumerate(tasks)), get_num_threads()

    @quiet
    def work():
        for i, task in left:
            results[i] = task()

    set_num_threads(1)
    try:
        helpers = [_pool().submit(work) for _ in range(min(threads, len(tasks)) - 1)]
        try:
            work()
        finally:
            for helper in helpers:
                helper.result()
    finally:
        set_num_threads(threads)
    return results


@functools.cache
def _pool():
    """The threads that wait for tasks, started when first needed."""
    from concurrent.futures import ThreadPoolExecutor  # takes a while to import, and small models never need it
    return ThreadPoolExecutor(os.cpu_count())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of the threads
