"""Beam search: of all sequences that a decoder can write, find one that is nearly the likeliest.

Greedy writing takes the likeliest token at each step, which may lead to where only unlikely ones follow. A beam keeps
the W likeliest beginnings instead, and drops the others; W = 1 is greedy.

References
----------
Wu et al. (2016), "Google's Neural Machine Translation System" (the length penalty: section 7, equation 14).
"""
import math

from ..nn import functional as F
from ..ops import arange, cat, full, where, zeros

__all__ = ["beam_search"]


def beam_search(step, reorder, batch, width, max_new_tokens, config, length_penalty=0.0):
    """The best of `width` sequences for each sample of a batch.

    The B W rows of every tensor are the beams: W for the first sample, then W for the second, and so on.

    Parameters
    ----------
    step : function of ids (B W, 1 + n) -> logits (B W, V)
        For the token after `start_id` and the n tokens that were written.
    reorder : function of rows (B W,)
        Told which old beam each new one continues, before the next step: for the decoder's cache.
    batch, width, max_new_tokens : int
    config : anything with target_vocab, pad_id, start_id and end_id
        Padding and start are never written.
    length_penalty : float
        Sequences compare by log-likelihood / ((5 + length) / 6)^length_penalty, as longer ones are less likely.

    Returns
    -------
    ids : Tensor (B, n), n <= max_new_tokens
        Rows end with `end_id`, if they ended, and are filled up with `pad_id`.
    scores : Tensor (B,)
        The log-likelihood of each in nats, before the length penalty.

    Raises
    ------
    ValueError
        If `width` is below 1, or `max_new_tokens` negative.
    """
    V, B, W = config.target_vocab, batch, width
    if W < 1 or max_new_tokens < 0:
        raise ValueError(f"width must be at least 1, and max_new_tokens not negative, got {W} and {max_new_tokens}")
    first_row = arange(B)[:, None] * W  # of each sample's beams
    ids, done = full((B * W, 1), config.start_id), zeros(B * W).bool()
    scores = zeros(B, W).masked_fill(arange(W) > 0, -math.inf)  # at first the beams are all the same: only one counts
    never = (arange(V) == config.pad_id) | (arange(V) == config.start_id)
    only_padding = zeros(V).masked_fill(arange(V) != config.pad_id, -math.inf)  # and that for free: log 1 = 0
    for _ in range(max_new_tokens):
        logp = F.log_softmax(step(ids), -1).masked_fill(never, -math.inf)     # (B W, V)
        logp = where(done[:, None], only_padding, logp)
        total = (scores[:, :, None] + logp.view(B, W, V)).flatten(1)          # (B, W, V) -> (B, W V)
        scores, best = total.topk(W, dim=1)                                   # -> (B, W)
        beam, token = best // V, best % V
        rows = (first_row + beam).flatten()                                   # (B, W) -> (B W,)
        reorder(rows)
        ids = cat([ids[rows], token.reshape(-1, 1)], dim=1)                      # (B W, 1 + n) -> (B W, 2 + n)
        done = (ids[:, 1:] == config.end_id).any(1)
        if bool(done.all()):
            break
    length = (ids[:, 1:] != config.pad_id).sum(1).reshape(B, W)
    fair = scores / ((5 + length) / 6) ** length_penalty
    best = (first_row + fair.argmax(1, keepdim=True))[:, 0]                   # (B, W) -> (B,)
    return ids[best, 1:], scores.flatten()[best]
