"""What this installation consists of: versions, the array library, and what multiplies matrices for it."""
import importlib.metadata
import os
import platform

import numpy

from .backend import xp
from .threads import get_num_threads

__all__ = ["blas", "describe", "version_of"]

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
        ("BLAS threads", str(get_num_threads())),
        ("processors", cores()),
        *[(name, version) for name in OPTIONAL if (version := version_of(name))],
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join([f"{name:{width}}  {value}" for name, value in rows])
