"""What this installation consists of: versions, the array library, and what multiplies matrices for it."""
import ctypes
import importlib.metadata
import os
import pathlib
import platform

import numpy

from .backend import xp

__all__ = ["blas", "describe", "threads", "version_of"]

OPTIONAL = ("torch", "scipy", "safetensors", "cupy-cuda12x", "dpnp", "mpi4py", "pytest", "sphinx", "jupytext")


def version_of(distribution):
    """The installed version of a distribution, or None; read from its metadata, so nothing is imported."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def blas():
    """Name and version of the library that NumPy was built to multiply matrices with."""
    found = numpy.show_config(mode="dicts")["Build Dependencies"].get("blas", {})
    return f"{found.get('name', 'unknown')} {found.get('version', '')}".strip()


def threads():
    """How many threads that library uses, as a sentence part.

    OpenBLAS, which comes inside NumPy's wheels, is asked; of another library only the environment is known.
    """
    for path in (pathlib.Path(numpy.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        library = ctypes.CDLL(str(path))
        for name in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads"):
            if hasattr(library, name):
                return str(getattr(library, name)())
    named = [f"{name}={os.environ[name]}" for name in
             ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
             if name in os.environ]
    return ", ".join(named) or "not set in the environment"


def cores():
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def describe():
    """One fact a line, its name first: what to send along with a question."""
    rows = [
        ("minitorch_attn", version_of("minitorch_attn") or "not installed: running from a folder"),
        ("python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        ("numpy", numpy.__version__),
        ("matplotlib", version_of("matplotlib") or "not installed"),
        ("array library", xp.name),
        ("BLAS", blas()),
        ("BLAS threads", threads()),
        ("processors", cores()),
        *[(name, version) for name in OPTIONAL if (version := version_of(name))],
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([f"{name:{width}}  {value}" for name, value in rows])
