"""Dropout: zeros at random, while training."""
from ... import random
from ...autograd import Tensor
from ...backend import xp

__all__ = ["dropout", "dropout1d", "dropout2d"]


def dropout(x, p=0.5, training=True, inplace=False):
    """Set each element to zero with probability `p` and multiply the rest by 1 / (1 - p), so that the mean stays.

    y = x m / (1 - p) with m = 0 or 1 drawn for each element; hence gx = g m / (1 - p).

    Differs from PyTorch: the zeros are drawn from a stream of their own, so they are seeded and reproducible but not
    PyTorch's; `p` up to 7/8 is rounded to 1/65536.

    Parameters
    ----------
    x : Tensor
    p : float in [0, 1]
    training : bool
        False returns `x` itself.
    inplace : bool
        Write the result to `x`.

    Returns
    -------
    Tensor like x

    Raises
    ------
    ValueError
        If `p` lies outside [0, 1].

    References
    ----------
    Srivastava, Hinton, Krizhevsky, Sutskever and Salakhutdinov, "Dropout", JMLR 15, 2014.
    """
    return drop(x, x.shape, p, training, inplace)


def dropout1d(x, p=0.5, training=True, inplace=False):
    """`dropout` of whole channels: x (N, C, L) or (C, L), one draw for each (n, c)."""
    return drop(x, (*x.shape[:-1], 1), p, training, inplace)


def dropout2d(x, p=0.5, training=True, inplace=False):
    """`dropout` of whole channels: x (N, C, H, W) or (C, H, W), one draw for each (n, c)."""
    return drop(x, (*x.shape[:-2], 1, 1), p, training, inplace)


def drop(x, mask_shape, p, training, inplace):
    """`dropout` with one draw for each element of `mask_shape`, which broadcasts against x."""
    if not 0 <= p <= 1:
        raise ValueError(f"the dropout probability must lie in [0, 1], got {p}")
    if not training or p == 0:
        return x
    if inplace:
        x.check_writable()  # before anything is drawn
    # one float factor an element: multiplying by it is twice as fast as by a boolean and then by 1 / (1 - p)
    factor = xp.multiply(random.keep_mask(mask_shape, p), 1 / (1 - p) if p < 1 else 0.0, dtype=x.dtype)

    def backward(g):
        return (g * factor,)

    y = Tensor.from_op("dropout", x.array * factor, (x,), backward)
    return x.assign(y) if inplace else y
