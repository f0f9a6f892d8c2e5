"""The KV cache: keys and values of tokens that were read before, so that each new token costs only itself."""
from .. import grad_mode
from ..autograd import Tensor
from ..backend import check_index, xp

__all__ = ["KVCache"]


class KVCache:
    """The keys and values that one attention layer has made so far, in the order of time.

    `append` adds those of new tokens and returns all that these may see, `read` returns them again, and `reorder`
    chooses among the samples.

    Memory is set aside once, so that appending copies the new tokens only. With a `window` it stays of one size
    however many tokens come: the buffer has room for two windows, and when its end is reached, the window moves to
    the front. With a window of 3 and so a buffer of six cells, after eight tokens (`start` is 4, `offset` 5)::

        position    4   5   6   7   free    free
        read            x   x   x
        append              x   x   new: position 8, which sees 6, 7 and itself

    That way what `append` and `read` return is always one piece, oldest first, and never a ring to unroll.

    Keys are kept as they come, after any rotation by position. So a cache is of one sequence from its start; two
    cannot be joined, for the second's keys were turned by the wrong angles.

    Parameters
    ----------
    capacity : int
        How many tokens fit; give this or `window`.
    window : int
        How many tokens a query can see, itself included; older ones are forgotten.

    Attributes
    ----------
    length : int
        How many tokens have been read, forgotten ones too: the position of the next one. Also ``len(cache)``.
    offset : int
        The position of the first key that `read` returns; 0 without a window.

    Raises
    ------
    ValueError
        If not exactly one of `capacity` and `window` is given, or it is below 1.
    """

    def __init__(self, capacity=None, window=None):
        if (capacity is None) == (window is None) or (window if capacity is None else capacity) < 1:
            raise ValueError(f"a cache has either a capacity or a window, of at least 1, got {capacity} and {window}")
        self.capacity, self.window = capacity, window
        self.keys = self.values = None  # arrays (..., room, D) and (..., room, E)
        self.length, self.start = 0, 0  # start: the position of the first token in the buffers

    def __len__(self):
        return self.length

    @property
    def offset(self):
        return 0 if self.window is None else max(0, self.length - self.window)

    def append(self, k, v):
        """Add the keys and values of T new tokens, and return all those that these tokens may see.

        Parameters
        ----------
        k : Tensor (..., T, D)
        v : Tensor (..., T, E)

        Returns
        -------
        k : Tensor (..., S, D)
        v : Tensor (..., S, E)
            The last T of them are the new ones. S is the new length; with a window at most T + window - 1, and then
            `functional.sliding_window_mask(T, window, S)` says who sees what. They share memory with the cache: do
            not write to them, and use them before the cache changes.

        Raises
        ------
        RuntimeError
            If the tokens do not fit the capacity, or differ in shape or dtype from those before, or require grad.
        """
        if grad_mode.enabled and (k.requires_grad or v.requires_grad):
            raise RuntimeError("a cache keeps numbers without their graph, so gradients would stop here unseen: "
                               "generate under no_grad(), or train without a cache")
        self._make_room(k.array, v.array)
        before = self.length if self.window is None else min(self.length, self.window - 1)
        self.length += k.shape[-2]
        new = slice(self.length - k.shape[-2] - self.start, self.length - self.start)
        self.keys[..., new, :], self.values[..., new, :] = k.array, v.array
        return self._held(self.length - k.shape[-2] - before)

    def read(self):
        """All keys and values that are kept, (..., S, D) and (..., S, E): what a query that adds none may see.

        Cross-attention appends those of the source once, and reads them at each step.

        Raises
        ------
        RuntimeError
            If nothing was ever appended.
        """
        if self.keys is None:
            raise RuntimeError("nothing has been appended to this cache yet")
        return self._held(self.offset)

    def trim(self, length):
        """Forget all but the first `length` tokens, as if the others had never been read.

        Raises
        ------
        ValueError
            If fewer tokens than that have been read.
        RuntimeError
            If the window has moved on and tokens that would come back into sight are gone.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot trim a cache of {self.length} tokens to {length}")
        if self.window is not None and self.start > max(0, length - self.window):
            raise RuntimeError(f"trimmed to {length} tokens, the window begins at {max(0, length - self.window)}, but "
                               f"what stood before {self.start} is gone; read the sequence anew")
        self.length = length

    def reorder(self, rows):
        """Make the samples those of `rows`, a Tensor (B,) of int64: for beam search, which keeps some and drops some.

        Raises
        ------
        IndexError
            If a row does not exist.
        """
        if self.keys is not None:
            check_index(rows.array, self.keys.shape[0], "rows")
            self.keys, self.values = self.keys[rows.array], self.values[rows.array]

    def _held(self, first):
        """Keys and values from position `first` on."""
        part = slice(first - self.start, self.length - self.start)
        return Tensor.wrap(self.keys[..., part, :]), Tensor.wrap(self.values[..., part, :])

    def _make_room(self, k, v):
        """Have buffers with space for k and v behind what is kept."""
        steps = k.shape[-2]
        if self.capacity is not None and self.length + steps > self.capacity:
            raise RuntimeError(f"{steps} more tokens do not fit: {self.length} of {self.capacity} places are taken; "
                               "make the cache with a larger capacity, or with a window")
        if self.keys is None:
            room = self.capacity or max(2 * self.window, steps)
            self.keys, self.values = (xp.empty((*x.shape[:-2], room, x.shape[-1]), x.dtype) for x in (k, v))
        for name, x, buffer in (("keys", k, self.keys), ("values", v, self.values)):
            if (*x.shape[:-2], x.shape[-1], x.dtype) != (*buffer.shape[:-2], buffer.shape[-1], buffer.dtype):
                raise RuntimeError(f"this cache holds {name} {buffer.dtype} of shape {buffer.shape} with {self.length}"
                                   f" tokens, which {x.dtype} {x.shape} does not continue")
        if k.shape[-2] != v.shape[-2]:
            raise RuntimeError(f"as many keys as values are needed, got {k.shape} and {v.shape}")
        if self.length - self.start + steps > self.keys.shape[-2]:
            self._move_to_front(steps)

    def _move_to_front(self, steps):
        """Keep what the next token may see, at the start of buffers that have space for `steps` more tokens."""
        first = max(self.start, self.length - self.window + 1)
        kept, room = self.length - first, max(self.keys.shape[-2], self.window + steps)
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = xp.empty((*old.shape[:-2], room, old.shape[-1]), old.dtype)
            new[..., :kept, :] = old[..., first - self.start:self.length - self.start, :]
            setattr(self, name, new)
        self.start = first
