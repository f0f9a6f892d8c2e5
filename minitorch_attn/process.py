"""Two settings of the whole process that make NumPy's work faster, made before NumPy is loaded.

Both concern every library in the process. The environment variable of each leaves it out, or sets it otherwise.
"""
import ctypes
import os
import sys

__all__ = []


def keep_freed_memory():
    """Let glibc keep freed blocks instead of handing each back to the system.

    By default every array over 128 KiB is returned when freed and faulted in again, page by page, when the next
    one is made; that is half the time of a training step (a Transformer layer on (64, 65, 64) float32, forward
    and backward: 41 ms without, 21 ms with). ``MINITORCH_MALLOC=0`` in the environment leaves the allocator
    alone; elsewhere than on glibc nothing happens.
    """
    if not sys.platform.startswith("linux") or os.environ.get("MINITORCH_MALLOC") == "0":
        return
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3  # the numbers that <malloc.h> gives these options
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 1 << 26)


def let_idle_threads_sleep():
    """Have OpenBLAS's threads go to sleep 2^20 clock ticks (0.3 ms) after a matrix product, not 2^26 (20 ms).

    Until then they look for the next product without a pause, on the processor that the other half of a large kernel
    could use (a step of a vision Transformer with dropout: 103 ms as it is, 82 ms so). OpenBLAS reads
    ``OPENBLAS_THREAD_TIMEOUT`` when NumPy is loaded, so a program that imports NumPy first, or has set that, keeps
    what it had.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")


keep_freed_memory()
let_idle_threads_sleep()
