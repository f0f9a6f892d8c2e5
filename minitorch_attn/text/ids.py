"""Token ids on their way back to text."""

__all__ = []


def checked_ids(ids, size):
    """`ids`, a sequence or a 1-D tensor of integers, as a list of Python's.

    Raises
    ------
    TypeError
        If one is no whole number: neither 65.0, nor True, nor "65".
    IndexError
        If one lies outside [0, `size`); a negative one does not count from the end.
    """
    whole = []
    for position, i in enumerate(ids.tolist() if hasattr(ids, "tolist") else ids):
        i = i.item() if hasattr(i, "item") else i  # a number of NumPy, or a tensor without axes
        if type(i) is not int:
            raise TypeError(f"ids must be whole numbers, got {i!r} at position {position}")
        if not 0 <= i < size:
            raise IndexError(f"id {i} at position {position} lies outside the vocabulary, whose ids are 0 to "
                             f"{size - 1}")
        whole.append(i)
    return whole
