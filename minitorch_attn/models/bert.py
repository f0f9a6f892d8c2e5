"""BERT in one file: an encoder-only Transformer that fills in what was hidden from it, seeing both sides.

Read from the top: which tokens are hidden for training, attention that sees everything but padding, the block, and
the model. The task of telling whether two sentences follow each other is left out, as later work did.

References
----------
Devlin, Chang, Lee, Toutanova (2019), "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding" (the masked language model: section 3.1; why 80/10/10: appendix C.2).
Liu et al. (2019), "RoBERTa" (masks drawn anew each time; without the second task: sections 4.1 and 4.2).
"""
from dataclasses import dataclass

from .. import nn
from ..grad_mode import no_grad
from ..nn import functional as F
from ..ops import arange, rand, randint, where
from .checks import check_ids, check_sizes, check_targets

__all__ = ["BERT", "BERTConfig", "mask_tokens"]


@dataclass
class BERTConfig:
    """The sizes of a BERT.

    Parameters
    ----------
    vocab_size : int
        V, the number of different tokens.
    block_size : int
        The longest sequence that the model can read, in tokens.
    n_layer, n_head, n_embd : int
        How many blocks; H heads in each; the width C, a multiple of H.
    dropout : float
        Probability in [0, 1) of dropping an entry of the embedding, the attention weights, and what each part adds.
    pad_id, mask_id : int
        Padding, at either end; what stands in the place of a hidden token.
    n_special : int
        Ids below this are special tokens, which are never hidden and never filled in. The defaults are those of
        `WordPieceTokenizer`: [PAD], [UNK], [CLS], [SEP], [MASK].
    """
    vocab_size: int
    block_size: int = 64
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 64
    dropout: float = 0.0
    pad_id: int = 0
    mask_id: int = 4
    n_special: int = 5


def mask_tokens(ids, config, share=0.15, generator=None):
    """Hide some tokens for training: choose 15% of each row, and of these turn 80% into [MASK], 10% into any token.

    The other 10% of the chosen ones stay. So the model never knows whether a token that it sees is the true one, and
    has to have an opinion about each; were all of them [MASK], it could forget the others, and would meet in use what
    it never met in training: text without [MASK].

    Parameters
    ----------
    ids : Tensor (B, T), integers
        Drawn anew for each step. Special tokens are not chosen.
    config : BERTConfig
    share : float
        How much of each row to choose, in [0, 1]; rounded, but at least one token of a row that has any.
    generator : Generator, optional

    Returns
    -------
    hidden : Tensor (B, T)
        `ids` with the chosen tokens changed.
    targets : Tensor (B, T)
        The true token where one was chosen, and -100, where no answer counts, everywhere else.

    Raises
    ------
    ValueError
        If `share` lies outside [0, 1].
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share is a part of each row, in [0, 1], got {share}")
    word = ids >= config.n_special
    count = (word.sum(1, keepdim=True) * share).round().clamp(min=1)          # (B, T) -> (B, 1)
    order = rand(ids.shape, generator=generator).masked_fill(~word, 2.0).argsort(1)  # words first, in random order
    rank = order.argsort(1)  # the place of each token in that order
    chosen = (rank < count) & word
    fate = rand(ids.shape, generator=generator)
    anything = randint(config.n_special, config.vocab_size, ids.shape, generator=generator)
    hidden = where(chosen & (fate < 0.8), config.mask_id, ids)
    hidden = where(chosen & (fate >= 0.9), anything, hidden)
    return hidden, ids.masked_fill(~chosen, -100)


class SelfAttention(nn.Module):
    """Each token gathers from all tokens, before it and after it, in H heads side by side."""

    def __init__(self, config):
        super().__init__()
        self.n_head, self.dropout = config.n_head, config.dropout
        self.qkv = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x, mask, need_weights=False):
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, 3, self.n_head, C // self.n_head)        # (B, T, C) -> (B, T, 3, H, D)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)                        # -> three of (B, H, T, D)
        y = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.dropout if self.training else 0.0)
        y = y.transpose(1, 2).reshape(B, T, C)                                # (B, H, T, D) -> (B, T, C)
        return self.drop(self.proj(y)), F.attention_weights(q, k, mask) if need_weights else None


class Block(nn.Module):
    """Post-LN: attention, then a net of width 4C for each token alone, each added to its input and then normalised."""

    def __init__(self, config):
        super().__init__()
        C = config.n_embd
        self.attn, self.ln_1 = SelfAttention(config), nn.LayerNorm(C)
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(config.dropout))
        self.ln_2 = nn.LayerNorm(C)

    def forward(self, x, mask, need_weights=False):
        y, weights = self.attn(x, mask, need_weights)
        x = self.ln_1(x + y)
        return self.ln_2(x + self.mlp(x)), weights


class BERT(nn.Module):
    """A BERT: token and position embedding, `n_layer` blocks, and logits for what each token is, or was.

    Parameters
    ----------
    config : BERTConfig

    Raises
    ------
    ValueError
        If the width is not a multiple of the number of heads, or a size is not positive.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        self.config, C = config, config.n_embd
        self.tok_emb, self.pos_emb = nn.Embedding(config.vocab_size, C), nn.Embedding(config.block_size, C)
        self.ln_emb, self.drop = nn.LayerNorm(C), nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.n_layer)])
        self.transform = nn.Sequential(nn.Linear(C, C), nn.GELU(), nn.LayerNorm(C))  # one more layer before the logits
        self.head = nn.Linear(C, config.vocab_size)
        self.apply(self.init_weights)
        self.head.weight = self.tok_emb.weight  # tied: a token is recognised by the vector that it is read as

    @staticmethod
    def init_weights(module):
        """Draw the weights from N(0, 0.02^2) and set the biases to zero."""
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)

    def encode(self, ids, need_weights=False):
        """What the blocks make of each token, (B, T) -> (B, T, C), to build other tasks on; and the weights."""
        check_ids(ids, self.config.vocab_size, self.config.block_size)
        mask = F.padding_mask(ids, pad_id=self.config.pad_id)                 # (B, T) -> (B, 1, 1, T)
        before = (mask[:, 0, 0].cumsum(1) == 0).sum(1, keepdim=True)          # padding on the left, (B, 1)
        place = (arange(ids.shape[1]) - before).clamp(min=0)                  # counted from the first token, (B, T)
        x = self.tok_emb(ids) + self.pos_emb(place)                           # (B, T) -> (B, T, C)
        x, weights = self.drop(self.ln_emb(x)), []
        for block in self.blocks:
            x, w = block(x, mask, need_weights)
            weights.append(w)
        return x, weights

    def forward(self, ids, targets=None, need_weights=False):
        """Logits for what stands at each place, and their loss.

        Parameters
        ----------
        ids : Tensor (B, T), integers in [0, V)
            With some tokens hidden: in training by `mask_tokens`.
        targets : Tensor (B, T), integers, optional
            The true token where one was chosen; -100 elsewhere.
        need_weights : bool
            Whether to return what every head attends to.

        Returns
        -------
        logits : Tensor (B, T, V)
        loss : Tensor () or None
            Mean cross-entropy in nats over the chosen tokens; None without targets.
        weights : list of Tensor (B, H, T, T), only with `need_weights`

        Raises
        ------
        IndexError
            If an id lies outside the vocabulary.
        ValueError
            If `ids` is not (B, T), or T exceeds `block_size`; or `targets` has another shape.
        """
        check_targets(targets, ids, self.config.vocab_size)
        x, weights = self.encode(ids, need_weights)
        logits = self.head(self.transform(x))                                 # (B, T, C) -> (B, T, V)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())   # (B*T, V), (B*T,) -> ()
        return (logits, loss, weights) if need_weights else (logits, loss)

    @no_grad()
    def fill(self, ids):
        """`ids` (B, T) with the likeliest token, never a special one, in the place of each [MASK].

        The model is used in the mode it is in: call ``model.eval()`` first, or dropout stays at work.
        """
        config = self.config
        logits = self(ids)[0][:, :, config.n_special:]                        # (B, T, V) -> (B, T, V - n_special)
        return where(ids == config.mask_id, logits.argmax(-1) + config.n_special, ids)
