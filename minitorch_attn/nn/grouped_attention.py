"""Attention as recent decoders have it: fewer key heads, QK-Norm, rotary positions, a window, and a KV cache."""
from . import functional as F
from .linear import Linear
from .module import Module
from .norm import RMSNorm

__all__ = ["GroupedQueryAttention"]


class GroupedQueryAttention(Module):
    r"""Attention in H heads, where runs of H / K query heads share one head of keys and values.

    .. math:: Y = [A_1, \dots, A_H]\, W_o^\top, \qquad
        A_h = \mathrm{attention}(R\,\nu(X W_{q,h}^\top),\; R\,\nu(X W_{k,g}^\top),\; X W_{v,g}^\top), \quad
        g = \lfloor h K / H \rfloor

    where R turns by position (`rotary`) and nu divides by the root mean square (`qk_norm`), each if wanted. K = H is
    ordinary multi-head attention, K = 1 multi-query attention; the KV cache shrinks to K / H of its size.

    **Boolean masks say what may be SEEN (True may be seen)**, as in `functional.scaled_dot_product_attention` and
    unlike in `MultiheadAttention`.

    Parameters
    ----------
    dim : int
        The width C of the input and the result.
    num_heads : int
        H.
    num_kv_heads : int, optional
        K, which divides H; H unless given.
    head_dim : int, optional
        D; C / H unless given.
    bias : bool
        Whether the four projections have biases.
    dropout : float
        Probability with which a weight is zeroed while training.
    qk_norm : bool
        Normalise each head's queries and keys, with learned scales: the scores cannot grow beyond them, however large
        the weights become.
    rotary : RotaryEmbedding, optional
        Turns queries and keys in self-attention; layers may share one.
    window : int, optional
        In causal self-attention, how many places a query sees, its own included.
    tiled : bool
        Use `functional.tiled_attention`, for long inputs; without dropout.
    memory_dim : int, optional
        Width of `memory` in cross-attention; C unless given.
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If a size is not positive, K does not divide H, or without `head_dim` H does not divide C; or `tiled` comes
        with dropout.

    References
    ----------
    Ainslie et al. 2023, "GQA". Shazeer 2019, "Fast Transformer Decoding: One Write-Head is All You Need". QK-Norm:
    Henry et al. 2020, "Query-Key Normalization for Transformers"; Dehghani et al. 2023, "Scaling Vision Transformers
    to 22 Billion Parameters", section 2.
    """

    def __init__(self, dim, num_heads, num_kv_heads=None, head_dim=None, *, bias=False, dropout=0.0, qk_norm=False,
                 rotary=None, window=None, tiled=False, memory_dim=None, device=None, dtype=None):
        super().__init__()
        groups = num_heads if num_kv_heads is None else num_kv_heads
        if min(dim, num_heads, groups, 1 if head_dim is None else head_dim) < 1:
            raise ValueError(f"dim and the numbers of heads must be at least 1, got {dim}, {num_heads} and {groups}")
        if head_dim is None and dim % num_heads:
            raise ValueError(f"num_heads must divide dim, unless head_dim is given, got {num_heads} and {dim}")
        if num_heads % groups:
            raise ValueError(f"num_kv_heads must divide num_heads, got {groups} and {num_heads}")
        if tiled and dropout:
            raise ValueError("attention by tiles has no dropout of weights; leave one of the two away")
        self.num_heads, self.num_kv_heads = num_heads, groups
        self.head_dim = dim // num_heads if head_dim is None else head_dim
        self.dropout, self.window, self.tiled, self.rotary = dropout, window, tiled, rotary
        options, read = dict(bias=bias, device=device, dtype=dtype), dim if memory_dim is None else memory_dim
        self.q_proj = Linear(dim, num_heads * self.head_dim, **options)
        self.k_proj = Linear(read, groups * self.head_dim, **options)
        self.v_proj = Linear(read, groups * self.head_dim, **options)
        self.out_proj = Linear(num_heads * self.head_dim, dim, **options)
        self.q_norm = RMSNorm(self.head_dim, device=device, dtype=dtype) if qk_norm else None
        self.k_norm = RMSNorm(self.head_dim, device=device, dtype=dtype) if qk_norm else None

    def forward(self, x, memory=None, attn_mask=None, is_causal=False, cache=None, positions=None, need_weights=False):
        """Let each token read from x itself, or from `memory`.

        Parameters
        ----------
        x : Tensor (B, T, C)
        memory : Tensor (B, S, memory_dim), optional
            What to read from, in cross-attention.
        attn_mask : Tensor broadcastable to (B, H, T, S), optional
            Boolean: True may be SEEN. Floating point: added to the scores. S counts what the cache returns too.
        is_causal : bool
            A token sees those up to itself, the cached ones included, or the last `window` of them.
        cache : KVCache, optional
            In self-attention, of the tokens before x; those of x are added. In cross-attention, filled by the first
            call, and read by the later ones, which then need not compute anything of `memory`.
        positions : Tensor (T,) or (B, T), optional
            Of x, for `rotary`, if they do not just continue the cache.
        need_weights : bool
            Return the weights too.

        Returns
        -------
        y : Tensor (B, T, C)
        weights : Tensor (B, H, T, S), only with `need_weights`, as they are before dropout

        Raises
        ------
        RuntimeError
            If shapes do not fit, or the cache cannot take more.
        """
        q = self._heads(self.q_proj(x), self.num_heads, self.q_norm)       # (B, T, C) -> (B, H, T, D)
        past = 0 if cache is None else cache.length
        if self.rotary is not None and memory is None:
            q = self.rotary(q, past, positions)
        if memory is not None and past:
            k, v = cache.read()
        else:
            source = x if memory is None else memory
            k = self._heads(self.k_proj(source), self.num_kv_heads, self.k_norm)  # (B, S, C) -> (B, K, S, D)
            v = self._heads(self.v_proj(source), self.num_kv_heads)
            if self.rotary is not None and memory is None:
                k = self.rotary(k, past, positions)
            if cache is not None:
                k, v = cache.append(k, v)
        y = self._attend(q, k, v, attn_mask, is_causal)
        y = self.out_proj(y.transpose(1, 2).flatten(2))                    # (B, H, T, D) -> (B, T, C)
        return (y, self._weights(q, k, attn_mask, is_causal)) if need_weights else y

    def _heads(self, x, heads, norm=None):
        """(B, T, heads * D) -> (B, heads, T, D), normalised."""
        x = x.unflatten(-1, (heads, self.head_dim)).transpose(1, 2)
        return x if norm is None else norm(x)

    def _mask(self, T, S, attn_mask, is_causal):
        """`attn_mask` and the causal or windowed rule as one mask; None if nothing is hidden."""
        if not is_causal or (T == 1 and (self.window is None or S <= self.window)):  # one new token sees all there is
            return attn_mask
        rule = F.causal_mask(T, S) if self.window is None else F.sliding_window_mask(T, self.window, S)
        if attn_mask is None:
            return rule
        return attn_mask & rule if attn_mask.dtype.kind == "b" else F.additive_mask(rule, attn_mask)

    def _attend(self, q, k, v, attn_mask, is_causal):
        """(B, H, T, D), (B, K, S, D), (B, K, S, D) -> (B, H, T, D)."""
        T, S = q.shape[2], k.shape[2]
        gqa = self.num_kv_heads != self.num_heads
        if self.tiled:
            return F.tiled_attention(q, k, v, attn_mask, is_causal, window=self.window if is_causal else None,
                                     offset=S - T, enable_gqa=gqa)
        dropout = self.dropout if self.training else 0.0
        if is_causal and T == S and attn_mask is None and self.window is None:  # the kernel knows this mask itself
            return F.scaled_dot_product_attention(q, k, v, None, dropout, True, enable_gqa=gqa)
        return F.scaled_dot_product_attention(q, k, v, self._mask(T, S, attn_mask, is_causal), dropout, enable_gqa=gqa)

    def _weights(self, q, k, attn_mask, is_causal):
        """The weights of every head, (B, H, T, S)."""
        k = k.repeat_interleave(self.num_heads // self.num_kv_heads, 1)    # (B, K, S, D) -> (B, H, S, D)
        return F.attention_weights(q, k, self._mask(q.shape[2], k.shape[2], attn_mask, is_causal))

    def extra_repr(self):
        return f"num_heads={self.num_heads}, num_kv_heads={self.num_kv_heads}, head_dim={self.head_dim}"
