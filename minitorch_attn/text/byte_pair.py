"""Byte-level byte-pair encoding: start from the 256 bytes and give a new token to the commonest pair, again and again.

Every text is bytes in UTF-8, so that nothing is ever unknown: what the training text had no use for stays bytes.

References
----------
Gage (1994), "A New Algorithm for Data Compression" (the pairs).
Sennrich, Haddow, Birch (2016), "Neural Machine Translation of Rare Words with Subword Units" (for words).
Radford, Wu, Child, Luan, Amodei, Sutskever (2019), "Language Models are Unsupervised Multitask Learners" (bytes, and
no merge across kinds of characters; section 2.2).
"""
import collections
import itertools
import json
import re

from .ids import checked_ids
from .special import check_names, split_special

__all__ = ["BytePairTokenizer"]

# No token reaches over the border of two pieces: a contraction's end, letters, digits, other marks (these three with
# the space before them), or white space.
PIECE = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def to_utf8(text):
    """The bytes of `text`; half of a surrogate pair, such as "\\ud83d", is no character and gives those of U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode("utf-8")


def pieces_of(data):
    """Cut bytes into pieces of one kind of character each; bytes that are not UTF-8 count as other marks."""
    text = data.decode("utf-8", "surrogateescape")
    return [piece.encode("utf-8", "surrogateescape") for piece in PIECE.findall(text)]


def merge(ids, pair, new):
    """`ids` with each `pair` in it, from the left, replaced by the id `new`."""
    merged, i = [], 0
    while i < len(ids):
        found = ids[i] == pair[0] and i + 1 < len(ids) and ids[i + 1] == pair[1]
        merged.append(new if found else ids[i])
        i += 2 if found else 1
    return merged


class PairCounts:
    """How often each pair of neighbouring tokens occurs in a text, kept up to date while pairs are merged.

    A merge changes the pieces that have the pair and no others, so only these are counted again. Equal pieces are
    held once, with their number, in the order in which they occur first.

    Parameters
    ----------
    pieces : iterable of bytes
    """

    def __init__(self, pieces):
        numbers = collections.Counter(pieces)  # remembers the order of first occurrence
        self.pieces, self.numbers = [list(piece) for piece in numbers], list(numbers.values())
        self.counts = collections.Counter()
        self.where = collections.defaultdict(set)  # pair -> the indices of the pieces that have it
        for index in range(len(self.pieces)):
            self.count(index)

    def count(self, index, sign=1):
        """Add the pairs of one piece, or with `sign` = -1 take them off."""
        ids, times = self.pieces[index], sign * self.numbers[index]
        for pair, n in collections.Counter(itertools.pairwise(ids)).items():
            self.counts[pair] += n * times
            if sign > 0:
                self.where[pair].add(index)
            else:
                self.where[pair].discard(index)
                if not self.counts[pair]:
                    del self.counts[pair], self.where[pair]

    def first_place(self, pair):
        """Where in the text, as it is cut now, `pair` occurs first."""
        index = min(self.where[pair])
        ids = self.pieces[index]
        return index, next(i for i in range(len(ids) - 1) if (ids[i], ids[i + 1]) == pair)

    def commonest(self):
        """The pair with the highest count, of equal ones that which occurs first; None if none occurs twice."""
        top = max(self.counts.values(), default=0)
        if top < 2:
            return None
        return min((pair for pair, n in self.counts.items() if n == top), key=self.first_place)

    def merge(self, pair, new):
        """Replace `pair` by the token `new` everywhere."""
        for index in sorted(self.where[pair]):
            self.count(index, -1)
            self.pieces[index] = merge(self.pieces[index], pair, new)
            self.count(index)


class BytePairTokenizer:
    """Turn text into ids and back, by merging pairs of byte tokens in a fixed order.

    Ids 0 to 255 are the bytes, the next ones the merges in their order, the last ones the special tokens.

    Parameters
    ----------
    merges : sequence of (int, int)
        Merge i replaces a pair of ids below 256 + i by the id 256 + i; see `train`.
    special_tokens : sequence of str
        Tokens that stand for no text but control a model, such as the end of a document.

    Attributes
    ----------
    merges : list of (int, int)
    vocabulary : list of bytes
        What each id stands for; a special token for its name.
    special_ids : dict of str to int

    Raises
    ------
    ValueError
        If a merge uses an id that is not there yet or repeats an earlier pair, or the special tokens are not distinct
        non-empty strings.

    Examples
    --------
    >>> tokenizer = BytePairTokenizer.train("aaabdaaabac", 259)
    >>> tokenizer.merges
    [(97, 97), (256, 97), (257, 98)]
    >>> tokenizer.encode("aaabdaaabac")
    [258, 100, 258, 97, 99]
    """

    def __init__(self, merges=(), special_tokens=()):
        self.merges = [tuple(pair) for pair in merges]
        self.vocabulary = [bytes([b]) for b in range(256)]
        self.rank = {}  # pair -> its id: what was merged earlier has the smaller one
        for pair in self.merges:
            new = len(self.vocabulary)
            if len(pair) != 2 or not all(type(i) is int and 0 <= i < new for i in pair) or pair in self.rank:
                raise ValueError(f"merge {new - 256} is {pair}; it must be a new pair of ids from 0 to {new - 1}")
            self.rank[pair] = new
            self.vocabulary.append(self.vocabulary[pair[0]] + self.vocabulary[pair[1]])
        names = check_names(special_tokens)
        self.special_ids = {name: len(self.vocabulary) + i for i, name in enumerate(names)}
        self.vocabulary += [to_utf8(name) for name in names]
        self.known = {}  # piece -> its ids: the same words come again and again

    @classmethod
    def train(cls, text, vocab_size, special_tokens=()):
        """A tokenizer whose merges are the commonest pairs of `text`, of equal ones that which is seen first.

        Training stops early, with fewer tokens, when no pair occurs twice: at once for an empty text.

        Parameters
        ----------
        text : str
            Special tokens in it separate documents; nothing is learnt from them.
        vocab_size : int
            How many tokens at most: 256 bytes, the merges, and the special tokens.
        special_tokens : sequence of str

        Raises
        ------
        ValueError
            If `vocab_size` has no room for the bytes and the special tokens.
        """
        names = check_names(special_tokens)
        room = vocab_size - 256 - len(names)
        if room < 0:
            raise ValueError(f"vocab_size={vocab_size} is too small for 256 bytes and {len(names)} special tokens")
        parts = [part for part, is_special in split_special(text, names, "allow") if not is_special]
        pairs, merges = PairCounts(piece for part in parts for piece in pieces_of(to_utf8(part))), []
        while len(merges) < room:
            pair = pairs.commonest()
            if pair is None:
                break
            pairs.merge(pair, 256 + len(merges))
            merges.append(pair)
        return cls(merges, names)

    def __len__(self):
        return len(self.vocabulary)

    def encode(self, text, special="raise"):
        """The ids of `text`, as a list.

        Parameters
        ----------
        text : str
            Half a surrogate pair in it counts as U+FFFD.
        special : "raise", "allow" or "text"
            What to do where `text` spells a special token: refuse, give its id, or encode its characters.

        Raises
        ------
        ValueError
            If `special` is "raise" and `text` spells a special token.
        """
        ids = []
        for part, is_special in split_special(text, list(self.special_ids), special):
            ids += [self.special_ids[part]] if is_special else self.encode_bytes(to_utf8(part))
        return ids

    def encode_bytes(self, data):
        """The ids of any bytes, UTF-8 or not, as a list; special tokens are never among them."""
        ids = []
        for piece in pieces_of(data):
            if piece not in self.known:
                if len(self.known) >= 100_000:
                    self.known.clear()
                self.known[piece] = self.encode_piece(piece)
            ids += self.known[piece]
        return ids

    def encode_piece(self, piece):
        """The ids of one piece: of the pairs in it, the one that was learnt first is merged first."""
        ids = list(piece)
        while len(ids) > 1:
            pair = min(itertools.pairwise(ids), key=lambda pair: self.rank.get(pair, len(self)))
            if pair not in self.rank:
                break
            ids = merge(ids, pair, self.rank[pair])
        return ids

    def decode_bytes(self, ids):
        """The bytes of `ids`, a sequence or a 1-D tensor of integers.

        Raises
        ------
        TypeError
            If an id is no whole number.
        IndexError
            If an id lies outside the vocabulary; a negative one does not count from the end.
        """
        return b"".join([self.vocabulary[i] for i in checked_ids(ids, len(self))])

    def decode(self, ids, errors="replace"):
        """The text of `ids`, a sequence or a 1-D tensor of integers.

        Parameters
        ----------
        ids : sequence of int
        errors : "replace" or "strict"
            What to do with bytes that are not UTF-8, as a model may write them: give U+FFFD, or raise.

        Raises
        ------
        TypeError
            If an id is no whole number.
        IndexError
            If an id lies outside the vocabulary.
        UnicodeDecodeError
            If `errors` is "strict" and the bytes are not UTF-8.
        """
        return self.decode_bytes(ids).decode("utf-8", errors)

    def save(self, path):
        """Write the tokenizer to `path` as JSON."""
        content = {"type": "byte_pair", "merges": self.merges, "special_tokens": list(self.special_ids)}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file)

    @classmethod
    def load(cls, path):
        """The tokenizer that `save` wrote.

        Raises
        ------
        ValueError
            If the file is something else; the message says what is wrong.
        """
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            if content.get("type") != "byte_pair":
                raise ValueError(f'its type is {content.get("type")!r}, not "byte_pair"')
            return cls(content["merges"], content["special_tokens"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a saved byte-pair tokenizer: {error!r}") from error
