"""Joint attention: several streams of tokens laid end to end, one softmax over all of them, and who read from whom."""
from ...ops.shape import cat, split
from .attention import attention_weights, scaled_dot_product_attention

__all__ = ["joint_attention", "stream_shares"]


def joint_attention(queries, keys, values, attn_mask=None, dropout_p=0.0, *, scale=None):
    r"""Attention among several streams: each query reads the tokens of all streams, by one softmax.

    .. math:: [Y_1; \dots; Y_n] = \mathrm{attention}([Q_1; \dots; Q_n],\; [K_1; \dots; K_n],\; [V_1; \dots; V_n])

    In one softmax streams compete: four tokens among two hundred get about a fiftieth of the weight until training
    says otherwise. What must not be read is hidden by a mask, such as `block_causal_mask` of the streams' lengths.

    Parameters
    ----------
    queries : sequence of Tensors (..., T_i, D), one for each stream
    keys : sequence of Tensors (..., S_i, D)
    values : sequence of Tensors (..., S_i, E)
    attn_mask : Tensor broadcastable to (..., sum of T_i, sum of S_i), optional
        Boolean: True may be seen. Floating point: added to the scores.
    dropout_p : float in [0, 1]
    scale : float, optional

    Returns
    -------
    tuple of Tensors (..., T_i, E)

    Raises
    ------
    RuntimeError
        As `scaled_dot_product_attention`.

    References
    ----------
    Esser et al. 2024, "Scaling Rectified Flow Transformers for High-Resolution Image Synthesis", section 4 (MMDiT).
    Liang et al. 2024, "Mixture-of-Transformers", algorithm 1.
    """
    q, k, v = (cat(list(x), -2) for x in (queries, keys, values))  # (..., T_i, D) -> (..., T, D)
    y = scaled_dot_product_attention(q, k, v, attn_mask, dropout_p, scale=scale)
    return split(y, [x.shape[-2] for x in queries], -2)  # (..., T, E) -> (..., T_i, E)


def stream_shares(queries, keys, attn_mask=None, *, scale=None):
    """How much of their weight the queries of each stream give to the keys of each stream.

    Parameters
    ----------
    queries, keys, attn_mask, scale
        As in `joint_attention`.

    Returns
    -------
    Tensor (..., n, n)
        Row i: the mean over stream i's queries of the weight on the keys of streams 0 to n - 1. A row sums to 1, or to
        the fraction of queries that may see anything; it is zero for a stream without queries. A small share need not
        mean a small contribution: values differ in size.
    """
    weights = attention_weights(cat(list(queries), -2), cat(list(keys), -2), attn_mask, scale=scale)
    rows = [part.sum(-2) / max(part.shape[-2], 1)  # (..., T_i, S) -> (..., S)
            for part in split(weights, [x.shape[-2] for x in queries], -2)]
    return cat([cat([part.sum(-1, keepdim=True) for part in split(row, [x.shape[-2] for x in keys], -1)], -1)
                .unsqueeze(-2) for row in rows], -2)
