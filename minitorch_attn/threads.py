"""How many processors a matrix product uses.

NumPy itself works on one; the BLAS below it splits matrix products over several: as many as OMP_NUM_THREADS or
OPENBLAS_NUM_THREADS says when the program starts, or as there are.
"""
import ctypes

import numpy

__all__ = ["get_num_threads", "set_num_threads"]


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
    """How many processors a matrix product uses; 1 if BLAS does not tell."""
    return _get() if _get else 1


def set_num_threads(n):
    """Use `n` processors in each matrix product, those of NumPy outside this package too.

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
