"""The affine map."""
import math
from itertools import compress

from ...autograd import Tensor
from ...backend import matrix_product
from ...ops.broadcast import sum_axes

__all__ = ["linear"]


def linear(x, weight, bias=None):
    """The affine map y = x W^T + b of the last axis.

    All leading axes are one long axis of rows, so that forward is one matrix product and backward two.

    Parameters
    ----------
    x : Tensor (..., in)
    weight : Tensor (out, in)
    bias : Tensor (out,), optional

    Returns
    -------
    Tensor (..., out)

    Raises
    ------
    RuntimeError
        If the shapes do not fit together, or the dtypes differ.
    """
    check_linear(x, weight, bias)
    w, lead = weight.array, x.shape[:-1]
    rows = x.array.reshape(math.prod(lead), w.shape[1])  # (..., in) -> (N, in)
    y = matrix_product(rows, w.T)  # (N, out)
    if bias is not None:
        y += bias.array
    x_shape, x_needs, weight_needs = x.shape, x.requires_grad, weight.requires_grad
    bias_needs = bias is not None and bias.requires_grad
    present = (True, True, bias is not None)

    def backward(g):
        # gx = g W, gW = g^T x, gb = the sum over the rows of g
        g = g.reshape(len(rows), w.shape[0])  # (..., out) -> (N, out)
        gx = matrix_product(g, w).reshape(x_shape) if x_needs else None
        gw = matrix_product(g.T, rows) if weight_needs else None
        gb = sum_axes(g, (0,))[0] if bias_needs else None
        return tuple(compress((gx, gw, gb), present))

    y = y.reshape(*lead, w.shape[0])  # (N, out) -> (..., out)
    return Tensor.from_op("linear", y, tuple(compress((x, weight, bias), present)), backward)


def check_linear(x, weight, bias):
    """Raise RuntimeError unless x (..., in), weight (out, in) and bias (out,) or None fit together."""
    if weight.ndim != 2 or x.ndim == 0 or x.shape[-1] != weight.shape[1]:
        raise RuntimeError(f"linear needs x (..., in) and weight (out, in), got x {x.shape} and weight "
                           f"{weight.shape}; the last axis of both must have the same size")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"linear needs bias ({weight.shape[0]},) for weight {weight.shape}, got {bias.shape}")
    if x.dtype != weight.dtype or (bias is not None and bias.dtype != weight.dtype):
        raise RuntimeError(f"linear needs one dtype, got x {x.dtype}, weight {weight.dtype}"
                           + (f", bias {bias.dtype}" if bias is not None else "") + "; convert one with to(dtype)")
