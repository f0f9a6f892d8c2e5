"""Recurrent kernels against loops, finite differences and PyTorch."""
import math
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import to_device
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients, leaf

T, B, I, H = 5, 3, 2, 7


def sigmoid(a):
    return 1 / (1 + math.exp(-a))


def affine(w, x, b, row):
    return sum(w[row, j] * x[j] for j in range(len(x))) + (0.0 if b is None else b[row])


def plain(kind, x, h, w_ih, w_hh, b_ih=None, b_hh=None, c=None):
    """One step for one sample, number by number, from the formulas; returns the next h, or (h, c)."""
    width = len(h)
    new_h, new_c = np.zeros(width), np.zeros(width)
    for j in range(width):
        a = [affine(w_ih, x, b_ih, k * width + j) for k in range(len(w_ih) // width)]
        u = [affine(w_hh, h, b_hh, k * width + j) for k in range(len(w_ih) // width)]
        if kind == "tanh":
            new_h[j] = math.tanh(a[0] + u[0])
        elif kind == "relu":
            new_h[j] = max(0.0, a[0] + u[0])
        elif kind == "gru":
            r, z = sigmoid(a[0] + u[0]), sigmoid(a[1] + u[1])
            n = math.tanh(a[2] + r * u[2])
            new_h[j] = (1 - z) * n + z * h[j]
        else:
            i, f, o = (sigmoid(a[k] + u[k]) for k in (0, 1, 3))
            new_c[j] = f * c[j] + i * math.tanh(a[2] + u[2])
            new_h[j] = o * math.tanh(new_c[j])
    return new_h if c is None else (new_h, new_c)


def over_time(kind, x, h0, *weights, reverse=False):
    y, last = np.zeros((len(x), *h0.shape)), h0
    for t in range(len(x))[::-1 if reverse else 1]:
        last = y[t] = np.stack([plain(kind, x[t, i], last[i], *weights) for i in range(len(h0))])
    return y


def kernel(kind):
    if kind == "gru":
        return F.gru
    return lambda *args, **options: F.rnn(*args, nonlinearity=kind, **options)


def arrays_for(gates, steps=T, batch=B, inputs=I, width=H, bias=True, states=1):
    rows = gates * width
    shapes = [(steps, batch, inputs), *[(batch, width)] * states, (rows, inputs), (rows, width)]
    shapes += [(rows,)] * (2 * bias)
    return [draw(*shape, seed=i) * 0.7 for i, shape in enumerate(shapes)]


def torch_network(name, **options):
    """PyTorch's module of that name as a function of the kernel's arguments."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def call(x, *rest, reverse=False):
        states = 2 if name == "LSTM" else 1
        weights = dict(zip(["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"], rest[states:]))
        sizes = x.shape[2], rest[0].shape[1]
        network = getattr(torch.nn, name)(*sizes, bias=len(weights) == 4, dtype=x.dtype, **options)
        state = tuple(h[None] for h in rest[:states])
        y, last = torch.func.functional_call(network, weights, (x.flip(0) if reverse else x,
                                                                state if states == 2 else state[0]))
        y = y.flip(0) if reverse else y
        return torch.cat([y, last[1]]) if states == 2 else y
    return call


KINDS = [("tanh", 1, "RNN", {}), ("relu", 1, "RNN", {"nonlinearity": "relu"}), ("gru", 3, "GRU", {})]
SIZES = [{}, {"bias": False}, {"steps": 1}, {"batch": 1}, {"inputs": 1}, {"width": 1},
         {"batch": 1, "width": 1, "steps": 2}]
kinds = pytest.mark.parametrize("kind, gates, name, options", KINDS, ids=[k[0] for k in KINDS])
directions = pytest.mark.parametrize("reverse", [False, True])
sizes = pytest.mark.parametrize("size", SIZES, ids=str)


@kinds
@directions
@sizes
def test_values(kind, gates, name, options, reverse, size):
    arrays = arrays_for(gates, **size)
    y = kernel(kind)(*map(mt.tensor, arrays), reverse=reverse)
    np.testing.assert_allclose(y.numpy(), over_time(kind, *arrays, reverse=reverse), rtol=1e-12, atol=1e-14)


@kinds
@directions
@sizes
def test_gradients(kind, gates, name, options, reverse, size):
    assert_gradients(lambda *x: kernel(kind)(*x, reverse=reverse), *arrays_for(gates, **size))


@kinds
@directions
@sizes
def test_like_torch(kind, gates, name, options, reverse, size):
    theirs = torch_network(name, **options)
    assert_like_torch(lambda *x: kernel(kind)(*x, reverse=reverse), lambda *x: theirs(*x, reverse=reverse),
                      *arrays_for(gates, **size))


@directions
@sizes
def test_lstm(reverse, size):
    arrays = arrays_for(4, states=2, **size)
    x, h, c, *weights = arrays
    y = F.lstm(*map(mt.tensor, arrays), reverse=reverse).numpy()
    for t in range(len(x))[::-1 if reverse else 1]:
        steps = [plain("lstm", x[t, i], h[i], *weights, *[None] * (4 - len(weights)), c[i]) for i in range(len(h))]
        h, c = (np.stack(part) for part in zip(*steps))
        np.testing.assert_allclose(y[t], h, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(y[-1], c, rtol=1e-12, atol=1e-14)
    assert_gradients(lambda *x: F.lstm(*x, reverse=reverse), *arrays)
    theirs = torch_network("LSTM")
    assert_like_torch(lambda *x: F.lstm(*x, reverse=reverse), lambda *x: theirs(*x, reverse=reverse), *arrays)


CELLS = [("tanh", 1, F.rnn_tanh_cell), ("relu", 1, F.rnn_relu_cell), ("gru", 3, F.gru_cell)]


@pytest.mark.parametrize("kind, gates, cell", CELLS, ids=[c[0] for c in CELLS])
@pytest.mark.parametrize("bias", [True, False])
def test_cells(kind, gates, cell, bias):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, *rest = arrays_for(gates, steps=1, bias=bias)
    arrays = [x[0], *rest]
    y = cell(*map(mt.tensor, arrays)).numpy()
    np.testing.assert_allclose(y, over_time(kind, x, *rest)[0], rtol=1e-12, atol=1e-14)
    assert_gradients(cell, *arrays)
    assert_like_torch(cell, getattr(torch, cell.__name__), *arrays)


def test_lstm_cell():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, *rest = arrays_for(4, steps=1, states=2)

    def ours(x, h, c, *weights):
        return F.lstm_cell(x, (h, c), *weights)
    assert_gradients(ours, x[0], *rest)
    assert_like_torch(ours, lambda x, h, c, *weights: torch.lstm_cell(x, (h, c), *weights), x[0], *rest)


@kinds
def test_a_sequence_equals_its_steps(kind, gates, name, options):
    """The kernel against a loop over cells, values and gradients."""
    cell = {"tanh": F.rnn_tanh_cell, "relu": F.rnn_relu_cell, "gru": F.gru_cell}[kind]

    def loop(x, h, *weights):
        steps = []
        for step in x:
            h = cell(step, h, *weights)
            steps.append(h)
        return mt.stack(steps)
    arrays = arrays_for(gates)
    (one,), weights, found = gradients(kernel(kind), arrays)
    (two,), _, wanted = gradients(loop, arrays, weights)
    np.testing.assert_allclose(one.detach().numpy(), two.detach().numpy(), rtol=1e-12)
    for g, w in zip(found, wanted):
        np.testing.assert_allclose(g, w, rtol=1e-10, atol=1e-13)


@kinds
def test_float32_stays(kind, gates, name, options):
    (y,), _, found = gradients(kernel(kind), [a.astype("f4") for a in arrays_for(gates)])
    assert y.dtype == mt.float32 and all(g.dtype == np.float32 for g in found)
    (y,), _, found = gradients(F.lstm, [a.astype("f4") for a in arrays_for(4, states=2)])
    assert y.dtype == mt.float32 and all(g.dtype == np.float32 for g in found)


@kinds
@directions
def test_inputs_that_are_not_contiguous(kind, gates, name, options, reverse):
    x, *rest = arrays_for(gates)
    batch_first = np.ascontiguousarray(x.swapaxes(0, 1))

    def strided(x, *rest):
        return kernel(kind)(x.transpose(0, 1), *rest, reverse=reverse).transpose(0, 1).flip(1)
    assert_gradients(strided, batch_first, *rest)


def test_large_inputs_saturate_the_gates_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x, h, *weights = [(1000 * a).astype("f4") for a in arrays_for(3)]
        (y,), _, found = gradients(F.gru, [x, h, *weights])
    assert np.all(np.isfinite(y.detach().numpy())) and all(np.all(np.isfinite(g)) for g in found)


def test_no_gradient_for_an_input_that_wants_none():
    x, *rest = arrays_for(3)
    y = F.gru(mt.tensor(x), *map(leaf, rest))
    gx, *others = y.node.backward(to_device(draw(T, B, H)))
    assert gx is None and all(g is not None for g in others)


@pytest.mark.parametrize("change, message", [
    ({0: (T, B)}, r"x \(T, B, I\)"), ({0: (T, B, I + 1)}, r"w_ih \(3H, I\)"), ({0: (0, B, I)}, "at least one step"),
    ({1: (B + 1, H)}, r"state \(B, H\)"), ({1: (H,)}, r"state \(B, H\)"), ({2: (2 * H, I)}, r"w_ih \(3H, I\)"),
    ({3: (3 * H, H + 1)}, r"w_hh \(3H, H\)"), ({4: (H,)}, r"biases \(3H,\)"), ({5: (1, 3 * H)}, r"biases \(3H,\)"),
])
def test_mistakes(change, message):
    shapes = {i: a.shape for i, a in enumerate(arrays_for(3))} | change
    with pytest.raises(RuntimeError, match=message):
        F.gru(*(mt.zeros(*shape) for shape in shapes.values()))


def test_other_mistakes():
    arrays = [mt.tensor(a) for a in arrays_for(1)]
    with pytest.raises(ValueError, match="'sine'"):
        F.rnn(*arrays, nonlinearity="sine")
    with pytest.raises(RuntimeError, match="both biases"):
        F.rnn(*arrays[:5])
    with pytest.raises(RuntimeError, match="one floating-point dtype"):
        F.rnn(arrays[0].float(), *arrays[1:])
    x, h, c, *weights = (mt.tensor(a) for a in arrays_for(4, states=2))
    with pytest.raises(RuntimeError, match=r"\(3, 7\), \(3, 6\)"):
        F.lstm(x, h, c[:, :6], *weights)


@pytest.mark.parametrize("layer", [mt.nn.RNN, mt.nn.GRU, mt.nn.LSTM])
def test_an_empty_batch(layer):
    net = layer(3, 4)
    y = net(mt.zeros(5, 0, 3))[0]
    y.sum().backward()
    assert y.shape == (5, 0, 4) and not net.weight_hh_l0.grad.numpy().any()
