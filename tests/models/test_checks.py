"""What every model refuses."""
import pytest

import minitorch_attn as mt
from minitorch_attn.models.bert import BERT, BERTConfig
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.models.llama import Llama, LlamaConfig
from minitorch_attn.models.seq2seq import Seq2Seq, Seq2SeqConfig
from minitorch_attn.models.sequence import ConvolutionConfig, ConvolutionModel, RecurrentConfig, RecurrentModel
from minitorch_attn.models.transformer import Transformer, TransformerConfig
from minitorch_attn.models.vit import ViT, ViTConfig, patchify

LANGUAGE = {GPT: GPTConfig, Llama: LlamaConfig, BERT: BERTConfig, RecurrentModel: RecurrentConfig,
            ConvolutionModel: ConvolutionConfig}


@pytest.mark.parametrize("kind", LANGUAGE)
def test_ids_and_targets(kind):
    model, ids = kind(LANGUAGE[kind](7, n_embd=8)), mt.tensor([[5, 6, 1], [1, 2, 3]])
    assert model(ids, ids)[1].shape == ()
    with pytest.raises(ValueError, match=r"targets must have the shape of ids, \(2, 3\), got \(3, 2\)"):
        model(ids, ids.T)  # as many, but not the same ones
    with pytest.raises(TypeError, match=r"must be a tensor .* got list"):
        model([[5, 6]])
    for bad in (ids[0], ids[None]):
        with pytest.raises(ValueError, match=r"ids must be \(batch, time\), got shape"):
            model(bad)
    with pytest.raises(IndexError, match=r"ids must lie in \[0, 7\), the vocabulary, got 7"):
        model(ids + 1)
    with pytest.raises(IndexError, match=r"targets must lie in \[0, 7\), the vocabulary, got -1"):
        model(ids, ids - 2)
    assert model(ids[:0])[0].shape == (0, 3, 7)


@pytest.mark.parametrize("kind", [GPT, Llama])
@pytest.mark.parametrize("targets, error", [([[1, 10**6]], IndexError), ([[1, -1]], IndexError), ([[1]], ValueError)])
def test_wrong_targets_are_refused_before_the_cache_grows(kind, targets, error):
    model = kind(LANGUAGE[kind](7, n_embd=8))
    cache = model.new_cache()
    with pytest.raises(error, match="targets"):
        model(mt.tensor([[1, 2]]), mt.tensor(targets), cache=cache)
    assert len(cache) == 0


@pytest.mark.parametrize("kind", LANGUAGE)
@pytest.mark.parametrize("name", ["vocab_size", "n_embd", "block_size"])
def test_sizes_are_positive(kind, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        kind(LANGUAGE[kind](**{"vocab_size": 7, name: 0}))


@pytest.mark.parametrize("heads", [0, -2, 3])
@pytest.mark.parametrize("make", [lambda **x: GPT(GPTConfig(7, **x)), lambda **x: Llama(LlamaConfig(7, **x)),
                                  lambda **x: BERT(BERTConfig(7, **x)), lambda **x: ViT(ViTConfig(**x)),
                                  lambda **x: Transformer(TransformerConfig(7, 7, **x))])
def test_the_width_is_split_over_the_heads(make, heads):
    with pytest.raises(ValueError, match=f"n_embd=8 cannot be split over n_head={heads} heads"):
        make(n_embd=8, n_head=heads)


def test_both_vocabularies_are_positive():
    for make in (lambda *x: Seq2Seq(Seq2SeqConfig(*x)), lambda *x: Transformer(TransformerConfig(*x))):
        for sizes, name in (((0, 13), "source_vocab"), ((13, 0), "target_vocab")):
            with pytest.raises(ValueError, match=f"{name} must be at least 1"):
                make(*sizes)


def test_images_and_classes():
    for size in (dict(patch_size=0), dict(image_size=0), dict(patch_size=(4, -4))):
        with pytest.raises(ValueError, match="all positive"):
            ViT(ViTConfig(**size))
    for images, size in ((mt.zeros(3, 8, 8), 4), (mt.zeros(1, 3, 8, 8), 0)):
        with pytest.raises(ValueError, match="images"):
            patchify(images, size)
    model, images = ViT(ViTConfig(8, classes=5, n_embd=8)), mt.zeros(2, 3, 8, 8)
    with pytest.raises(ValueError, match=r"targets must be \(2,\), one class an image, got \(2, 1\)"):
        model(images, mt.tensor([[1], [2]]))
    with pytest.raises(IndexError, match=r"targets must lie in \[0, 5\)"):
        model(images, mt.tensor([1, 5]))
