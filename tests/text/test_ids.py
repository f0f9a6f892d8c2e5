"""Token ids that are none, in every tokenizer."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.text.byte_pair import BytePairTokenizer
from minitorch_attn.text.characters import CharacterTokenizer
from minitorch_attn.text.wordpiece import WordPieceTokenizer

TOKENIZERS = [BytePairTokenizer(), CharacterTokenizer("abcdef"), WordPieceTokenizer(["a", "b"])]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: type(t).__name__)
def test_what_is_no_id_is_refused(tokenizer):
    for bad in (65.9, 1.0, "1", True, None, [1], np.float64(1), np.True_):
        with pytest.raises(TypeError, match=r"ids must be whole numbers, got .* at position 1"):
            tokenizer.decode([2, bad])
    for bad in (mt.tensor([1.0, 2.0]), mt.tensor([[1, 2]]), mt.tensor([True])):
        with pytest.raises(TypeError, match="whole numbers"):
            tokenizer.decode(bad)
    for bad in (-1, len(tokenizer), 10**20):
        with pytest.raises(IndexError, match=f"id {bad} at position 1"):
            tokenizer.decode([2, bad])


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda t: type(t).__name__)
def test_ids_of_every_kind(tokenizer):
    wanted = tokenizer.decode([1, 5, 2])
    for ids in ((1, 5, 2), range(1, 3), np.array([1, 5, 2]), mt.tensor([1, 5, 2]), [np.int32(1), mt.tensor(5), 2]):
        assert tokenizer.decode(ids) == (wanted if len(ids) == 3 else tokenizer.decode([1, 2]))
