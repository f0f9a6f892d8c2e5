"""The memory behind tensors: who shares it, and when it was last written to.

A backward function uses arrays that its forward saw. A write to one of them in between would give wrong gradients in
silence, so every write is noted here, and the walk back through the graph asks.
"""
import itertools

from .backend import shares_memory, whole_memory, xp

__all__ = ["Storage", "clock"]

clock = itertools.count(1)  # one for nodes and writes: what is later has the larger number


class Storage:
    """The memory that a tensor and its views share, and what has been written to it.

    written : int, the number of the last write, 0 if never: PyTorch's version counter in the form of a clock.
    last_write : int, on the class: the number of the last write to any memory. Older nodes have nothing to ask.
    array : what `overwrote` compares memory with; the whole base array after writes through two arrays.
    replaced : tuple, (old array, Storage that took over) for each write recorded in a graph; a view of the old one is
        out of date from then on.
    """
    written, last_write, array, replaced = 0, 0, None, ()  # on the class: most memory is never written to

    def mark_written(self, array):
        """Note that `array`, which lies in this memory, has just been written to."""
        through_two_arrays = self.array is not None and self.array is not array
        self.array = whole_memory(array) if through_two_arrays else array
        self.written = Storage.last_write = next(clock)

    def overwrote(self, arrays):
        """Whether what was written lies in one of these arrays."""
        return any(isinstance(a, xp.ndarray) and shares_memory(a, self.array) for a in arrays)

    def is_out_of_date(self, array):
        """Whether a write that a graph recorded has left the values of `array` behind."""
        return any(shares_memory(array, old) for old, _ in self.replaced)
