"""Layers that set entries to zero at random while training."""
from . import functional as F
from .module import Module

__all__ = ["Dropout", "Dropout1d", "Dropout2d"]


class Dropout(Module):
    """While training, set each entry to zero with probability `p` and scale the rest by 1 / (1 - p).

    The scale keeps the expected value, so in evaluation mode the input passes unchanged.

    Parameters
    ----------
    p : float
        Probability in [0, 1].
    inplace : bool
        Write the result into the input.

    Raises
    ------
    ValueError
        If `p` is outside [0, 1].

    References
    ----------
    Srivastava et al., "Dropout: A Simple Way to Prevent Neural Networks from Overfitting", 2014.
    """

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"p is a probability in [0, 1], got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, x):
        """A tensor like `x`."""
        return F.dropout(x, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


class Dropout1d(Dropout):
    """Dropout of whole channels: each row of (B, C, L) or (C, L) is kept or set to zero as one."""

    def forward(self, x):
        """A tensor like `x`."""
        return F.dropout1d(x, self.p, self.training, self.inplace)


class Dropout2d(Dropout):
    """Dropout of whole channels: each image plane of (B, C, H, W) or (C, H, W) is kept or set to zero as one."""

    def forward(self, x):
        """A tensor like `x`."""
        return F.dropout2d(x, self.p, self.training, self.inplace)
