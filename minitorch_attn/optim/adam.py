"""Adam and AdamW: steps scaled, entry by entry, by the gradient's running mean and mean square."""
import math

from ..backend import xp
from .optimizer import Optimizer, check_options

__all__ = ["Adam", "AdamW"]


class Adam(Optimizer):
    """Steps along the running mean m of the gradient g, divided by the root of its running mean square v.

    With learning rate eta and weight decay w, step t = 1, 2, ... is::

        g <- g + w p                                    (AdamW:  p <- p - eta w p  instead)
        m <- beta1 m + (1 - beta1) g
        v <- beta2 v + (1 - beta2) g^2
        m_hat, v_hat = m / (1 - beta1^t), v / (1 - beta2^t)
        p <- p - eta m_hat / (sqrt(v_hat) + eps)

    m and v start at zero and are too small at first; m_hat and v_hat undo that. With `amsgrad` the largest v so far
    takes the place of v in v_hat.

    Parameters
    ----------
    params : iterable of Tensors, (name, Tensor) pairs, or dicts; see `Optimizer`
    lr : float
        Learning rate eta, about the size of a step in each entry.
    betas : (float, float)
        beta1 and beta2, in [0, 1).
    eps : float
        Keeps the step bounded where v is near zero.
    weight_decay : float
        w.
    amsgrad : bool
        Never let a step grow because v has shrunk.
    maximize : bool
        Go up the gradient instead of down.
    decoupled_weight_decay : bool
        Shrink p itself, as AdamW does, instead of adding to the gradient.
    foreach, capturable, fused : ignored
        PyTorch's choice of an implementation; there is one here.

    Raises
    ------
    ValueError
        If `lr`, `eps` or `weight_decay` is negative, or a beta lies outside [0, 1).
    NotImplementedError
        If `differentiable` is True.

    References
    ----------
    Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, algorithm 1. Reddi, Kale and Kumar, On the
    Convergence of Adam and Beyond, ICLR 2018, algorithm 2 (amsgrad).
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        check_options(differentiable, lr=lr, eps=eps, weight_decay=weight_decay)
        for i in (0, 1):
            if not 0.0 <= betas[i] < 1.0:
                raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}; it must lie in [0, 1)")
        super().__init__(params, dict(lr=lr, betas=tuple(betas), eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, decoupled_weight_decay=decoupled_weight_decay))

    def moments(self, group):
        return ("exp_avg", "exp_avg_sq") + ("max_exp_avg_sq",) * group["amsgrad"]

    def rule(self, group, t, p, g, m, v, v_max=None):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        if group["maximize"]:
            g = -g
        if group["decoupled_weight_decay"]:
            p *= 1 - lr * group["weight_decay"]
        elif group["weight_decay"]:
            g = g + group["weight_decay"] * p

        m *= beta1
        m += (1 - beta1) * g
        v *= beta2
        gained = g * g
        gained *= 1 - beta2
        v += gained
        if v_max is not None:
            xp.maximum(v_max, v, out=v_max)
            v = v_max

        # m_hat / (sqrt(v_hat) + eps) = c2/c1 m / (sqrt(v) + c2 eps), with c1 = 1 - beta1^t and c2 = sqrt(1 - beta2^t)
        c1, c2 = 1 - beta1**t, math.sqrt(1 - beta2**t)
        change = xp.sqrt(v, out=gained)  # `gained` is used up, and its memory is used again
        change += c2 * group["eps"]
        xp.divide(m, change, out=change)
        change *= lr * c2 / c1
        p -= change


class AdamW(Adam):
    """Adam with decoupled weight decay: before each step p <- p - eta w p, whatever the size of the gradient.

    Parameters as `Adam`'s; `weight_decay` is 0.01 by default.

    References
    ----------
    Loshchilov and Hutter, Decoupled Weight Decay Regularization, ICLR 2019, algorithm 2, where eta w is one factor.
    """

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *,
                 maximize=False, foreach=None, capturable=False, differentiable=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, foreach=foreach,
                         capturable=capturable, differentiable=differentiable, fused=fused,
                         decoupled_weight_decay=True)
