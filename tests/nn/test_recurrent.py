"""Recurrent layers against PyTorch's: same seed, same numbers; states, directions, layers."""
import copy

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.twin import twins

T, B, I, H = 5, 3, 2, 7

NETWORKS = [
    ("RNN", {}), ("RNN", {"nonlinearity": "relu", "num_layers": 2}), ("RNN", {"bidirectional": True, "bias": False}),
    ("GRU", {}), ("GRU", {"batch_first": True}), ("GRU", {"bias": False, "num_layers": 3}),
    ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    ("LSTM", {}), ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}), ("LSTM", {"bias": False}),
]
networks = pytest.mark.parametrize("name, options", NETWORKS, ids=str)
CELLS = [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("GRUCell", {}), ("GRUCell", {"bias": False}),
         ("LSTMCell", {}), ("LSTMCell", {"bias": False})]
cells = pytest.mark.parametrize("name, options", CELLS, ids=str)


def calls(layer):
    """The layer as a function of input and one array for each state, for the harness."""
    return lambda x, *states: layer(x, *((states,) if len(states) == 2 else states))


def agree(ours, theirs, *arrays):
    """Values and all gradients, of inputs and of parameters."""
    assert_like_torch(calls(ours), calls(theirs), *arrays)
    for (name, p), (_, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-7, err_msg=name)


@networks
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_networks_are_pytorchs(name, options, with_state, batched):
    ours, theirs = twins(name, I, H, **options)
    batch = (B,) if batched else ()
    x = draw(*batch, T, I) if options.get("batch_first") else draw(T, *batch, I)
    runs = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    number = (2 if name == "LSTM" else 1) if with_state else 0
    agree(ours, theirs, x, *(draw(runs, *batch, H, seed=i) for i in range(number)))


@cells
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_cells_are_pytorchs(name, options, with_state, batched):
    ours, theirs = twins(name, I, H, **options)
    batch = (B,) if batched else ()
    number = (2 if name == "LSTMCell" else 1) if with_state else 0
    agree(ours, theirs, draw(*batch, I, seed=5), *(draw(*batch, H, seed=i) for i in range(number)))


@pytest.mark.parametrize("name", ["RNN", "GRU"])
def test_gradients(name):
    layer = getattr(nn, name)(I, 3, num_layers=2, bidirectional=True).double()
    assert_gradients(layer, draw(T, B, I), draw(4, B, 3))


def test_float32_stays():
    layer = nn.GRU(I, H)
    x = mt.tensor(draw(T, B, I).astype("f4"), requires_grad=True)
    y, h = layer(x)
    (y * y).sum().backward()
    assert y.dtype == h.dtype == x.grad.dtype == mt.float32
    assert all(p.grad.dtype == mt.float32 for p in layer.parameters())


def test_names_of_parameters():
    layer = nn.GRU(I, H, num_layers=2, bidirectional=True)
    assert layer._flat_weights_names[:8] == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse"]
    assert list(layer._parameters) == layer._flat_weights_names
    assert layer.weight_ih_l1_reverse.shape == (3 * H, 2 * H)
    assert layer.all_weights[3][0] is layer.weight_ih_l1_reverse
    layer.flatten_parameters()


def test_the_last_state_is_the_output_at_the_end_of_each_direction():
    y, h = nn.GRU(I, H, bidirectional=True, batch_first=True)(mt.tensor(draw(B, T, I).astype("f4")))
    assert y.is_contiguous()  # what reads it more than once would each time work on a transposed view
    assert y.shape == (B, T, 2 * H) and h.shape == (2, B, H)
    assert mt.equal(h[0], y[:, -1, :H]) and mt.equal(h[1], y[:, 0, H:])


def test_a_sequence_can_be_run_in_two_parts():
    layer = nn.GRU(I, H, num_layers=2)
    x = mt.tensor(draw(T, B, I).astype("f4"))
    whole, last = layer(x)
    first, state = layer(x[:2])
    second, state = layer(x[2:], state)
    np.testing.assert_allclose(mt.cat([first, second]).detach().numpy(), whole.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state.detach().numpy(), last.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_dropout_between_layers_only_while_training():
    mt.manual_seed(0)
    layer = nn.GRU(I, H, num_layers=2, dropout=0.5)
    x = mt.tensor(draw(T, B, I).astype("f4"))
    (one, last), (two, _) = layer(x), layer(x)
    assert not mt.equal(one, two)
    assert mt.equal(one[-1], last[1])  # what leaves the last layer is whole
    layer.eval()
    assert mt.equal(layer(x)[0], layer(x)[0])
    assert mt.equal(layer(x)[1][0], last[0])  # what enters the first layer is whole
    everything = nn.GRU(I, H, num_layers=2, dropout=1.0)
    zeros_in = copy.deepcopy(everything).eval()
    zeros_in.weight_ih_l1.data = mt.zeros(3 * H, H)
    assert mt.equal(everything(x)[0], zeros_in(x)[0])
    with pytest.warns(UserWarning, match="between layers"):
        nn.GRU(I, H, dropout=0.5)


@pytest.mark.parametrize("call, error, message", [
    (lambda: nn.GRU(I, 0), ValueError, "greater than 0"), (lambda: nn.GRU(I, 2.5), TypeError, "must be an int"),
    (lambda: nn.GRU(I, H, num_layers=0), ValueError, "num_layers"),
    (lambda: nn.GRUCell(I, -1), ValueError, "hidden_size"),
    (lambda: nn.GRU(I, H, dropout=1.5), ValueError, "dropout"),
    (lambda: nn.GRU(I, H, dropout=True), ValueError, "dropout"),
    (lambda: nn.RNN(I, H, nonlinearity="gelu"), ValueError, "'gelu'"),
    (lambda: nn.RNNCell(I, H, nonlinearity="gelu"), ValueError, "'gelu'"),
    (lambda: nn.LSTM(I, H, proj_size=3), NotImplementedError, "proj_size"),
    (lambda: nn.GRU(I, H)(mt.zeros(T, B, I + 1)), RuntimeError, "width 2"),
    (lambda: nn.GRU(I, H)(mt.zeros(I)), ValueError, "2 or 3 dims"),
    (lambda: nn.GRU(I, H)((mt.zeros(T, I), [T])), TypeError, "packed sequences"),
    (lambda: nn.GRU(I, H)(mt.zeros(T, B, I), mt.zeros(1, H)), RuntimeError, r"state of shape \(1, 3, 7\)"),
    (lambda: nn.GRU(I, H)(mt.zeros(T, I), mt.zeros(1, B, H)), RuntimeError, r"state of shape \(1, 7\)"),
    (lambda: nn.GRU(I, H)(mt.zeros(0, B, I)), RuntimeError, "at least one step"),
    (lambda: nn.GRUCell(I, H)(mt.zeros(T, B, I)), ValueError, "1 or 2 dims"),
    (lambda: nn.GRUCell(I, H)(mt.zeros(B, I), mt.zeros(H)), RuntimeError, r"state of shape \(3, 7\)"),
])
def test_mistakes(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_a_cell_steps_as_the_network_does():
    cell, network = nn.GRUCell(I, H), nn.GRU(I, H)
    network.load_state_dict({name + "_l0": value for name, value in cell.state_dict().items()})
    x = mt.tensor(draw(T, B, I).astype("f4"))
    h, steps = None, []
    for step in x:
        h = cell(step, h)
        steps.append(h)
    assert mt.allclose(mt.stack(steps), network(x)[0], atol=1e-6)
