"""Methods, operators and conversions of Tensor."""
import copy
import operator
import pickle

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import ops
from minitorch_attn.backend import DEVICE_KINDS, xp
from minitorch_attn.methods import METHODS, OPERATORS, attach
from minitorch_attn.ops import create
from tests.harness import assert_gradients, assert_like_torch, draw


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def test_every_operation_that_pytorch_has_as_a_method_is_one(torch):
    missing = [name for name in dir(ops) if callable(getattr(ops, name)) and hasattr(torch.Tensor, name)
               and not name.startswith("_") and not hasattr(mt.Tensor, name)]
    assert not missing


def test_the_table_names_each_method_once_and_under_its_file():
    names = [name for family in METHODS.values() for name in family.split()]
    assert len(set(names)) == len(names)
    for family, listed in METHODS.items():
        for name in listed.split():
            assert getattr(mt.Tensor, name) is getattr(ops, name)
            home = getattr(ops, name).__module__.rpartition(".")[2]
            assert home in (family, "elementwise") or family == "inplace", f"{name} is in {home}, not {family}"


def test_attach():
    try:
        attach("twice", lambda x: x + x)
        assert mt.tensor([1.0, 2.0]).twice().tolist() == [2, 4]
    finally:
        del mt.Tensor.twice


def test_functions_of_nn_that_are_methods():
    x = mt.tensor(draw(2, 3))
    for name in ("softmax", "log_softmax"):
        np.testing.assert_array_equal(getattr(x, name)(dim=-1).numpy(), getattr(mt.nn.functional, name)(x, -1).numpy())
    assert x.relu().min().item() >= 0 and mt.relu(x).tolist() == x.relu().tolist()


# Operators

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_operators(name):
    act = getattr(operator, name)
    x, y = draw(2, 3, low=0.5, high=3), draw(3, low=0.5, high=3, seed=1)
    np.testing.assert_allclose(act(mt.tensor(x), mt.tensor(y)).numpy(), act(x, y))
    np.testing.assert_allclose(act(mt.tensor(x), 2.0).numpy(), act(x, 2.0))
    np.testing.assert_allclose(act(2.0, mt.tensor(x)).numpy(), act(2.0, x))
    np.testing.assert_allclose(act(mt.tensor(x), y).numpy(), act(x, y))
    np.testing.assert_allclose(act(y, mt.tensor(x)).numpy(), act(y, x))
    assert isinstance(act(y, mt.tensor(x)), mt.Tensor)
    for result in (act(mt.ones(3), 2), act(2, mt.ones(3)), act(np.ones(3, "f4"), mt.ones(3))):
        assert result.dtype == mt.float32
    changed = kept = mt.tensor(x)
    changed = getattr(operator, "i" + name)(changed, mt.tensor(y))
    assert changed is kept
    np.testing.assert_allclose(kept.numpy(), act(x, y))
    if name not in ("floordiv", "mod"):
        assert_gradients(act, x, y)
        assert_gradients(lambda x: act(1.5, x), x)
        assert_like_torch(lambda x: act(3, x), lambda x: act(3, x), x.astype("f4"), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    act = getattr(operator, name)
    x = np.array([[1, 2, 3], [3, 2, 1]])
    for other in (2, 2.5, mt.tensor([3, 2, 1])):
        array = other.numpy() if isinstance(other, mt.Tensor) else other
        found = act(mt.tensor(x), other)
        assert found.dtype == mt.bool
        np.testing.assert_array_equal(found.numpy(), act(x, array))
        np.testing.assert_array_equal(act(other, mt.tensor(x)).numpy(), act(array, x))


def test_comparison_with_what_is_no_number():
    x = mt.ones(2)
    assert (x == None) is False and (x != None) is True and (x == "a") is False  # noqa: E711
    assert x in [None, x] and {x: 1}[x] == 1
    with pytest.raises(TypeError):
        x < "a"  # noqa: B015


@pytest.mark.parametrize("name", ["and_", "or_", "xor"])
def test_bitwise_operators(name):
    act = getattr(operator, name)
    for a, b in (([True, True, False, False], [True, False, True, False]), ([12, 10, 7, 0], [10, 6, 7, 5])):
        np.testing.assert_array_equal(act(mt.tensor(a), mt.tensor(b)).numpy(), act(np.array(a), np.array(b)))
    expected = act(np.array([6, 3]), 5).tolist()
    assert act(mt.tensor([6, 3]), 5).tolist() == act(5, mt.tensor([6, 3])).tolist() == expected
    changed = kept = mt.tensor([6, 3])
    changed = getattr(operator, "i" + name.strip("_"))(changed, 5)
    assert changed is kept and kept.tolist() == expected


def test_unary_operators_and_matmul():
    x = mt.tensor([[1.0, -2.0], [3.0, -4.0]])
    assert (-x).tolist() == [[-1, 2], [-3, 4]] and +x is x and abs(x).tolist() == [[1, 2], [3, 4]]
    assert (~mt.tensor([True, False])).tolist() == [False, True] and (~mt.tensor([0, 5])).tolist() == [-1, -6]
    assert (x @ x).tolist() == (x.numpy() @ x.numpy()).tolist()
    y = x
    y @= x
    assert y is not x and y.tolist() == (x @ x).tolist()
    assert len(OPERATORS) == 11


def test_operators_refuse_what_is_no_number():
    for act in (operator.add, operator.mul, operator.matmul, operator.and_):
        with pytest.raises(TypeError):
            act(mt.ones(2), "a")
        with pytest.raises(TypeError):
            act("a", mt.ones(2))


# Sequence and container

def test_length_iteration_and_membership():
    x = mt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert len(x) == 2 and [row.tolist() for row in x] == [[1, 2], [3, 4]]
    a, b = x
    (a * 2 + b * 3).backward(mt.ones(2))
    assert x.grad.tolist() == [[2, 2], [3, 3]]
    assert 3 in x and 5 not in x and mt.tensor(4.0) in x
    assert max(mt.tensor([1, 3, 2])).item() == 3 and sum(mt.tensor([1, 3, 2])).item() == 6
    for act in (len, iter, list):
        with pytest.raises(TypeError, match="0-d tensor"):
            act(mt.tensor(3.0))
    with pytest.raises(TypeError, match="expected a tensor or a number"):
        "a" in x  # noqa: B015


def test_indexing_reads_and_writes():
    x = mt.arange(12.0).reshape(3, 4)
    assert x[1, 2].item() == 6 and x[..., -1].tolist() == [3, 7, 11] and x[[0, 2]].shape == (2, 4)
    x[1] = 0
    x[x > 9] = -1
    assert x.tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [8, 9, -1, -1]]


# One number

def test_one_number():
    for value, kind in ((3, int), (2.5, float), (True, bool)):
        x = mt.tensor([[value]])
        assert x.item() == value and type(x.item()) is kind
    assert int(mt.tensor([2.7])) == 2 and float(mt.tensor(3)) == 3.0 and type(float(mt.tensor(3))) is float
    assert bool(mt.tensor(0.0)) is False and not mt.tensor([0]) and mt.tensor(-1)
    assert ["a", "b"][mt.tensor(1)] == "b" and list(range(mt.tensor([3]))) == [0, 1, 2]
    assert mt.ones(1, requires_grad=True).item() == 1
    for act in (mt.Tensor.item, bool, int, float):
        for many in (mt.tensor([1, 2]), mt.tensor([])):
            with pytest.raises(RuntimeError, match="exactly one entry"):
                act(many)
    for bad in (mt.tensor(1.0), mt.tensor([1, 2])):
        with pytest.raises(TypeError, match="only one whole number can be an index"):
            operator.index(bad)


# Shape and memory

def test_shape_and_memory():
    x = mt.zeros(2, 3, 5)
    assert x.size() == x.shape == (2, 3, 5) and x.size(-1) == x.size(2) == 5
    assert x.dim() == x.ndim == x.ndimension() == 3 and x.numel() == x.nelement() == 30
    assert x.stride() == (15, 5, 1) and x.stride(0) == 15 and x.element_size() == 4
    assert x.is_contiguous() and not x.transpose(0, 1).is_contiguous() and x[:, :, ::2].stride() == (15, 5, 2)
    assert x.T.shape == (5, 3, 2) and x.mT.shape == (2, 5, 3) and x.is_floating_point()
    for dim in (3, -4):
        with pytest.raises(IndexError, match="dim must lie in"):
            x.size(dim)
    with pytest.raises(IndexError):
        mt.tensor(3).size(0)


def test_the_place_of_a_tensor():
    x = mt.ones(2)
    place = DEVICE_KINDS[xp.name]
    assert x.device == mt.device(place) and x.device.type == str(x.device) == place and x.device.index is None
    assert x.is_cuda == (xp.name == "cupy") and not x.is_sparse
    assert x.cpu() is x and x.to("cpu") is x and x.to(x.device) is x
    assert repr(mt.device("cpu", 0)) == "device(type='cpu', index=0)" and str(mt.device("cpu:0")) == "cpu:0"
    assert mt.device("cpu:0") == mt.device("cpu", 0) != mt.device("cpu") == mt.device(mt.device("cpu"))
    assert len({mt.device("cpu"), mt.device("cpu")}) == 1 and mt.device("cpu") != "cpu"
    other = "cuda" if xp.name == "numpy" else "mps"
    for act in (lambda: x.to(f"{other}:0"), lambda: x.to(device="mps"), lambda: mt.device("gpu")):
        with pytest.raises(RuntimeError, match="no device"):
            act()


def test_the_graph_of_a_tensor():
    x = mt.ones(2).requires_grad_()
    y = x * 2
    assert x.requires_grad and x.grad_fn is None and y.grad_fn is not None and y.detach().grad_fn is None
    assert x.requires_grad_(False) is x and not x.requires_grad


# Conversions

def test_to_numpy():
    x = mt.ones(2, 3)
    if xp.name == "numpy":
        x.numpy()[0, 0] = 5  # the same memory
        assert x[0, 0].item() == 5 and np.shares_memory(np.asarray(x), x.numpy())
    assert np.asarray(x).dtype == np.float32 and np.array(x, dtype="f8").dtype == np.float64
    assert not np.shares_memory(np.array(x), x.numpy())
    np.testing.assert_allclose(np.exp(np.asarray(x)), x.exp().numpy(), rtol=3e-7)
    x.requires_grad_()
    for act in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
            act()
    assert x.numpy(force=True).shape == x.detach().numpy().shape == (2, 3)
    assert mt.tensor([[1, 2]]).tolist() == [[1, 2]] and mt.tensor(2.5).tolist() == 2.5


DTYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_conversions_to_every_dtype(dtype):
    target = getattr(mt, dtype)
    x = mt.tensor([0.0, 1.5, 2.75], dtype=mt.float64)
    expected = x.numpy().astype(dtype)
    for y in (x.to(target), x.to(dtype=target), x.to("cpu", target), x.to(mt.zeros(1, dtype=target)), x.type(target),
              x.type_as(mt.zeros(1, dtype=target)), x.to(target, non_blocking=True), x.to(target, False, True)):
        assert y.dtype == target
        np.testing.assert_array_equal(y.numpy(), expected)
    name = mt.zeros(1, dtype=target).type()
    assert name.startswith("torch.") and x.type(name).dtype == target


def test_short_names_of_conversions(torch):
    x, y = mt.tensor([0.0, 1.5]), torch.tensor([0.0, 1.5])
    for name in ("float", "double", "half", "long", "int", "short", "char", "byte", "bool"):
        found, wanted = getattr(x, name)(), getattr(y, name)()
        assert str(wanted.dtype) == f"torch.{found.dtype}" and found.tolist() == wanted.tolist()
        assert found.type() == wanted.type()
    assert x.float() is x and x.to(mt.float32) is x and x.to(mt.float32, copy=True) is not x
    assert x.type(mt.LongTensor).dtype == x.type("torch.LongTensor").dtype == x.type("LongTensor").dtype == mt.int64


def test_conversion_errors():
    x = mt.ones(2)
    with pytest.raises(TypeError, match="takes a dtype, a device or a tensor, got int 5"):
        x.to(5)
    with pytest.raises(ValueError, match=r"got 'torch\.NoTensor'"):
        x.type("torch.NoTensor")


def test_gradients_pass_through_conversions():
    x = mt.tensor(draw(2, 3).astype("f4"), requires_grad=True)
    (x.double() * x.half().double()).backward(mt.ones(2, 3, dtype=mt.float64))
    assert x.grad.dtype == mt.float32
    np.testing.assert_allclose(x.grad.numpy(), 2 * x.detach().numpy(), rtol=2e-3, atol=1e-6)
    assert not x.long().requires_grad and not x.bool().requires_grad
    assert_gradients(lambda x: x.to(mt.float64) * 2, draw(3))
    assert_like_torch(lambda x: x.double() ** 2, lambda x: x.double() ** 2, draw(5).astype("f4"))


# Text

@pytest.mark.parametrize("data", [
    3, 3.5, -1.5, True, [], [1, 2], [-1, 1], [1.5, 2], [[1, -2.5], [3, 4]], [1e10, 1.0], [1e-5, 1.0], [0.001, 2e-5],
    [float("inf"), -1.0], [True, False], [123456.0, 1.0], [0.1] * 30, [[[1, 2], [3, 4]], [[5, 6], [7, 8.0]]],
    [1000.5, 0.1], [[], []], [[0.5] * 30] * 40,
])
def test_text_like_torch(torch, data):
    x, y = mt.tensor(data), torch.tensor(data)
    assert repr(x).replace(", ...", ",  ...") == repr(y)
    if x.dtype.kind == "f":
        x, y = mt.tensor(data, dtype=mt.float64), torch.tensor(data, dtype=torch.float64)
        assert repr(x).replace(", ...", ",  ...").replace("dtype=", "dtype=torch.").split() == repr(y).split()


def test_text_tells_of_the_graph():
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == str(x) == "tensor([1., 2.], requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], grad_fn=<mul>)"
    assert repr(mt.tensor([1], dtype=mt.int32)) == "tensor([1], dtype=int32)"
    assert repr(mt.zeros(0, 3, dtype=mt.float64)) == "tensor([], size=(0, 3), dtype=float64)"


def test_formatting():
    assert f"{mt.tensor(3.14159):.2f}" == "3.14" and f"{mt.tensor(7):03d}" == "007" and f"{mt.tensor(2.5)}" == "2.5"
    assert f"{mt.tensor([1.5])}" == "tensor([1.5000])"
    with pytest.raises(TypeError, match=r"only a 0-d tensor can be formatted as '\.2f'"):
        f"{mt.tensor([1.5]):.2f}"


# Copies

def test_deepcopy():
    x = mt.ones(2, requires_grad=True)
    (x * 3).backward(mt.ones(2))
    x.note, x.me = ["kept"], x
    pair = copy.deepcopy([x, x])
    y = pair[0]
    assert pair[1] is y and y.me is y and y is not x and y.requires_grad and y.is_leaf
    assert y.grad.tolist() == [3, 3] and y.note == ["kept"] and y.note is not x.note
    with mt.no_grad():
        y.zero_()
    y.grad.zero_()
    assert x.tolist() == [1, 1] and x.grad.tolist() == [3, 3]
    (y * 5).backward(mt.ones(2))
    assert y.grad.tolist() == [5, 5] and x.grad.tolist() == [3, 3]
    assert type(copy.deepcopy(mt.nn.Parameter(mt.ones(2)))) is mt.nn.Parameter
    with pytest.raises(RuntimeError, match="only leaves can be deep-copied"):
        copy.deepcopy(x * 2)


def test_tensors_are_not_pickled():
    with pytest.raises(TypeError, match=r"minitorch_attn\.checkpoint"):
        pickle.dumps(mt.ones(2))


def test_methods_of_making_and_random_writes_are_there():
    for name in ("new_zeros", "new_ones", "new_full", "new_empty", "new_tensor", "uniform_", "normal_", "random_"):
        assert getattr(mt.Tensor, name) is getattr(create, name)


def test_shallow_copy_is_a_leaf_on_the_same_memory():
    x = mt.nn.Parameter(mt.ones(2))
    (x * 3).sum().backward()
    x.note = "kept"
    y = copy.copy(x)
    with mt.no_grad():
        x[0] = 5
    assert y.tolist() == [5.0, 1.0]
    assert (type(y), y.requires_grad, y.grad, y.note) == (mt.nn.Parameter, True, None, "kept")
    assert copy.copy(x * 2).is_leaf


def test_data_of_a_tensor_that_requires_grad_stays_floating_point():
    x = mt.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="floating point"):
        x.data = x.data.long()
    assert x.dtype == mt.float32
