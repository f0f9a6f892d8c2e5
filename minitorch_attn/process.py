"""Two settings of the whole process that make NumPy's work faster, made before NumPy is loaded.

Both concern every library in the process. ``MINITORCH_MALLOC=0`` in the environment leaves the first out; an
``OPENBLAS_THREAD_TIMEOUT`` of your own takes the place of the second.
"""
import ctypes
import os
import sys

__all__ = []


def keep_freed_memory():
    """Let glibc keep freed blocks instead of handing each back to the system.

    By default a large array (over 128 KiB at first; glibc raises the limit as it goes) is returned when freed and
    faulted in again, page by page, when the next one is made; that is half the time of a training step (a Transformer
    layer on (64, 65, 64) float32, forward and backward: 41 ms without, 21 ms with). Elsewhere than on glibc nothing
    happens.
    """
    if not sys.platform.startswith("linux") or os.environ.get("MINITORCH_MALLOC") == "0":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # the numbers that <malloc.h> gives these options
    if not mallopt(mmap_threshold, 1 << 30):  # blocks below 1 GiB come from the heap ...
        mallopt(mmap_threshold, 1 << 25)      # ... or below 32 MiB: more an older glibc refuses
    mallopt(trim_threshold, 2**31 - 1)        # the free end of the heap is given back from 2 GiB
    mallopt(top_pad, 1 << 26)                 # the heap grows by 64 MiB at a time


def let_idle_threads_sleep():
    """Have OpenBLAS's threads go to sleep 0.3 ms after a matrix product, not 20 ms.

    Until it sleeps, a thread looks for the next product without a pause, and occupies a processor on which a part of a
    large kernel could be computed (see threads.py). A step of a vision Transformer with dropout takes 73 ms with
    OpenBLAS's own setting, and 65 ms with this one.

    The value n means 2^n clock ticks; OpenBLAS's own is 26. It reads the variable when NumPy is loaded: a program that
    imports NumPy before this package keeps 26. Processes started by this one inherit the variable.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")


keep_freed_memory()
let_idle_threads_sleep()
