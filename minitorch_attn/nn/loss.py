"""Losses as layers; each calls the function of its name in `functional`, where formula and shapes stand.

`reduction` is "mean", "sum" or "none" everywhere.
"""
from . import functional as F
from .module import Module

__all__ = ["BCELoss", "BCEWithLogitsLoss", "CosineSimilarity", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "L1Loss",
           "MSELoss", "NLLLoss", "SmoothL1Loss"]


class _Loss(Module):
    """A loss with a `reduction`; `buffers` (tensors or None) follow `to` and are saved."""

    def __init__(self, size_average=None, reduce=None, reduction="mean", **buffers):
        super().__init__()
        if size_average is not None or reduce is not None:
            raise TypeError("size_average and reduce are gone: use reduction='mean', 'sum' or 'none'")
        self.reduction = reduction
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)


class CrossEntropyLoss(_Loss):
    """Cross-entropy of scores (logits) and classes, in nats: ``-log softmax(x)[target]``.

    Parameters
    ----------
    weight : Tensor (C,), optional
        A weight for each class.
    ignore_index : int
        Targets with this index count neither in the sum nor in the mean.
    reduction : str
    label_smoothing : float in [0, 1]
        How much of the target goes to all classes alike.
    """

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                 label_smoothing=0.0):
        super().__init__(size_average, reduce, reduction, weight=weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, x, target):
        return F.cross_entropy(x, target, weight=self.weight, ignore_index=self.ignore_index,
                               reduction=self.reduction, label_smoothing=self.label_smoothing)


class NLLLoss(_Loss):
    """Negative log likelihood of log-probabilities and classes: ``-x[target]``.

    Parameters
    ----------
    weight : Tensor (C,), optional
        A weight for each class.
    ignore_index : int
        Targets with this index count neither in the sum nor in the mean.
    reduction : str
    """

    def __init__(self, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction, weight=weight)
        self.ignore_index = ignore_index

    def forward(self, x, target):
        return F.nll_loss(x, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class MSELoss(_Loss):
    """Squared error: ``(x - target)^2``."""

    def forward(self, x, target):
        return F.mse_loss(x, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Absolute error: ``|x - target|``."""

    def forward(self, x, target):
        return F.l1_loss(x, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """With d = |x - target|: ``d^2 / (2 beta)`` below `beta`, ``d - beta / 2`` above."""

    def __init__(self, size_average=None, reduce=None, reduction="mean", beta=1.0):
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, x, target):
        return F.smooth_l1_loss(x, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """With d = |x - target|: ``d^2 / 2`` below `delta`, ``delta * (d - delta / 2)`` above."""

    def __init__(self, reduction="mean", delta=1.0):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, x, target):
        return F.huber_loss(x, target, reduction=self.reduction, delta=self.delta)


class BCELoss(_Loss):
    """Cross-entropy of probabilities and truth: ``-(t * log(x) + (1 - t) * log(1 - x)) * weight``.

    Parameters
    ----------
    weight : Tensor that broadcasts to the input, optional
    reduction : str
    """

    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean"):
        super().__init__(size_average, reduce, reduction, weight=weight)

    def forward(self, x, target):
        return F.binary_cross_entropy(x, target, weight=self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """BCELoss of ``sigmoid(x)``, computed without overflow.

    Parameters
    ----------
    weight : Tensor that broadcasts to the input, optional
    reduction : str
    pos_weight : Tensor that broadcasts to the input, optional
        A weight of the positive answers alone.
    """

    def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean", pos_weight=None):
        super().__init__(size_average, reduce, reduction, weight=weight, pos_weight=pos_weight)

    def forward(self, x, target):
        return F.binary_cross_entropy_with_logits(x, target, weight=self.weight, reduction=self.reduction,
                                                  pos_weight=self.pos_weight)


class KLDivLoss(_Loss):
    """Divergence of log-probabilities `x` from probabilities: ``target * (log(target) - x)``.

    Parameters
    ----------
    reduction : str
        Here also "batchmean", the sum divided by the size of the first dim; "mean" divides by all sizes.
    log_target : bool
        Whether the targets are log-probabilities too.
    """

    def __init__(self, size_average=None, reduce=None, reduction="mean", log_target=False):
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, x, target):
        return F.kl_div(x, target, reduction=self.reduction, log_target=self.log_target)


class CosineSimilarity(Module):
    """``<x1, x2> / (|x1| |x2|)`` along `dim`, each norm at least `eps`."""

    def __init__(self, dim=1, eps=1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1, x2):
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
