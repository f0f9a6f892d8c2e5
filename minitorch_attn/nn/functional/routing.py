"""Routing of a mixture of experts: which experts read which tokens, and what keeps them evenly loaded."""
from ... import dtypes
from ...autograd import Tensor
from ...backend import xp
from ...ops.reduce import mean
from ...ops.reduce import sum as total
from ...ops.sort import topk

__all__ = ["balance_loss", "expert_counts", "route_top", "within_capacity"]


def route_top(probabilities, active, renormalize=True):
    """The `active` most probable experts of each token, and the weight of each.

    Parameters
    ----------
    probabilities : Tensor (N, E)
        The router's softmax.
    active : int in [1, E]
        A, how many experts read each token.
    renormalize : bool
        Divide the weights by their sum, so that the chosen ones sum to 1; with A = 1 the router then gets a gradient
        from the balance loss only.

    Returns
    -------
    weights : Tensor (N, A), differentiable
    experts : Tensor (N, A) of int64, the most probable first

    Raises
    ------
    ValueError
        If `active` lies outside [1, E].

    References
    ----------
    Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", section
    2.1. Jiang et al. 2024, "Mixtral of Experts", section 2.1.
    """
    if not 1 <= active <= probabilities.shape[-1]:
        raise ValueError(f"active must lie in [1, {probabilities.shape[-1]}], the number of experts, got {active}")
    weights, experts = topk(probabilities, active, -1)  # (N, E) -> (N, A)
    return (weights / total(weights, -1, keepdim=True) if renormalize else weights), experts


def expert_counts(experts, number):
    """How many tokens chose each of `number` experts: Tensor (N, A) -> Tensor (number,), int64."""
    return Tensor.wrap(xp.bincount(experts.array.reshape(-1), minlength=number).astype(dtypes.int64))


def within_capacity(experts, number, capacity):
    """Which choices are served when an expert reads at most `capacity` tokens.

    All first choices come before all second ones, and among equals the earlier token comes first: with a capacity of
    2, the choices [[0, 1], [0, 1], [1, 0]] of three tokens are served but for the last 0 and the second token's 1,
    as expert 0 is full after two first choices, and expert 1 after the third token's first and the first one's second.

    Parameters
    ----------
    experts : Tensor (N, A) of int64
    number : int
        E, the number of experts.
    capacity : int

    Returns
    -------
    Tensor (N, A), bool

    References
    ----------
    Lepikhin et al. 2021, "GShard", algorithm 1.
    """
    chosen = experts.array.T.reshape(-1, 1) == xp.arange(number)  # (N, A) -> (A N, E)
    place = xp.sum(xp.cumsum(chosen, axis=0) * chosen, axis=1)  # 1 for an expert's first choice, 2 for the next, ...
    return Tensor.wrap((place <= capacity).reshape(experts.shape[::-1]).T)  # (A N,) -> (N, A)


def balance_loss(probabilities, experts):
    r"""What to add to the loss so that all experts get work: 1 for an even load, up to E when one gets everything.

    .. math:: E \sum_e f_e P_e

    with f the fraction of all choices that fell on expert e, and P the mean of its probability. f has no
    gradient; P has, so that the router turns away from experts with much to do. f sums to 1 whatever the number of
    choices per token.

    Parameters
    ----------
    probabilities : Tensor (..., E)
        The router's softmax.
    experts : Tensor (..., A) of int64
        Which experts read each token.

    Returns
    -------
    Tensor ()

    References
    ----------
    Fedus, Zoph and Shazeer 2022, "Switch Transformers", equations 4 to 6.
    """
    number = probabilities.shape[-1]
    fraction = expert_counts(experts, number).to(probabilities.dtype) / max(experts.array.size, 1)
    return total(mean(probabilities.reshape(-1, number), 0) * fraction) * number
