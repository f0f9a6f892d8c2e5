"""Mixture of experts: many feed-forward nets, of which each token uses a few."""
import math

from ..ops import argsort, cat, zeros
from . import functional as F
from .container import ModuleList
from .feedforward import SwiGLU
from .linear import Linear
from .module import Module

__all__ = ["MixtureOfExperts"]


class MixtureOfExperts(Module):
    r"""E experts, of which a router picks A for each token: E times the weights at A times the work of one.

    .. math:: y = \sum_{e \in \mathrm{top}_A(p)} w_e\, \mathrm{expert}_e(x), \qquad p = \mathrm{softmax}(W_r x)

    with w_e = p_e, divided by their sum over the chosen if `renormalize`.

    Parameters
    ----------
    dim : int
        The width C.
    num_experts : int
        E.
    active : int
        A, from 1 to E.
    hidden : int, optional
        Width of each expert, a `SwiGLU`.
    expert : function of no arguments that makes a Module (..., C) -> (..., C), optional
        For other experts.
    capacity_factor : float, optional
        Limits an expert to ceil(capacity_factor N A / E) of N tokens: 1 is just enough if the load is even. A token
        that its expert has no place for misses that expert's part of y; first choices are served first, then earlier
        tokens. Then a token's result depends on the others in its batch, future ones of its own sequence included,
        so leave it off when generating. Without it every choice is served.
    renormalize : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    balance_loss : Tensor () or None
        Of the last forward pass: add a hundredth of it, or so, to the loss, or a few experts will take all tokens.
    load : Tensor (E,) of int64 or None
        How many choices of the last forward pass each expert served.

    Raises
    ------
    ValueError
        If `active` lies outside [1, E] or `capacity_factor` is not positive.

    References
    ----------
    Shazeer et al. 2017, "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer". Fedus,
    Zoph and Shazeer 2022, "Switch Transformers". Jiang et al. 2024, "Mixtral of Experts".
    """

    def __init__(self, dim, num_experts, active=2, hidden=None, expert=None, capacity_factor=None, renormalize=True,
                 device=None, dtype=None):
        super().__init__()
        if not 1 <= active <= num_experts:
            raise ValueError(f"active must lie in [1, {num_experts}], the number of experts, got {active}")
        if capacity_factor is not None and not capacity_factor > 0:
            raise ValueError(f"capacity_factor must be positive, got {capacity_factor}")
        self.num_experts, self.active, self.renormalize = num_experts, active, renormalize
        self.capacity_factor = capacity_factor
        self.router = Linear(dim, num_experts, bias=False, device=device, dtype=dtype)
        make = expert or (lambda: SwiGLU(dim, hidden, device=device, dtype=dtype))
        self.experts = ModuleList([make() for _ in range(num_experts)])
        self.balance_loss = self.load = None

    def capacity(self, tokens):
        """How many of that many tokens one expert reads at most."""
        if self.capacity_factor is None:
            return tokens
        # rounded first, as 1.1 * 100 is 110.00000000000001, which would count as 111
        return math.ceil(round(self.capacity_factor * tokens * self.active / self.num_experts, 9))

    def forward(self, x):
        """(..., C) -> (..., C); `balance_loss` and `load` are those of this pass."""
        rows = x.reshape(-1, x.shape[-1])                                 # (..., C) -> (N, C)
        p = F.softmax(self.router(rows), -1)                              # (N, C) -> (N, E)
        weights, experts = F.route_top(p, self.active, self.renormalize)  # (N, E) -> (N, A), (N, A)
        self.balance_loss = F.balance_loss(p, experts)
        served = F.within_capacity(experts, self.num_experts, self.capacity(len(rows))).flatten()
        # All choices, sorted by expert, so that each expert reads its tokens as one piece.
        order = argsort(experts.flatten(), stable=True)                   # (N A,)
        order = order[served[order]]                                      # (n,), n of them served
        self.load = F.expert_counts(experts.flatten()[order], self.num_experts)
        token = order // self.active  # choice i is one of token i // A
        pieces = rows[token].split(self.load.tolist())                    # (n, C) -> E of (load_e, C)
        y = cat([expert(piece) for expert, piece in zip(self.experts, pieces)])  # -> (n, C)
        y = y * weights.flatten()[order].unsqueeze(-1)
        y = zeros(rows.shape, dtype=y.dtype).index_add(0, token, y)       # (n, C) -> (N, C)
        return y.reshape(x.shape)

    def extra_repr(self):
        capacity = "" if self.capacity_factor is None else f", capacity_factor={self.capacity_factor}"
        return f"num_experts={self.num_experts}, active={self.active}{capacity}"
