"""How many processors compute at once.

The BLAS below NumPy splits a matrix product over several threads: as many as OMP_NUM_THREADS or
OPENBLAS_NUM_THREADS says when the program starts, or as there are processors. Everything else NumPy does in one. But
while it loops over an array it lets go of the GIL, Python's lock that lets one thread run at a time. So kernels that
pass over large arrays many times cut them into `parts`, and have several threads compute these, by `at_once`.
"""
import ctypes
import functools
import itertools
import os
import threading

import numpy

from .backend import quiet, xp

__all__ = ["LARGE", "at_once", "at_work", "get_num_threads", "parts", "set_num_threads"]

LARGE = 1 << 17  # numbers in an array; to wake a thread takes 60 us, as long as four passes over so many
_lock = threading.Lock()  # held while `at_once` has the threads
_otherwise = None  # in how many threads a matrix product is done otherwise, while `at_once` keeps it in one


def _blas_function(name):
    """The function of OpenBLAS with this name, or None if NumPy's BLAS is another."""
    try:
        blas = ctypes.PyDLL(numpy._core._multiarray_umath.__file__)  # finds the names of the libraries that this loads
    except (AttributeError, OSError):
        return None
    spellings = f"scipy_{name}64_", f"{name}64_", name  # the first is that of NumPy's wheels; 64: the bits of indices
    return next((getattr(blas, spelling) for spelling in spellings if hasattr(blas, spelling)), None)


_get, _set = _blas_function("openblas_get_num_threads"), _blas_function("openblas_set_num_threads")


def get_num_threads():
    """How many threads compute at once; 1 if BLAS does not tell."""
    return _otherwise or (_get() if _get else 1)


def set_num_threads(n):
    """Use `n` threads for each matrix product, those of NumPy outside this package too, and for each large kernel.

    With a BLAS that is not OpenBLAS this changes nothing.

    Raises
    ------
    RuntimeError
        If `n` is not a positive whole number.
    """
    global _otherwise
    if type(n) is not int or n < 1:
        raise RuntimeError(f"set_num_threads needs a positive whole number, got {n!r}")
    if _otherwise:
        _otherwise = n
    elif _set:
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

    Meanwhile each matrix product stays in one thread, as the processors are busy. If the threads are at work already,
    for another thread of the program or for the task that calls this, the tasks are done here, one by one. An error
    in a task is raised once all that were begun have ended.
    """
    global _otherwise
    if len(tasks) == 1 or not _lock.acquire(blocking=False):
        return [task() for task in tasks]
    helpers = []
    try:
        results, left, _otherwise = [None] * len(tasks), iter(enumerate(tasks)), get_num_threads()
        if _set:
            _set(1)

        @quiet  # NumPy keeps for each thread what it warns of
        def work():
            for i, task in left:  # shared by all threads: no two get the same
                results[i] = task()

        try:
            helpers += [_pool().submit(work) for _ in range(min(_otherwise, len(tasks)) - 1)]
        except RuntimeError:  # the program is ending and starts no threads any more
            pass
        work()
    finally:
        errors = [helper.exception() for helper in helpers]  # waits for its end
        _give_back()
        _lock.release()
    for error in filter(None, errors):
        raise error
    return results


def at_work():
    """Whether `at_once` has the threads now."""
    return _lock.locked()


def _give_back():
    """Let matrix products have their threads again."""
    global _otherwise
    n, _otherwise = _otherwise, None
    if n:
        set_num_threads(n)


@functools.cache
def _pool():
    """The threads that wait for tasks; each is started when there is more work than those before can begin."""
    from concurrent.futures import ThreadPoolExecutor  # takes a while to import, and small models never need it
    return ThreadPoolExecutor(256)


def _start_anew():
    """Put all back: a forked process has none of the threads, and nobody to give the lock back."""
    global _lock
    _pool.cache_clear()
    _lock = threading.Lock()
    _give_back()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
