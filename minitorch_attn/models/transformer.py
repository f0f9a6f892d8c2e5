"""The encoder-decoder Transformer in one file: read one sequence, write another, greedily or by beam search.

Read from the top: attention that can look at another sequence, the encoder's and the decoder's block, and the model
with its two ways to decode. While it writes, the decoder keeps keys and values in two `KVCache`s a layer: of its own
tokens, where `append` adds those of a new token and returns all; and of the source, computed once and then `read`.

References
----------
Vaswani et al. (2017), "Attention Is All You Need". Here the norms stand before each part, not after it, and the
positions are learned: see Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture", and section
3.5 of the paper itself.
"""
from dataclasses import dataclass

from .. import nn
from ..grad_mode import no_grad
from ..nn import functional as F
from ..ops import arange, cat, full
from .beam import beam_search
from .checks import check_ids, check_sizes, check_targets

__all__ = ["Transformer", "TransformerConfig"]


@dataclass
class TransformerConfig:
    """The sizes of a Transformer.

    Parameters
    ----------
    source_vocab, target_vocab : int
        How many different tokens it reads, and V, how many it writes.
    block_size : int
        The longest sequence on either side, in tokens.
    n_layer, n_head, n_embd : int
        Blocks on each side; H heads in each; the width C, a multiple of H.
    dropout : float
        Probability in [0, 1) of dropping an entry of the embedding, the attention weights, and what each part adds.
    pad_id, start_id, end_id : int
        Padding, on both sides and at either end of a source; what the decoder reads first; what it writes last.
    """
    source_vocab: int
    target_vocab: int
    block_size: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    pad_id: int = 0
    start_id: int = 1
    end_id: int = 2


class Attention(nn.Module):
    """H heads that read from a sequence: from the one that asks (self-attention), or another (cross-attention)."""

    def __init__(self, config):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.q = nn.Linear(config.n_embd, config.n_embd)
        self.kv = nn.Linear(config.n_embd, 2 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def keys_and_values(self, x):
        k, v = self.kv(x).chunk(2, dim=-1)                                    # (B, S, C) -> two of (B, S, C)
        return self.split(k), self.split(v)

    def split(self, x):
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)             # (B, S, C) -> (B, H, S, D)

    def forward(self, x, k, v, mask, need_weights=False):
        q = self.split(self.q(x))                                             # (B, T, C) -> (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.dropout if self.training else 0.0)
        y = self.drop(self.proj(y.transpose(1, 2).flatten(2)))                # (B, H, T, D) -> (B, T, C)
        return y, F.attention_weights(q, k, mask) if need_weights else None


def mlp(config):
    """The feed-forward net, for each token alone: widen to 4C, bend, narrow."""
    C = config.n_embd
    return nn.Sequential(nn.Linear(C, 4 * C), nn.ReLU(), nn.Linear(4 * C, C), nn.Dropout(config.dropout))


class EncoderBlock(nn.Module):
    """Every token of the source sees every other, padding excepted."""

    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), Attention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.n_embd), mlp(config)

    def forward(self, x, mask):
        h = self.ln_1(x)
        x = x + self.attn(h, *self.attn.keys_and_values(h), mask)[0]
        return x + self.mlp(self.ln_2(x))


class DecoderBlock(nn.Module):
    """Each token sees those before it, then the whole source, and then thinks for itself."""

    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), Attention(config)
        self.ln_2, self.cross = nn.LayerNorm(config.n_embd), Attention(config)
        self.ln_3, self.mlp = nn.LayerNorm(config.n_embd), mlp(config)

    def forward(self, x, memory, causal, mask, cache=None, need_weights=False):
        own_cache, source_cache = (None, None) if cache is None else cache
        h = self.ln_1(x)
        k, v = self.attn.keys_and_values(h)
        if own_cache is not None:
            k, v = own_cache.append(k, v)                                     # (B, H, T, D) -> (B, H, past + T, D)
        x = x + self.attn(h, k, v, causal)[0]
        if source_cache is not None and len(source_cache):  # the same for every token
            k, v = source_cache.read()
        else:
            k, v = self.cross.keys_and_values(memory)
            if source_cache is not None:
                source_cache.append(k, v)
        y, weights = self.cross(self.ln_2(x), k, v, mask, need_weights)
        x = x + y
        return x + self.mlp(self.ln_3(x)), weights


class Transformer(nn.Module):
    """An encoder that reads the source and a decoder that writes the target, token by token, looking at both.

    The width must be a multiple of the number of heads: ValueError otherwise.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        self.config, C = config, config.n_embd
        self.source_emb, self.source_pos = nn.Embedding(config.source_vocab, C), nn.Embedding(config.block_size, C)
        self.target_emb, self.target_pos = nn.Embedding(config.target_vocab, C), nn.Embedding(config.block_size, C)
        self.drop = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList([EncoderBlock(config) for _ in range(config.n_layer)])
        self.decoder = nn.ModuleList([DecoderBlock(config) for _ in range(config.n_layer)])
        self.ln_source, self.ln_target = nn.LayerNorm(C), nn.LayerNorm(C)
        self.head = nn.Linear(C, config.target_vocab)
        self.apply(self.init_weights)

    @staticmethod
    def init_weights(module):
        """Embeddings from N(0, 0.02^2), matrices from Xavier's uniform distribution, biases zero."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def encode(self, source):
        """Read `source` (B, S) -> what the decoder looks at, (B, S, C), and which of it may be seen, (B, 1, 1, S)."""
        check_ids(source, self.config.source_vocab, self.config.block_size, name="source")
        mask = F.padding_mask(source, pad_id=self.config.pad_id)              # (B, S) -> (B, 1, 1, S)
        place = (mask[:, 0, 0].cumsum(1) - 1).clamp(min=0)  # counted from the first token, wherever the padding is
        x = self.drop(self.source_emb(source) + self.source_pos(place))       # (B, S) -> (B, S, C)
        for block in self.encoder:
            x = block(x, mask)
        return self.ln_source(x), mask

    def new_cache(self):
        """For each layer two empty caches: for the decoder's own tokens, and for what it looks at in the source."""
        size = self.config.block_size
        return [(nn.KVCache(size), nn.KVCache(size)) for _ in self.decoder]

    def decode(self, ids, memory, mask, cache=None, need_weights=False):
        """Logits (B, T, V) after each of `ids` (B, T), which follow the tokens in `cache`, and the attention weights.

        The weights are those of the cross-attention, one (B, H, T, S) for each layer; None without `need_weights`.
        """
        past = 0 if cache is None else len(cache[0][0])
        check_ids(ids, self.config.target_vocab, self.config.block_size, past)  # before a cache grows
        T = ids.shape[1]
        x = self.target_emb(ids) + self.target_pos(arange(past, past + T))    # (B, T) -> (B, T, C)
        x, weights, causal = self.drop(x), [], F.causal_mask(T, past + T)
        for layer, block in enumerate(self.decoder):
            x, w = block(x, memory, causal, mask, None if cache is None else cache[layer], need_weights)
            weights.append(w)
        return self.head(self.ln_target(x)), weights                          # (B, T, C) -> (B, T, V)

    def forward(self, source, ids, targets=None, need_weights=False):
        """Logits for the target token after each one of `ids`, given the source, and their loss.

        Parameters
        ----------
        source : Tensor (B, S), integers
            Padded with `pad_id` at either end; what is padded is never looked at.
        ids : Tensor (B, T), integers in [0, V)
            `start_id` and the target's tokens so far; in training the true ones (teacher forcing), see `shift`.
        targets : Tensor (B, T), integers, optional
            The token that does come next; -100 where no answer counts.
        need_weights : bool
            Whether to return where in the source every head looks.

        Returns
        -------
        logits : Tensor (B, T, V)
        loss : Tensor () or None
            Mean cross-entropy in nats a token; None without targets.
        weights : list of Tensor (B, H, T, S), only with `need_weights`

        Raises
        ------
        IndexError, ValueError
            If an id lies outside its vocabulary; if ids are not (batch, time), or too long, or unlike `targets`.
        """
        check_targets(targets, ids, self.config.target_vocab)
        logits, weights = self.decode(ids, *self.encode(source), need_weights=need_weights)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())   # (B*T, V), (B*T,) -> ()
        return (logits, loss, weights) if need_weights else (logits, loss)

    def shift(self, target):
        """For whole targets (B, T), with end and padding: what the decoder reads, and what it is to answer, (B, T)."""
        ids = cat([full((len(target), 1), self.config.start_id), target[:, :-1]], dim=1)
        return ids, target.masked_fill(target == self.config.pad_id, -100)

    def greedy(self, source, max_new_tokens, use_cache=True):
        """Write the likeliest token, read it, and so on: a beam of one. (B, S) -> (B, n), n <= max_new_tokens."""
        return self.beam(source, max_new_tokens, 1, use_cache=use_cache)[0]

    @no_grad()
    def beam(self, source, max_new_tokens, width=4, length_penalty=0.6, use_cache=True):
        """Keep the W = `width` likeliest beginnings at each step, and give the best target in the end.

        The model is used in the mode it is in: call ``model.eval()`` first, or dropout stays at work.

        Parameters
        ----------
        source : Tensor (B, S)
        max_new_tokens, width, length_penalty
            As in `beam_search`, which also says what is returned; ValueError if the first exceeds `block_size`.
        use_cache : bool
            Whether each step reads one token only, or all again; both give the same tokens.

        Returns
        -------
        ids : Tensor (B, n), n <= max_new_tokens
        scores : Tensor (B,)
        """
        if max_new_tokens > self.config.block_size:
            raise ValueError(f"max_new_tokens={max_new_tokens} is more than block_size={self.config.block_size}")
        memory, mask = (x.repeat_interleave(width, 0) for x in self.encode(source))   # (B, ...) -> (B W, ...)
        cache = self.new_cache() if use_cache else None

        def step(ids):
            logits, _ = self.decode(ids[:, -1:] if use_cache else ids, memory, mask, cache)
            return logits[:, -1]                                              # (B W, T, V) -> (B W, V)

        def reorder(rows):
            for own_cache, _ in cache or ():  # what is kept of the source is the same for all beams of a sample
                own_cache.reorder(rows)

        return beam_search(step, reorder, len(source), width, max_new_tokens, self.config, length_penalty)
