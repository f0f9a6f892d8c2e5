"""Gates: one half of a layer's width decides how much of the other half passes."""
from ...autograd import Tensor
from ...backend import quiet
from ...ops.elementwise import float_array, logistic

__all__ = ["swiglu"]


@quiet
def swiglu(gate, x):
    """silu(gate) x = gate s(gate) x, with s the logistic sigmoid: x, let through as far as `gate` says.

    Parameters
    ----------
    gate, x : Tensor
        Of one shape.

    Returns
    -------
    Tensor like x

    Raises
    ------
    RuntimeError
        If shapes or dtypes differ.

    References
    ----------
    Shazeer, "GLU variants improve Transformer", arXiv:2002.05202, 2020, eq. 6.
    """
    if gate.shape != x.shape or gate.dtype != x.dtype:
        raise RuntimeError(f"swiglu needs gate and x of one shape and dtype, got {gate.dtype}{gate.shape} and "
                           f"{x.dtype}{x.shape}")
    a, b = float_array(gate), float_array(x)
    s = logistic(a)
    silu_a = a * s

    def backward(g):
        # y = silu(a) b, and silu' = s + silu (1 - s)
        gx = g * silu_a
        ga = 1 - s
        ga *= silu_a
        ga += s
        ga *= b
        ga *= g
        return ga, gx

    return Tensor.from_op("swiglu", silu_a * b, (gate, x), backward)
