"""Embedding: rows by number, and the padding row."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.nn.twin import assert_twins_agree, twins


@pytest.mark.parametrize("ids", [3, [1, 1, 4], [[0, 1, 6], [0, 2, 6]], np.zeros((0, 2), int)], ids=str)
@pytest.mark.parametrize("padding", [None, 0, 1, -1, -7])
def test_is_pytorchs(ids, padding):
    ours, theirs = twins("Embedding", 7, 3, padding_idx=padding)
    assert ours.padding_idx == theirs.padding_idx
    assert_twins_agree(ours, theirs, np.array(ids))


def test_padding_row_gets_no_gradient():
    m = nn.Embedding(3, 2, padding_idx=0)
    assert m.weight[0].tolist() == [0.0, 0.0] and m.weight[1].tolist() != [0.0, 0.0]
    y = m(mt.tensor([[0, 1], [0, 2]]))
    y.backward(mt.ones(y.shape))
    assert m.weight.grad.tolist() == [[0, 0], [1, 1], [1, 1]]


def test_negative_padding_index_counts_from_the_end():
    m = nn.Embedding(5, 3, padding_idx=-1)
    assert m.padding_idx == 4 and m.weight[4].tolist() == [0.0] * 3
    y = m(mt.tensor([4, 3, 4]))
    y.backward(mt.tensor([[2.0] * 3, [5.0] * 3, [7.0] * 3]))
    assert m.weight.grad[4].tolist() == [0.0] * 3 and m.weight.grad[3].tolist() == [5.0] * 3
    assert repr(m) == "Embedding(5, 3, padding_idx=4)"


def test_weight_may_be_tied_to_another_layers():
    tokens, head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
    tokens.weight = head.weight
    y = head(tokens(mt.tensor([2])))
    y.backward(mt.ones(1, 7))
    w = head.weight.detach().numpy()
    wanted = np.tile(w[2], (7, 1))
    wanted[2] += w.sum(0)
    np.testing.assert_allclose(head.weight.grad.numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize("freeze", [True, False])
def test_from_pretrained(freeze):
    table = mt.tensor(np.arange(6.0).reshape(3, 2))
    m = nn.Embedding.from_pretrained(table, freeze=freeze, padding_idx=-2)
    assert (m.num_embeddings, m.embedding_dim, m.padding_idx) == (3, 2, 1) and m.weight.requires_grad is not freeze
    assert m(mt.tensor([1, 0])).tolist() == [[2.0, 3.0], [0.0, 1.0]]
    with mt.no_grad():
        table.fill_(8.0)
    assert m.weight.tolist() == [[8.0, 8.0]] * 3


def test_refusals():
    for padding in (5, -6):
        with pytest.raises(ValueError, match=rf"\[-5, 5\), got {padding}"):
            nn.Embedding(5, 3, padding_idx=padding)
    for options in ({"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}):
        with pytest.raises(NotImplementedError, match="max_norm"):
            nn.Embedding(5, 3, **options)
    with pytest.raises(ValueError, match=r"\(ids, width\)"):
        nn.Embedding.from_pretrained(mt.ones(3))
    with pytest.raises(ValueError, match="weight has shape"):
        nn.Embedding(5, 3, _weight=mt.ones(5, 2))
    for ids in ([5], [-1]):
        with pytest.raises(IndexError):
            nn.Embedding(5, 3)(mt.tensor(ids))
    assert nn.Embedding(5, 3, dtype=mt.float64, device="cpu").weight.dtype == mt.float64
