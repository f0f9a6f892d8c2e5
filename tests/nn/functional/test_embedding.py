"""Looking up rows, and their gradient."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

IDS = np.array([[4, 0, 4], [1, 4, 0]])
SHAPES = [np.array(3), np.array([], "i8"), IDS, IDS.astype("i4"), IDS.astype("u1"), IDS.T, np.array([[[2]]])]


@pytest.mark.parametrize("ids", SHAPES, ids=lambda a: f"{a.dtype}{a.shape}")
def test_values_and_gradients(ids):
    w = draw(5, 3)
    y = F.embedding(mt.tensor(ids), mt.tensor(w)).numpy()
    assert y.shape == (*ids.shape, 3)
    for at in np.ndindex(ids.shape):
        assert (y[at] == w[ids[at]]).all()
    assert_gradients(lambda w: F.embedding(mt.tensor(ids), w), w)
    assert_keeps_float32(lambda w: F.embedding(mt.tensor(ids), w), w)
    assert_equals_composed(lambda w: F.embedding(mt.tensor(ids), w),
                           lambda w: F.one_hot(mt.tensor(ids).long(), 5).to(mt.float64) @ w, w)


def test_an_id_that_occurs_twice_adds_twice():
    _y, (g,), (gw,) = gradients(lambda w: F.embedding(mt.tensor(IDS), w), [draw(5, 3)])
    expected = np.zeros((5, 3))
    for at in np.ndindex(IDS.shape):
        expected[IDS[at]] += g[at]
    np.testing.assert_allclose(gw, expected)


def test_like_torch():
    torch = pytest.importorskip("torch")
    for padding_idx in (None, 0, 4, -1, -5):
        assert_like_torch(lambda w, p=padding_idx: F.embedding(mt.tensor(IDS), w, p),
                          lambda w, p=padding_idx: torch.nn.functional.embedding(torch.tensor(IDS), w, p), draw(5, 3))


@pytest.mark.parametrize("padding_idx", [0, -3])
def test_the_padding_row_gets_no_gradient(padding_idx):
    w = mt.tensor(np.ones((3, 2)), requires_grad=True)
    F.embedding(mt.tensor([[0, 1], [0, 2]]), w, padding_idx).sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [[0, 0], [1, 1], [1, 1]])


@pytest.mark.parametrize("bad", [5, -1, 2**40, -2**40])
def test_ids_never_wrap(bad):
    with pytest.raises(IndexError, match=str(bad)):
        F.embedding(mt.tensor([0, bad]), mt.tensor(draw(5, 3)))


def test_errors():
    ids, w = mt.tensor([0, 1]), mt.tensor(draw(5, 3))
    with pytest.raises(RuntimeError, match="ids come first"):
        F.embedding(w, ids)
    with pytest.raises(RuntimeError, match="weight"):
        F.embedding(ids, mt.tensor(draw(5)))
    for padding_idx in (5, -6):
        with pytest.raises(ValueError, match="padding_idx"):
            F.embedding(ids, w, padding_idx)
    for keywords in ({"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}):
        with pytest.raises(NotImplementedError, match="max_norm"):
            F.embedding(ids, w, **keywords)


@pytest.mark.parametrize("ids, classes, shape", [
    (IDS, -1, (2, 3, 5)), (IDS, 7, (2, 3, 7)), (np.array(2), -1, (3,)), (np.array([], "i8"), 3, (0, 3)),
])
def test_one_hot(ids, classes, shape):
    y = F.one_hot(mt.tensor(ids), classes)
    assert y.shape == shape and y.dtype == mt.int64 and not y.requires_grad
    for at in np.ndindex(shape):
        assert y.numpy()[at] == (ids[at[:-1]] == at[-1])


@pytest.mark.parametrize("ids, classes, error", [
    ([0, 3], 3, IndexError), ([-1], -1, IndexError), ([-1, 1], 3, IndexError), ([], -1, RuntimeError),
    ([0.5], 3, RuntimeError), ([0], 0, RuntimeError), ([0], -2, RuntimeError),
])
def test_one_hot_errors(ids, classes, error):
    with pytest.raises(error):
        F.one_hot(mt.tensor(np.array(ids, "i8") if not ids else ids), classes)
