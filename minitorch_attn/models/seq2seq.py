"""Sequence to sequence with recurrent networks, in one file: what there was before the Transformer, and why.

A GRU reads the source, another one writes the target. Without attention all that the writer ever learns of the source
is one vector of fixed width. With attention it looks back at every step, at the places that matter then.

Read from the top: the encoder, additive attention, and the model.

Axis letters: B batch, S time of the source, T time of the target, E width of an embedded token, H width of a recurrent
state (there are no heads here), V vocabulary.

References
----------
Sutskever, Vinyals, Le (2014), "Sequence to Sequence Learning with Neural Networks", and Cho et al. (2014), "Learning
Phrase Representations using RNN Encoder-Decoder" (one vector of fixed width).
Bahdanau, Cho, Bengio (2015), "Neural Machine Translation by Jointly Learning to Align and Translate" (attention:
section 3.1; the reader in both directions: section 3.2).
Bengio, Vinyals, Jaitly, Shazeer (2015), "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks"
(the teacher forcing ratio).
"""
from dataclasses import dataclass

from .. import nn
from ..grad_mode import no_grad
from ..nn import functional as F
from ..ops import arange, cat, empty, full, rand, stack, tensor, where, zeros
from .checks import check_ids, check_sizes, check_targets

__all__ = ["Seq2Seq", "Seq2SeqConfig"]


@dataclass
class Seq2SeqConfig:
    """The sizes of a Seq2Seq.

    Parameters
    ----------
    source_vocab, target_vocab : int
        How many different tokens it reads, and V, how many it writes.
    n_embd, n_hidden : int
        Widths E of an embedded token and H of a recurrent state.
    attention : bool
        Whether the decoder looks back at the source.
    pad_id, start_id, end_id : int
        What fills up a target; what the decoder reads first; what it writes last. The defaults are those of targets
        made of the ten digits: 0 to 9 are the digits themselves.
    """
    source_vocab: int
    target_vocab: int
    n_embd: int = 32
    n_hidden: int = 64
    attention: bool = True
    pad_id: int = 10
    start_id: int = 11
    end_id: int = 12


def mirror(x, lengths):
    """Reverse the first `lengths` steps of each row of x (B, S, C); the padding behind them stays."""
    place = arange(x.shape[1]).expand(x.shape[:2])                            # (S,) -> (B, S)
    index = where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return x.gather(1, index[:, :, None].expand(x.shape))


class Encoder(nn.Module):
    """Read the source in both directions: each step gets a state that knows what stands on either side of it.

    The reader from the end starts at the last token of each row, not in the padding behind it.
    """

    def __init__(self, config):
        super().__init__()
        self.emb = nn.Embedding(config.source_vocab, config.n_embd)
        self.rightward = nn.GRU(config.n_embd, config.n_hidden, batch_first=True)
        self.leftward = nn.GRU(config.n_embd, config.n_hidden, batch_first=True)

    def forward(self, source, lengths):
        """source (B, S), lengths (B,) -> every state (B, S, 2H), and both readers' last ones side by side (B, 2H)."""
        x = self.emb(source)                                                  # (B, S) -> (B, S, E)
        right = self.rightward(x)[0]                                          # -> (B, S, H)
        left = mirror(self.leftward(mirror(x, lengths))[0], lengths)
        last = right[arange(len(x)), lengths - 1]                             # (B, S, H) -> (B, H)
        return cat([right, left], dim=-1), cat([last, left[:, 0]], dim=-1)


class AdditiveAttention(nn.Module):
    """A small net compares the state that asks with each one that may answer: score = v . tanh(W s + b + U h).

    `nn.AdditiveAttention` is the same for any number of queries, without b; here it is spelled out.
    """

    def __init__(self, config):
        super().__init__()
        H = config.n_hidden
        self.query, self.key = nn.Linear(H, H), nn.Linear(2 * H, H, bias=False)
        self.v = nn.Parameter(empty(H))
        nn.init.uniform_(self.v, -H**-0.5, H**-0.5)

    def forward(self, s, keys, states, seen):
        """State s (B, H), keys U h (B, S, H), states h (B, S, 2H) -> their weighted mean (B, 2H), weights (B, S)."""
        scores = F.additive_scores(self.query(s)[:, None], keys, self.v)      # (B, 1, H), (B, S, H) -> (B, 1, S)
        weights = F.masked_softmax(scores, seen[:, None])
        return (weights @ states)[:, 0], weights[:, 0]                        # (B, 1, S) (B, S, 2H) -> (B, 2H)


class Seq2Seq(nn.Module):
    """An encoder that reads the source, and a decoder that writes the target token by token.

    Parameters
    ----------
    config : Seq2SeqConfig

    Raises
    ------
    ValueError
        If a size is not positive, or `start_id` is no token of the target.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        if not 0 <= config.start_id < config.target_vocab:
            raise ValueError(f"start_id={config.start_id} lies outside target_vocab={config.target_vocab}")
        self.config, E, H = config, config.n_embd, config.n_hidden
        self.encoder = Encoder(config)
        self.bridge = nn.Linear(2 * H, H)
        self.emb = nn.Embedding(config.target_vocab, E)
        self.attention = AdditiveAttention(config) if config.attention else None
        context = 2 * H if config.attention else 0
        self.cell = nn.GRUCell(E + context, H)
        self.head = nn.Linear(H + context, config.target_vocab)

    def encode(self, source, lengths=None):
        """Read the source.

        Returns
        -------
        memory : (keys (B, S, H) or None, states (B, S, 2H), seen (B, S))
            What `step` needs of it: the projected keys of attention, the encoder's states, and which are no padding.
        s : Tensor (B, H)
            The decoder's first state.
        """
        check_ids(source, self.config.source_vocab, name="source")
        B, S = source.shape
        lengths = full((B,), S) if lengths is None else tensor(lengths) if isinstance(lengths, list) else lengths
        if not B or not S:
            raise ValueError(f"there must be at least one source, with at least one token, got {tuple(source.shape)}")
        if lengths.shape != (B,) or not 1 <= int(lengths.min()) <= int(lengths.max()) <= S:
            raise ValueError(f"lengths must be ({B},), each from 1 to {S}, the width of the source, got "
                             f"{lengths.tolist()}")
        states, last = self.encoder(source, lengths)
        keys = self.attention.key(states) if self.attention else None         # (B, S, 2H) -> (B, S, H)
        return (keys, states, arange(S) < lengths[:, None]), self.bridge(last).tanh()

    def step(self, token, s, memory):
        """Read a token (B,) in the state s (B, H) -> logits for the next (B, V), the new state, weights or None.

        `memory` is what `encode` made of the source.
        """
        x, weights = self.emb(token), None                                    # (B,) -> (B, E)
        if self.attention:
            context, weights = self.attention(s, *memory)
            s = self.cell(cat([x, context], dim=-1), s)
            return self.head(cat([s, context], dim=-1)), s, weights           # (B, 3H) -> (B, V)
        s = self.cell(x, s)
        return self.head(s), s, weights                                       # (B, H) -> (B, V)

    def forward(self, source, ids, targets=None, lengths=None, teacher_forcing=1.0, need_weights=False):
        """Logits for the target token after each one of `ids`, given the source, and their loss.

        Parameters
        ----------
        source : Tensor (B, S), integers
        ids : Tensor (B, T), integers in [0, V)
            `start_id` and the true tokens, see `shift`.
        targets : Tensor (B, T), integers, optional
            The token that does come next; -100 where no answer counts.
        lengths : Tensor (B,) or list, integers, optional
            How many tokens of each source are no padding; all unless given.
        teacher_forcing : float
            Probability in [0, 1] with which the decoder reads the true token at a step, and not what it would have
            written itself the step before. 1 learns fastest; less prepares it for its own mistakes.
        need_weights : bool
            Whether to return where in the source the decoder looks.

        Returns
        -------
        logits : Tensor (B, T, V)
        loss : Tensor () or None
            Mean cross-entropy in nats a token; None without targets.
        weights : Tensor (B, T, S) or None, only with `need_weights`

        Raises
        ------
        ValueError
            If `lengths` or `teacher_forcing` lies out of its range, ids are not (batch, time) with at least one token,
            or `targets` has another shape than `ids`.
        IndexError
            If an id lies outside its vocabulary.
        """
        if not 0 <= teacher_forcing <= 1:
            raise ValueError(f"teacher_forcing is a probability in [0, 1], got {teacher_forcing}")
        check_ids(ids, self.config.target_vocab)
        check_targets(targets, ids, self.config.target_vocab)
        if not ids.shape[1]:
            raise ValueError("ids must have at least one token for the decoder to start from")
        memory, s = self.encode(source, lengths)
        logits, weights = [], []
        for t in range(ids.shape[1]):
            token = ids[:, t]
            if t and teacher_forcing < 1:
                token = where(rand(len(ids)) < teacher_forcing, token, logits[-1].argmax(-1))
            scores, s, w = self.step(token, s, memory)
            logits.append(scores)
            weights.append(w)
        logits = stack(logits, dim=1)                                         # T of (B, V) -> (B, T, V)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())   # (B*T, V), (B*T,) -> ()
        if not need_weights:
            return logits, loss
        return logits, loss, stack(weights, dim=1) if self.attention else None    # T of (B, S) -> (B, T, S)

    def shift(self, target):
        """For whole targets (B, T) with padding: what the decoder reads, and what it is to answer, both (B, T)."""
        ids = cat([full((len(target), 1), self.config.start_id), target[:, :-1]], dim=1)
        return ids, target.masked_fill(target == self.config.pad_id, -100)

    @no_grad()
    def greedy(self, source, max_new_tokens, lengths=None):
        """Write the likeliest token, read it, and so on.

        The model is used in the mode it is in: call ``model.eval()`` first if you have added dropout to it.

        Parameters
        ----------
        source, lengths
            As in `forward`.
        max_new_tokens : int, at least 1

        Returns
        -------
        ids : Tensor (B, n), n <= max_new_tokens
            Rows end with `end_id` and are filled up with `pad_id`.
        weights : Tensor (B, n, S) or None
            Where the decoder looked as it wrote each token.

        Raises
        ------
        ValueError
            If `max_new_tokens` is below 1.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        memory, s = self.encode(source, lengths)
        token, done = full((len(source),), self.config.start_id), zeros(len(source)).bool()
        ids, weights = [], []
        for _ in range(max_new_tokens):
            logits, s, w = self.step(token, s, memory)
            token = logits.argmax(-1).masked_fill(done, self.config.pad_id)   # (B, V) -> (B,)
            done = done | (token == self.config.end_id)
            ids.append(token)
            weights.append(w)
            if bool(done.all()):
                break
        return stack(ids, dim=1), stack(weights, dim=1) if self.attention else None
