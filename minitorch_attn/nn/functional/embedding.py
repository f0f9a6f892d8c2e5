"""Looking up rows of a table by their index."""
from ... import dtypes
from ...autograd import Tensor
from ...backend import add_rows, check_index, xp

__all__ = ["embedding", "one_hot"]


def embedding(ids, weight, padding_idx=None, *, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False):
    """The rows of a table: y[...] = weight[ids[...]].

    Backward adds the gradient of each looked-up row to the row it came from; an id that occurs twice adds twice.

    Parameters
    ----------
    ids : Tensor (...) of integers in [0, V)
    weight : Tensor (V, C)
    padding_idx : int in [-V, V), optional
        The row that gets no gradient; a negative one counts from the end.

    Returns
    -------
    Tensor (..., C)

    Raises
    ------
    IndexError
        If an id lies outside [0, V): it never wraps around.
    RuntimeError
        If `ids` does not hold integers, or `weight` is not 2-d.
    ValueError
        If `padding_idx` lies outside [-V, V).
    NotImplementedError
        For `max_norm`, `scale_grad_by_freq` and `sparse`, which change the table or its gradient behind your back.
    """
    if max_norm is not None or scale_grad_by_freq or sparse:
        raise NotImplementedError("embedding has no max_norm, scale_grad_by_freq or sparse; normalise the table "
                                  "yourself, and use the dense gradient")
    if ids.dtype.kind not in "iu" or weight.ndim != 2:
        raise RuntimeError(f"embedding needs ids of integers and weight (V, C), got ids {ids.dtype} and weight "
                           f"{weight.shape}; the ids come first, and x.long() converts")
    index, (rows, width), dtype = ids.array, weight.shape, weight.dtype
    if padding_idx is not None and not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx must lie in [-{rows}, {rows}), the rows of the table, got {padding_idx}")
    check_index(index, rows, "ids")

    def backward(g):
        gw = xp.zeros((rows, width), dtype)
        add_rows(gw, index, g)
        if padding_idx is not None:
            gw[padding_idx] = 0
        return (None, gw)

    y = xp.take(weight.array, index, axis=0)  # (...) -> (..., C)
    return Tensor.from_op("embedding", y, (ids, weight), backward)


def one_hot(ids, num_classes=-1):
    """For each id a row of zeros with a one at that index: (...) -> (..., num_classes), int64.

    Differs from PyTorch: an id outside [0, num_classes) raises IndexError, not RuntimeError.

    Parameters
    ----------
    ids : Tensor (...) of integers in [0, num_classes)
    num_classes : int
        -1 for one more than the largest id.

    Raises
    ------
    IndexError
        If an id lies outside [0, num_classes).
    RuntimeError
        If `ids` does not hold integers, or is empty and `num_classes` is not given.
    """
    index = ids.array
    if index.dtype.kind not in "iu" or (num_classes < 1 and (num_classes != -1 or index.size == 0)):
        raise RuntimeError("one_hot needs ids of integers and num_classes > 0, or -1 where there is an id, got "
                           f"{index.dtype}{index.shape} and num_classes={num_classes}")
    classes = int(index.max()) + 1 if num_classes == -1 else num_classes
    check_index(index, classes, "ids")
    y = xp.zeros((index.size, classes), dtypes.int64)
    y[xp.arange(index.size), index.ravel()] = 1
    return Tensor.from_op("one_hot", y.reshape(*index.shape, classes), (ids,))
