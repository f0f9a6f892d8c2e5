"""Numbers from NumPy, which are float64, change no dtype: neither of a result nor of a gradient."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import draw


def some_mask():
    return mt.tensor(draw(5, 5, seed=9) > 0.5) | mt.eye(5, dtype=mt.bool)


# each takes x (3, 5, 5) and n, which makes the number what it is to be: float or numpy.float64
CALLS = {
    "scaled_dot_product_attention": lambda x, n: F.scaled_dot_product_attention(x, x, x, scale=n(0.3)),
    "scaled_dot_product_attention, mask": lambda x, n: F.scaled_dot_product_attention(x, x, x, some_mask(),
                                                                                      scale=n(0.3)),
    "scaled_dot_product_attention, dropout": lambda x, n: F.scaled_dot_product_attention(x, x, x, dropout_p=n(0.3)),
    "attention_weights": lambda x, n: F.attention_weights(x, x, scale=n(0.3)),
    "tiled_attention": lambda x, n: F.tiled_attention(x, x, x, scale=n(0.3), tile=2),
    "joint_attention": lambda x, n: F.joint_attention([x, x], [x, x], [x, x], dropout_p=n(0.3), scale=n(0.3))[1],
    "stream_shares": lambda x, n: F.stream_shares([x, x], [x, x], scale=n(0.3)),
    "kernel_weights": lambda x, n: F.kernel_weights(x, x + 1, n(0.7)),
    "kernel_pooling": lambda x, n: F.kernel_pooling(x, x + 1, x, n(0.7)),
    "hopfield_update": lambda x, n: F.hopfield_update(x, x[0], n(2.0), 2),
    "hopfield_energy": lambda x, n: F.hopfield_energy(x, x[0], n(2.0)),
    "rotary": lambda x, n: F.rotary(x, dim=4, base=n(100.0)),
    "layer_norm": lambda x, n: F.layer_norm(x, 5, eps=n(0.1)),
    "rms_norm": lambda x, n: F.rms_norm(x, 5, eps=n(0.1)),
    "group_norm": lambda x, n: F.group_norm(x, 5, eps=n(0.1)),
    "batch_norm": lambda x, n: F.batch_norm(x, None, None, training=True, momentum=n(0.1), eps=n(0.1)),
    "batch_norm, evaluation": lambda x, n: F.batch_norm(x, mt.zeros(5), mt.ones(5), momentum=n(0.1), eps=n(0.1)),
    "normalize": lambda x, n: F.normalize(x, n(3.0), eps=n(0.1)),
    "cosine_similarity": lambda x, n: F.cosine_similarity(x, x.flip(0), eps=n(0.1)),
    "dropout": lambda x, n: F.dropout(x, n(0.3)),
    "dropout1d": lambda x, n: F.dropout1d(x, n(0.3)),
    "elu": lambda x, n: F.elu(x, n(0.3)),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n(0.3)),
    "softplus": lambda x, n: F.softplus(x, n(0.3), n(2.0)),
    "hardtanh": lambda x, n: F.hardtanh(x, n(-0.5), n(0.5)),
    "huber_loss": lambda x, n: F.huber_loss(x, x.flip(0) * 0.9, delta=n(0.3)),
    "smooth_l1_loss": lambda x, n: F.smooth_l1_loss(x, x.flip(0) * 0.9, beta=n(0.3)),
    "cross_entropy": lambda x, n: F.cross_entropy(x, mt.tensor([[0, 1, 2, 3, 4]] * 3), label_smoothing=n(0.3)),
    "cross_entropy of probabilities": lambda x, n: F.cross_entropy(x, F.softmax(x, 1), label_smoothing=n(0.3)),
    "pad": lambda x, n: F.pad(x, (1, 2), value=n(0.3)) * 2,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_number_of_numpy_is_a_plain_number(name):
    found = []
    for n in (float, np.float64):
        x = mt.tensor(draw(3, 5, 5).astype("f4"), requires_grad=True)
        mt.manual_seed(0)
        y = CALLS[name](x, n)
        weight = mt.tensor(draw(*y.shape, seed=1).astype("f4"))
        (y * weight).sum().backward()
        assert y.dtype == mt.float32 and x.grad.dtype == mt.float32
        found.append((y.detach().numpy(), x.grad.numpy()))
    for plain, numpys in zip(*found):
        assert np.array_equal(plain, numpys)


@pytest.mark.parametrize("name", ["sinusoidal_table", "rotary_tables"])
def test_numpys_integers_count_as_pythons(name):
    few, many = (getattr(F, name)(n, 4) for n in (np.int64(3), 3))
    for a, b in zip(few, many):
        assert np.array_equal(a.numpy(), b.numpy())


def test_a_number_that_needs_a_gradient_is_refused():
    x = mt.zeros(2, 3)
    with pytest.raises(TypeError, match="would get no gradient"):
        F.scaled_dot_product_attention(x, x, x, scale=mt.ones((), requires_grad=True))
    assert F.attention_weights(x, x, scale=mt.ones(())).shape == (2, 2)
