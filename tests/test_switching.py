"""Changing the array library while a program runs: nothing stale is used, and errors say how to bring it over."""
import gc
import os
import subprocess
import sys
import types

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.autograd import Tensor
from minitorch_attn.backend import DEVICE_KINDS, xp
from minitorch_attn.switching import SLOT, bring_over

OTHERS = [name for name in DEVICE_KINDS if name != "numpy"]
HERE = xp.name


@pytest.fixture(params=OTHERS)
def other(request):
    """Another library; afterwards the one from before is in use again, and nothing is watched any more."""
    pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    mt.use_backend("numpy")
    yield request.param
    mt.use_backend(HERE)
    Tensor.array = SLOT


def test_the_library_in_use_again_is_no_change():
    mt.use_backend(xp.name)
    assert Tensor.__dict__["array"] is SLOT


def test_an_unknown_library_is_refused():
    with pytest.raises(ValueError, match="it can be numpy, cupy, dpnp"):
        mt.use_backend("jax")


def test_what_is_of_this_library_is_returned_as_it_is():
    x, values = mt.ones(2), [mt.ones(3), 5]
    assert bring_over(x) is x and bring_over(values) is values and bring_over("text") == "text"
    model = nn.Linear(2, 3)
    weight = model.weight.array
    assert model.to("cpu") is model and model.weight.array is weight and x.to("cpu") is x and x.cpu() is x


def test_a_tensor_of_the_former_library_says_how_to_bring_it_over(other):
    x, y = mt.tensor([1.0, 2.0], requires_grad=True), mt.tensor([3, 4])
    mt.use_backend(other)
    kind, z = DEVICE_KINDS[other], mt.ones(2)
    assert z.device.type == kind
    array = z.array
    mt.use_backend("numpy")
    assert mt.tensor(array).tolist() == [1.0, 1.0] and isinstance(mt.tensor(array).array, np.ndarray)
    with pytest.raises(TypeError, match=f"needs a NumPy array of real numbers, got {other}"):
        mt.from_numpy(array)
    mt.use_backend(other)
    for act in (lambda: x + z, lambda: z + x, lambda: z * y, lambda: x.exp(), lambda: mt.cat([z, x]), lambda: x.sum(),
                lambda: z[y], lambda: z.copy_(x), lambda: mt.tensor(x), lambda: y.numpy(), lambda: x.tolist(),
                lambda: nn.functional.linear(z, x[None]), lambda: repr(x), lambda: x.shape, lambda: x.device):
        with pytest.raises(RuntimeError, match=rf'made while numpy computed, and now {other} does.*x.to\("{kind}"\)'):
            act()
    for brought in (x.to(kind), x.cpu(), x.to("cpu"), x.to(kind, mt.float32), bring_over([x])[0]):
        assert isinstance(brought.array, xp.ndarray) and brought.tolist() == [1.0, 2.0]
        assert brought.requires_grad and brought.is_leaf
    (x.to(kind) + z).sum().backward()
    assert y.to(kind).tolist() == [3, 4] and not y.to(kind).requires_grad
    mt.use_backend("numpy")
    assert (x + 1).tolist() == [2.0, 3.0] and x.to("cpu") is x
    with pytest.raises(RuntimeError, match=f'made while {other} computed, and now numpy does.*use_backend."{other}"'):
        x + z
    assert (x + z.cpu()).tolist() == [2.0, 3.0]


def test_a_graph_does_not_cross(other):
    x = mt.ones(3, requires_grad=True)
    y = (x * 2).sum()
    mt.use_backend(other)
    with pytest.raises(RuntimeError, match="now"):
        y.backward()
    with pytest.raises(RuntimeError, match=r"backward\(\) before use_backend\(\)"):
        y.to("cpu")
    with mt.no_grad():
        assert y.to("cpu").item() == 6 and not y.to("cpu").requires_grad
    mt.use_backend("numpy")
    y.backward()
    assert x.grad.tolist() == [2.0] * 3


def test_random_numbers_go_on_where_they_were(other):
    def numbers():
        drawn = [mt.rand(5), mt.randn(17), mt.randn(3), mt.randint(0, 9, (7,)), mt.randperm(6),
                 nn.functional.dropout(mt.ones(50)), mt.bernoulli(mt.full((9,), 0.5)), mt.multinomial(mt.ones(5), 3)]
        return [x.tolist() for x in drawn]

    mt.manual_seed(7)
    first, second = numbers(), numbers()
    mt.manual_seed(7)
    assert numbers() == first
    state = mt.get_rng_state()
    mt.use_backend(other)
    assert numbers() == second
    mt.set_rng_state(state)
    assert numbers() == second


class Model(nn.Module):
    """With parameters, tied ones, buffers, tables that layers make for themselves, and a tensor of its own."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.positions, self.rotary = nn.SinusoidalPositions(8), nn.RotaryEmbedding(4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 13, 0.0, batch_first=True)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = mt.tensor(1.5)

    def forward(self, ids):
        x = self.layer(self.positions(self.embedding(ids)))
        x = self.rotary(x.unflatten(-1, (2, 4)).transpose(1, 2)).transpose(1, 2).flatten(2)
        return self.head(self.norm(x.transpose(1, 2)).transpose(1, 2)) * self.scale


def train(model, optimizer, steps):
    losses = []
    for _ in range(steps):
        ids = mt.randint(0, 11, (2, 7))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def arrays_within(model, optimizer):
    """Every tensor that a model and its optimizer reach, by way of any attribute, list or dict."""
    found, seen, stack = [], set(), [model, optimizer]
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, (str, type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            found.append(SLOT.__get__(value))
            stack += [value.grad, value.storage.array, *[v for pair in value.storage.replaced for v in pair]]
        elif isinstance(value, (np.ndarray, xp.ndarray)):
            found.append(value)
        elif isinstance(value, dict):
            stack += [*value, *value.values()]
        elif isinstance(value, (list, tuple, set)):
            stack += value
        elif hasattr(value, "__dict__"):
            stack += vars(value).values()
    return found


def test_training_goes_on_in_the_other_library_and_comes_back(other):
    def fresh():
        mt.manual_seed(3)
        model = Model()
        return model, mt.optim.AdamW(model.parameters(), lr=0.01)

    wanted = train(*fresh(), 9)
    model, optimizer = fresh()
    losses = train(model, optimizer, 3)
    for library in (other, "numpy"):
        mt.use_backend(library)
        with pytest.raises(RuntimeError, match=r"model\.to"):
            model(mt.zeros(1, 2, dtype=mt.int64))
        model.to(DEVICE_KINDS[library])
        assert model.head.weight is model.embedding.weight
        with pytest.raises(RuntimeError, match="now"):
            optimizer.step()  # its state is left
        optimizer.load_state_dict(optimizer.state_dict())
        stale = [type(a) for a in arrays_within(model, optimizer) if not isinstance(a, xp.ndarray)]
        assert not stale
        losses += train(model, optimizer, 3)
    np.testing.assert_allclose(losses, wanted, rtol=2e-4)


def package_arrays(kind):
    """Where in the package's modules, classes and functions an array of that kind is kept."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] != "minitorch_attn" or name.startswith("minitorch_attn.datasets"):
            continue
        for attribute, value in list(vars(module).items()):
            reached = [value, *gc.get_referents(value)] if not isinstance(value, types.ModuleType) else [vars(value)]
            if isinstance(value, types.FunctionType):
                reached += [cell.cell_contents for cell in value.__closure__ or ()]
            found += [f"{name}.{attribute}" for v in reached
                      if isinstance(v, kind) or (isinstance(v, Tensor) and isinstance(SLOT.__get__(v), kind))]
    return found


def test_the_package_itself_keeps_no_array_and_no_function_of_the_former_library(other):
    train(*((model := Model()), mt.optim.SGD(model.parameters(), lr=0.1)), 1)
    former = np.ndarray
    mt.use_backend(other)
    train(*((model := Model()), mt.optim.SGD(model.parameters(), lr=0.1)), 1)
    assert not package_arrays(former)
    kept = {name: value for name, value in vars(xp).items() if callable(value) and name != "module"}
    assert kept and all(getattr(np, name, None) is not value for name, value in kept.items() if name != "ndarray")
    assert xp.ndarray is not np.ndarray


def test_each_program_starts_with_the_library_that_the_environment_names(other):
    code = "import minitorch_attn as mt; x = mt.arange(3.0); print(mt.backend.xp.name, x.device, (x * 2).tolist())"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                         env={**os.environ, "MINITORCH_BACKEND": other})
    assert got.stdout == f"{other} {DEVICE_KINDS[other]} [0.0, 2.0, 4.0]\n", got.stderr
