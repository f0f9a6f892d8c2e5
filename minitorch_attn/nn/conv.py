"""Convolution and pooling: what slides a window over a sequence or an image."""
from ..ops import empty
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["AvgPool1d", "AvgPool2d", "Conv1d", "Conv2d", "MaxPool1d", "MaxPool2d"]


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
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ValueError(f"padding_mode is 'zeros', 'reflect', 'replicate' or 'circular', got {padding_mode!r}")
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

    def _pad(self, x):
        """The input and the padding that is left to do: zeros are added by the convolution, anything else here."""
        if self.padding_mode == "zeros" or self.padding == "valid":
            return x, self.padding
        pads = []  # before and after, from the last axis to the first
        for axis in reversed(range(self.axes)):
            total = self.dilation[axis] * (self.kernel_size[axis] - 1)
            pads += [total // 2, total - total // 2] if self.padding == "same" else [self.padding[axis]] * 2
        return F.pad(x, pads, mode=self.padding_mode), 0

    def extra_repr(self):
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        zero, one = (0,) * self.axes, (1,) * self.axes
        for name, default in (("padding", zero), ("dilation", one), ("groups", 1)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class Conv1d(_Conv):
    """Slide learned kernels over a sequence.

    ``y[b, o, l] = bias[o] + sum_ck weight[o, c, k] x[b, c, l * stride + k]``: a cross-correlation, the kernel is not
    turned around.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int, or a sequence of one int a spatial axis
    padding : likewise, on both sides; or "valid" (none), or "same" (as much as keeps the size; stride 1)
    groups : int
        Into how many parts the channels are cut, each output part seeing one input part; divides both numbers.
    bias : bool
    padding_mode : "zeros", or as in `pad`: "reflect", "replicate" or "circular"
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight : Parameter (out_channels, in_channels / groups, *kernel_size), uniform in [-b, b), b = 1 / sqrt(fan_in)
    bias : Parameter (out_channels,), drawn likewise; or None

    Raises
    ------
    ValueError
        If `groups` does not divide the channels, `padding` or `padding_mode` is an unknown word, or `padding` is
        "same" with a stride.
    """
    axes = 1

    def forward(self, x):
        """(B, in_channels, L) or (in_channels, L) -> the same with out_channels and the new length."""
        x, padding = self._pad(x)
        return F.conv1d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class Conv2d(_Conv):
    """The same as Conv1d with two spatial axes, for images; such as the patches of a vision Transformer."""
    axes = 2

    def forward(self, x):
        """(B, in_channels, H, W) or (in_channels, H, W) -> the same with out_channels and the new sizes."""
        x, padding = self._pad(x)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)


class MaxPool1d(Module):
    """The largest element of each window of a sequence.

    Parameters
    ----------
    kernel_size, stride, padding, dilation : int
        The stride is the kernel size unless given; what is padded never wins.
    return_indices : bool
        Also return where each came from.
    ceil_mode : bool
        Keep a last window that reaches over the edge, as long as it starts inside.
    """

    def __init__(self, kernel_size, stride=None, padding=0, dilation=1, return_indices=False, ceil_mode=False):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, x):
        """(B, C, L) or (C, L) -> the same with the new length; with `return_indices` two of them."""
        return F.max_pool1d(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)

    def extra_repr(self):
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool2d(MaxPool1d):
    """The same as MaxPool1d for images; each size is an int, or one for height and one for width."""

    def forward(self, x):
        """(B, C, H, W) or (C, H, W) -> the same with the new sizes; with `return_indices` two of them."""
        return F.max_pool2d(x, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
                            self.return_indices)


class AvgPool1d(Module):
    """The mean of each window of a sequence.

    Parameters
    ----------
    kernel_size, stride, padding : int
        The stride is the kernel size unless given; what is padded counts as 0.
    ceil_mode : bool
        Keep a last window that reaches over the edge, as long as it starts inside.
    count_include_pad : bool
        Whether the padding asked for counts in the mean.
    """

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True):
        super().__init__()
        self.kernel_size, self.padding = per_axis(kernel_size, 1), per_axis(padding, 1)
        self.stride = self.kernel_size if stride is None else per_axis(stride, 1)
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x):
        """(B, C, L) or (C, L) -> the same with the new length."""
        return F.avg_pool1d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool2d(Module):
    """The mean of each window of an image.

    Parameters
    ----------
    kernel_size, stride, padding, ceil_mode, count_include_pad
        As in AvgPool1d; each size is an int, or one for height and one for width.
    divisor_override : int, optional
        Divide the sums by this instead of the number of elements.
    """

    def __init__(self, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True,
                 divisor_override=None):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x):
        """(B, C, H, W) or (C, H, W) -> the same with the new sizes."""
        return F.avg_pool2d(x, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
                            self.divisor_override)

    def extra_repr(self):
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"
