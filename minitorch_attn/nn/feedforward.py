"""Feed-forward nets: what a Transformer block applies to each token alone."""
import math

from . import functional as F
from .dropout import Dropout
from .linear import Linear
from .module import Module

__all__ = ["FeedForward", "SwiGLU"]

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, "tanh"), "silu": F.silu}


class FeedForward(Module):
    r"""Widen, bend, narrow.

    .. math:: y = W_2\,\mathrm{dropout}(\phi(W_1 x + b_1)) + b_2

    Parameters
    ----------
    dim : int
        The width C.
    hidden : int, optional
        F; 4 C unless given, which makes 8 C^2 weights.
    activation : "relu", "gelu", "gelu_tanh", "silu" or a function of a tensor
    dropout : float
        Probability, while training, of dropping an entry after the activation.
    bias : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If `activation` is another word.
    """

    def __init__(self, dim, hidden=None, activation="gelu", dropout=0.0, bias=True, device=None, dtype=None):
        super().__init__()
        if not callable(activation) and activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)} or a function, got {activation!r}")
        hidden = 4 * dim if hidden is None else hidden
        self.up = Linear(dim, hidden, bias=bias, device=device, dtype=dtype)
        self.down = Linear(hidden, dim, bias=bias, device=device, dtype=dtype)
        self.drop = Dropout(dropout)
        self.activation = activation if callable(activation) else ACTIVATIONS[activation]

    def forward(self, x):
        """(..., C) -> (..., C)."""
        h = self.activation(self.up(x))  # (..., C) -> (..., F)
        return self.down(self.drop(h))   # (..., F) -> (..., C)


class SwiGLU(Module):
    r"""Widen twice, let one gate the other, narrow.

    .. math:: y = W_3\,\mathrm{dropout}(\mathrm{silu}(W_1 x) \odot W_2 x)

    Three matrices instead of two, so with F = 8C/3 there are as many weights, 8 C^2, as in a plain net of width 4C.

    Parameters
    ----------
    dim : int
        The width C.
    hidden : int, optional
        F; 8C/3, rounded up to a multiple of `multiple_of`, unless given.
    multiple_of : int
    dropout : float
    bias : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    gate, up, down : Linear
        W_1, W_2 and W_3.

    References
    ----------
    Shazeer 2020, "GLU Variants Improve Transformer", equations 5 and 6.
    """

    def __init__(self, dim, hidden=None, multiple_of=1, dropout=0.0, bias=False, device=None, dtype=None):
        super().__init__()
        if hidden is None:
            hidden = multiple_of * math.ceil(8 * dim / 3 / multiple_of)
        self.gate = Linear(dim, hidden, bias=bias, device=device, dtype=dtype)
        self.up = Linear(dim, hidden, bias=bias, device=device, dtype=dtype)
        self.down = Linear(hidden, dim, bias=bias, device=device, dtype=dtype)
        self.drop = Dropout(dropout)

    def forward(self, x):
        """(..., C) -> (..., C)."""
        h = F.swiglu(self.gate(x), self.up(x))  # (..., C) -> (..., F)
        return self.down(self.drop(h))          # (..., F) -> (..., C)
