"""Special tokens: what a tokenizer does with text that spells one, such as "<|endoftext|>"."""
import re

__all__ = []


def check_names(names):
    """The special tokens as a list of distinct non-empty strings; ValueError otherwise."""
    names = list(names)
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise ValueError(f"special tokens must be distinct non-empty strings, got {names}")
    return names


def split_special(text, names, special):
    """Cut `text` at the special tokens in it.

    Text of a user must never turn into a token that controls the model, so that it is refused unless the caller
    says what is meant.

    Parameters
    ----------
    text : str
    names : sequence of str
        The special tokens. Where several fit at one place, the longest is meant.
    special : "raise", "allow" or "text"
        What to do where `text` spells a special token: refuse, take it for the token, or take it for plain text.

    Returns
    -------
    list of (str, bool)
        The parts in order, and whether each is a special token.

    Raises
    ------
    ValueError
        If `special` is another word, or is "raise" and `text` holds a special token; the message says which and where.
    """
    if special not in ("raise", "allow", "text"):
        raise ValueError(f'special must be "raise", "allow" or "text", got {special!r}')
    if not names or special == "text":
        return [(text, False)] if text else []
    pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    if special == "raise":
        found = re.search(pattern, text)
        if found:
            raise ValueError(f"the text spells the special token {found[0]!r} at position {found.start()}; pass "
                             'special="allow" if the token is meant, or special="text" if only its characters are')
        return [(text, False)] if text else []
    parts = re.split(f"({pattern})", text)  # text, token, text, token, ..., text
    return [(part, i % 2 == 1) for i, part in enumerate(parts) if part]
