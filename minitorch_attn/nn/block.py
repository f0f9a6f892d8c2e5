"""The Transformer block with every choice that models differ in, for encoders, decoders and their KV caches."""
from .dropout import Dropout
from .feedforward import FeedForward
from .grouped_attention import GroupedQueryAttention
from .module import Module
from .norm import LayerNorm, RMSNorm

__all__ = ["TransformerBlock"]

NORMS = {"layer": LayerNorm, "rms": RMSNorm}


class TransformerBlock(Module):
    r"""Attention, perhaps attention to a memory, then a feed-forward net, each added to its input.

    Pre-LN (`norm_first`) normalises what enters each part and leaves the sum alone, so that a straight path leads
    through all blocks; it needs one more norm after the last block. Post-LN normalises the sum:

    .. math:: x \leftarrow x + \mathrm{part}(\mathrm{norm}(x)) \qquad\text{or}\qquad
        x \leftarrow \mathrm{norm}(x + \mathrm{part}(x))

    The four projections of attention have 4 C^2 weights, the feed-forward net 8 C^2.

    **Boolean masks say what may be SEEN (True may be seen)**, unlike in `TransformerEncoderLayer`.

    Parameters
    ----------
    dim : int
        The width C.
    num_heads : int
    feed_forward : Module (..., C) -> (..., C), optional
        `FeedForward` (GELU, 4C) unless given; or a `SwiGLU`, or a `MixtureOfExperts`.
    norm : "layer" or "rms"
    norm_first : bool
    cross : bool
        Whether there is attention to a memory, as in a decoder that translates.
    dropout : float
        Probability, while training, on the attention weights and on what each part adds, and in the `feed_forward`
        made here after its activation: the places that PyTorch's layers have.
    bias : bool
        Whether linear layers made here have biases.
    attention
        Further options of `GroupedQueryAttention` for self-attention, such as `num_kv_heads`, `qk_norm`, `rotary`
        and `window`.

    Raises
    ------
    ValueError
        If `norm` is another word, or the heads do not fit the width.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need", section 3.1. Xiong et al. 2020, "On Layer Normalization in the
    Transformer Architecture", figure 1.
    """

    def __init__(self, dim, num_heads, feed_forward=None, *, norm="layer", norm_first=True, cross=False, dropout=0.0,
                 bias=True, **attention):
        super().__init__()
        if norm not in NORMS:
            raise ValueError(f'norm must be "layer" or "rms", got {norm!r}')
        make_norm, self.norm_first = NORMS[norm], norm_first
        self.attention = GroupedQueryAttention(dim, num_heads, bias=bias, dropout=dropout, **attention)
        self.norm1, self.drop1 = make_norm(dim), Dropout(dropout)
        self.cross = GroupedQueryAttention(dim, num_heads, bias=bias, dropout=dropout) if cross else None
        self.norm2, self.drop2 = (make_norm(dim), Dropout(dropout)) if cross else (None, None)
        self.feed_forward = FeedForward(dim, dropout=dropout, bias=bias) if feed_forward is None else feed_forward
        self.norm3, self.drop3 = make_norm(dim), Dropout(dropout)

    def forward(self, x, memory=None, *, attn_mask=None, memory_mask=None, is_causal=False, cache=None,
                memory_cache=None, positions=None):
        """One block.

        Parameters
        ----------
        x : Tensor (B, T, C)
        memory : Tensor (B, S, C), optional
            What an encoder returned; with `cross` only.
        attn_mask : Tensor broadcastable to (B, H, T, T), or with a cache to (B, H, T, its length); optional
            Boolean: True may be SEEN.
        memory_mask : Tensor broadcastable to (B, H, T, S), optional
            Likewise, for the memory: usually the padding of the source, (B, 1, 1, S).
        is_causal : bool
            Each token sees those up to itself.
        cache, memory_cache : KVCache, optional
            This block's own, for the tokens before x and for the memory.
        positions : Tensor (T,) or (B, T), optional
            For rotary positions, if they do not just continue the cache.

        Returns
        -------
        Tensor (B, T, C)

        Raises
        ------
        ValueError
            If `memory` comes without `cross`, or the reverse.
        """
        if (memory is None) != (self.cross is None):
            raise ValueError("a block reads a memory if it was made with cross=True, and only then; got memory "
                             f"{None if memory is None else memory.shape}")
        x = self._add(x, self.norm1, lambda h: self.drop1(
            self.attention(h, None, attn_mask, is_causal, cache, positions)))
        if memory is not None:
            x = self._add(x, self.norm2, lambda h: self.drop2(
                self.cross(h, memory, memory_mask, cache=memory_cache)))
        return self._add(x, self.norm3, lambda h: self.drop3(self.feed_forward(h)))

    def _add(self, x, norm, part):
        """x plus that part of it, normalised before or after."""
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))
