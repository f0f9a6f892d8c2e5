"""Normalisation layers against PyTorch's, and what each normalises over."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_gradients, draw
from tests.nn.twin import assert_float32_stays, assert_twins_agree, twins

LAYERS = [
    ("LayerNorm", (5,), {}, (2, 3, 5)), ("LayerNorm", ((3, 5),), {"eps": 0.1}, (2, 3, 5)),
    ("LayerNorm", ([5],), {"bias": False}, (2, 5)), ("LayerNorm", (5,), {"elementwise_affine": False}, (2, 5)),
    ("LayerNorm", (1,), {}, (3, 1)),
    ("RMSNorm", (5,), {}, (2, 3, 5)), ("RMSNorm", ((3, 5),), {"eps": 0.1}, (2, 3, 5)),
    ("RMSNorm", (5,), {"elementwise_affine": False}, (5,)),
    ("GroupNorm", (3, 6), {}, (2, 6, 5)), ("GroupNorm", (1, 5), {"affine": False}, (2, 5, 3, 2)),
    ("GroupNorm", (2, 6), {"bias": False}, (2, 6)),
    ("BatchNorm1d", (3,), {}, (5, 3)), ("BatchNorm1d", (3,), {"momentum": 0.3, "eps": 0.1}, (5, 3, 2)),
    ("BatchNorm1d", (3,), {"affine": False, "track_running_stats": False}, (5, 3)),
    ("BatchNorm1d", (3,), {"bias": False}, (5, 3)),
    ("BatchNorm2d", (3,), {}, (5, 3, 2, 7)),
]


def shake(ours, theirs):
    """Give the scales and offsets, the same in both, values other than 1 and 0."""
    import torch
    for i, (p, q) in enumerate(zip(ours.parameters(), theirs.parameters())):
        values = draw(*p.shape, seed=50 + i)
        p.data, q.data = mt.tensor(values), torch.from_numpy(values.copy())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name, args, options, shape", LAYERS, ids=str)
def test_is_pytorchs(name, args, options, shape, training):
    ours, theirs = twins(name, *args, **options)
    shake(ours, theirs)
    x = draw(*shape)
    assert_twins_agree(ours.train(training), theirs.train(training), x)


@pytest.mark.parametrize("name, args, options, shape", LAYERS, ids=str)
def test_gradients(name, args, options, shape):
    layer = getattr(nn, name)(*args, **options).double()
    weights = [draw(*p.shape, seed=7 + i) for i, p in enumerate(layer.parameters())]
    before = {key: mt.tensor(value.numpy().copy()) for key, value in layer.state_dict().items()}

    def call(x, *parameters):
        layer.load_state_dict(before)
        for key, p in zip([key for key, _ in layer.named_parameters()], parameters):
            layer._parameters[key] = p
        return layer(x)
    assert_gradients(call, draw(*shape), *weights)


def test_gradients_with_a_linear_in_front():
    linear, norm = nn.Linear(3, 5, dtype=mt.float64), nn.LayerNorm(5, dtype=mt.float64)

    def call(x, weight, bias, scale):
        linear._parameters.update(weight=weight, bias=bias)
        norm._parameters.update(weight=scale)
        return norm(linear(x))
    assert_gradients(call, draw(2, 3), draw(5, 3, seed=1), draw(5, seed=2), draw(5, seed=3))


def test_float32():
    for name, args, _, shape in LAYERS:
        assert_float32_stays(getattr(nn, name)(*args), draw(*shape))


@pytest.mark.parametrize("momentum", [0.1, None])
def test_batch_norm_keeps_running_averages(momentum):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours, theirs = twins("BatchNorm1d", 3, momentum=momentum)
    for i in range(3):
        x = draw(5, 3, seed=i)
        got, wanted = ours(mt.tensor(x)), theirs(torch.from_numpy(x))
        np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy())
    for key, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[key].numpy(), value.numpy())
    assert ours.num_batches_tracked.item() == 3 and ours.num_batches_tracked.dtype == mt.int64
    ours.eval()
    theirs.eval()
    x = draw(2, 3, seed=9)
    np.testing.assert_allclose(ours(mt.tensor(x)).detach().numpy(), theirs(torch.from_numpy(x)).detach().numpy())
    assert ours.num_batches_tracked.item() == 3
    ours.reset_parameters()
    assert ours.running_mean.tolist() == [0, 0, 0] and ours.num_batches_tracked.item() == 0


def test_layer_norm_keeps_positions_apart():
    norm = nn.LayerNorm(5)
    x = draw(2, 3, 5).astype("f4")
    changed = x.copy()
    changed[:, -1] += 10.0
    a, b = norm(mt.tensor(x)).detach().numpy(), norm(mt.tensor(changed)).detach().numpy()
    assert (a[:, :-1] == b[:, :-1]).all()


def test_layer_norm_of_width_one():
    norm = nn.LayerNorm(1)
    norm.bias.data = mt.tensor([3.0])
    x = mt.tensor([1e6], requires_grad=True)
    y = norm(x)
    y.backward(mt.tensor([2.0]))
    assert y.tolist() == [3.0] and norm.weight.grad.tolist() == [0.0] and x.grad.tolist() == [0.0]


def test_layer_norm_of_half_zeros():
    assert nn.LayerNorm(10, eps=1e-12).half()(mt.zeros(10, dtype=mt.float16)).tolist() == [0.0] * 10


def test_layer_norm_at_variance_zero():
    x = mt.tensor([5.0, 5.0, 5.0], dtype=mt.float64, requires_grad=True)
    nn.LayerNorm(3).double()(x).backward(mt.tensor([1.0, 2.0, 4.0], dtype=mt.float64))
    np.testing.assert_allclose(x.grad.numpy(), [-421.637021, -105.409255, 527.046277], rtol=1e-8)


def test_refusals():
    with pytest.raises(ValueError, match=r"num_channels \(5\) must be a multiple of num_groups \(2\)"):
        nn.GroupNorm(2, 5)
    with pytest.raises(ValueError, match="2 or 3 dims"):
        nn.BatchNorm1d(3)(mt.ones(3))
    with pytest.raises(ValueError, match="BatchNorm2d needs an input with 4 dims"):
        nn.BatchNorm2d(3)(mt.ones(2, 3))
