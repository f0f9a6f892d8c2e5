"""The same training of a GPT in other libraries, each as a competent user of it would write it.

Every peer starts from the same weights, sees the same batches and steps with the same AdamW, all in float32; the
losses that a run prints show whether it is the same training. A peer is a module here with a function
``training(size)``, which returns the function that does a step and returns its loss. A peer that is not installed is
left out.
"""
import importlib
import importlib.util

from ..trainings import LARGE, MINI

__all__ = ["PEERS", "SIZES", "installed", "make"]

PEERS = ["autograd", "mygrad", "dezero", "tinygrad"]
SIZES = {"mini_gpt": MINI, "large_gpt": LARGE}


def installed():
    """The peers that this Python can import."""
    return [name for name in PEERS if importlib.util.find_spec(name)]


def make(case, library):
    """The step of the training called `case`, in `library`, which may also be ours or PyTorch."""
    if library in PEERS:
        return importlib.import_module(f"{__name__}.{library}").training(SIZES[case])
    from .reference import training
    return training(importlib.import_module(library), SIZES[case])
