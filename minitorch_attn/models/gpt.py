"""GPT in one file: a decoder-only Transformer that predicts the next token, with a KV cache to generate fast.

Read from the top: what the model is made of, one layer's attention, its feed-forward net, the block around both,
and the model that stacks the blocks.

Axis letters: B batch, T time of the new tokens, S time of all tokens, H heads, D width of a head, C = H D width of the
model, V vocabulary.

References
----------
Radford, Wu, Child, Luan, Amodei, Sutskever (2019), "Language Models are Unsupervised Multitask Learners" (GPT-2:
normalisation before each part, the scaled start of the residual projections, section 2.3).
Vaswani et al. (2017), "Attention Is All You Need" (attention: equation 1; heads: section 3.2.2).
Press, Wolf (2017), "Using the Output Embedding to Improve Language Models" (tied output weights).
"""
import math
from dataclasses import dataclass

from .. import nn
from ..nn import functional as F
from ..ops import arange
from .checks import check_ids, check_sizes, check_targets

__all__ = ["GPT", "GPTCache", "GPTConfig"]


@dataclass
class GPTConfig:
    """The sizes of a GPT.

    Parameters
    ----------
    vocab_size : int
        V, the number of different tokens.
    block_size : int
        The longest sequence that the model can read, in tokens.
    n_layer, n_head, n_embd : int
        How many blocks; H heads in each; the width C, a multiple of H.
    dropout : float
        Probability in [0, 1) of dropping an entry, wherever the model drops: embedding, attention weights, and
        what each part adds to the residual stream.
    tied : bool
        Whether the output projection uses the token embedding's weight instead of one of its own.
    """
    vocab_size: int
    block_size: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    tied: bool = True


class GPTCache:
    """The keys and values of the tokens that a GPT has read so far, layer by layer.

    Reading on then costs the new tokens only: ``model(new_ids, cache=cache)`` adds theirs. Gradients do not pass
    through it, so it is for use under no_grad().
    """

    def __init__(self, config):
        self.layers = [nn.KVCache(config.block_size) for _ in range(config.n_layer)]

    def __len__(self):
        """How many tokens have been read: S."""
        return len(self.layers[0])


class CausalSelfAttention(nn.Module):
    """Each token gathers from itself and the tokens before it, in H heads side by side."""

    def __init__(self, config):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x, cache=None, need_weights=False):
        """x (B, T, C) -> (the same shape, the weights (B, H, T, S) if asked for, else None)."""
        B, T, C = x.shape
        qkv = self.qkv(x)                                                     # (B, T, C) -> (B, T, 3C)
        qkv = qkv.view(B, T, 3, self.n_head, C // self.n_head)                # -> (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)                        # -> three of (B, H, T, D)
        if cache is not None:
            k, v = cache.append(k, v)                                         # (B, H, T, D) -> (B, H, S, D)
        no_past = T == k.shape[2]  # then the kernel knows the mask itself; and a single token sees all there is
        mask = None if no_past or T == 1 else F.causal_mask(T, k.shape[2])    # (T, S)
        y = F.scaled_dot_product_attention(q, k, v, mask, is_causal=no_past,
                                           dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).reshape(B, T, C)                                # (B, H, T, D) -> (B, T, C)
        # the fused attention never keeps its weights; the figures ask for them
        return self.drop(self.proj(y)), F.attention_weights(q, k, mask, no_past) if need_weights else None


class MLP(nn.Module):
    """The feed-forward net, for each token alone: widen to 4C, GELU, narrow."""

    def __init__(self, config):
        super().__init__()
        self.fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x):
        """x (B, T, C) -> the same shape."""
        h = F.gelu(self.fc(x))                                                # (B, T, C) -> (B, T, 4C)
        return self.drop(self.proj(h))                                        # -> (B, T, C)


class Block(nn.Module):
    """Attention, then the feed-forward net, each on a normalised copy and added to the residual stream (Pre-LN)."""

    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), CausalSelfAttention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.n_embd), MLP(config)

    def forward(self, x, cache=None, need_weights=False):
        """x (B, T, C) -> (the same shape, the attention's weights or None)."""
        y, weights = self.attn(self.ln_1(x), cache, need_weights)
        x = x + y
        return x + self.mlp(self.ln_2(x)), weights


class GPT(nn.Module):
    """A GPT: token and position embedding, `n_layer` blocks, a last layer norm, and logits over the vocabulary.

    Parameters
    ----------
    config : GPTConfig

    Raises
    ------
    ValueError
        If the width is not a multiple of the number of heads, or a size is not positive.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        self.config = config
        self.tok_emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.pos_emb = nn.Embedding(config.block_size, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.apply(self.init_weights)
        for block in self.blocks:
            # 2 * n_layer parts add to the residual stream; this keeps its variance from growing with the depth
            for proj in (block.attn.proj, block.mlp.proj):
                nn.init.normal_(proj.weight, std=0.02 / math.sqrt(2 * config.n_layer))
        if config.tied:
            self.head.weight = self.tok_emb.weight

    @staticmethod
    def init_weights(module):
        """Draw the weights from N(0, 0.02^2) and set the biases to zero."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def new_cache(self):
        """A cache of nothing, for `forward` to fill."""
        return GPTCache(self.config)

    def forward(self, ids, targets=None, cache=None, need_weights=False):
        """Logits for the token after each one of `ids`, and their loss.

        Parameters
        ----------
        ids : Tensor (B, T), integers in [0, V)
        targets : Tensor (B, T), integers, optional
            The token that does come next; -100 where no answer counts.
        cache : GPTCache, optional
            Of the tokens before `ids`; their keys and values are used, and those of `ids` added.
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
        T = ids.shape[1]
        x = self.tok_emb(ids) + self.pos_emb(arange(past, past + T))          # (B, T) -> (B, T, C)
        x, weights = self.drop(x), []
        for layer, block in enumerate(self.blocks):
            x, w = block(x, None if cache is None else cache.layers[layer], need_weights)
            weights.append(w)
        logits = self.head(self.ln_f(x))                                      # (B, T, C) -> (B, T, V)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())   # (B*T, V), (B*T,) -> ()
        return (logits, loss, weights) if need_weights else (logits, loss)
