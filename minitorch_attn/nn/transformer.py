"""The Transformer of "Attention Is All You Need", with PyTorch's options.

Here B is batch, T the length of the decoder's sequence (tgt), S that of the encoder's (src), C the width.

**Boolean masks say what is HIDDEN (True means hidden)**, as in `MultiheadAttention` and unlike in
`functional.scaled_dot_product_attention`; floating-point masks are added to the scores. Each mask that an encoder,
decoder or Transformer takes is one of these:

- src_mask (S, S), tgt_mask (T, T), memory_mask (T, S), or with a leading axis of B times the number of heads:
  which keys each query may not see. memory is what the encoder returns, and memory_mask is for reading from it.
- src_key_padding_mask (B, S), tgt_key_padding_mask (B, T), memory_key_padding_mask (B, S): which keys no query of
  that sample may see, because they are padding.
- is_causal, tgt_is_causal, memory_is_causal: hints that the mask of the same kind is causal. The mask is used either
  way; a hint without a mask raises RuntimeError.

References
----------
Vaswani et al. 2017, "Attention Is All You Need". Norm first: Xiong et al. 2020, "On Layer Normalization in the
Transformer Architecture", figure 1.
"""
import copy
import math

from ..ops import full
from . import functional as F
from . import init
from .attention import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .norm import LayerNorm

__all__ = ["Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
           "TransformerEncoderLayer"]


def _activation(activation):
    """The function that "relu" or "gelu" names; a function stands for itself, one of PyTorch's for ours."""
    if callable(activation):
        of_torch = getattr(activation, "__module__", "").split(".")[0] == "torch"
        return getattr(F, activation.__name__) if of_torch else activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f'activation must be "relu", "gelu" or a function of a tensor, got {activation!r}')
    return {"relu": F.relu, "gelu": F.gelu}[activation]


class TransformerEncoderLayer(Module):
    r"""Self-attention, then a feed-forward net on each position, each added to its input.

    .. math::
        x' = \mathrm{norm}_1(x + \mathrm{attention}(x)), \qquad y = \mathrm{norm}_2(x' + W_2\,\phi(W_1 x'))

    or with `norm_first`

    .. math::
        x' = x + \mathrm{attention}(\mathrm{norm}_1(x)), \qquad y = x' + W_2\,\phi(W_1\,\mathrm{norm}_2(x'))

    Parameters
    ----------
    d_model : int
        The width C.
    nhead : int
        Number of heads.
    dim_feedforward : int
        Width of the feed-forward net between W_1 and W_2.
    dropout : float
        Probability, while training, on the attention weights, after the activation, and on what is added to x.
    activation : "relu", "gelu" or a function of a tensor
        A function of PyTorch's is taken as the one of the same name here.
    layer_norm_eps : float
    batch_first : bool
        Inputs are (B, S, C) instead of (S, B, C).
    norm_first : bool
    bias : bool
        Whether projections, linear layers and norms have biases.
    device, dtype : "cpu" and the parameters' dtype; optional

    Raises
    ------
    ValueError
        If `nhead` does not divide `d_model`.
    RuntimeError
        If `activation` is another word.
    """

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        options = dict(bias=bias, device=device, dtype=dtype)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        """src (S, B, C), or (B, S, C) with `batch_first`, or (S, C) -> the same shape; masks as above."""
        def attend(x):
            y, _ = self.self_attn(x, x, x, key_padding_mask=src_key_padding_mask, need_weights=False,
                                  attn_mask=src_mask, is_causal=is_causal)
            return self.dropout1(y)

        x = src
        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + self._feed_forward(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + self._feed_forward(x))

    def _feed_forward(self, x):
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerDecoderLayer(Module):
    r"""Self-attention, attention to the encoder's result, then a feed-forward net, each added to its input.

    .. math::
        x' = \mathrm{norm}_1(x + \mathrm{attention}(x)), \quad
        x'' = \mathrm{norm}_2(x' + \mathrm{attention}(x', \mathrm{memory})), \quad
        y = \mathrm{norm}_3(x'' + W_2\,\phi(W_1 x''))

    or with `norm_first` each norm on what enters the attention or the net, as in `TransformerEncoderLayer`.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As in `TransformerEncoderLayer`.

    Raises
    ------
    ValueError, RuntimeError
        As in `TransformerEncoderLayer`.
    """

    def __init__(self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation=F.relu, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        options = dict(bias=bias, device=device, dtype=dtype)
        self.self_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.multihead_attn = MultiheadAttention(d_model, nhead, dropout=dropout, batch_first=batch_first, **options)
        self.linear1 = Linear(d_model, dim_feedforward, **options)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, **options)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, **options)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=False, memory_is_causal=False):
        """tgt (T, B, C), memory (S, B, C), or batch first, or both without B -> like tgt; masks as above."""
        def attend(x):
            y, _ = self.self_attn(x, x, x, key_padding_mask=tgt_key_padding_mask, need_weights=False,
                                  attn_mask=tgt_mask, is_causal=tgt_is_causal)
            return self.dropout1(y)

        def read(x):
            y, _ = self.multihead_attn(x, memory, memory, key_padding_mask=memory_key_padding_mask, need_weights=False,
                                       attn_mask=memory_mask, is_causal=memory_is_causal)
            return self.dropout2(y)

        x = tgt
        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + read(self.norm2(x))
            return x + self._feed_forward(self.norm3(x))
        x = self.norm1(x + attend(x))
        x = self.norm2(x + read(x))
        return self.norm3(x + self._feed_forward(x))

    def _feed_forward(self, x):
        return self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))


def _copies(layer, number):
    """That many layers like `layer`, equal at first, with parameters of their own."""
    return ModuleList([copy.deepcopy(layer) for _ in range(number)])


class TransformerEncoder(Module):
    """Encoder layers one after the other, then a norm.

    Differs from PyTorch: padding is never cut out (no nested tensors), so in evaluation rows that are padding hold
    numbers where PyTorch's fast path has zeros.

    Parameters
    ----------
    encoder_layer : Module
        Copied `num_layers` times: all start from its values. A layer of PyTorch's is taken over by
        `torch_bridge.from_torch`.
    num_layers : int
    norm : Module, optional
        Applied last.
    enable_nested_tensor, mask_check : bool
        Accepted and not used.
    """

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        if not isinstance(encoder_layer, Module):
            from ..torch_bridge import from_torch  # it stands below this file, and only PyTorch's layers need it
            encoder_layer = from_torch(encoder_layer)
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        """src (S, B, C), or (B, S, C) with `batch_first`, or (S, C) -> the same shape; mask is the src_mask above."""
        x = src
        for layer in self.layers:
            x = layer(x, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Decoder layers one after the other, then a norm.

    Parameters
    ----------
    decoder_layer : Module
        Copied `num_layers` times: all start from its values.
    num_layers : int
    norm : Module, optional
        Applied last.
    """

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None,
                memory_key_padding_mask=None, tgt_is_causal=None, memory_is_causal=False):
        """tgt (T, B, C), memory (S, B, C), or batch first, or both without B -> like tgt; masks as above."""
        x = tgt
        for layer in self.layers:
            x = layer(x, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                      memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=bool(tgt_is_causal),
                      memory_is_causal=memory_is_causal)
        return x if self.norm is None else self.norm(x)


class Transformer(Module):
    """An encoder that reads src, and a decoder that writes tgt; both on vectors, so embeddings are up to the user.

    Parameters
    ----------
    d_model : int
        The width C.
    nhead : int
    num_encoder_layers, num_decoder_layers : int
    dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As in `TransformerEncoderLayer`.
    custom_encoder, custom_decoder : Module, optional
        Used in place of TransformerEncoder and TransformerDecoder, and called as they are.

    Raises
    ------
    ValueError
        If `nhead` does not divide `d_model`.
    """

    def __init__(self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048,
                 dropout=0.1, activation=F.relu, custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5,
                 batch_first=False, norm_first=False, bias=True, device=None, dtype=None):
        super().__init__()
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first)
        options = dict(bias=bias, device=device, dtype=dtype)
        encoder, decoder = custom_encoder, custom_decoder
        if encoder is None:
            first = TransformerEncoderLayer(*layer, **options)
            encoder = TransformerEncoder(first, num_encoder_layers, LayerNorm(d_model, layer_norm_eps, **options))
        if decoder is None:
            first = TransformerDecoderLayer(*layer, **options)
            decoder = TransformerDecoder(first, num_decoder_layers, LayerNorm(d_model, layer_norm_eps, **options))
        self.encoder, self.decoder = encoder, decoder
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self):
        """Draw all matrices from Xavier's uniform distribution."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    def forward(self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None,
                tgt_key_padding_mask=None, memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None,
                memory_is_causal=False):
        """Encode src, and decode tgt with it.

        Parameters
        ----------
        src : Tensor (S, B, C), or (B, S, C) with `batch_first`, or (S, C) without a batch
        tgt : Tensor (T, B, C), likewise
        src_mask, tgt_mask, memory_mask, src_key_padding_mask, tgt_key_padding_mask, memory_key_padding_mask
            See above; True means HIDDEN. `memory_key_padding_mask` is usually the same as `src_key_padding_mask`.
        src_is_causal, tgt_is_causal, memory_is_causal : bool
            Hints, see above.

        Returns
        -------
        Tensor like tgt

        Raises
        ------
        RuntimeError
            If the widths are not `d_model`, or the batches differ.
        """
        batch = slice(0, 1) if self.batch_first else slice(1, 2)
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"the batch number of src and tgt must be equal, got {src.shape} and {tgt.shape}")
        if not src.shape[-1] == tgt.shape[-1] == self.d_model:
            raise RuntimeError(f"src and tgt must be of width {self.d_model}, got {src.shape} and {tgt.shape}")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask,
                            tgt_key_padding_mask=tgt_key_padding_mask,
                            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal,
                            memory_is_causal=memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """The causal mask (sz, sz) to be added to scores: 0 on and below the diagonal, -inf above."""
        return full((sz, sz), -math.inf, device=device, dtype=dtype).triu(1)
