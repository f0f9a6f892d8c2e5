"""Attention with learned projections."""
import math

from ..ops import cat, empty, zeros
from . import functional as F
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter

__all__ = ["AdditiveAttention", "MultiheadAttention"]


class MultiheadAttention(Module):
    r"""Several attentions side by side, each on its own projections of queries, keys and values.

    .. math::
        Y = [A_1, \dots, A_H]\, W_o^\top + b_o, \qquad
        A_h = \mathrm{attention}(Q W_{q,h}^\top + b_{q,h},\; K W_{k,h}^\top + b_{k,h},\; V W_{v,h}^\top + b_{v,h})

    with `functional.scaled_dot_product_attention` as the attention.

    **The masks have the opposite sign of scaled_dot_product_attention: here True means HIDDEN**, in
    `key_padding_mask` and in `attn_mask`, as in PyTorch. Floating-point masks are added to the scores in both.

    Differs from PyTorch: a query that may see no key gets a zero row of attention (so the out-projection's bias),
    where PyTorch gives NaN if the weights are asked for; returned weights are those before dropout; `is_causal` is a
    hint that is checked, the mask is used either way.

    Parameters
    ----------
    embed_dim : int
        Width C of queries and of the result; head h owns columns h D to (h + 1) D - 1 of the projections, D = C / H.
    num_heads : int
        H, which divides C.
    dropout : float
        Probability with which a weight is zeroed while training.
    bias : bool
        Whether the projections, input and output, have biases.
    add_bias_kv : bool
        Every query may also see one more key and value, which are learned.
    add_zero_attn : bool
        Every query may also see one more key and value, which are zero.
    kdim, vdim : int, optional
        Widths of keys and values; C unless given.
    batch_first : bool
        Inputs and the result are (B, T, C) instead of (T, B, C).
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    in_proj_weight : Parameter (3C, C)
        Rows for queries, keys, values; with other kdim or vdim instead q_proj_weight (C, C), k_proj_weight (C, kdim)
        and v_proj_weight (C, vdim). Xavier uniform.
    in_proj_bias : Parameter (3C,), zeros; or None
    out_proj : Linear (C -> C), its bias zeros
    bias_k, bias_v : Parameter (1, 1, C), Xavier normal; or None

    Raises
    ------
    ValueError
        If `embed_dim` or `num_heads` is not positive, or the second does not divide the first.

    References
    ----------
    Vaswani et al. 2017, "Attention Is All You Need", section 3.2.2.
    """

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None,
                 vdim=None, batch_first=False, device=None, dtype=None):
        if embed_dim <= 0 or num_heads <= 0 or embed_dim % num_heads:
            raise ValueError("embed_dim must be a multiple of num_heads, and both positive, "
                             f"got {embed_dim} and {num_heads}")
        super().__init__()
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = (embed_dim if n is None else n for n in (kdim, vdim))
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn

        def parameter(*shape):
            return Parameter(empty(shape, device=device, dtype=dtype))

        packed = self.kdim == self.vdim == embed_dim
        self.register_parameter("in_proj_weight", parameter(3 * embed_dim, embed_dim) if packed else None)
        for name, width in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            self.register_parameter(f"{name}_proj_weight", None if packed else parameter(embed_dim, width))
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, parameter(1, 1, embed_dim) if add_bias_kv else None)
        self._reset_parameters()

    def _reset_parameters(self):
        """Draw new values for all but out_proj.weight."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        if self.bias_k is not None:
            init.xavier_normal_(self.bias_k)
            init.xavier_normal_(self.bias_v)

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None,
                average_attn_weights=True, is_causal=False):
        """Let each query read from the values.

        Parameters
        ----------
        query : Tensor (T, B, C), or (B, T, C) with `batch_first`, or (T, C) without a batch
        key : Tensor (S, B, kdim), likewise
        value : Tensor (S, B, vdim), likewise
        key_padding_mask : Tensor (B, S), or (S,) without a batch, optional
            Boolean: TRUE MEANS HIDDEN (padding). Floating point: added to the scores.
        need_weights : bool
            Return the weights too; without them the whole attention is one kernel, which is faster.
        attn_mask : Tensor (T, S) or (B H, T, S), optional
            Boolean: TRUE MEANS HIDDEN. Floating point: added to the scores.
        average_attn_weights : bool
            Return the weights' mean over the heads.
        is_causal : bool
            A hint that `attn_mask` is the causal mask. The mask is used either way, so that a wrong hint does no harm.

        Returns
        -------
        y : Tensor like query
            A query that may see no key gets the bias of the output projection.
        weights : Tensor (B, T, S), or (B, H, T, S) without averaging, without B if there is no batch; or None
            As they are before dropout: a row sums to 1, or to 0 where the query may see no key.

        Raises
        ------
        RuntimeError
            If shapes do not fit, a mask is of integers, or `is_causal` comes without `attn_mask`.
        """
        self._check(query, key, value)
        if is_causal and attn_mask is None:
            raise RuntimeError("is_causal=True is only a hint about attn_mask, which is missing; make it by "
                               "Transformer.generate_square_subsequent_mask(T)")
        batched = query.ndim == 3
        if self._is_packed(query, key, value) and batched and not need_weights:
            return self._attend_packed(query, key_padding_mask, attn_mask), None
        q, k, v = self._project(query, key, value)
        if not batched:
            q, k, v = (x.unsqueeze(0 if self.batch_first else 1) for x in (q, k, v))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        k, v = self._append(k, self.bias_k), self._append(v, self.bias_v)
        q, k, v = (self._split_heads(x) for x in (q, k, v))
        mask = self._merge_masks(key_padding_mask, attn_mask, q.shape[0], q.shape[2], k.shape[2], q.dtype)
        weights, dropout = None, self.dropout if self.training else 0.0
        if need_weights:
            weights = F.attention_weights(q, k, mask)
            y = F.dropout(weights, dropout) @ v
            weights = weights.mean(1) if average_attn_weights else weights
        else:
            y = F.scaled_dot_product_attention(q, k, v, mask, dropout)
        y = self.out_proj(self._merge_heads(y))
        if not batched:
            y, weights = y.squeeze(0 if self.batch_first else 1), None if weights is None else weights.squeeze(0)
        return y, weights

    def _check(self, query, key, value):
        """Raise RuntimeError unless the shapes of the inputs fit."""
        widths = (self.embed_dim, self.kdim, self.vdim)
        batch = slice(0, 1) if self.batch_first else slice(1, 2)
        fit = query.ndim == key.ndim == value.ndim and query.ndim in (2, 3) and key.shape[:-1] == value.shape[:-1]
        fit = fit and (query.ndim == 2 or query.shape[batch] == key.shape[batch])
        if not fit or (query.shape[-1], key.shape[-1], value.shape[-1]) != widths:
            layout = "(B, T, {}), (B, S, {}), (B, S, {})" if self.batch_first else "(T, B, {}), (S, B, {}), (S, B, {})"
            raise RuntimeError(f"query, key and value must be {layout.format(*widths)}, or all without B, got "
                               f"{query.shape}, {key.shape}, {value.shape}")

    def _is_packed(self, query, key, value):
        """Whether one matrix product makes all queries, keys and values: the input's, and no `_append`ed ones."""
        return (query is key and key is value and self.in_proj_weight is not None
                and self.bias_k is None and not self.add_zero_attn)

    def _attend_packed(self, x, key_padding_mask, attn_mask):
        """`forward` without weights, where `_is_packed` holds: one kernel reads all three where they lie."""
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        qkv = qkv.unflatten(-1, (3, self.num_heads, self.head_dim))  # (..., 3C) -> (..., 3, H, D)
        qkv = qkv if self.batch_first else qkv.transpose(0, 1)  # -> (B, T, 3, H, D)
        batch, steps = qkv.shape[:2]
        mask = self._merge_masks(key_padding_mask, attn_mask, batch, steps, steps, x.dtype)
        y = F.packed_attention(qkv, mask, self.dropout if self.training else 0.0).flatten(-2)  # -> (B, T, C)
        return self.out_proj(y if self.batch_first else y.transpose(0, 1))

    def _project(self, query, key, value):
        """Queries, keys and values by the input projections: those of one tensor in one matrix product."""
        w, b, c = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        if w is not None and query is key and key is value:
            return F.linear(query, w, b).chunk(3, -1)  # (..., C) -> (..., 3C) -> (..., C), (..., C), (..., C)
        b_q, b_k, b_v = (None, None, None) if b is None else b.chunk(3)
        if w is not None and key is value:
            k, v = F.linear(key, w[c:], None if b is None else b[c:]).chunk(2, -1)
            return F.linear(query, w[:c], b_q), k, v
        w_q, w_k, w_v = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if w is None else w.chunk(3)
        return F.linear(query, w_q, b_q), F.linear(key, w_k, b_k), F.linear(value, w_v, b_v)

    def _append(self, x, bias):
        """Keys or values with what every query may see besides: `bias`, if any, and zeros, if wanted."""
        time = 1 if self.batch_first else 0
        shape = [1 if i == time else n for i, n in enumerate(x.shape)]
        more = [] if bias is None else [bias.expand(shape)]
        if self.add_zero_attn:
            more.append(zeros(shape, dtype=x.dtype))
        return cat([x, *more], time) if more else x

    def _split_heads(self, x):
        """(T, B, C) or (B, T, C) -> (B, H, T, D), a view."""
        x = x.unflatten(-1, (self.num_heads, self.head_dim))  # (..., C) -> (..., H, D)
        return x.permute(0, 2, 1, 3) if self.batch_first else x.permute(1, 2, 0, 3)

    def _merge_heads(self, y):
        """(B, H, T, D) -> (T, B, C) or (B, T, C)."""
        y = y.permute(0, 2, 1, 3) if self.batch_first else y.permute(2, 0, 1, 3)
        return y.flatten(-2)  # (..., H, D) -> (..., C)

    def _merge_masks(self, key_padding_mask, attn_mask, batch, steps, keys, dtype):
        """Both masks as one of scaled_dot_product_attention, which broadcasts to (B, H, T, S), or None."""
        heads, extra = self.num_heads, (self.bias_k is not None) + self.add_zero_attn
        keys -= extra  # those appended at the end are never hidden, so the masks have no columns for them
        masks = []
        if attn_mask is not None:
            if attn_mask.shape not in ((steps, keys), (batch * heads, steps, keys)):
                raise RuntimeError(f"attn_mask must be {(steps, keys)} or {(batch * heads, steps, keys)}, got "
                                   f"{attn_mask.shape}")
            masks.append(attn_mask if attn_mask.ndim == 2 else attn_mask.unflatten(0, (batch, heads)))
        if key_padding_mask is not None:
            if key_padding_mask.shape != (batch, keys):
                raise RuntimeError(f"key_padding_mask must be {(batch, keys)}, got {key_padding_mask.shape}")
            masks.append(key_padding_mask[:, None, None])  # (B, S) -> (B, 1, 1, S)
        for m in masks:
            if m.dtype.kind not in "bf":
                raise RuntimeError("a mask must be boolean (True means hidden) or floating point (added to the "
                                   f"scores), got {m.dtype}; a mask of 0 and 1 becomes boolean by .bool()")
        if extra:
            masks = [cat([m, zeros(*m.shape[:-1], extra, dtype=m.dtype)], -1) for m in masks]
        if not masks:
            return None
        if all(m.dtype.kind == "b" for m in masks):
            return ~masks[0] if len(masks) == 1 else ~(masks[0] | masks[1])
        added = [zeros(m.shape, dtype=dtype).masked_fill(m, -math.inf) if m.dtype.kind == "b" else m for m in masks]
        return added[0] if len(added) == 1 else added[0] + added[1]


class AdditiveAttention(Module):
    r"""Attention whose scores are those of a small network, for queries and keys of different widths.

    .. math:: Y = \mathrm{softmax}(a)\, V, \qquad a_{ts} = v \cdot \tanh(W_q q_t + W_k k_s)

    **Boolean masks say what may be SEEN (True may be seen)**, as in `functional`.

    Parameters
    ----------
    query_dim, key_dim : int
    hidden : int
        The width A of W_q q and W_k k.
    device, dtype : "cpu" and the parameters' dtype; optional

    References
    ----------
    Bahdanau, Cho and Bengio 2015, "Neural Machine Translation by Jointly Learning to Align and Translate",
    appendix A.1.2.
    """

    def __init__(self, query_dim, key_dim, hidden, device=None, dtype=None):
        super().__init__()
        self.w_query = Linear(query_dim, hidden, bias=False, device=device, dtype=dtype)
        self.w_key = Linear(key_dim, hidden, bias=False, device=device, dtype=dtype)
        self.v = Parameter(empty(hidden, device=device, dtype=dtype))
        init.uniform_(self.v, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def forward(self, query, key, value, attn_mask=None, projected_key=None):
        """Let each query read from the values.

        Parameters
        ----------
        query : Tensor (..., T, query_dim)
        key : Tensor (..., S, key_dim)
        value : Tensor (..., S, E)
        attn_mask : Tensor broadcastable to (..., T, S), optional
            Boolean: True may be SEEN. Floating point: added to the scores.
        projected_key : Tensor (..., S, A), optional
            ``w_key(key)``, where a decoder has computed it once for all its steps; `key` is not used then.

        Returns
        -------
        y : Tensor (..., T, E)
        weights : Tensor (..., T, S); each row sums to 1, or is zero.
        """
        k = self.w_key(key) if projected_key is None else projected_key
        weights = F.masked_softmax(F.additive_scores(self.w_query(query), k, self.v), attn_mask)
        return weights @ value, weights
