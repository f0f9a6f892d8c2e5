"""Tensors of values, by rule and of random numbers: values, dtypes and errors, by themselves and beside PyTorch."""
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.ops.create import drawn_with_replacement
from minitorch_attn.random import Generator
from tests.harness import draw


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def same(ours, theirs):
    """Equal in dtype, shape and every bit."""
    assert str(theirs.dtype) == f"torch.{ours.dtype}"
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


# Of values

@pytest.mark.parametrize("data, dtype, expected", [
    (3, "int64", 3),
    (2.5, "float32", 2.5),
    (True, "bool", True),
    ([], "float32", []),
    ([[], []], "float32", [[], []]),
    ([True, 2], "int64", [1, 2]),
    ([True, 2.5], "float32", [1, 2.5]),
    (((1, 2), [3, 4]), "int64", [[1, 2], [3, 4]]),
    (range(3), "int64", [0, 1, 2]),
    ([2**63 - 1, -2**63], "int64", [2**63 - 1, -2**63]),
    (np.float64(3.0), "float64", 3.0),
    ([np.float64(3.0), 1], "float64", [3, 1]),
    ([np.int32(3)], "int32", [3]),
    ([np.array([1, 2], dtype="i2"), [3, 4]], "int64", [[1, 2], [3, 4]]),
    (np.arange(3, dtype="u1"), "uint8", [0, 1, 2]),
])
def test_tensor_takes_the_dtype_that_its_data_stand_for(data, dtype, expected):
    x = mt.tensor(data)
    assert x.dtype == dtype and x.shape == np.shape(expected) and x.tolist() == expected
    assert not x.requires_grad and x.is_leaf


def test_tensor_of_lists_that_hold_tensors():
    a, b = mt.tensor([1.0, 2.0], requires_grad=True), mt.tensor([3, 4])
    x = mt.tensor([a, b, [5, 6]])
    assert x.dtype == mt.float32 and x.tolist() == [[1, 2], [3, 4], [5, 6]] and not x.requires_grad
    assert mt.tensor([mt.tensor(1), 2.5]).dtype == mt.float32
    assert mt.tensor([mt.tensor(1.0, dtype=mt.float64), 2]).dtype == mt.float64


def test_tensor_copies():
    a = np.zeros(3, dtype="f4")
    x, y = mt.tensor(a), mt.tensor(mt.from_numpy(a))
    a += 1
    assert x.tolist() == y.tolist() == [0, 0, 0]


def test_dtype_is_converted_from_the_full_value():
    assert mt.tensor(0.1, dtype=mt.float64).item() == 0.1
    assert mt.tensor([0.1, mt.tensor(2)], dtype=mt.float64).tolist() == [0.1, 2]
    assert mt.tensor([2.7, -2.7], dtype=mt.int64).tolist() == [2, -2]
    assert mt.tensor([0, 2.5], dtype=mt.bool).tolist() == [False, True]
    assert mt.tensor(1e300).item() == math.inf
    mt.set_default_dtype(mt.float64)
    try:
        assert mt.tensor([0.5]).dtype == mt.zeros(2).dtype == mt.rand(2).dtype == mt.float64
    finally:
        mt.set_default_dtype(mt.float32)


@pytest.mark.parametrize("data, error, message", [
    ([[1, 2], [3]], ValueError, r"one shape, got \(1,\) beside \(2,\)"),
    ([[1, 2], 3], ValueError, r"one shape, got \(\) beside \(2,\)"),
    ([mt.tensor([1.0]), 2.0], ValueError, "one shape"),
    ("a", TypeError, "str 'a'"),
    (["a", "b"], TypeError, "str 'a'"),
    (np.array(["a"]), TypeError, "real numbers"),
    (None, TypeError, "NoneType"),
    ([None], TypeError, "NoneType"),
    ({1, 2}, TypeError, "set"),
    (map(int, "12"), TypeError, "map"),
    (1j, TypeError, "complex"),
    (np.array([1j]), TypeError, "real numbers"),
    (object(), TypeError, "object"),
    (2**63, TypeError, "int64"),
    ([2**70], TypeError, "int64"),
])
def test_what_no_tensor_can_hold(data, error, message):
    with pytest.raises(error, match=message):
        mt.tensor(data)


def test_whole_numbers_that_do_not_fit_are_refused():
    for data, dtype in ((300, mt.uint8), ([0, -1], mt.uint8), ([2**40], mt.int32)):
        with pytest.raises(RuntimeError, match="holds"):
            mt.tensor(data, dtype=dtype)
    assert mt.tensor([255], dtype=mt.uint8).item() == 255
    with pytest.raises(RuntimeError, match="floating-point"):
        mt.tensor([1, 2], requires_grad=True)


def test_as_tensor_and_from_numpy_share_memory_where_they_can():
    a = np.arange(3, dtype="f8")
    x = mt.from_numpy(a)
    assert x.dtype == mt.float64 and mt.as_tensor(x) is x and mt.asarray(x) is x
    y, z = mt.as_tensor(a), mt.as_tensor(a, dtype=mt.float32)
    copied = mt.asarray(a, copy=True)
    a[0] = 7
    assert x[0].item() == y[0].item() == 7 and z[0].item() == copied[0].item() == 0
    x[1] = 9
    assert a[1] == 9
    assert mt.as_tensor(z, dtype=mt.float64).dtype == mt.as_tensor(z.numpy(), dtype=mt.float64).dtype == mt.float64
    assert mt.as_tensor([1, 2.0]).dtype == mt.float32 and mt.as_tensor(3).item() == 3
    assert mt.asarray([1.0], requires_grad=True).requires_grad
    for bad in ([1, 2], 3, np.array(["a"])):
        with pytest.raises(TypeError, match="from_numpy needs a NumPy array"):
            mt.from_numpy(bad)


def test_tensor_types():
    assert mt.FloatTensor([1, 2]).dtype == mt.float32 and mt.LongTensor([1.7, -2]).tolist() == [1, -2]
    assert mt.FloatTensor(2, 3).shape == (2, 3) and mt.LongTensor().shape == (0,) and mt.IntTensor(3).dtype == mt.int32
    assert mt.BoolTensor([1, 0]).tolist() == [True, False] and mt.ByteTensor([1]).dtype == mt.uint8
    assert mt.DoubleTensor(np.ones(2, dtype="f4")).dtype == mt.float64 and mt.HalfTensor([1]).dtype == mt.float16
    assert isinstance(mt.arange(2), mt.LongTensor) and not isinstance(mt.arange(2), mt.FloatTensor)
    assert not isinstance(3, mt.LongTensor)
    assert repr(mt.LongTensor) == "LongTensor" and mt.scalar_tensor(3).dtype == mt.float32


# By a rule

@pytest.mark.parametrize("make", [mt.empty, mt.zeros, mt.ones, mt.rand, mt.randn])
def test_forms_of_a_size(make):
    assert make(2, 3).shape == make((2, 3)).shape == make([2, 3]).shape == make(size=(2, 3)).shape == (2, 3)
    assert make(5).shape == make(np.int64(5)).shape == make(mt.tensor(5)).shape == (5,)
    assert make(()).shape == make([]).shape == () and make(0, 3).shape == (0, 3)
    assert make((mt.tensor(2), 3)).shape == (2, 3)
    x = make(2, dtype=mt.float64, device="cpu", requires_grad=True)
    assert x.dtype == mt.float64 and x.requires_grad and make(2).dtype == mt.float32
    for bad in ((2.0,), ("a",), (2, [3]), ()):
        with pytest.raises(TypeError):
            make(*bad)
    with pytest.raises(RuntimeError, match="negative"):
        make(2, -1)
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        make(2, device="cuda")
    with pytest.raises(TypeError, match="out"):
        make(2, out=x)


def test_constant_values():
    assert mt.zeros(2, 3).tolist() == [[0.0] * 3] * 2 and mt.ones(3, dtype=mt.int64).tolist() == [1, 1, 1]
    for value, dtype in ((1, mt.int64), (1.5, mt.float32), (True, mt.bool), (mt.tensor(3), mt.int64)):
        x = mt.full((2, 3), value)
        assert x.dtype == dtype and x.tolist() == [[value.item() if isinstance(value, mt.Tensor) else value] * 3] * 2
    assert mt.full((), 7).shape == () and mt.full((2,), 1.5, dtype=mt.int64).tolist() == [1, 1]
    assert mt.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]] and mt.eye(2, dtype=mt.bool).dtype == mt.bool
    assert mt.eye(0).shape == (0, 0)
    with pytest.raises(RuntimeError, match="negative"):
        mt.eye(-1)


ARANGES = [
    (5,), (2, 5), (0, 1, 0.1), (5.0,), (1, 2.5), (5, 1, -2), (3, 3), (0, 4, 2), (True,), (0.5, 4), (-3.9, 4, 2.5),
    (1, 0, -0.3), (10, -7, -3), (0,), (0, 7, 7), (0, 8, 7), (np.int64(3),), (np.float64(3),),
]


@pytest.mark.parametrize("bounds", ARANGES)
@pytest.mark.parametrize("dtype", [None, "int64", "int32", "float32", "float64"])
def test_arange_like_torch(torch, bounds, dtype):
    if dtype == "int64" and len(bounds) == 3 and int(bounds[2]) == 0:
        with pytest.raises(RuntimeError, match="step of 0"):
            mt.arange(*bounds, dtype=mt.int64)
        return
    x = mt.arange(*bounds, dtype=dtype and getattr(mt, dtype))
    y = torch.arange(*bounds, dtype=dtype and getattr(torch, dtype))
    assert str(y.dtype) == f"torch.{x.dtype}"
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=3e-7, atol=3e-7)


def test_arange():
    assert mt.arange(2, 11, 3).tolist() == [2, 5, 8] and mt.arange(end=3).tolist() == [0, 1, 2]
    assert mt.arange(mt.tensor(4)).tolist() == [0, 1, 2, 3] and mt.arange(1, 2, 0.25).tolist() == [1, 1.25, 1.5, 1.75]
    expected = np.array([-1 + 0.1 * i for i in range(20)], dtype="f4")
    np.testing.assert_array_equal(mt.arange(-1, 1, 0.1).numpy(), expected)
    assert mt.arange(2**53, 2**53 + 3).tolist() == [2**53, 2**53 + 1, 2**53 + 2]
    assert mt.arange(3.0, requires_grad=True).requires_grad
    for bad in ((5, 1), (1, 5, -1), (0, 5, 0), (0, math.nan), (0, math.inf)):
        with pytest.raises(RuntimeError, match=r"arange needs finite|does not lead"):
            mt.arange(*bad)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_linspace_like_torch_to_the_bit(torch, dtype):
    cases = [(0, 1, 5), (0, 1, 1), (0, 1, 0), (5, -7, 6), (0, 7, 50), (3, 3, 4)]
    if dtype.startswith("float"):
        cases += [(a, b, n) for (a, b), n in zip(draw(40, 2) * 10, range(2, 162, 4))]
    else:
        cases += [(int(a), int(b), n) for (a, b), n in zip(draw(40, 2) * 50, range(2, 162, 4))]
    for case in cases:
        same(mt.linspace(*case, dtype=getattr(mt, dtype)), torch.linspace(*case, dtype=getattr(torch, dtype)))


def test_linspace_and_logspace():
    x = mt.linspace(-1, 3, 5)
    assert x.tolist() == [-1, 0, 1, 2, 3] and x.dtype == mt.float32
    assert mt.linspace(mt.tensor(0.0), mt.tensor(2.0), 3).tolist() == [0, 1, 2]
    y = mt.linspace(-0.1, 0.1, 1002).numpy()
    np.testing.assert_array_equal(y, -y[::-1])  # symmetric ends, symmetric rounding
    assert mt.logspace(0, 3, 4, base=2).tolist() == [1, 2, 4, 8] and mt.logspace(0, 2, 3).tolist() == [1, 10, 100]
    assert mt.logspace(0, 2, 3, dtype=mt.int64).tolist() == [1, 10, 100]
    with pytest.raises(RuntimeError, match="negative"):
        mt.linspace(0, 1, -1)
    with pytest.raises(RuntimeError, match="0-d"):
        mt.linspace(mt.zeros(2), 1, 3)
    with pytest.raises(TypeError):
        mt.linspace(0, 1, 2.5)


@pytest.mark.parametrize("row, col", [(3, 3), (2, 5), (5, 2), (0, 3), (1, 1)])
@pytest.mark.parametrize("offset", [-5, -1, 0, 1, 7])
def test_triangle_indices(row, col, offset):
    lower = [(i, j) for i in range(row) for j in range(col) if j <= i + offset]
    upper = [(i, j) for i in range(row) for j in range(col) if j >= i + offset]
    for found, expected in ((mt.tril_indices(row, col, offset), lower), (mt.triu_indices(row, col, offset), upper)):
        assert found.dtype == mt.int64 and found.shape == (2, len(expected))
        assert list(zip(*found.tolist())) == expected


def test_in_the_shape_or_dtype_of_another():
    x = mt.tensor([[1.5, 2.5]], dtype=mt.float64, requires_grad=True)
    n = mt.arange(3)
    for like in (mt.empty_like, mt.zeros_like, mt.ones_like, mt.rand_like, mt.randn_like):
        y = like(x)
        assert y.shape == (1, 2) and y.dtype == mt.float64 and not y.requires_grad
        assert like(n, dtype=mt.float32, requires_grad=True).requires_grad
    assert mt.zeros_like(n).tolist() == [0, 0, 0] and mt.zeros_like(n).dtype == mt.int64
    assert mt.full_like(n, 2.5).tolist() == [2, 2, 2] and mt.full_like(x, 2).tolist() == [[2.0, 2.0]]
    assert mt.randint_like(x, 5, 7).dtype == mt.float64 and set(mt.randint_like(mt.zeros(99), 2).tolist()) == {0, 1}
    assert x.new_zeros(2, 3).dtype == x.new_ones((2,)).dtype == x.new_empty(2).dtype == mt.float64
    assert x.new_full((2,), 3).tolist() == [3.0, 3.0] and n.new_full((2,), 3.5).tolist() == [3, 3]
    assert x.new_tensor([1, 2]).dtype == mt.float64 and x.new_ones(2, dtype=mt.int64).tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="floating point"):
        mt.rand_like(n)


# Of random numbers

def test_random_integers():
    mt.manual_seed(0)
    x = mt.randint(3, 7, (5, 11))
    assert x.dtype == mt.int64 and x.shape == (5, 11) and set(x.flatten().tolist()) == {3, 4, 5, 6}
    for y in (mt.randint(4, (7,)), mt.randint(4, size=(7,)), mt.randint(high=4, size=(7,)), mt.randint(0, 4, (7,))):
        assert y.shape == (7,) and 0 <= y.min().item() and y.max().item() < 4
    assert mt.randint(0, 2, (9,), dtype=mt.float32).dtype == mt.float32 and mt.randint(5, ()).shape == ()
    assert sorted(mt.randperm(13).tolist()) == list(range(13)) and mt.randperm(4, dtype=mt.int32).dtype == mt.int32
    for bad in ((5, 5), (5, 3)):
        with pytest.raises(RuntimeError, match="low < high"):
            mt.randint(*bad, (2,))
    with pytest.raises(RuntimeError, match="uint8 cannot hold"):
        mt.randint(0, 300, (2,), dtype=mt.uint8)
    with pytest.raises(TypeError):
        mt.randint(1.5, 5, (2,))
    with pytest.raises(RuntimeError, match="negative"):
        mt.randperm(-1)
    with pytest.raises(RuntimeError, match="floating point"):
        mt.rand(2, dtype=mt.int64)


def test_normal_with_means_and_deviations_like_torch(torch):
    mean, std = draw(17, 1).astype("f4"), np.abs(draw(3, seed=1)).astype("f4")
    for ours, theirs in (((mt.tensor(mean), mt.tensor(std)), (torch.tensor(mean), torch.tensor(std))),
                         ((mt.tensor(mean), 0.5), (torch.tensor(mean), 0.5)),
                         ((0.25, mt.tensor(std)), (0.25, torch.tensor(std))),
                         ((2, 3, (5, 7)), (2, 3, (5, 7)))):
        mt.manual_seed(6)
        torch.manual_seed(6)
        x, y = mt.normal(*ours), torch.normal(*theirs)
        assert str(y.dtype) == f"torch.{x.dtype}"
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=2e-6, atol=2e-6)
    for bad in ((0.0, -1.0, (2,)), (0.0, math.nan, (2,)), (mt.zeros(2), mt.tensor([1.0, -1.0]))):
        with pytest.raises(RuntimeError, match="standard deviation"):
            mt.normal(*bad)


def test_bernoulli_like_torch(torch):
    p = draw(101, low=0, high=1)
    for dtype in ("float32", "float64"):
        mt.manual_seed(6)
        torch.manual_seed(6)
        same(mt.bernoulli(mt.tensor(p, dtype=getattr(mt, dtype))),
             torch.bernoulli(torch.tensor(p, dtype=getattr(torch, dtype))))
        same(mt.bernoulli(mt.zeros(31), 0.25), torch.bernoulli(torch.zeros(31), 0.25))
    assert mt.bernoulli(mt.ones(99)).min().item() == 1 and mt.bernoulli(mt.zeros(99)).max().item() == 0
    for bad in ([2.0], [-0.5], [math.nan]):
        with pytest.raises(RuntimeError, match="probability"):
            mt.bernoulli(mt.tensor(bad))
    with pytest.raises(RuntimeError, match="floating point"):
        mt.bernoulli(mt.arange(2))


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("shape, count", [((7,), 5), ((3, 11), 1), ((3, 11), 11), ((1, 1), 1), ((0, 3), 2)])
def test_multinomial_like_torch(torch, shape, count, replacement):
    p = draw(*shape, low=0.1, high=1)
    for dtype in ("float32", "float64"):
        mt.manual_seed(6)
        torch.manual_seed(6)
        same(mt.multinomial(mt.tensor(p, dtype=getattr(mt, dtype)), count, replacement),
             torch.multinomial(torch.tensor(p, dtype=getattr(torch, dtype)), count, replacement))
        assert mt.rand(1).item() == torch.rand(1).item()


def test_multinomial_draws_in_proportion():
    p = np.array([0.1, 0.0, 0.6, 0.3])
    g = Generator().manual_seed(1)
    found = np.bincount(mt.multinomial(mt.tensor(p), 20000, True, generator=g).numpy(), minlength=4) / 20000
    assert np.abs(found - p).max() < 0.02 and found[1] == 0
    firsts = mt.multinomial(mt.tensor(np.tile(p, (20000, 1))), 2, generator=g).numpy()
    assert np.abs(np.bincount(firsts[:, 0], minlength=4) / 20000 - p).max() < 0.02
    # the second draw comes from what is left: P(3 then 2) = 0.3 0.6 / 0.7
    assert abs(np.mean((firsts == [3, 2]).all(axis=1)) - 0.3 * 0.6 / 0.7) < 0.02
    assert (np.sort(firsts, axis=1) != 1).all() and (firsts[:, 0] != firsts[:, 1]).all()


class Fixed:
    """Stands in for a generator whose uniform numbers are all `u`."""

    def __init__(self, u):
        self.u = u

    def uniform(self, shape, dtype):
        return np.full(shape, self.u, dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_place_of_weight_zero_is_never_drawn(dtype):
    """Ten times 0.1 sum to a little less than 1, so that a number just below 1 lies beyond the whole running sum."""
    below = np.nextafter(1.0, 0.0)
    assert drawn_with_replacement(np.array([[0.1] * 10 + [0.0]], dtype), 3, Fixed(below)).max() <= 9
    assert drawn_with_replacement(np.array([[0.0, 0.0, 0.5, 0.5]], dtype), 3, Fixed(0.0)).tolist() == [[2, 2, 2]]
    assert drawn_with_replacement(np.array([[0.5, 0.0, 0.5]], dtype), 3, Fixed(0.5)).tolist() == [[2, 2, 2]]
    weights = mt.tensor(np.array([0.0, 3.0, 0.0, 1.0, 0.0], dtype))
    for replacement in (True, False):
        for seed in range(50):
            drawn = mt.multinomial(weights, 2, replacement, generator=Generator().manual_seed(seed)).tolist()
            assert set(drawn) <= {1, 3}


@pytest.mark.parametrize("weights, count, replacement, message", [
    ([1.0, -1.0], 1, False, "negative, infinite or NaN"),
    ([1.0, math.nan], 1, True, "negative, infinite or NaN"),
    ([1.0, math.inf], 1, False, "negative, infinite or NaN"),
    ([3e38, 3e38], 1, True, "negative, infinite or NaN"),
    ([0.0, 0.0], 1, True, "1 positive weights or more in each row, row 0 has 0"),
    ([[1.0, 2.0], [0.0, 0.0]], 1, False, "row 1 has 0"),
    ([1.0, 0.0], 2, False, "2 positive weights or more in each row, row 0 has 1"),
    ([1.0, 2.0], 3, False, "3 positive weights"),
    ([1.0, 2.0], 0, False, "num_samples of 1 or more"),
    ([1, 2], 1, False, "floating-point weights"),
    (2.0, 1, False, "floating-point weights"),
    ([[[1.0]]], 1, False, "floating-point weights"),
])
def test_multinomial_errors(weights, count, replacement, message):
    with pytest.raises(RuntimeError, match=message):
        mt.multinomial(mt.tensor(weights), count, replacement)


# Random writes in place

def test_random_writes_like_torch(torch):
    for dtype in ("float32", "float64", "float16", "int64", "int32", "int16", "uint8", "bool"):
        mt.manual_seed(6)
        torch.manual_seed(6)
        x, y = mt.empty(3, 7, dtype=getattr(mt, dtype)), torch.empty(3, 7, dtype=getattr(torch, dtype))
        same(x.random_(), y.random_())
        same(x.bernoulli_(0.3), y.bernoulli_(0.3))
        if dtype not in ("bool", "uint8"):
            same(x.random_(100), y.random_(100))
            same(x.random_(-4, 7), y.random_(-4, 7))
    p = draw(3, 7, low=0, high=1).astype("f4")
    same(mt.empty(3, 7).bernoulli_(mt.tensor(p)), torch.empty(3, 7).bernoulli_(torch.tensor(p)))


def test_random_writes_fill_the_memory_of_the_tensor():
    x = mt.zeros(5)
    view = x[1:3]
    g = Generator().manual_seed(3)
    for write in (lambda: x.uniform_(2, 3, generator=g), lambda: x.normal_(generator=g),
                  lambda: x.random_(generator=g), lambda: x.exponential_(generator=g),
                  lambda: x.bernoulli_(0.5, generator=g)):
        before = x.clone()
        assert write() is x and not mt.equal(x, before)
        np.testing.assert_array_equal(view.numpy(), x.numpy()[1:3])
    leaf = mt.ones(3, requires_grad=True)
    for write in (leaf.uniform_, leaf.normal_, leaf.exponential_, leaf.bernoulli_, leaf.random_):
        with pytest.raises(RuntimeError, match="leaf"):
            write()
    assert leaf.tolist() == [1, 1, 1]
    with mt.no_grad():
        leaf.normal_()
    assert leaf.requires_grad and leaf.tolist() != [1, 1, 1]


@pytest.mark.parametrize("write, message", [
    (lambda x: x.uniform_(2, 1), "bounds in order"),
    (lambda x: x.uniform_(0, math.nan), "bounds in order"),
    (lambda x: x.normal_(0, -1), "standard deviation"),
    (lambda x: x.exponential_(0), "lambd above 0"),
    (lambda x: x.bernoulli_(1.5), "probability"),
    (lambda x: x.random_(5, 2), "low < high"),
    (lambda x: x.long().uniform_(), "floating point"),
    (lambda x: x.long().normal_(), "floating point"),
])
def test_random_write_errors(write, message):
    with pytest.raises(RuntimeError, match=message):
        write(mt.ones(3))


def test_questions():
    x = mt.zeros(2, 3)
    assert mt.is_tensor(x) and not mt.is_tensor([1]) and mt.numel(x) == x.numel() == 6
    assert mt.is_floating_point(x) and x.is_floating_point() and not mt.arange(3).is_floating_point()


def test_certain_coins_of_float16_always_fall_on_one():
    assert mt.bernoulli(mt.ones(100_000, dtype=mt.float16)).min().item() == 1


@pytest.mark.parametrize("write", [
    lambda x: x.uniform_(), lambda x: x.normal_(), lambda x: x.bernoulli_(), lambda x: x.exponential_(),
    lambda x: x.random_(), lambda x: x.random_(5),
])
def test_refused_write_draws_nothing(write):
    mt.manual_seed(5)
    expected = mt.rand(1).item()
    mt.manual_seed(5)
    with pytest.raises(RuntimeError, match="no_grad"):
        write(mt.ones(3, requires_grad=True))
    assert mt.rand(1).item() == expected
