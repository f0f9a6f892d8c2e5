"""Linear attention: parallel, recurrent and (T, S) forms are one function."""
import tracemalloc

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw, leaf
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

SEEN = np.array([[True, True, False, True, False], [True, False, True, True, False]])


def composed(q, k, v, key_mask=None, is_causal=False):
    """All weights at once, as a (T, S) matrix."""
    p = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    if key_mask is not None:
        p = p * key_mask.unsqueeze(-2)
    if is_causal:
        p = p.tril()
    return p / p.sum(-1, keepdim=True) @ v


@pytest.mark.parametrize("chunk", [1, 2, 3, 64])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["all", "causal"])
@pytest.mark.parametrize("key_mask", [None, SEEN], ids=["no mask", "mask"])
def test_equals_composed(chunk, options, key_mask):
    arrays = draw(2, 5, 3), draw(2, 5, 3, seed=1), draw(2, 5, 7, seed=2)
    options = {**options, "key_mask": None if key_mask is None else mt.tensor(key_mask)}
    assert_equals_composed(lambda *x: F.linear_attention(*x, chunk=chunk, **options),
                           lambda *x: composed(*x, **options), *arrays)


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients(is_causal):
    shapes = [(2, 3, 5, 3), (2, 3, 5, 3), (2, 3, 5, 2)] if is_causal else [(2, 3, 5, 2), (2, 3, 7, 2), (2, 3, 7, 3)]
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_gradients(lambda *x: F.linear_attention(*x, is_causal=is_causal, chunk=2), *arrays)
    assert_keeps_float32(lambda *x: F.linear_attention(*x, is_causal=is_causal, chunk=2), *arrays)


def test_recurrent_form_is_the_parallel_one():
    q, k, v = draw(2, 3, 11, 5), draw(2, 3, 11, 5, seed=1), draw(2, 3, 11, 7, seed=2)

    def recurrent(q, k, v):
        state, ys = None, []
        for t in range(11):
            y, state = F.linear_attention_step(q[:, :, t], k[:, :, t], v[:, :, t], state)
            assert state.shape == (2, 3, 5, 8)
            ys.append(y)
        return mt.stack(ys, 2)

    assert_equals_composed(lambda *x: F.linear_attention(*x, is_causal=True, chunk=4), recurrent, q, k, v)


def test_the_past_does_not_see_the_future():
    q, k, v = draw(11, 3), draw(11, 3, seed=1), draw(11, 3, seed=2)
    before = F.linear_attention(*map(mt.tensor, (q, k, v)), is_causal=True, chunk=4).numpy()
    k[6:], v[6:] = 9, 9
    after = F.linear_attention(*map(mt.tensor, (q, k, v)), is_causal=True, chunk=4).numpy()
    assert np.array_equal(before[:6], after[:6]) and (before[6:] != after[6:]).all()


def test_no_key_to_be_seen_and_no_time():
    q, k, v = (leaf(draw(2, 5, 3, seed=i)) for i in range(3))
    y = F.linear_attention(q, k, v, mt.tensor([[True] * 5, [False] * 5]))
    y.backward(mt.tensor(draw(2, 5, 3, seed=7)))
    assert not y.detach().numpy()[1].any()
    for x in (q, k, v):
        assert np.isfinite(x.grad.numpy()).all() and not x.grad.numpy()[1].any() and x.grad.numpy()[0].any()
    none = mt.zeros(2, 0, 3)
    assert F.linear_attention(none, none, none, is_causal=True).shape == (2, 0, 3)


def test_large_inputs_stay_finite():
    x = mt.tensor(np.array([[300.0, -300], [-300, 300]], "f4"))
    assert np.isfinite(F.linear_attention(x, x, x, is_causal=True).numpy()).all()


def test_mistakes():
    with pytest.raises(RuntimeError, match="as many queries as keys"):
        F.linear_attention(mt.zeros(5, 3), mt.zeros(7, 3), mt.zeros(7, 3), is_causal=True)
    with pytest.raises(RuntimeError, match="leading axes"):
        F.linear_attention(mt.zeros(2, 5, 3), mt.zeros(7, 3), mt.zeros(7, 3))


def peak(T):
    """Bytes that the forward and backward pass need at their worst, results and gradients included."""
    q, k, v = (leaf(draw(1, T, 16, seed=i).astype("f4")) for i in range(3))
    tracemalloc.start()
    try:
        F.linear_attention(q, k, v, is_causal=True).backward(mt.ones(1, T, 16))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_is_linear():
    few, many = peak(512), peak(2048)
    assert 3 * few < many < 4.5 * few and many < 4 * 2048**2  # less than one (T, T) matrix


def test_a_step_whose_features_are_all_zero_reads_zeros():
    q = mt.full((1, 3), -200.0)
    y, state = F.linear_attention_step(q, q, mt.ones(1, 2))
    assert y.tolist() == [[0, 0]] and F.linear_attention(q, q, mt.ones(1, 2), is_causal=True).tolist() == [[0, 0]]
    y, _ = F.linear_attention_step(mt.ones(1, 3), mt.ones(1, 3), mt.ones(1, 2), state)
    np.testing.assert_allclose(y.numpy(), [[1, 1]], rtol=1e-6)


def test_small_features_keep_their_digits():
    q, v = mt.tensor(draw(5, 3, low=-30, high=-10).astype("f4")), mt.tensor(draw(5, 2).astype("f4"))
    wanted, state = F.linear_attention(q, q, v, is_causal=True).numpy(), None
    for t in range(5):
        y, state = F.linear_attention_step(q[t], q[t], v[t], state)
        np.testing.assert_allclose(y.numpy(), wanted[t], rtol=1e-4)


def test_a_mask_of_numbers_is_refused():
    x = mt.zeros(3, 2)
    with pytest.raises(RuntimeError, match="key_mask must be boolean"):
        F.linear_attention(x, x, x, mt.tensor([0.5, 2, -1]))
