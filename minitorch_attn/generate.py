"""Continue a sequence with a language model: choose the next token, append it, and read on from the cache.

Choosing has up to six steps, in this order: repetition penalty, temperature, top-k, top-p, min-p, draw. Each of the
filters is a function from logits to logits that sets what it refuses to -inf, whose probability is 0.

References
----------
Fan, Lewis, Dauphin (2018), "Hierarchical Neural Story Generation" (top-k).
Holtzman, Buys, Du, Forbes, Choi (2020), "The Curious Case of Neural Text Degeneration" (top-p).
Nguyen et al. (2024), "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs" (min-p).
Keskar, McCann, Varshney, Xiong, Socher (2019), "CTRL" (repetition penalty, section 4.1).
"""
import math
import numbers

from .grad_mode import no_grad
from .nn.functional import softmax
from .ops import arange, cat, multinomial, where, zeros_like

__all__ = ["generate", "keep_min_p", "keep_top_k", "keep_top_p", "next_token", "penalize_repetition", "stream",
           "temper"]

TOLERANCE = 1e-6  # float32 logits give probabilities to about this; nearer than it counts as equal


def penalize_repetition(logits, ids, penalty):
    """Make the tokens that occurred less likely: positive logits are divided by `penalty`, negative multiplied.

    Parameters
    ----------
    logits : Tensor (B, V)
    ids : Tensor (B, T)
        Everything read and generated so far.
    penalty : float
        Above 1 discourages repetition, 1 changes nothing.

    Raises
    ------
    ValueError
        If `penalty` is not positive.
    """
    if not penalty > 0:
        raise ValueError(f"repetition_penalty must be positive, got {penalty}")
    seen = logits.gather(-1, ids)                                             # (B, V) -> (B, T)
    return logits.scatter(-1, ids, where(seen > 0, seen / penalty, seen * penalty))


def without_padding(ids, pad_id):
    """`ids` (B, T) with the last token of each row in the place of the padding before its text.

    So what reads them takes up nothing that does not occur in the text.
    """
    return where((ids != pad_id).cumsum(1) == 0, ids[:, -1:], ids)


def temper(logits, temperature):
    """Divide by a positive temperature: below 1 favours the likely tokens, above 1 evens them out.

    Differences from the largest logit are divided, so that a small temperature never overflows to inf - inf; and in
    float64, as a temperature such as 1e-50 is 0 in float32, and 0 / 0 NaN.
    """
    return (logits - logits.amax(-1, keepdim=True)).double() / temperature


def refuse(logits, order, refused):
    """Set the refused tokens' logits to -inf; `refused` is given in sorted order, `order` being the argsort."""
    # put `refused` back in token order
    return logits.masked_fill(zeros_like(refused).scatter(-1, order, refused), -math.inf)


def keep_top_k(logits, k):
    """Keep the `k` largest of the last axis, exactly: between equal ones the smaller id stays.

    A `k` above the size of the vocabulary keeps everything.

    Raises
    ------
    TypeError
        If `k` is no whole number.
    ValueError
        If it is below 1.
    """
    if not isinstance(k, numbers.Integral):
        raise TypeError(f"top_k is a number of tokens, got {k!r}")
    if k < 1:
        raise ValueError(f"top_k must be at least 1, got {k}; leave it out to keep every token")
    order = logits.argsort(dim=-1, descending=True, stable=True)
    return refuse(logits, order, (arange(logits.shape[-1]) >= k).expand(logits.shape))


def keep_top_p(logits, p, min_tokens_to_keep=1):
    """Keep the fewest most likely tokens whose probabilities reach `p` together (the nucleus).

    In descending order a token is dropped if the tokens before it already sum to `p` or more. The most likely one
    always stays, so `p` = 0 is greedy.

    Parameters
    ----------
    logits : Tensor (..., V)
    p : float
        Probability in [0, 1]; 1 keeps everything.
    min_tokens_to_keep : int
        So many of the most likely tokens stay in any case.

    Raises
    ------
    ValueError
        If `p` lies outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"top_p is a probability in [0, 1], got {p}")
    if p == 1:
        return logits
    order = logits.argsort(dim=-1, descending=True, stable=True)
    probs = softmax(logits.double(), -1).gather(-1, order)
    before = probs.cumsum(-1) - probs  # what the more likely tokens have together
    return refuse(logits, order, (before > p - TOLERANCE) & (arange(logits.shape[-1]) >= min_tokens_to_keep))


def keep_min_p(logits, p, min_tokens_to_keep=1):
    """Keep the tokens that are at least `p` times as likely as the most likely one.

    Raises
    ------
    ValueError
        If `p` lies outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"min_p is a probability in [0, 1], got {p}")
    if p == 0:
        return logits
    # sorted only for the sake of `min_tokens_to_keep`
    order = logits.argsort(dim=-1, descending=True, stable=True)
    behind = logits.gather(-1, order) - logits.amax(-1, keepdim=True)  # log of the ratio of the probabilities
    refused = (behind < math.log(p) - TOLERANCE) & (arange(logits.shape[-1]) >= min_tokens_to_keep)
    return refuse(logits, order, refused)


def next_token(logits, ids=None, *, temperature=1.0, top_k=None, top_p=None, min_p=None, repetition_penalty=None,
               generator=None):
    """Choose a token from the logits of each row.

    Parameters
    ----------
    logits : Tensor (B, V)
    ids : Tensor (B, T)
        The sequence so far; only the repetition penalty reads it.
    temperature : float
        0 takes the most likely token, the smallest id of equals; nothing is drawn.
    top_k : int, optional
    top_p, min_p : float, optional
    repetition_penalty : float, optional
    generator : Generator, optional
        Where the random numbers come from; by default the one that `manual_seed` sets.

    Returns
    -------
    Tensor (B, 1), int64

    Raises
    ------
    ValueError
        If `temperature` is negative, or another setting out of its range, or `repetition_penalty` comes without `ids`.
    """
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 (greedy) or positive, got {temperature}")
    if repetition_penalty is not None:
        if ids is None:
            raise ValueError("repetition_penalty needs `ids`, the tokens that have occurred")
        logits = penalize_repetition(logits, ids, repetition_penalty)
    if temperature > 0:
        logits = temper(logits, temperature)
    if top_k is not None:
        logits = keep_top_k(logits, top_k)
    if top_p is not None:
        logits = keep_top_p(logits, top_p)
    if min_p is not None:
        logits = keep_min_p(logits, min_p)
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)                                # (B, V) -> (B, 1)
    return multinomial(softmax(logits, -1), 1, generator=generator)           # (B, V) -> (B, 1)


@no_grad()
def stream(model, ids, max_new_tokens, *, use_cache=True, stop_id=None, **choice):
    """Generate token by token: a Python generator of Tensors (B, 1), one for each new token.

    The arguments are those of `generate`.
    """
    longest, cache, pad_id = model.config.block_size, None, getattr(model.config, "pad_id", None)
    use_cache = use_cache and hasattr(model, "new_cache")
    done = zeros_like(ids[:, :1]).bool()                                      # (B, T) -> (B, 1)
    for _ in range(max_new_tokens):
        if not use_cache:
            logits = model(ids[:, -longest:])[0]
        elif cache is not None and len(cache) < longest:
            logits = model(ids[:, -1:], cache=cache)[0]
        else:  # the start, or no room: read the window anew
            cache = model.new_cache()
            logits = model(ids[:, -longest:], cache=cache)[0]
        text = ids if pad_id is None else without_padding(ids, pad_id)
        token = next_token(logits[:, -1], text, **choice)                     # (B, T, V) -> (B, 1)
        if stop_id is not None:
            token = token.masked_fill(done, stop_id)
            done = done | (token == stop_id)
        yield token
        if stop_id is not None and bool(done.all()):
            return
        ids = cat([ids, token], dim=1)                                        # (B, T), (B, 1) -> (B, T+1)


def generate(model, ids, max_new_tokens, *, temperature=1.0, top_k=None, top_p=None, min_p=None,
             repetition_penalty=None, generator=None, use_cache=True, stop_id=None):
    """Continue each row of `ids` by up to `max_new_tokens` tokens.

    With the cache each step reads one token; without it, the whole sequence again. Both give the same tokens. Once
    the sequence is longer than the model's `block_size`, the model sees its last `block_size` tokens, as if the
    sequence began there: the window slides by one a step, so its keys and values change and are read anew.

    The model is used in the mode it is in: call ``model.eval()`` first, or dropout stays at work.

    Parameters
    ----------
    model : GPT
        Or another with ``config.block_size`` and ``model(ids)``, whose first result is the logits (B, T, V). A cache
        takes ``new_cache()``, whose ``len`` counts the tokens read, and ``model(ids, cache=cache)``.
    ids : Tensor (B, T), int64
        At least one token in each row. Where the model has a ``config.pad_id``, shorter rows are padded on the left.
    max_new_tokens : int
    temperature, top_k, top_p, min_p, repetition_penalty, generator
        How a token is chosen; see `next_token`.
    use_cache : bool
        A model without ``new_cache`` is read without one.
    stop_id : int, optional
        A row ends with this token, and is filled with it until all rows have ended.

    Returns
    -------
    Tensor (B, T + n), n <= max_new_tokens
        `ids` and the new tokens.

    Raises
    ------
    ValueError
        If `ids` is not (B, T) with T at least 1, or a setting is out of its range.
    """
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise ValueError(f"ids must be (batch, time) with at least one token to start from, got {tuple(ids.shape)}")
    if max_new_tokens < 0:
        raise ValueError(f"max_new_tokens must not be negative, got {max_new_tokens}")
    choice = dict(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p,
                  repetition_penalty=repetition_penalty, generator=generator)
    tokens = stream(model, ids, max_new_tokens, use_cache=use_cache, stop_id=stop_id, **choice)
    return cat([ids, *tokens], dim=1)
