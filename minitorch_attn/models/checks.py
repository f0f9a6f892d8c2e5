"""What the models refuse, with a message that names the mend; nothing here is part of how a model works."""

__all__ = []


def check_sizes(config):
    """Raise ValueError unless the sizes are positive, and the width can be split over the heads, if there are any."""
    for name in ("vocab_size", "source_vocab", "target_vocab", "block_size", "n_embd", "n_hidden"):
        if getattr(config, name, None) is not None and getattr(config, name) < 1:
            raise ValueError(f"{name} must be at least 1, got {getattr(config, name)}")
    C, H = config.n_embd, getattr(config, "n_head", 1)
    if H < 1 or C % H:
        raise ValueError(f"n_embd={C} cannot be split over n_head={H} heads; make the width a multiple of the "
                         "number of heads")


def check_ids(ids, vocab, longest=None, past=0, name="ids"):
    """Raise unless `ids` are (batch, time), lie in the vocabulary, and fit a model that has read `past` tokens.

    Parameters
    ----------
    ids : Tensor (B, T), integers in [0, vocab)
    vocab : int
    longest : int, optional
        The model's `block_size`; None if it has no limit.
    past : int
        How many tokens its cache holds.
    name : str
        What the messages call `ids`.

    Raises
    ------
    TypeError
        If `ids` is no tensor.
    ValueError
        If it has another number of axes, or T and `past` together exceed `longest`.
    IndexError
        If an id lies outside the vocabulary.
    """
    if not hasattr(ids, "ndim") or not hasattr(ids, "numel"):
        raise TypeError(f"{name} must be a tensor (batch, time) of integers, got {type(ids).__name__}; "
                        "tensor(...) makes one of a list")
    if ids.ndim != 2:
        raise ValueError(f"{name} must be (batch, time), got shape {tuple(ids.shape)}"
                         + ("; ids[None] adds a batch axis" if ids.ndim == 1 else ""))
    if longest is not None and past + ids.shape[1] > longest:
        read = f"{ids.shape[1]} tokens" + (f" after {past} cached ones" if past else "")
        raise ValueError(f"{read} do not fit block_size={longest}; pass the last {longest} only, or make the "
                         "model with a larger block_size")
    check_range(ids, vocab, name)


def check_targets(targets, ids, vocab):
    """Raise unless `targets` is None, or has the shape of `ids` (ValueError) and lies in the vocabulary (IndexError).

    -100 stands where no answer counts.
    """
    if targets is not None:
        if targets.shape != ids.shape:
            raise ValueError(f"targets must have the shape of ids, {tuple(ids.shape)}, got {tuple(targets.shape)}")
        check_range(targets[targets != -100], vocab, "targets")


def check_range(tokens, vocab, name):
    """Raise IndexError unless all `tokens` lie in [0, vocab)."""
    if tokens.numel():
        low, high = int(tokens.min()), int(tokens.max())
        if low < 0 or high >= vocab:
            raise IndexError(f"{name} must lie in [0, {vocab}), the vocabulary, got {low if low < 0 else high}; was "
                             "the text encoded with another tokenizer?")
