import pytest

from minitorch_attn.text.special import check_names, split_special


@pytest.mark.parametrize("names", [["a", "a"], [""], [3], ["ok", None]])
def test_names_must_be_distinct_non_empty_strings(names):
    with pytest.raises(ValueError, match="distinct non-empty strings"):
        check_names(names)


def test_the_three_ways():
    with pytest.raises(ValueError, match=r"'<b>' at position 2.*special="):
        split_special("x <b> y", ["<a>", "<b>"], "raise")
    assert split_special("x <b> y", ["<a>", "<b>"], "allow") == [("x ", False), ("<b>", True), (" y", False)]
    assert split_special("x <b> y", ["<a>", "<b>"], "text") == [("x <b> y", False)]
    assert split_special("x y", ["<a>"], "raise") == [("x y", False)]


def test_the_longest_token_is_meant_and_marks_are_no_pattern():
    names = ["<|", "<|end|>", ".*"]
    assert split_special("<|end|><|.*", names, "allow") == [("<|end|>", True), ("<|", True), (".*", True)]


@pytest.mark.parametrize("special", ["raise", "allow", "text"])
def test_no_text_has_no_parts(special):
    assert split_special("", ["<a>"], special) == [] and split_special("", [], special) == []


def test_another_word_is_refused():
    with pytest.raises(ValueError, match='"raise", "allow" or "text", got \'all\''):
        split_special("", [], "all")
