import itertools
import json
import random
import time

import pytest

from minitorch_attn.datasets import tang_poems
from minitorch_attn.text.byte_pair import PIECE, BytePairTokenizer

TEXT = ("It's the cat's: 12 cats, 345 hats!\n\n  The_end of   the hat; l'été, 春眠不觉晓，处处闻啼鸟。 \t"
        "the cat sat on the mat and the other cat's hat \U0001f600\U0001f600 ")


def plain_training(text, merges):
    """The same training, counting everything anew before each merge; the first of the commonest pairs in the text."""
    pieces, learnt = [list(piece.encode()) for piece in PIECE.findall(text)], []
    for new in range(256, 256 + merges):
        seen = [pair for ids in pieces for pair in itertools.pairwise(ids)]
        pair = max(dict.fromkeys(seen), key=seen.count, default=None)
        if pair is None or seen.count(pair) < 2:
            break
        learnt.append(pair)
        for ids in pieces:
            i = 0
            while i < len(ids) - 1:
                if tuple(ids[i:i + 2]) == pair:
                    ids[i:i + 2] = [new]
                i += 1
    return learnt, [i for ids in pieces for i in ids]


@pytest.mark.parametrize("text", ["aaabdaaabac", TEXT, tang_poems(), "ababab ababab bababa", "aaaaaaaaaaaaa aaaa"])
def test_merges_and_ids_equal_the_plain_training(text):
    for merges in (1, 3, 60):
        tokenizer = BytePairTokenizer.train(text, 256 + merges)
        learnt, ids = plain_training(text, merges)
        assert tokenizer.merges == learnt
        assert tokenizer.encode(text) == ids  # merging in the order of learning does what the training did


def test_the_first_of_equally_common_pairs_wins():
    for _ in range(3):
        tokenizer = BytePairTokenizer.train("aaabdaaabac", 259)
        assert tokenizer.merges == [(97, 97), (256, 97), (257, 98)]
        assert tokenizer.encode("aaabdaaabac") == [258, 100, 258, 97, 99]


@pytest.mark.parametrize("text, size, merges", [("", 260, []), ("   ", 260, [(32, 32)]), ("ab", 300, []),
                                                ("abab", 300, [(97, 98)]), ("abcabc", 256, [])])
def test_training_stops_when_nothing_occurs_twice(text, size, merges):
    tokenizer = BytePairTokenizer.train(text, size)
    assert tokenizer.merges == merges and len(tokenizer) == 256 + len(merges)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.timed
def test_training_is_fast_enough():
    text = "".join(random.Random(0).choices(TEXT.split(" "), k=100)) + " "
    words = [" " + "".join(random.Random(i).choices("etaoinshrdlu", k=2 + i % 9)) for i in range(3000)]
    text += "".join(random.Random(1).choices(words, k=16000))
    assert len(text) > 90_000
    began = time.perf_counter()
    tokenizer = BytePairTokenizer.train(text, 256 + 500)
    ids = tokenizer.encode(text)
    assert time.perf_counter() - began < 20  # about two seconds alone on a machine
    assert len(tokenizer.merges) == 500 and len(ids) < len(text) / 2


@pytest.mark.parametrize("text", [TEXT, tang_poems(), "", " ", "\n", "a\x00b", "  a  b  ", "don't_do'this",
                                  "\u0300\u200d"])
def test_round_trip_of_text(text):
    assert "".join(PIECE.findall(text)) == text
    for tokenizer in (BytePairTokenizer(), BytePairTokenizer.train(TEXT, 330)):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_round_trip_of_any_bytes():
    tokenizer, chance = BytePairTokenizer.train(TEXT, 330), random.Random(0)
    for n in range(300):
        data = chance.randbytes(n % 40)
        assert tokenizer.decode_bytes(tokenizer.encode_bytes(data)) == data
    assert tokenizer.encode_bytes(TEXT.encode()) == tokenizer.encode(TEXT)


def test_no_token_joins_letters_with_marks():
    tokenizer = BytePairTokenizer.train("dog. dog! dog? dog. dog! dog? " * 9, 400)
    pieces = {token for token in tokenizer.vocabulary[256:]}
    assert b" dog" in pieces and not [piece for piece in pieces if b"g" in piece and set(piece) & set(b".!?")]


def test_bytes_that_are_no_text():
    tokenizer = BytePairTokenizer()
    assert tokenizer.decode([128]) == "\ufffd"
    assert tokenizer.decode([0xE6, 0x98, 0xA5, 0xE6]) == "春\ufffd"
    with pytest.raises(UnicodeDecodeError):
        tokenizer.decode([128], errors="strict")


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    tokenizer = BytePairTokenizer()
    assert tokenizer.encode("\udbc0") == [0xEF, 0xBF, 0xBD]
    assert tokenizer.encode("a\udc00b") == [97, 0xEF, 0xBF, 0xBD, 98]
    assert tokenizer.encode("\ud83d\ude00") == list("\U0001f600".encode())


SPECIAL = ["<|endoftext|>", "<SEP>"]


def test_special_text_is_refused_unless_said_otherwise():
    tokenizer = BytePairTokenizer.train("x y x y", 260, SPECIAL)
    end = tokenizer.special_ids["<|endoftext|>"]
    with pytest.raises(ValueError, match=r"'<\|endoftext\|>' at position 1"):
        tokenizer.encode("x<|endoftext|>y")
    assert tokenizer.encode("x<|endoftext|>y", special="allow") == [120, end, 121]
    plain = tokenizer.encode("x<|endoftext|>y", special="text")
    assert end not in plain and tokenizer.decode(plain) == "x<|endoftext|>y"
    assert tokenizer.decode([120, end, 121]) == "x<|endoftext|>y"


def test_special_tokens_come_last_and_count():
    tokenizer = BytePairTokenizer.train("aaabdaaabac", 261, SPECIAL)
    assert len(tokenizer) == 261 and tokenizer.special_ids == {"<|endoftext|>": 259, "<SEP>": 260}


def test_nothing_is_learnt_from_special_tokens_nor_across_them():
    tokenizer = BytePairTokenizer.train("ab<SEP>cd" * 9, 300, ["<SEP>"])
    assert {tokenizer.vocabulary[i] for i in range(256, 256 + len(tokenizer.merges))} == {b"ab", b"cd", b"cdab"}


def test_saved_and_loaded_it_is_the_same(tmp_path):
    tokenizer = BytePairTokenizer.train(TEXT, 320, SPECIAL)
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = BytePairTokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.merges == tokenizer.merges and loaded.special_ids == tokenizer.special_ids
    for text in ("a<SEP>b", TEXT):
        assert loaded.encode(text, special="allow") == tokenizer.encode(text, special="allow")


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"type": "wordpiece"}', '{"type": "byte_pair"}',
                                     "\u00ff\u0000",
                                     json.dumps({"type": "byte_pair", "merges": [[97, 300]], "special_tokens": []}),
                                     json.dumps({"type": "byte_pair", "merges": [[97]], "special_tokens": []}),
                                     json.dumps({"type": "byte_pair", "merges": [3], "special_tokens": []}),
                                     json.dumps({"type": "byte_pair", "merges": [], "special_tokens": [1]})])
def test_a_broken_file_is_named(tmp_path, content):
    path = tmp_path / "broken.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=r"broken\.json is not a saved byte-pair tokenizer"):
        BytePairTokenizer.load(path)


@pytest.mark.parametrize("merges", [[(97, 256)], [(-1, 97)], [(97, 98), (97, 98)], [(97, 98, 99)], [(97.0, 98)]])
def test_impossible_merges_are_named(merges):
    with pytest.raises(ValueError, match=f"merge {len(merges) - 1} is"):
        BytePairTokenizer(merges)


def test_too_small_a_vocabulary_is_named():
    with pytest.raises(ValueError, match="256 bytes and 2 special tokens"):
        BytePairTokenizer.train("a", 257, SPECIAL)


@pytest.mark.parametrize("ids, bad", [([0, 259], "id 259 at position 1"), ([-1], "id -1 at position 0")])
def test_id_outside_the_vocabulary_does_not_wrap(ids, bad):
    with pytest.raises(IndexError, match=f"{bad} .* 0 to 258"):
        BytePairTokenizer.train("aaabdaaabac", 259).decode(ids)
