"""Layers of one matrix product, and those that only change a shape."""
import math

from .. import ops
from ..ops import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter, UninitializedParameter

__all__ = ["Bilinear", "Flatten", "Identity", "LazyLinear", "Linear", "Unflatten"]


class Identity(Module):
    """Returns its input: a placeholder where a layer may be left out. Arguments of the constructor are ignored."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, x):
        """`x` itself."""
        return x


class Linear(Module):
    """A learned linear map with bias: ``y = x @ weight.T + bias``.

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
        Whether a learned bias is added.
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight : Parameter (out_features, in_features), uniform in [-b, b) with b = 1 / sqrt(in_features)
    bias : Parameter (out_features,), drawn likewise; or None
    """

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new values."""
        init.linear_default_(self.weight, self.bias)

    def forward(self, x):
        """(..., in_features) -> (..., out_features)."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class LazyLinear(Linear):
    """A Linear whose `in_features` is the width of the first input; from then on it is a Linear.

    Parameters
    ----------
    out_features : int
    bias : bool
    device, dtype : as in Linear
    """

    def __init__(self, out_features, bias=True, device=None, dtype=None):
        Module.__init__(self)
        self.in_features, self.out_features = 0, out_features
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.register_parameter("bias", UninitializedParameter(device=device, dtype=dtype) if bias else None)

    def forward(self, x):
        """(..., n) -> (..., out_features), with n as the first input has it."""
        if isinstance(self.weight, UninitializedParameter):  # not so when values have been loaded
            self.weight.materialize((self.out_features, x.shape[-1]))
            if self.bias is not None:
                self.bias.materialize((self.out_features,))
            self.reset_parameters()
        self.in_features = self.weight.shape[1]
        self.__class__ = Linear  # from now on an ordinary Linear
        return self(x)


class Bilinear(Module):
    """A learned bilinear map: ``y[o] = sum_ij x1[i] weight[o, i, j] x2[j] + bias[o]``.

    Parameters
    ----------
    in1_features, in2_features, out_features : int
    bias : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight : Parameter (out_features, in1_features, in2_features), uniform in [-b, b), b = 1 / sqrt(in1_features)
    bias : Parameter (out_features,), drawn likewise; or None
    """

    def __init__(self, in1_features, in2_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(empty(out_features, in1_features, in2_features, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new values."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, x1, x2):
        """(..., in1_features), (..., in2_features) -> (..., out_features)."""
        y = ops.einsum("...i,oij,...j->...o", x1, self.weight, x2)
        return y if self.bias is None else y + self.bias

    def extra_repr(self):
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


class Flatten(Module):
    """Merge the dims from `start_dim` to `end_dim`: (B, 2, 3) -> (B, 6)."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x):
        """`x` with those dims as one."""
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split `dim` into `unflattened_size`: (B, 6) with (2, 3) -> (B, 2, 3)."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, x):
        """`x` with that dim as several."""
        return x.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
