"""Normalisation layers: scale to mean 0 and variance 1, then by a learned weight, and shift by a learned bias."""
from ..dtypes import int64
from ..ops import empty, ones, zeros
from . import functional as F
from . import init
from .functional.normalization import sizes
from .module import Module
from .parameter import Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "GroupNorm", "LayerNorm", "RMSNorm"]


class _Affine(Module):
    """What most layers share: a `weight` of ones and a `bias` of zeros, each there or None."""

    def __init__(self, shape, weight, bias, device, dtype):
        super().__init__()
        for name, wanted in (("weight", weight), ("bias", weight and bias)):
            self.register_parameter(name, Parameter(empty(shape, device=device, dtype=dtype)) if wanted else None)

    def reset_parameters(self):
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)


class LayerNorm(_Affine):
    """Normalise over the last dims: ``y = (x - mean) / sqrt(var + eps) * weight + bias``.

    Mean and (biased) variance are taken over the dims of `normalized_shape`, for every position by itself, so no
    position learns of another.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The sizes of the last dims.
    eps : float
        Added to the variance.
    elementwise_affine : bool
        Whether there are `weight` and `bias`.
    bias : bool
        With False only `weight`.
    device, dtype : "cpu" and the parameters' dtype; optional

    References
    ----------
    Ba, Kiros and Hinton, "Layer Normalization", 2016.
    """

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__(sizes(normalized_shape), elementwise_affine, bias, device, dtype)
        self.normalized_shape = sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.reset_parameters()

    def forward(self, x):
        """A tensor like `x`, whose shape ends in `normalized_shape`."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class RMSNorm(Module):
    """Divide by the root mean square over the last dims: ``y = x / sqrt(mean(x^2) + eps) * weight``.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        The sizes of the last dims.
    eps : float, optional
        Added to the mean square; by default the machine epsilon of the input's dtype.
    elementwise_affine : bool
        Whether there is `weight`, of that shape, ones at first.
    device, dtype : "cpu" and the parameter's dtype; optional

    References
    ----------
    Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = sizes(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        weight = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self):
        """Weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x):
        """A tensor like `x`, whose shape ends in `normalized_shape`."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Normalise each sample over groups of neighbouring channels: the formula of LayerNorm, over (C / groups, ...).

    Parameters
    ----------
    num_groups : int
    num_channels : int
        A multiple of `num_groups`.
    eps : float
        Added to the variance.
    affine : bool
        Whether there are `weight` and `bias`, one number a channel.
    bias : bool
        With False only `weight`.
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If `num_groups` does not divide `num_channels`.

    References
    ----------
    Wu and He, "Group Normalization", 2018.
    """

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None, *, bias=True):
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be a multiple of num_groups ({num_groups})")
        super().__init__(num_channels, affine, bias, device, dtype)
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.reset_parameters()

    def forward(self, x):
        """(B, num_channels, ...) -> the same shape."""
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class _BatchNorm(_Affine):
    """What the layers for inputs of different `dims` share; see BatchNorm1d."""
    dims = ()  # how many dims an input may have

    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None,
                 dtype=None, *, bias=True):
        super().__init__(num_features, affine, bias, device, dtype)
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, None)
        if track_running_stats:
            self.running_mean = zeros(num_features, device=device, dtype=dtype)
            self.running_var = ones(num_features, device=device, dtype=dtype)
            self.num_batches_tracked = zeros((), dtype=int64)
        self.reset_parameters()

    def reset_parameters(self):
        """Weight 1, bias 0, no batch seen."""
        super().reset_parameters()
        self.reset_running_stats()

    def reset_running_stats(self):
        """Forget all batches: mean 0, variance 1."""
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def forward(self, x):
        """(B, C, ...) -> the same shape."""
        if x.ndim not in self.dims:
            raise ValueError(f"{type(self).__name__} needs an input with {' or '.join(map(str, self.dims))} dims, "
                             f"(batch, channels, ...), got shape {x.shape}")
        momentum = self.momentum
        if self.training and self.track_running_stats:
            self.num_batches_tracked += 1
            if momentum is None:
                momentum = 1 / int(self.num_batches_tracked)
        of_batch = self.training or self.running_mean is None
        # momentum is None only where no running averages are written
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, of_batch, momentum or 0.0,
                            self.eps)

    def extra_repr(self):
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over the batch: the formula of LayerNorm, over (B,) of (B, C), or (B, L) of (B, C, L).

    While training, mean and variance are those of the batch, and running averages of them are kept,
    ``running = (1 - momentum) * running + momentum * batch`` (with the unbiased variance); in evaluation mode the
    running averages take their place.

    Parameters
    ----------
    num_features : int
        The number of channels, C.
    eps : float
        Added to the variance.
    momentum : float, optional
        The weight of a new batch; None for the plain average of all batches so far.
    affine : bool
        Whether there are `weight` and `bias`, one number a channel.
    track_running_stats : bool
        With False there are no running averages, and evaluation mode is like training.
    bias : bool
        With False only `weight`.
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If the input has another number of dims.

    References
    ----------
    Ioffe and Szegedy, "Batch Normalization", 2015.
    """
    dims = (2, 3)


class BatchNorm2d(_BatchNorm):
    """The same as BatchNorm1d for images (B, C, H, W): normalise each channel over (B, H, W)."""
    dims = (4,)
