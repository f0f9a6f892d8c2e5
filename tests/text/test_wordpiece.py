import itertools
import math

import pytest

from minitorch_attn.datasets import tang_poems
from minitorch_attn.text.wordpiece import SPECIAL, ScoredPairs, WordPieceTokenizer, letters_of, words_of

TEXT = "hug pug pun bun hugs " + "hug " * 9 + "pug " * 4 + "pun " * 11 + "bun " * 3 + "hugs " * 4


def test_words_are_cut_at_spaces_punctuation_and_chinese_characters():
    assert words_of("It's 3.5€, ok?\n春眠\u200b不\x07觉$x", False) == [
        "It", "'", "s", "3", ".", "5€", ",", "ok", "?", "春", "眠", "不", "觉", "$", "x"]
    assert words_of("ÉTÉ Straße", True) == ["ete", "straße"] and words_of("ÉTÉ", False) == ["ÉTÉ"]
    assert words_of("नमस्ते", False) == ["नमस्ते"]  # vowel signs stay with their letters


def test_longest_match_first():
    tokenizer = WordPieceTokenizer(["un", "##aff", "##able", "##a", "##b", "u", "##n"])
    assert tokenizer.tokenize("unaffable unb") == ["un", "##aff", "##able", "un", "##b"]
    assert tokenizer.tokenize("unx aff") == ["[UNK]", "[UNK]"]  # one bad letter spoils its word
    assert tokenizer.encode("unb") == [5, 9] and tokenizer.decode([5, 9, 1, 5]) == "unb [UNK] un"


def test_a_word_of_over_a_hundred_letters_is_unknown():
    tokenizer = WordPieceTokenizer(["a", "##a"])
    assert tokenizer.tokenize("a" * 100) == ["a"] + ["##a"] * 99 and tokenizer.tokenize("a" * 101) == ["[UNK]"]


def test_the_gain_is_what_the_formula_says():
    words = [letters_of(word) for word in TEXT.split()]
    pairs = ScoredPairs(words)
    letters = [letter for word in words for letter in word]
    for pair in [("h", "##u"), ("##u", "##g"), ("##g", "##s")]:
        n = sum((a, b) == pair for word in words for a, b in itertools.pairwise(word))
        odds = (n / len(letters)) / (letters.count(pair[0]) / len(letters) * letters.count(pair[1]) / len(letters))
        assert math.isclose(pairs.gain(pair), n * math.log(odds))
    pairs.merge(("##u", "##g"), "##ug")  # counts kept up to date equal counts made anew
    anew = ScoredPairs([tuple(" ".join(word).replace("##u ##g", "##ug").split()) for word in words])
    assert +pairs.counts == anew.counts and +pairs.single == anew.single and pairs.total == anew.total


def test_training():
    tokenizer = WordPieceTokenizer.train(TEXT, 17)
    assert tokenizer.vocabulary[:5] == list(SPECIAL)
    assert tokenizer.vocabulary[5:12] == ["##g", "##n", "##s", "##u", "b", "h", "p"]
    assert len(tokenizer) == 17 and tokenizer.vocabulary == WordPieceTokenizer.train(TEXT, 17).vocabulary
    assert len(tokenizer.tokenize(TEXT)) < len(TEXT.replace(" ", ""))
    assert tokenizer.tokenize("x hug") == ["[UNK]", *tokenizer.tokenize("hug")]
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT.strip()


def test_a_piece_that_two_merges_make_counts_once():
    text = "abc abc abc zab zab abd abd xbc xbc bc bc " * 2
    tokenizer = WordPieceTokenizer.train(text, 200)
    assert len(set(tokenizer.vocabulary)) == len(tokenizer.vocabulary) < 200


@pytest.mark.parametrize("text, size, tokens", [("", 300, 5), ("ab", 300, 7), ("   ", 9, 5), ("a", 6, 6)])
def test_training_stops_early(text, size, tokens):
    assert len(WordPieceTokenizer.train(text, size)) == tokens


def test_poems_become_characters():
    poems = tang_poems()
    tokenizer = WordPieceTokenizer.train(poems, 78)
    assert tokenizer.tokenize(poems) == list(poems)


def test_special_text_is_refused_unless_said_otherwise():
    tokenizer = WordPieceTokenizer.train("mask [MASK] mask", 40)
    with pytest.raises(ValueError, match=r"'\[MASK\]' at position 5"):
        tokenizer.encode("mask [MASK]")
    assert tokenizer.encode("[CLS] [MASK][SEP]", special="allow") == [2, 4, 3]
    assert tokenizer.tokenize("[MASK]", special="text") == ["[UNK]", "[UNK]", "[UNK]"]
    assert not [token for token in tokenizer.vocabulary[5:] if "[" in token or "M" in token]


@pytest.mark.parametrize("lowercase", [False, True])
def test_saved_and_loaded_it_is_the_same(tmp_path, lowercase):
    tokenizer = WordPieceTokenizer.train("Hug hug HUG hugs 春 hugs", 30, lowercase=lowercase)
    tokenizer.save(tmp_path / "w.json")
    loaded = WordPieceTokenizer.load(tmp_path / "w.json")
    assert loaded.vocabulary == tokenizer.vocabulary and loaded.lowercase is lowercase
    assert loaded.encode("Hug [SEP] 春", special="allow") == tokenizer.encode("Hug [SEP] 春", special="allow")


@pytest.mark.parametrize("content", ["{", "3", '{"type": "byte_pair"}', '{"type": "wordpiece", "pieces": ["a"]}',
                                     '{"type": "wordpiece", "pieces": ["a", "a"], "special_tokens": ["[UNK]"], '
                                     '"lowercase": false}',
                                     '{"type": "wordpiece", "pieces": [[]], "special_tokens": ["[UNK]"], '
                                     '"lowercase": false}'])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"broken\.json is not a saved WordPiece tokenizer"):
        WordPieceTokenizer.load(path)


def test_vocabularies_that_will_not_do():
    with pytest.raises(ValueError, match=r"\[UNK\] must be among"):
        WordPieceTokenizer(["a"], special_tokens=["[PAD]"])
    with pytest.raises(ValueError, match="distinct"):
        WordPieceTokenizer(["a", "a"])
    with pytest.raises(ValueError, match="5 special tokens and 2 letters"):
        WordPieceTokenizer.train("ab", 6)


@pytest.mark.parametrize("ids, bad", [([0, 7], "id 7 at position 1"), ([-1], "id -1 at position 0")])
def test_id_outside_the_vocabulary_does_not_wrap(ids, bad):
    with pytest.raises(IndexError, match=f"{bad} .* 0 to 6"):
        WordPieceTokenizer.train("ab", 7).decode(ids)


def test_what_cannot_be_seen_separates_nothing():
    assert words_of("soft\u00adhyphen zero\u200bwidth no\u200cjoin be\x07ll", False) == [
        "softhyphen", "zerowidth", "nojoin", "bell"]
    assert words_of("a\tb\nc\rd\u00a0e\u3000f", False) == list("abcdef")
