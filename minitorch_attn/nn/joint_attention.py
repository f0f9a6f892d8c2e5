"""Joint attention of several streams, such as text and image, or observation and action, each with its own weights."""
from . import functional as F
from .container import ModuleList
from .feedforward import FeedForward
from .linear import Linear
from .module import Module
from .norm import LayerNorm, RMSNorm

__all__ = ["JointAttention", "JointBlock"]


class JointAttention(Module):
    r"""Streams of tokens that read from each other in one attention, after projections of their own.

    .. math:: [Y_1; \dots; Y_n] = \mathrm{attention}([X_1 W_q^1; \dots], [X_1 W_k^1; \dots], [X_1 W_v^1; \dots]),
        \qquad \mathrm{out}_i = Y_i W_o^i

    Streams that differ in kind should differ in weights: that is the two-stream attention of MMDiT, and the attention
    of a mixture of transformers. With `shared` all use the same ones, as if they had been one sequence.

    **Boolean masks say what may be SEEN (True may be seen).** Without a mask every stream reads every other;
    `functional.block_causal_mask` of the lengths lets each read only itself and those before, as an action model's
    actions read the observation but not the reverse.

    Parameters
    ----------
    dims : sequence of int
        The width C_i of each stream.
    num_heads : int
        H, common to all, as is the width of a head.
    head_dim : int, optional
        D; C_1 / H unless given.
    shared : bool
        One set of projections for all, which needs equal widths.
    qk_norm : bool
        Normalise each head's queries and keys by their root mean square, with scales for each stream.
    bias : bool
    dropout : float
        Probability with which a weight is zeroed while training.
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If a size is not positive, without `head_dim` H does not divide C_1, or `shared` comes with different widths.

    References
    ----------
    Esser et al. 2024, "Scaling Rectified Flow Transformers for High-Resolution Image Synthesis", section 4 (MMDiT).
    Liang et al. 2024, "Mixture-of-Transformers". Black et al. 2024, "pi0", appendix B.
    """

    def __init__(self, dims, num_heads, head_dim=None, *, shared=False, qk_norm=False, bias=True, dropout=0.0,
                 device=None, dtype=None):
        super().__init__()
        if not dims or min(*dims, num_heads, 1 if head_dim is None else head_dim) < 1:
            raise ValueError(f"there must be a stream, and widths and heads be at least 1, got {tuple(dims)} and "
                             f"{num_heads}")
        if head_dim is None and dims[0] % num_heads:
            raise ValueError(f"num_heads must divide the width of the first stream, got {num_heads} and {dims[0]}")
        if shared and len(set(dims)) > 1:
            raise ValueError(f"streams of different widths {tuple(dims)} cannot share projections")
        self.dims, self.num_heads, self.shared, self.dropout = tuple(dims), num_heads, shared, dropout
        self.head_dim = dims[0] // num_heads if head_dim is None else head_dim
        inner, options = num_heads * self.head_dim, dict(device=device, dtype=dtype)
        own = dims[:1] if shared else dims
        self.qkv = ModuleList([Linear(dim, 3 * inner, bias=bias, **options) for dim in own])
        self.out = ModuleList([Linear(inner, dim, bias=bias, **options) for dim in own])
        norms = [RMSNorm(self.head_dim, **options) for _ in range(2 * len(own) if qk_norm else 0)]
        self.q_norm, self.k_norm = ModuleList(norms[:len(own)]), ModuleList(norms[len(own):])

    def forward(self, streams, attn_mask=None, need_shares=False):
        """Let every token read from all streams.

        Parameters
        ----------
        streams : sequence of Tensors (B, T_i, C_i)
        attn_mask : Tensor broadcastable to (B, H, T, T), T the sum of T_i; optional
            Boolean: True may be SEEN. Floating point: added to the scores.
        need_shares : bool
            Return who reads how much from whom, too.

        Returns
        -------
        tuple of Tensors (B, T_i, C_i)
        shares : Tensor (B, H, n, n), only with `need_shares`
            In row i, the mean weight that stream i gives to each stream; see `functional.stream_shares`.

        Raises
        ------
        ValueError
            If there are not as many streams as widths.
        """
        if len(streams) != len(self.dims):
            raise ValueError(f"{len(self.dims)} streams are needed, got {len(streams)}")
        q, k, v = zip(*[self._project(i, x) for i, x in enumerate(streams)])
        ys = F.joint_attention(q, k, v, attn_mask, self.dropout if self.training else 0.0)
        ys = [y.transpose(1, 2).flatten(2) for y in ys]                   # (B, H, T_i, D) -> (B, T_i, H D)
        ys = tuple(self.out[self._own(i)](y) for i, y in enumerate(ys))   # -> (B, T_i, C_i)
        return (ys, F.stream_shares(q, k, attn_mask)) if need_shares else ys

    def _own(self, i):
        """Which set of projections stream i uses."""
        return 0 if self.shared else i

    def _project(self, i, x):
        """Queries, keys and values of stream i: (B, T_i, C_i) -> three of (B, H, T_i, D)."""
        i = self._own(i)
        qkv = self.qkv[i](x).unflatten(-1, (3, self.num_heads, self.head_dim))  # -> (B, T_i, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)                          # -> three of (B, H, T_i, D)
        return (self.q_norm[i](q), self.k_norm[i](k), v) if len(self.q_norm) else (q, k, v)


class JointBlock(Module):
    """A Pre-LN Transformer block for several streams: joint attention, then a feed-forward net for each stream.

    Parameters
    ----------
    dims : sequence of int
        The width C_i of each stream.
    num_heads : int
    options
        Those of `JointAttention`. Norms and feed-forward nets are each stream's own also with `shared`.
    """

    def __init__(self, dims, num_heads, **options):
        super().__init__()
        self.attention = JointAttention(dims, num_heads, **options)
        own = {name: options.get(name) for name in ("device", "dtype")}
        self.norm1 = ModuleList([LayerNorm(dim, **own) for dim in dims])
        self.norm2 = ModuleList([LayerNorm(dim, **own) for dim in dims])
        self.feed_forward = ModuleList([FeedForward(dim, **own) for dim in dims])

    def forward(self, streams, attn_mask=None):
        """Tensors (B, T_i, C_i) -> a tuple of the same shapes; `attn_mask` as in `JointAttention`."""
        ys = self.attention([norm(x) for norm, x in zip(self.norm1, streams)], attn_mask)
        streams = [x + y for x, y in zip(streams, ys)]
        return tuple(x + net(norm(x)) for net, norm, x in zip(self.feed_forward, self.norm2, streams))
