"""Convolution layers."""
from ..ops import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["Conv1d", "Conv2d"]


def per_axis(value, axes):
    """One number for every spatial axis, or a sequence of one each, as a tuple."""
    return (value,) * axes if isinstance(value, int) else tuple(value)


class _Conv(Module):
    """What the convolutions over different numbers of spatial `axes` share; see Conv1d."""
    axes = 0

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True,
                 padding_mode="zeros", device=None, dtype=None):
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"groups ({groups}) must divide in_channels ({in_channels}) and out_channels "
                             f"({out_channels})")
        if padding_mode != "zeros":
            raise NotImplementedError(f"padding_mode {padding_mode!r} is not there, only 'zeros'; use pad() before")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride = per_axis(kernel_size, self.axes), per_axis(stride, self.axes)
        self.padding = padding if isinstance(padding, str) else per_axis(padding, self.axes)
        self.dilation, self.padding_mode = per_axis(dilation, self.axes), padding_mode
        if isinstance(padding, str) and padding not in ("valid", "same"):
            raise ValueError(f"padding is a size, 'valid' or 'same', got {padding!r}")
        if padding == "same" and self.stride != (1,) * self.axes:
            raise ValueError(f"padding='same' needs stride 1, got {stride}")
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        self.register_parameter("bias", Parameter(empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw new values."""
        init.linear_default_(self.weight, self.bias)

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zero, one = (0,) * self.axes, (1,) * self.axes
        for name, default in (("padding", zero), ("dilation", one), ("groups", 1)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text + ("" if self.bias is not None else ", bias=False")


class Conv1d(_Conv):
    """Slide learned kernels over a sequence.

    ``y[b, o, l] = bias[o] + sum_ck weight[o, c, k] x[b, c, l * stride + k]``: a cross-correlation, the kernel is not
    turned around.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int, or a sequence of one int a spatial axis
    padding : likewise, zeros on both sides; or "valid" (none), or "same" (as many as keep the size; stride 1)
    groups : int
        Into how many parts the channels are cut, each output part seeing one input part; divides both numbers.
    bias : bool
    padding_mode : "zeros"
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight : Parameter (out_channels, in_channels / groups, *kernel_size), uniform in [-b, b), b = 1 / sqrt(fan_in)
    bias : Parameter (out_channels,), drawn likewise; or None

    Raises
    ------
    ValueError
        If `groups` does not divide the channels, or `padding` is an unknown word or "same" with a stride.
    NotImplementedError
        If `padding_mode` is not "zeros".
    """
    axes = 1

    def forward(self, x):
        """(B, in_channels, L) or (in_channels, L) -> the same with out_channels and the new length."""
        return F.conv1d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """The same as Conv1d with two spatial axes, for images; such as the patches of a vision Transformer."""
    axes = 2

    def forward(self, x):
        """(B, in_channels, H, W) or (in_channels, H, W) -> the same with out_channels and the new sizes."""
        return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
