"""Moving models to PyTorch and back: the same names and values, the same outputs."""
import collections
import inspect

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.models.gpt import GPT, GPTConfig
from minitorch_attn.torch_bridge import from_torch, to_torch
from tests.harness import draw

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

WHOLE = np.array([[1, 4, 2], [0, 3, 3]])
IMAGE, SEQUENCE, ROWS = (2, 3, 7, 5), (2, 3, 7), (5, 3)

# class, arguments, what to call it with: shapes of random numbers, or arrays
LAYERS = [
    ("Linear", (3, 7), {}, [ROWS]), ("Linear", (3, 7, False), {}, [ROWS]), ("Identity", (), {}, [ROWS]),
    ("Bilinear", (3, 2, 7), {}, [ROWS, (5, 2)]), ("Embedding", (5, 7), dict(padding_idx=1), [WHOLE]),
    ("Conv1d", (3, 4, 3), dict(padding="same"), [SEQUENCE]),
    ("Conv2d", (3, 6, (3, 2)), dict(stride=2, padding=1, groups=3, bias=False, padding_mode="circular"), [IMAGE]),
    ("AvgPool1d", (3,), {}, [SEQUENCE]), ("AvgPool2d", (2,), dict(padding=1, count_include_pad=False), [IMAGE]),
    ("MaxPool1d", (3,), dict(stride=1), [SEQUENCE]), ("MaxPool2d", (2,), dict(ceil_mode=True), [IMAGE]),
    ("BatchNorm1d", (3,), {}, [ROWS]), ("BatchNorm2d", (3,), dict(affine=False, momentum=None), [IMAGE]),
    ("BatchNorm2d", (3,), dict(track_running_stats=False), [IMAGE]),
    ("GroupNorm", (3, 3), dict(eps=1e-3), [IMAGE]), ("LayerNorm", ((7, 5),), dict(bias=False), [IMAGE]),
    ("LayerNorm", (3,), dict(elementwise_affine=False), [ROWS]), ("RMSNorm", (3,), {}, [ROWS]),
    ("Dropout", (0.3,), {}, [ROWS]), ("Dropout1d", (0.3,), {}, [SEQUENCE]), ("Dropout2d", (0.3,), {}, [IMAGE]),
    ("Flatten", (), dict(start_dim=2), [IMAGE]), ("Unflatten", (1, (3, 1)), {}, [ROWS]),
    ("ReLU", (), {}, [ROWS]), ("ReLU6", (), {}, [ROWS]), ("ELU", (0.7,), {}, [ROWS]), ("GELU", ("tanh",), {}, [ROWS]),
    ("GLU", (0,), {}, [(4, 3)]), ("Hardtanh", (-0.5, 0.2), {}, [ROWS]), ("LeakyReLU", (0.2,), {}, [ROWS]),
    ("LogSigmoid", (), {}, [ROWS]), ("LogSoftmax", (0,), {}, [ROWS]), ("SiLU", (), {}, [ROWS]),
    ("Sigmoid", (), {}, [ROWS]), ("Softmax", (1,), {}, [ROWS]), ("Softmin", (1,), {}, [ROWS]),
    ("Softplus", (2.0, 1.0), {}, [ROWS]), ("Tanh", (), {}, [ROWS]), ("CosineSimilarity", (0,), {}, [ROWS, ROWS]),
    ("RNN", (3, 4), dict(nonlinearity="relu", num_layers=2, batch_first=True), [(2, 5, 3)]),
    ("GRU", (3, 4), dict(bidirectional=True, bias=False), [(5, 2, 3)]), ("LSTM", (3, 4), {}, [(5, 2, 3)]),
    ("RNNCell", (3, 4), {}, [ROWS]), ("GRUCell", (3, 4), {}, [ROWS]), ("LSTMCell", (3, 4, False), {}, [ROWS]),
    ("MultiheadAttention", (6, 2), dict(batch_first=True), [(2, 5, 6)] * 3),
    ("MultiheadAttention", (6, 3), dict(kdim=4, vdim=2, bias=False), [(5, 2, 6), (7, 2, 4), (7, 2, 2)]),
    ("MultiheadAttention", (6, 2), dict(add_bias_kv=True, add_zero_attn=True, dropout=0.2), [(5, 2, 6)] * 3),
    ("TransformerEncoderLayer", (6, 2, 11), dict(activation="gelu", norm_first=True, bias=False), [(5, 2, 6)]),
    ("TransformerDecoderLayer", (6, 3, 11), dict(layer_norm_eps=1e-3, batch_first=True), [(2, 5, 6), (2, 7, 6)]),
    ("Transformer", (6, 2, 2, 1, 11), dict(activation="gelu"), [(7, 2, 6), (5, 2, 6)]),
    ("BCELoss", (), {}, [0.2 + 0.3 * WHOLE / 4, WHOLE > 2]),
    ("BCEWithLogitsLoss", (), dict(reduction="sum"), [ROWS, ROWS]),
    ("CrossEntropyLoss", (), dict(label_smoothing=0.1, ignore_index=2), [ROWS, np.array([0, 2, 1, 1, 0])]),
    ("NLLLoss", (), {}, [ROWS, np.array([0, 2, 1, 1, 0])]), ("KLDivLoss", (), dict(log_target=True), [ROWS, ROWS]),
    ("HuberLoss", (), dict(delta=0.3), [ROWS, ROWS]), ("L1Loss", (), {}, [ROWS, ROWS]),
    ("MSELoss", (), dict(reduction="none"), [ROWS, ROWS]), ("SmoothL1Loss", (), dict(beta=0.3), [ROWS, ROWS]),
]
HOLDERS = {"Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential", "TransformerEncoder",
           "TransformerDecoder"}  # tested below
UNDECIDED = {"LazyLinear"}  # becomes a Linear with its first input


def numbers(inputs):
    arrays = [draw(*x, seed=i) if isinstance(x, tuple) else x for i, x in enumerate(inputs)]
    return [a.astype("f4") if a.dtype.kind in "bf" else a for a in arrays]


def outputs(result):
    if isinstance(result, (tuple, list)):
        return [a for r in result for a in outputs(r)]
    return [result.detach().numpy()]


def assert_same_outputs(ours, theirs, arrays):
    got = outputs(ours(*[mt.tensor(a) for a in arrays]))
    wanted = outputs(theirs(*[torch.tensor(a) for a in arrays]))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


def assert_same_state(ours, theirs):
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    for name, value in other.items():
        assert str(value.dtype) == f"torch.{mine[name].dtype}"
        np.testing.assert_array_equal(mine[name].numpy(), value.numpy(), err_msg=name)


@pytest.mark.parametrize("kind, args, options, inputs", LAYERS, ids=lambda v: v if isinstance(v, str) else "")
def test_there_and_back(kind, args, options, inputs):
    arrays = numbers(inputs)
    ours = getattr(nn, kind)(*args, **options)
    ours.eval()
    theirs = to_torch(ours)
    assert type(theirs) is getattr(torch.nn, kind) and not theirs.training
    assert_same_state(ours, theirs)
    assert_same_outputs(ours, theirs, arrays)
    assert getattr(theirs, "dropout", None) == getattr(ours, "dropout", None) or "Transformer" in kind
    again = from_torch(theirs)
    assert type(again) is type(ours) and repr(again) == repr(ours)
    assert_same_state(again, theirs)
    assert_same_outputs(again, theirs, arrays)


def test_every_layer_is_in_the_table():
    both = {name for name in dir(nn) if inspect.isclass(getattr(nn, name)) and hasattr(torch.nn, name)
            and issubclass(getattr(nn, name), nn.Module)}
    assert both - HOLDERS - UNDECIDED == {row[0] for row in LAYERS}


def test_values_are_copies():
    ours = nn.Linear(3, 2)
    theirs = to_torch(ours)
    with torch.no_grad():
        theirs.weight.zero_()
    assert ours.weight.detach().numpy().any()
    again = from_torch(theirs)
    with torch.no_grad():
        theirs.weight += 1
    assert not again.weight.detach().numpy().any()


def test_a_model_of_layers_with_modes_dtypes_and_frozen_and_tied_weights():
    ours = nn.Sequential(nn.Embedding(11, 6), nn.ModuleDict({"norm": nn.LayerNorm(6)})["norm"],
                         nn.Linear(6, 11, bias=False).double().float(), nn.Linear(11, 2).double())
    ours[2].weight = ours[0].weight
    ours[1].weight.requires_grad = False
    ours[1].eval()
    theirs = to_torch(ours)
    assert theirs[2].weight is theirs[0].weight and theirs[3].weight.dtype == torch.float64
    assert [p.requires_grad for p in theirs.parameters()] == [p.requires_grad for p in ours.parameters()]
    assert [m.training for m in theirs.modules()] == [m.training for m in ours.modules()]
    again = from_torch(theirs)
    assert again[2].weight is again[0].weight
    assert_same_state(again, theirs)
    assert [m.training for m in again.modules()] == [m.training for m in ours.modules()]
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in ours.parameters()]


def test_containers():
    ours = nn.ModuleDict({"a": nn.ModuleList([nn.Linear(2, 3), nn.ReLU()]),
                          "b": nn.ParameterList([nn.Parameter(mt.ones(2)), nn.Parameter(mt.zeros(3))]),
                          "c": nn.ParameterDict({"w": nn.Parameter(mt.randn(5))})})
    theirs = to_torch(ours)
    assert isinstance(theirs["a"][1], torch.nn.ReLU)
    assert_same_state(ours, theirs)
    assert_same_state(from_torch(theirs), theirs)


@pytest.mark.parametrize("there", [True, False])
def test_encoder_and_decoder_whose_layers_differ(there):
    library = torch.nn if there else nn
    encoder = library.TransformerEncoder(library.TransformerEncoderLayer(6, 2, 11, 0.0), 2, library.LayerNorm(6))
    encoder.layers[1] = library.TransformerEncoderLayer(6, 2, 13, 0.0)
    decoder = library.TransformerDecoder(library.TransformerDecoderLayer(6, 2, 11, 0.0), 2)
    x, memory = numbers([(5, 2, 6), (7, 2, 6)])
    moved = [from_torch(m) if there else to_torch(m) for m in (encoder, decoder)]
    ours, theirs = (moved, [encoder, decoder]) if there else ([encoder, decoder], moved)
    assert_same_outputs(ours[0], theirs[0], [x])
    assert_same_outputs(ours[1], theirs[1], [x, memory])


def test_training_goes_on_alike():
    mt.manual_seed(0)
    ours = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
    x, y = numbers([(7, 3), (7, 2)])
    losses = []
    for library, model in ((mt, ours), (torch, to_torch(ours))):
        optimizer = library.optim.AdamW(model.parameters(), lr=0.01)
        for _ in range(5):
            loss = library.nn.functional.mse_loss(model(library.tensor(x)), library.tensor(y))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    np.testing.assert_allclose(losses[:5], losses[5:], rtol=1e-5)


def written_for(nn):
    class Model(nn.Module):
        def __init__(self, width=5):
            super().__init__()
            self.inner = nn.Linear(3, width)
            self.register_buffer("scale", self.inner.weight.detach()[0, :1] * 0 + 2)

        def forward(self, x):
            return self.inner(x) * self.scale

    return Model


def test_a_class_of_ones_own():
    ours, theirs = written_for(nn)(), written_for(torch.nn)()
    with pytest.raises(TypeError, match=r"class of your own.*into="):
        to_torch(ours)
    assert to_torch(ours, into=theirs) is theirs
    assert_same_state(ours, theirs)
    assert_same_outputs(ours, theirs, numbers([ROWS]))
    again = written_for(nn)()
    assert from_torch(theirs, into=again) is again
    assert_same_state(again, theirs)
    before = theirs.state_dict()["inner.weight"].clone()
    with pytest.raises(ValueError, match=r"inner.weight: shape \(7, 3\) given, \(5, 3\) needed"):
        to_torch(written_for(nn)(7), into=theirs)
    with pytest.raises(ValueError, match="only in what is given: weight"):
        to_torch(nn.Linear(3, 5), into=theirs)
    assert (theirs.state_dict()["inner.weight"] == before).all()


def test_into_keeps_the_parameters_that_it_has_and_what_steps_them():
    class Tied(torch.nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
            self.b.weight = self.a.weight if tied else self.b.weight

    ours, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2).double()
    ours.bias.requires_grad = False
    weight, optimizer = theirs.weight, torch.optim.SGD(theirs.parameters(), lr=1.0)
    to_torch(ours, into=theirs)
    assert theirs.weight is weight and weight.dtype == torch.float64 and not theirs.bias.requires_grad
    assert_same = np.testing.assert_array_equal
    assert_same(weight.detach().numpy(), ours.weight.detach().numpy())
    theirs(torch.ones(3).double()).sum().backward()
    optimizer.step()
    assert_same(weight.detach().numpy(), ours.weight.detach().numpy().astype("f8") - 1)
    before = ours.weight
    assert from_torch(theirs, into=ours).weight is before and before.dtype == mt.float32
    assert_same(before.detach().numpy(), weight.detach().numpy().astype("f4"))

    twice = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    with pytest.raises(ValueError, match=r"b\.weight: one with another in what takes, but not in what is given"):
        to_torch(twice, into=Tied(tied=True))
    twice["b"].weight = twice["a"].weight
    taking = Tied(tied=False)
    first = taking.a.weight
    to_torch(twice, into=taking)
    assert taking.a.weight is taking.b.weight is first
    with pytest.raises(ValueError, match="weight: on PyTorch's meta device"):
        to_torch(nn.Linear(3, 2), into=torch.nn.Linear(3, 2, device="meta"))


@pytest.mark.parametrize("there", [True, False])
def test_what_was_changed_within_a_layer_moves_too(there):
    library = torch.nn if there else nn
    layer = library.TransformerEncoderLayer(6, 2, 11, dropout=0.1)
    layer.self_attn.dropout, layer.dropout1.p, layer.norm2.eps = 0.3, 0.9, 0.5
    layer.norm1 = library.LayerNorm(6, bias=False)
    moved = from_torch(layer) if there else to_torch(layer)
    assert (moved.self_attn.dropout, moved.dropout1.p, moved.norm2.eps, moved.norm1.bias) == (0.3, 0.9, 0.5, None)
    assert moved.dropout2.p == 0.1
    named = library.Sequential(collections.OrderedDict(fc=library.Linear(3, 2), act=library.ReLU()))
    moved = from_torch(named) if there else to_torch(named)
    assert list(moved.state_dict()) == ["fc.weight", "fc.bias"] and [n for n, _ in moved.named_children()] == [
        "fc", "act"]
    drop = library.Dropout(0.5)
    twice = library.Sequential(drop, library.Linear(2, 2), drop).eval()
    moved = from_torch(twice) if there else to_torch(twice)
    assert moved[0] is moved[2] and not moved[2].training


def test_padding_gives_what_it_gives_here():
    ours = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 11, 0.0, batch_first=True), 1).eval()
    x, padding = draw(2, 5, 6).astype("f4"), np.arange(5) > np.array([[2], [4]])
    wanted = ours(mt.tensor(x), src_key_padding_mask=mt.tensor(padding)).detach().numpy()
    with torch.no_grad():
        got = to_torch(ours)(torch.tensor(x), src_key_padding_mask=torch.tensor(padding)).numpy()
    assert np.abs(wanted[0, 3:]).min() > 0
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("call, words", [
    (lambda: to_torch(torch.nn.Linear(2, 3)), r"takes a Module of minitorch_attn, got torch.*Linear; .* from_torch"),
    (lambda: from_torch(nn.Linear(2, 3)), r"takes a Module of PyTorch, got minitorch_attn.*Linear; .* to_torch"),
    (lambda: from_torch(torch.nn.Linear(2, 3).state_dict()), "OrderedDict; hand over the module itself"),
    (lambda: to_torch(nn.Linear), r"got the class minitorch_attn.*Linear; hand over an object"),
    (lambda: to_torch(3), "got builtins.int$"), (lambda: from_torch(torch.ones(2)), "got torch.Tensor$"),
    (lambda: to_torch(nn.Linear(2, 3), into=nn.Linear(2, 3)), "into= takes a Module of PyTorch, got minitorch_attn"),
    (lambda: to_torch(nn.Linear(2, 3), into=torch.nn.Linear), "into= takes a Module of PyTorch, got the class torch"),
    (lambda: to_torch(GPT(GPTConfig(5, 3, n_layer=1, n_head=1, n_embd=2))),
     "other library has no GPT"),
])
def test_what_is_not_a_module_of_the_right_library_is_told(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_what_cannot_be_moved():
    hooked = torch.nn.Linear(2, 3)
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(TypeError, match="Linear has hooks"):
        from_torch(torch.nn.Sequential(hooked))
    for move, library in ((from_torch, torch.nn), (to_torch, nn)):
        with pytest.raises(ValueError, match="weight has no values yet"):
            move(library.LazyLinear(3))
    with pytest.raises(TypeError, match="has no SwiGLU"):
        to_torch(nn.SwiGLU(4))
    with pytest.raises(TypeError, match="has no PReLU"):
        from_torch(torch.nn.PReLU())
    with pytest.raises(TypeError, match="activation"):
        to_torch(nn.TransformerEncoderLayer(4, 2, 8, activation=lambda x: x))


def test_bfloat16_becomes_float32():
    theirs = torch.nn.Linear(2, 3).bfloat16()
    ours = from_torch(theirs)
    assert ours.weight.dtype == mt.float32
    np.testing.assert_array_equal(ours.weight.detach().numpy(), theirs.weight.detach().float().numpy())
