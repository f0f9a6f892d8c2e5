"""A tokenizer whose tokens are characters: the smallest one that is still useful."""
from .ids import checked_ids

__all__ = ["CharacterTokenizer"]


class CharacterTokenizer:
    """Turn text into ids and back, one id a character.

    The vocabulary is every distinct character of `text` in the order of their code points, and a character's id
    is its place there. The same characters therefore get the same ids, whatever text they were gathered from.

    Parameters
    ----------
    text : str
        Where the vocabulary comes from; at least one character.

    Attributes
    ----------
    vocabulary : list of str
        The character of each id.

    Raises
    ------
    ValueError
        If `text` is empty.

    Examples
    --------
    >>> tokenizer = CharacterTokenizer("床前明月光")
    >>> tokenizer.encode("明月")
    [3, 4]
    >>> tokenizer.decode([3, 4])
    '明月'
    """

    def __init__(self, text):
        if not text:
            raise ValueError("a vocabulary needs at least one character, got an empty text")
        self.vocabulary = sorted(set(text))
        self.id_of = {character: i for i, character in enumerate(self.vocabulary)}

    def __len__(self):
        return len(self.vocabulary)

    def encode(self, text):
        """The ids of the characters of `text`, as a list.

        Raises
        ------
        ValueError
            If a character is not in the vocabulary; the message names it, and the place where it stands first.
        """
        try:
            return [self.id_of[character] for character in text]
        except KeyError:
            unknown = sorted(set(text) - set(self.vocabulary), key=text.index)
            named = ", ".join(f"{character!r} (position {text.index(character)})" for character in unknown[:5])
            more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
            raise ValueError(f"not among the {len(self)} characters of the vocabulary: {named}{more}; build the "
                             "tokenizer from a text that has them, or leave them out") from None

    def decode(self, ids):
        """The text of `ids`, a sequence or a 1-D tensor of integers.

        Raises
        ------
        TypeError
            If an id is no whole number.
        IndexError
            If an id lies outside the vocabulary; a negative one does not count from the end.
        """
        return "".join([self.vocabulary[i] for i in checked_ids(ids, len(self))])
