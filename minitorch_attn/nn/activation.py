"""Activation functions as layers, for use in Sequential; each calls the function of its name in `functional`."""
from . import functional as F
from .module import Module

__all__ = ["ELU", "GELU", "GLU", "Hardtanh", "LeakyReLU", "LogSigmoid", "LogSoftmax", "ReLU", "ReLU6", "SiLU",
           "Sigmoid", "Softmax", "Softmin", "Softplus", "Tanh"]


class _Inplace(Module):
    """A layer whose `inplace` writes the result into the input."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class ReLU(_Inplace):
    """``max(x, 0)``."""

    def forward(self, x):
        return F.relu(x, self.inplace)


class ReLU6(_Inplace):
    """``min(max(x, 0), 6)``."""

    def forward(self, x):
        return F.relu6(x, self.inplace)


class SiLU(_Inplace):
    """``x * sigmoid(x)``, also known as swish."""

    def forward(self, x):
        return F.silu(x, self.inplace)


class LeakyReLU(Module):
    """``x`` where positive, ``negative_slope * x`` elsewhere."""

    def __init__(self, negative_slope=0.01, inplace=False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, x):
        return F.leaky_relu(x, self.negative_slope, self.inplace)

    def extra_repr(self):
        return f"negative_slope={self.negative_slope}" + ", inplace=True" * self.inplace


class ELU(Module):
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere."""

    def __init__(self, alpha=1.0, inplace=False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, x):
        return F.elu(x, self.alpha, self.inplace)

    def extra_repr(self):
        return f"alpha={self.alpha}" + ", inplace=True" * self.inplace


class Hardtanh(Module):
    """`x`, limited to [min_val, max_val]."""

    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False):
        super().__init__()
        if min_val >= max_val:
            raise ValueError(f"min_val ({min_val}) must be below max_val ({max_val})")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, x):
        return F.hardtanh(x, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return f"min_val={self.min_val}, max_val={self.max_val}" + ", inplace=True" * self.inplace


class GELU(Module):
    """``x * Phi(x)``, Phi the standard normal distribution; with ``approximate="tanh"`` by a tanh near it."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x):
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``."""

    def forward(self, x):
        return F.sigmoid(x)


class LogSigmoid(Module):
    """``-log(1 + exp(-x))``."""

    def forward(self, x):
        return F.logsigmoid(x)


class Tanh(Module):
    """``(exp(x) - exp(-x)) / (exp(x) + exp(-x))``."""

    def forward(self, x):
        return F.tanh(x)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``, and `x` itself where ``beta * x > threshold``."""

    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, x):
        return F.softplus(x, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


class _AlongDim(Module):
    """A layer that works along one dim."""

    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def extra_repr(self):
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """``exp(x) / sum(exp(x))`` along `dim`: positive, summing to 1."""

    def forward(self, x):
        return F.softmax(x, self.dim)


class LogSoftmax(_AlongDim):
    """``x - log(sum(exp(x)))`` along `dim`."""

    def forward(self, x):
        return F.log_softmax(x, self.dim)


class Softmin(_AlongDim):
    """``exp(-x) / sum(exp(-x))`` along `dim`."""

    def forward(self, x):
        return F.softmin(x, self.dim)


class GLU(_AlongDim):
    """``a * sigmoid(b)``, a and b the halves of `x` along `dim`."""

    def __init__(self, dim=-1):
        super().__init__(dim)

    def forward(self, x):
        return F.glu(x, self.dim)
