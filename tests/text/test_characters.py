import pytest

from minitorch_attn.text.characters import CharacterTokenizer


def test_vocabulary_is_sorted_and_each_character_is_its_place():
    tokenizer = CharacterTokenizer("banana bread")
    assert tokenizer.vocabulary == [" ", "a", "b", "d", "e", "n", "r"] and len(tokenizer) == 7
    assert tokenizer.encode("bad") == [2, 1, 3] and tokenizer.decode([2, 1, 3]) == "bad"


@pytest.mark.parametrize("text", ["白日依山尽，黄河入海流。", "a\nb\tc  d", "e\u0301 is not é", "x",
                                  "\U0001f600 beyond the basic plane"])
def test_round_trip(text):
    tokenizer = CharacterTokenizer(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_same_characters_same_ids():
    assert CharacterTokenizer("abc").encode("cab") == CharacterTokenizer("ccbbaa").encode("cab")


def test_nothing_to_encode_is_nothing():
    tokenizer = CharacterTokenizer("ab")
    assert tokenizer.encode("") == [] and tokenizer.decode([]) == ""


def test_unknown_character_is_named_with_its_first_place():
    with pytest.raises(ValueError, match=r"3 characters of the vocabulary: '龙' \(position 2\), 'z' \(position 3\)"):
        CharacterTokenizer("abc").encode("ab龙z龙")


def test_many_unknown_characters_are_counted():
    with pytest.raises(ValueError, match=r"'x' \(position 4\) and 2 more"):
        CharacterTokenizer("a").encode("tuvwxyz")


@pytest.mark.parametrize("ids, bad", [([0, 3], "id 3 at position 1"), ([-1], "id -1 at position 0")])
def test_id_outside_the_vocabulary_does_not_wrap(ids, bad):
    with pytest.raises(IndexError, match=f"{bad} .* 0 to 2"):
        CharacterTokenizer("abc").decode(ids)


def test_empty_text_has_no_vocabulary():
    with pytest.raises(ValueError, match="empty"):
        CharacterTokenizer("")
