"""Stochastic gradient descent, with momentum."""
from .optimizer import Optimizer, check_options

__all__ = ["SGD"]


class SGD(Optimizer):
    """Steps against the gradient g, or along a running sum of gradients b (momentum).

    With learning rate eta, momentum mu, dampening d and weight decay w, step t is::

        g <- g + w p
        b <- g                     for t = 1,   b <- mu b + (1 - d) g   afterwards
        g <- b                     or, with Nesterov's variant,   g <- g + mu b
        p <- p - eta g

    Parameters
    ----------
    params : iterable of Tensors, (name, Tensor) pairs, or dicts; see `Optimizer`
    lr : float
        Learning rate eta.
    momentum : float
        mu; 0 keeps no running sum.
    dampening : float
        d.
    weight_decay : float
        w, the factor of the penalty w/2 ||p||^2.
    nesterov : bool
        Look ahead along the running sum.
    maximize : bool
        Go up the gradient instead of down.
    foreach, fused : ignored
        PyTorch's choice of an implementation; there is one here.

    Raises
    ------
    ValueError
        If `lr`, `momentum` or `weight_decay` is negative, or `nesterov` is set without momentum or with dampening.
    NotImplementedError
        If `differentiable` is True.

    References
    ----------
    Sutskever, Martens, Dahl and Hinton, On the importance of initialization and momentum in deep learning, ICML
    2013, in the form of PyTorch, where eta is outside the running sum.
    """

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        check_options(differentiable, lr=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("nesterov=True needs momentum > 0 and dampening = 0")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize))

    def moments(self, group):
        return ("momentum_buffer",) if group["momentum"] else ()

    def rule(self, group, t, p, g, b=None):
        momentum = group["momentum"]
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p
        if b is not None:
            if t == 1:
                b[...] = g
            else:
                b *= momentum
                b += (1 - group["dampening"]) * g
            g = g + momentum * b if group["nesterov"] else b
        p -= group["lr"] * g
