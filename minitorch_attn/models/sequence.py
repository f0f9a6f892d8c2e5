"""What read sequences before attention did: recurrent and convolutional language models, in one file.

Both predict the next token, as a GPT does, and take the same arguments, so that the three can stand side by side.
What sets them apart, for T tokens of width C:

    layer             from token 0 to token T - 1    steps that wait for each other    cost of a layer
    recurrent         T steps                        T                                 T C^2
    convolution       log T layers, if dilated       1                                 k T C^2 for kernels of k
    self-attention    1 step                         1                                 T^2 C + T C^2

Read from the top: the recurrent model with its cache, then the convolutional one.

References
----------
Elman (1990), "Finding Structure in Time"; Hochreiter, Schmidhuber (1997), "Long Short-Term Memory"; Cho et al. (2014),
"Learning Phrase Representations using RNN Encoder-Decoder" (the GRU).
van den Oord et al. (2016), "WaveNet: A Generative Model for Raw Audio" (dilated causal convolutions, section 2.1).
Bai, Kolter, Koltun (2018), "An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
Modeling".
Vaswani et al. (2017), "Attention Is All You Need" (the comparison: table 1).
"""
from dataclasses import dataclass

from .. import nn
from ..nn import functional as F
from .checks import check_ids, check_sizes, check_targets

__all__ = ["ConvolutionConfig", "ConvolutionModel", "RecurrentCache", "RecurrentConfig", "RecurrentModel"]


@dataclass
class RecurrentConfig:
    """The sizes of a RecurrentModel.

    Parameters
    ----------
    vocab_size : int
        V, the number of different tokens.
    block_size : int
        The longest sequence that `generate` lets it read at once; the model itself has no limit.
    n_layer, n_embd : int
        How many layers; the width C of tokens and states.
    cell : "rnn", "gru" or "lstm"
    """
    vocab_size: int
    block_size: int = 1_000_000
    n_layer: int = 1
    n_embd: int = 64
    cell: str = "gru"


class RecurrentCache:
    """All that a recurrent model keeps of what it has read: a state of fixed size, however long the text was."""

    def __init__(self):
        self.state, self.length = None, 0

    def __len__(self):
        """How many tokens have been read."""
        return self.length


class RecurrentModel(nn.Module):
    """Read token by token into a state, and predict each next token from the state.

    Parameters
    ----------
    config : RecurrentConfig

    Raises
    ------
    ValueError
        If `cell` is another word, or a size is not positive.
    """

    def __init__(self, config):
        super().__init__()
        cells = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
        if config.cell not in cells:
            raise ValueError(f'cell must be "rnn", "gru" or "lstm", got {config.cell!r}')
        check_sizes(config)
        self.config = config
        self.tok_emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.cell = cells[config.cell](config.n_embd, config.n_embd, config.n_layer, batch_first=True)
        self.head = nn.Linear(config.n_embd, config.vocab_size)

    def new_cache(self):
        """A cache of nothing, for `forward` to fill."""
        return RecurrentCache()

    def forward(self, ids, targets=None, cache=None):
        """Logits for the token after each one of `ids`, and their loss.

        Parameters
        ----------
        ids : Tensor (B, T), integers in [0, V)
        targets : Tensor (B, T), integers, optional
            The token that does come next; -100 where no answer counts.
        cache : RecurrentCache, optional
            Of the tokens before `ids`; it goes on to those after them.

        Returns
        -------
        logits : Tensor (B, T, V)
        loss : Tensor () or None
            Mean cross-entropy in nats a token; None without targets.

        Raises
        ------
        IndexError
            If an id lies outside the vocabulary.
        ValueError
            If `ids` is not (B, T), or `targets` has another shape.
        """
        check_ids(ids, self.config.vocab_size)
        check_targets(targets, ids, self.config.vocab_size)
        y, state = self.cell(self.tok_emb(ids), cache.state if cache else None)   # (B, T) -> (B, T, C)
        if cache is not None:
            cache.state, cache.length = state, cache.length + ids.shape[1]
        return answer(self.head(y), targets)                                  # (B, T, C) -> (B, T, V)


@dataclass
class ConvolutionConfig:
    """The sizes of a ConvolutionModel.

    Parameters
    ----------
    vocab_size : int
        V, the number of different tokens.
    block_size : int
        The longest sequence that `generate` lets it read at once; the model itself has no limit.
    n_layer, n_embd : int
        How many layers; the width C.
    kernel_size : int
        How many tokens each layer looks at.
    dilated : bool
        Whether those lie 1, k, k^2, ... tokens apart from layer to layer, for kernels of k, so that few layers reach
        far back; otherwise they are neighbours in every layer.
    """
    vocab_size: int
    block_size: int = 1_000_000
    n_layer: int = 4
    n_embd: int = 64
    kernel_size: int = 2
    dilated: bool = True


class CausalConvolution(nn.Module):
    """Each token takes up itself and tokens before it at fixed distances, with a weight matrix for each distance."""

    def __init__(self, config, dilation):
        super().__init__()
        self.reach = (config.kernel_size - 1) * dilation
        self.ln = nn.LayerNorm(config.n_embd)
        self.conv = nn.Conv1d(config.n_embd, config.n_embd, config.kernel_size, dilation=dilation)

    def forward(self, x):
        h = F.pad(self.ln(x).transpose(1, 2), (self.reach, 0))                # (B, T, C) -> (B, C, reach + T)
        return x + F.gelu(self.conv(h)).transpose(1, 2)                       # -> (B, C, T) -> (B, T, C)


class ConvolutionModel(nn.Module):
    """Stack causal convolutions, and predict each next token from the tokens within reach.

    Parameters
    ----------
    config : ConvolutionConfig

    Attributes
    ----------
    reach : int
        How many tokens a prediction depends on, the last one included.
    """

    def __init__(self, config):
        super().__init__()
        check_sizes(config)
        self.config = config
        apart = [config.kernel_size**layer if config.dilated else 1 for layer in range(config.n_layer)]
        self.reach = 1 + (config.kernel_size - 1) * sum(apart)
        self.tok_emb = nn.Embedding(config.vocab_size, config.n_embd)
        self.layers = nn.Sequential(*[CausalConvolution(config, dilation) for dilation in apart])
        self.ln = nn.LayerNorm(config.n_embd)
        self.head = nn.Linear(config.n_embd, config.vocab_size)

    def forward(self, ids, targets=None):
        """Logits (B, T, V) for the token after each one of `ids` (B, T), and their loss, as in `RecurrentModel`.

        There is no cache, so `generate` reads the tokens again at each step.
        """
        check_ids(ids, self.config.vocab_size)
        check_targets(targets, ids, self.config.vocab_size)
        x = self.layers(self.tok_emb(ids))                                    # (B, T) -> (B, T, C)
        return answer(self.head(self.ln(x)), targets)                         # (B, T, C) -> (B, T, V)


def answer(logits, targets):
    """The logits (B, T, V), and their mean cross-entropy with `targets` (B, T), if there are any."""
    return logits, None if targets is None else F.cross_entropy(logits.flatten(0, 1), targets.flatten())
