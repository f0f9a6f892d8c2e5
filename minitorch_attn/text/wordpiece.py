"""WordPiece, the tokenizer of BERT: words are cut into the longest pieces that the vocabulary has.

"unaffable" may become "un", "##aff", "##able": ## marks a piece that continues a word.

References
----------
Schuster, Nakajima (2012), "Japanese and Korean Voice Search" (which merge: the one that makes the training text
likeliest; section 4).
Wu et al. (2016), "Google's Neural Machine Translation System", section 4.1.
Devlin, Chang, Lee, Toutanova (2019), "BERT" (the special tokens, and how text is cut into words).
"""
import collections
import json
import math
import unicodedata

from .byte_pair import PairCounts
from .ids import checked_ids
from .special import check_names, split_special

__all__ = ["WordPieceTokenizer"]

CHINESE = [("\u3400", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff")]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def stands_alone(character):
    """Whether a character is a word by itself: punctuation, and Chinese characters, which are written unspaced."""
    ascii_mark = character.isascii() and character.isprintable() and not character.isalnum()
    chinese = any(first <= character <= last for first, last in CHINESE)
    return ascii_mark or chinese or unicodedata.category(character)[0] == "P"


def words_of(text, lowercase):
    """The words of `text`, without white space; what cannot be seen, such as a soft hyphen, separates nothing."""
    if lowercase:
        text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    spaced = []
    for c in text:
        if c.isspace():
            spaced.append(" ")
        elif unicodedata.category(c) not in ("Cc", "Cf"):  # control and format characters
            spaced.append(f" {c} " if stands_alone(c) else c)
    return "".join(spaced).split()


def letters_of(word):
    """The smallest pieces of a word: its first letter, and each other one with ## before it."""
    return (word[0], *("##" + letter for letter in word[1:]))


def joined(pair):
    """The piece that two neighbouring pieces make together; only the first of them may begin a word."""
    return pair[0] + pair[1][2:]


class ScoredPairs(PairCounts):
    """Pair counts that also know how often each single piece occurs, and so how much a merge explains."""

    def __init__(self, words):
        self.single, self.total = collections.Counter(), 0
        super().__init__(words)

    def count(self, index, sign=1):
        super().count(index, sign)
        times = sign * self.numbers[index]
        for piece in self.pieces[index]:
            self.single[piece] += times
        self.total += times * len(self.pieces[index])

    def gain(self, pair):
        r"""How much the log-likelihood of the text rises, in nats, when `pair` becomes one piece.

        .. math:: n_{ab} \log \frac{p_{ab}}{p_a\, p_b} = n_{ab} \log \frac{n_{ab}\, N}{n_a\, n_b}

        with the pieces drawn independently, and their probabilities :math:`p = n / N` as they are before the merge.
        """
        n = self.counts[pair]
        return n * math.log(n * self.total / (self.single[pair[0]] * self.single[pair[1]]))

    def best(self):
        """The pair with the highest gain, of equal ones that which occurs first; None if none is worth a merge."""
        gains = {pair: self.gain(pair) for pair, n in self.counts.items() if n > 1}
        top = max(gains.values(), default=0)
        return min((pair for pair, gain in gains.items() if gain == top), key=self.first_place) if top > 0 else None


class WordPieceTokenizer:
    """Turn text into ids and back, by cutting each word into the longest pieces of a vocabulary.

    Text is cut into words at white space; each mark of punctuation and each Chinese character is a word by itself.
    A word that cannot be made of pieces is [UNK].

    Parameters
    ----------
    pieces : sequence of str
        The pieces, those that continue a word with ## in front; see `train`.
    special_tokens : sequence of str
        They get the first ids; [UNK] must be among them.
    lowercase : bool
        Whether case and accents are dropped first.

    Attributes
    ----------
    vocabulary : list of str
        The special token or piece of each id.
    id_of : dict of str to int

    Raises
    ------
    ValueError
        If a token comes twice or is empty, or [UNK] is missing.

    Examples
    --------
    >>> tokenizer = WordPieceTokenizer(["un", "##aff", "##able", "##a", "##b"])
    >>> tokenizer.tokenize("unaffable unable tables")
    ['un', '##aff', '##able', 'un', '##able', '[UNK]']
    """

    longest_word = 100  # letters; what is longer is no word, but would cost the square of its length

    def __init__(self, pieces, special_tokens=SPECIAL, lowercase=False):
        self.special_tokens, self.lowercase = check_names(special_tokens), bool(lowercase)
        if "[UNK]" not in self.special_tokens:
            raise ValueError(f"[UNK] must be among the special tokens, got {self.special_tokens}")
        self.vocabulary = [*self.special_tokens, *pieces]
        self.id_of = {token: i for i, token in enumerate(self.vocabulary)}
        if len(self.id_of) < len(self.vocabulary) or not all(isinstance(t, str) and t for t in self.vocabulary):
            raise ValueError("the tokens of a vocabulary must be distinct non-empty strings")

    @classmethod
    def train(cls, text, vocab_size, special_tokens=SPECIAL, lowercase=False):
        """A tokenizer with the letters of `text` and the merges that make it likeliest.

        Training stops early, with fewer tokens, when no merge of two pieces that meet at least twice makes the text
        likelier. Of equally good merges that which is seen first comes first.

        Parameters
        ----------
        text : str
        vocab_size : int
            How many tokens at most: special tokens, letters (those inside words apart), and merges.
        special_tokens : sequence of str
        lowercase : bool

        Raises
        ------
        ValueError
            If `vocab_size` has no room for the special tokens and the letters.
        """
        parts = [part for part, is_special in split_special(text, check_names(special_tokens), "allow")
                 if not is_special]
        words = [letters_of(word) for part in parts for word in words_of(part, lowercase)]
        pieces = sorted({letter for word in words for letter in word})
        room = vocab_size - len(special_tokens) - len(pieces)
        if room < 0:
            raise ValueError(f"vocab_size={vocab_size} is too small for {len(special_tokens)} special tokens and "
                             f"{len(pieces)} letters")
        pairs = ScoredPairs(words)
        known = set(pieces)
        while room > 0:
            pair = pairs.best()
            if pair is None:
                break
            pairs.merge(pair, joined(pair))
            if joined(pair) not in known:  # "ab" + "c" and "a" + "bc" are the same piece
                known.add(joined(pair))
                pieces.append(joined(pair))
                room -= 1
        return cls(pieces, special_tokens, lowercase)

    def __len__(self):
        return len(self.vocabulary)

    def cut(self, word):
        """The pieces of a word: again and again the longest one that the rest begins with."""
        pieces, start = [], 0
        if len(word) > self.longest_word:
            return ["[UNK]"]
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.id_of:
                    break
            else:
                return ["[UNK]"]
            pieces.append(piece)
            start = end
        return pieces

    def tokenize(self, text, special="raise"):
        """The tokens of `text` as a list of strings; arguments and errors are those of `encode`."""
        tokens = []
        for part, is_special in split_special(text, self.special_tokens, special):
            if is_special:
                tokens.append(part)
            else:
                tokens += [piece for word in words_of(part, self.lowercase) for piece in self.cut(word)]
        return tokens

    def encode(self, text, special="raise"):
        """The ids of `text`, as a list.

        Parameters
        ----------
        text : str
        special : "raise", "allow" or "text"
            What to do where `text` spells a special token: refuse, give its id, or encode its characters.

        Raises
        ------
        ValueError
            If `special` is "raise" and `text` spells a special token.
        """
        return [self.id_of[token] for token in self.tokenize(text, special)]

    def decode(self, ids):
        """The words of `ids`, a sequence or a 1-D tensor of integers, with a space between them.

        How the text was spaced, and what was unknown, is lost.

        Raises
        ------
        TypeError
            If an id is no whole number.
        IndexError
            If an id lies outside the vocabulary; a negative one does not count from the end.
        """
        return " ".join([self.vocabulary[i] for i in checked_ids(ids, len(self))]).replace(" ##", "")

    def save(self, path):
        """Write the tokenizer to `path` as JSON."""
        content = {"type": "wordpiece", "pieces": self.vocabulary[len(self.special_tokens):],
                   "special_tokens": self.special_tokens, "lowercase": self.lowercase}
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
            if content.get("type") != "wordpiece":
                raise ValueError(f'its type is {content.get("type")!r}, not "wordpiece"')
            return cls(content["pieces"], content["special_tokens"], content["lowercase"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} is not a saved WordPiece tokenizer: {error!r}") from error
