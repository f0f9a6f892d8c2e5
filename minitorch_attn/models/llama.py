"""Llama in one file: the decoder-only Transformer as most recent language models have it.

Four parts differ from a GPT. Norms only scale (RMSNorm); the feed-forward net is gated (SwiGLU); positions turn
queries and keys (RoPE) and are not added to the tokens; and several query heads share one head of keys and values
(grouped queries), so that the cache is smaller. There are no biases.

Read from the top: the cache, one layer's attention, its feed-forward net, the block around both, and the model.

Letters beside those of a GPT: K heads of keys and values, and in a comment of shapes F for the width inside the
feed-forward net (elsewhere in the code F is `nn.functional`).

References
----------
Touvron et al. (2023), "LLaMA: Open and Efficient Foundation Language Models" (section 2.2).
Zhang, Sennrich (2019), "Root Mean Square Layer Normalization".
Shazeer (2020), "GLU Variants Improve Transformer" (equation 6).
Su et al. (2021), "RoFormer: Enhanced Transformer with Rotary Position Embedding".
Ainslie et al. (2023), "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints".
Henry et al. (2020), "Query-Key Normalization for Transformers".
"""
import math
from dataclasses import dataclass, replace

from .. import dtypes, nn
from ..nn import functional as F
from ..ops import arange, cat
from .checks import check_ids, check_sizes, check_targets

__all__ = ["Llama", "LlamaCache", "LlamaConfig"]


@dataclass
class LlamaConfig:
    """The sizes of a Llama.

    Parameters
    ----------
    vocab_size : int
        V, the number of different tokens.
    block_size : int
        The longest sequence that the model can read, in tokens.
    n_layer, n_head, n_embd : int
        How many blocks; H heads of queries in each; the width C, a multiple of H, so that each has D = C / H, even.
    n_kv_head : int, optional
        K heads of keys and values, a divisor of H; H unless given.
    n_hidden : int, optional
        F, the width inside the feed-forward net; 8C/3 rounded up unless given. Its three matrices then have 8 C^2
        weights, as many as the two of a GPT with F = 4C.
    rope_base : float
        Of the D / 2 pairs of entries, the fastest turns once in 2 pi tokens, the slowest once in
        2 pi rope_base^((D - 2) / D).
    qk_norm : bool
        Whether queries and keys are normalised, which bounds the scores.
    tied : bool
        Whether the output projection uses the token embedding's weight instead of one of its own.
    pad_id : int, optional
        In a batch of texts of different lengths, what stands before the shorter ones. It is never looked at.
    """
    vocab_size: int
    block_size: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    n_kv_head: int | None = None
    n_hidden: int | None = None
    rope_base: float = 10000.0
    qk_norm: bool = False
    tied: bool = False
    pad_id: int | None = None


class LlamaCache:
    """The keys and values of the tokens that a Llama has read so far, and which of the tokens are no padding."""

    def __init__(self, config):
        self.layers = [nn.KVCache(config.block_size) for _ in range(config.n_layer)]
        self.seen = None  # (B, S)

    def __len__(self):
        """How many tokens have been read: S."""
        return len(self.layers[0])


class Attention(nn.Module):
    """Each token gathers from itself and those before it; each run of H / K query heads shares keys and values."""

    def __init__(self, config):
        super().__init__()
        C, D = config.n_embd, config.n_embd // config.n_head
        self.groups = config.n_head // config.n_kv_head
        self.q = nn.Linear(C, config.n_head * D, bias=False)
        self.k = nn.Linear(C, config.n_kv_head * D, bias=False)
        self.v = nn.Linear(C, config.n_kv_head * D, bias=False)
        self.proj = nn.Linear(C, C, bias=False)
        self.q_norm = nn.RMSNorm(D, eps=1e-6) if config.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(D, eps=1e-6) if config.qk_norm else nn.Identity()
        self.width = D

    def forward(self, x, turn, mask, cache=None, need_weights=False):
        """x (B, T, C) -> (the same shape, the weights (B, H, T, S) if asked for, else None).

        `turn` is the pair of cosines and sines (T, D / 2) of the tokens' positions, `mask` says what they may see.
        """
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        cos, sin = turn
        q = F.apply_rotary(self.q_norm(q), cos, sin)                          # (B, H, T, D)
        k = F.apply_rotary(self.k_norm(k), cos, sin)                          # (B, K, T, D)
        if cache is not None:
            k, v = cache.append(k, v)                                         # (B, K, T, D) -> (B, K, S, D)
        y = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=self.groups > 1)
        weights = F.attention_weights(q, k.repeat_interleave(self.groups, 1), mask) if need_weights else None
        return self.proj(y.transpose(1, 2).flatten(2)), weights               # (B, H, T, D) -> (B, T, C)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.width)).transpose(1, 2)              # (B, T, K D) -> (B, K, T, D)


class SwiGLU(nn.Module):
    """The feed-forward net, for each token alone: silu(W1 x) decides how much of W2 x passes on to W3."""

    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.n_embd, config.n_hidden, bias=False)
        self.up = nn.Linear(config.n_embd, config.n_hidden, bias=False)
        self.proj = nn.Linear(config.n_hidden, config.n_embd, bias=False)

    def forward(self, x):
        return self.proj(F.swiglu(self.gate(x), self.up(x)))                  # (B, T, C) -> (B, T, F) -> (B, T, C)


class Block(nn.Module):
    """Attention, then the feed-forward net, each on a normalised copy and added to the residual stream."""

    def __init__(self, config):
        super().__init__()
        self.norm_1, self.attn = nn.RMSNorm(config.n_embd, eps=1e-6), Attention(config)
        self.norm_2, self.mlp = nn.RMSNorm(config.n_embd, eps=1e-6), SwiGLU(config)

    def forward(self, x, turn, mask, cache=None, need_weights=False):
        y, weights = self.attn(self.norm_1(x), turn, mask, cache, need_weights)
        x = x + y
        return x + self.mlp(self.norm_2(x)), weights


class Llama(nn.Module):
    """A Llama: token embedding, `n_layer` blocks, a last norm, and logits over the vocabulary.

    Parameters
    ----------
    config : LlamaConfig
        It stays as it is; the model's own copy, `config`, has `n_kv_head` and `n_hidden` filled in.

    Raises
    ------
    ValueError
        If the width is not an even multiple of the number of heads, or K does not divide H, or a size is not positive.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        C, H = config.n_embd, config.n_head
        K = H if config.n_kv_head is None else config.n_kv_head
        if K < 1 or C // H % 2 or H % K:
            raise ValueError(f"n_embd={C} must be an even multiple of n_head={H}, as RoPE turns pairs, and n_head one "
                             f"of n_kv_head={K}")
        hidden = math.ceil(8 * C / 3) if config.n_hidden is None else config.n_hidden
        self.config = config = replace(config, n_kv_head=K, n_hidden=hidden)
        self.tok_emb = nn.Embedding(config.vocab_size, C)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.norm = nn.RMSNorm(C, eps=1e-6)
        self.head = nn.Linear(C, config.vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if weight.ndim > 1:
                # 2 * n_layer parts add to the residual stream; this keeps its variance from growing with the depth
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * config.n_layer if ".proj." in name else 1))
        if config.tied:
            self.head.weight = self.tok_emb.weight

    def new_cache(self):
        """A cache of nothing, for `forward` to fill."""
        return LlamaCache(self.config)

    def forward(self, ids, targets=None, cache=None, need_weights=False):
        """Logits for the token after each one of `ids`, and their loss.

        Parameters
        ----------
        ids : Tensor (B, T), integers in [0, V)
        targets : Tensor (B, T), integers, optional
            The token that does come next; -100 where no answer counts.
        cache : LlamaCache, optional
            Of the tokens before `ids`; their keys and values are used, and those of `ids` added. Only under no_grad.
        need_weights : bool
            Whether to return what every head attends to.

        Returns
        -------
        logits : Tensor (B, T, V)
        loss : Tensor () or None
            Mean cross-entropy in nats a token; None without targets.
        weights : list of Tensor (B, H, T, S), only with `need_weights`
            One for each layer, S counting the cached tokens too.

        Raises
        ------
        IndexError
            If an id lies outside the vocabulary.
        ValueError
            If `ids` is not (B, T), or T and the cached tokens together exceed `block_size`; or `targets` has another
            shape.
        """
        past = 0 if cache is None else len(cache)
        check_ids(ids, self.config.vocab_size, self.config.block_size, past)  # before a cache grows
        check_targets(targets, ids, self.config.vocab_size)
        mask, places = self.mask(ids, past, cache), arange(past, past + ids.shape[1])
        turn = F.rotary_tables(places, self.config.n_embd // self.config.n_head, self.config.rope_base,
                               dtypes.promote_types(self.tok_emb.weight.dtype, dtypes.float32))
        x, weights = self.tok_emb(ids), []                                    # (B, T) -> (B, T, C)
        for layer, block in enumerate(self.blocks):
            x, w = block(x, turn, mask, None if cache is None else cache.layers[layer], need_weights)
            weights.append(w)
        logits = self.head(self.norm(x))                                      # (B, T, C) -> (B, T, V)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())   # (B*T, V), (B*T,) -> ()
        return (logits, loss, weights) if need_weights else (logits, loss)

    def mask(self, ids, past, cache):
        """Which of all S tokens each of `ids` may see, (T, S) or (B, 1, T, S): what is before it, and no padding.

        The cache learns which of `ids` are padding. Positions need no care: they count the padding too, but RoPE only
        knows how far apart two tokens are, and that is the same.
        """
        causal = F.causal_mask(ids.shape[1], past + ids.shape[1])
        if self.config.pad_id is None:
            return causal
        seen = ids != self.config.pad_id
        if past:
            seen = cat([cache.seen, seen], dim=1)                             # (B, T) -> (B, S)
        seen = seen.cumsum(1) > 0  # padding stands before the text; the same id inside it is a token like others
        if cache is not None:
            cache.seen = seen
        return causal & seen[:, None, None]                                   # (T, S), (B, 1, 1, S) -> (B, 1, T, S)
