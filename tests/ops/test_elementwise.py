"""Elementwise operations: against Python's own arithmetic, finite differences and PyTorch."""
import math
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from tests.harness import assert_gradients, assert_like_torch, draw, gradients

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def plainly(function, *arrays):
    """`function` of Python numbers at every place of the broadcast arrays."""
    arrays = np.broadcast_arrays(*arrays)
    out = [function(*[float(a[where]) for a in arrays]) for where in np.ndindex(arrays[0].shape)]
    return np.array(out).reshape(arrays[0].shape)


def bisect_erf(x):
    low, high = -7.0, 7.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if math.erf(middle) < x else (low, middle)
    return low


# name: the same in Python, the interval to draw from
UNARY = {
    "exp": (math.exp, -3, 3), "exp2": (lambda x: 2 ** x, -3, 3), "expm1": (math.expm1, -2, 2),
    "log": (math.log, 0.1, 5), "log2": (math.log2, 0.1, 5), "log10": (math.log10, 0.1, 5),
    "log1p": (math.log1p, -0.9, 5),
    "sqrt": (math.sqrt, 0.1, 5), "rsqrt": (lambda x: 1 / math.sqrt(x), 0.1, 5), "square": (lambda x: x * x, -3, 3),
    "reciprocal": (lambda x: 1 / x, 0.3, 4), "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), -5, 5),
    "sin": (math.sin, -4, 4), "cos": (math.cos, -4, 4), "tan": (math.tan, -1.2, 1.2),
    "asin": (math.asin, -0.9, 0.9), "acos": (math.acos, -0.9, 0.9), "atan": (math.atan, -4, 4),
    "sinh": (math.sinh, -3, 3), "cosh": (math.cosh, -3, 3), "tanh": (math.tanh, -3, 3),
    "neg": (lambda x: -x, -3, 3), "abs": (abs, -3, 3), "sign": (lambda x: (x > 0) - (x < 0), -3, 3),
    "floor": (math.floor, -5, 5), "ceil": (math.ceil, -5, 5), "trunc": (math.trunc, -5, 5), "round": (round, -5, 5),
    "frac": (lambda x: math.fmod(x, 1), -5, 5), "erf": (math.erf, -3, 3), "erfinv": (bisect_erf, -0.9, 0.9),
}
# name: the same in Python, the intervals to draw both operands from
BINARY = {
    "add": (lambda x, y: x + y, -3, 3, -3, 3), "sub": (lambda x, y: x - y, -3, 3, -3, 3),
    "rsub": (lambda x, y: y - x, -3, 3, -3, 3), "mul": (lambda x, y: x * y, -3, 3, -3, 3),
    "div": (lambda x, y: x / y, -3, 3, 0.5, 3), "pow": (lambda x, y: x ** y, 0.2, 3, -2, 2),
    "float_power": (lambda x, y: x ** y, 0.2, 3, -2, 2), "remainder": (lambda x, y: x % y, -9, 9, 1, 2),
    "fmod": (math.fmod, -9, 9, 1, 2), "floor_divide": (lambda x, y: x // y, -9, 9, 1, 2),
    "maximum": (max, -3, 3, -3, 3), "minimum": (min, -3, 3, -3, 3),
    "logaddexp": (lambda x, y: math.log(math.exp(x) + math.exp(y)), -3, 3, -3, 3),
}
SHAPES = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((), (2, 3)), ((7, 2, 3), (2, 1)), ((1,), (1,)),
          ((0, 3), (3,)), ((), ())]
STAY_WHOLE = "abs sign floor ceil trunc round square neg".split()


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("shape", [(3, 5), (), (1, 1), (2, 0)], ids=str)
def test_unary(name, shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    plain, low, high = UNARY[name]
    a = draw(*shape, low=low, high=high)
    ours, theirs = getattr(mt, name), getattr(torch, name)
    y = ours(mt.tensor(a))
    assert y.dtype == mt.float64
    np.testing.assert_allclose(y.numpy(), plainly(plain, a), rtol=1e-12, atol=1e-15)
    assert_gradients(ours, a)
    assert_like_torch(ours, theirs, a)
    assert_like_torch(ours, theirs, a.astype("f4"), rtol=1e-5, atol=1e-6)
    assert_gradients(lambda x: ours(x.T), a)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_binary(name, shapes):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    plain, *ends = BINARY[name]
    a, b = (draw(*s, seed=i, low=ends[2 * i], high=ends[2 * i + 1]) for i, s in enumerate(shapes))
    ours, theirs = getattr(mt, name), getattr(torch, name)
    z = ours(mt.tensor(a), mt.tensor(b))
    assert z.dtype == mt.float64
    np.testing.assert_allclose(z.numpy(), plainly(plain, a, b), rtol=1e-12, atol=1e-14)
    assert_gradients(ours, a, b)
    if name == "floor_divide":  # PyTorch gives this one no derivative
        ours, theirs = (lambda x, y, lib=lib: lib.div(x, y, rounding_mode="floor") for lib in (mt, torch))
    assert_like_torch(ours, theirs, a, b)
    assert_like_torch(ours, theirs, a.astype("f4"), b.astype("f4"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [2, 1.5, True, np.float64(1.5), np.float32(1.5)], ids=repr)
@pytest.mark.parametrize("name", ["add", "sub", "rsub", "mul", "div", "pow", "remainder", "fmod"])
def test_a_number_on_either_side(name, number):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name in ("sub", "rsub") and number is True:
        pytest.skip("booleans are not subtracted")
    plain = 1 if number is True else float(number)
    ours, theirs = getattr(mt, name), getattr(torch, name)
    for kind in ("f4", "f8"):
        a = draw(2, 3, low=1.0, high=4.0).astype(kind)
        assert_like_torch(lambda x: ours(x, number), lambda x: theirs(x, plain), a, rtol=1e-5)
        if name not in ("fmod", "remainder", "rsub"):  # to these PyTorch gives no number in front, or no derivative
            assert_like_torch(lambda x: ours(number, x), lambda x: theirs(torch.tensor(plain), x), a, rtol=1e-5)


ALL_DTYPES = ["?", "u1", "i2", "i4", "i8", "f4", "f8"]


@pytest.mark.parametrize("name", "add sub mul div floor_divide remainder fmod pow maximum eq lt".split())
def test_dtypes_of_results(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    values = {"?": [True, True], "u1": [3, 5], "f4": [3.5, 5.0], "f8": [3.5, 5.0]}
    for left in ALL_DTYPES:
        for right in [*ALL_DTYPES, "0-d i8", "0-d f8", True, 2, 2.5]:
            a = np.array(values.get(left, [3, -5]), left)
            if isinstance(right, str):
                b = np.array(2, right[4:]) if right.startswith("0-d") else np.array(values.get(right, [2, 3]), right)
            else:
                b = right
            array = isinstance(b, np.ndarray)
            try:
                wanted = getattr(torch, name)(torch.from_numpy(a), torch.from_numpy(b) if array else b)
            except (RuntimeError, NotImplementedError, TypeError):
                continue
            got = getattr(mt, name)(mt.tensor(a), mt.tensor(b) if array else b)
            assert f"torch.{got.dtype}" == str(wanted.dtype), (left, right)
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6, err_msg=f"{left} {right}")


def test_mixed_dtypes_have_gradients_of_their_own_dtype():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = draw(3, 5).astype("f4"), draw(5, seed=1)
    for name in ("add", "mul", "div", "maximum", "logaddexp"):
        assert_like_torch(getattr(mt, name), getattr(torch, name), a, b, rtol=1e-5, atol=1e-6)
    assert_like_torch(lambda x, y: mt.where(x > 0, x, y), lambda x, y: torch.where(x > 0, x, y), a, b)
    z = mt.mul(mt.tensor(a), mt.tensor(np.array(2.0)))
    assert z.dtype == mt.float32  # a 0-d tensor does not widen
    assert mt.mul(mt.tensor([1, 2]), 0.5).tolist() == [0.5, 1.0]
    assert mt.div(mt.tensor([1, 2]), mt.tensor([2, 4])).dtype == mt.float32
    assert (mt.tensor([1.0]) / 123456).dtype == mt.float32


@pytest.mark.parametrize("name", [name for name in UNARY if name not in STAY_WHOLE])
def test_float_functions_of_whole_numbers(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([1, 0, 1])
    if name in ("log", "log2", "log10", "rsqrt", "reciprocal"):
        a = np.array([1, 2, 3])
    if name == "frac":  # PyTorch has none
        assert mt.frac(mt.tensor(a)).dtype == mt.float32
        return
    for kind in ("i8", "?"):
        assert_like_torch(getattr(mt, name), getattr(torch, name), a.astype(kind), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", STAY_WHOLE)
def test_whole_numbers_stay_whole(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for kind in ("i4", "i8"):
        assert_like_torch(getattr(mt, name), getattr(torch, name), np.array([-3, 0, 5], kind))
    x = mt.tensor([1, 2])
    getattr(mt, name)(x).fill_(7)
    assert x.tolist() == [1, 2]  # a result of its own


def test_truth_values():
    x, y = mt.tensor([True, True, False]), mt.tensor([True, False, False])
    assert mt.add(x, y).tolist() == [True, True, False]
    assert mt.mul(x, y).tolist() == [True, False, False]
    assert mt.sign(x).tolist() == x.tolist()
    assert mt.add(x, y, alpha=False).tolist() == x.tolist()
    for wrong in (lambda: mt.sub(x, y), lambda: mt.sub(x, True), lambda: mt.neg(x)):
        with pytest.raises(RuntimeError, match=r"booleans.*logical"):
            wrong()


@pytest.mark.parametrize("kind, dtype", [("bool", "int64"), ("uint8", "uint8"), ("int8", "int8"), ("int64", "int64")])
def test_an_integer_plus_a_number_keeps_its_dtype(kind, dtype):
    x = mt.tensor(np.array([0, 1], kind))
    for y in (x + 1, 1 + x, mt.add(x, 1)):
        assert y.tolist() == [1, 2] and str(y.dtype) == dtype
    assert (x[1] + 1).shape == () and (x[1] + 1).tolist() == 2
    if kind.startswith("int"):
        with pytest.raises(OverflowError):
            x + 2**64


def test_alpha():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = draw(2, 3), draw(3, seed=1)
    for name in ("add", "sub", "rsub"):
        def call(lib, alpha=0.7, name=name):
            return lambda x, y: getattr(lib, name)(x, y, alpha=alpha)

        assert_gradients(call(mt), a, b)
        assert_like_torch(call(mt), call(torch), a, b)
        assert_like_torch(call(mt), call(torch), a.astype("f4"), b.astype("f4"), rtol=1e-5)
        results, _, found = gradients(call(mt, np.float64(0.7)), [a.astype("f4"), b.astype("f4")])
        assert results[0].dtype == found[1].dtype == np.float32
        with pytest.raises(RuntimeError, match="alpha must be an integer"):
            call(mt)(mt.tensor([1]), mt.tensor([2]))
    assert mt.add(mt.tensor([1]), 2, alpha=3).tolist() == [7]


# Special values, as IEEE 754 and PyTorch have them, and without a warning

SPECIAL = [-INF, -1e30, -1000.0, -88.0, -2.0, -1.0, -0.5, -0.0, 0.0,
           1e-30, 0.5, 1.0, 1.5, 2.5, 88.0, 1000.0, 1e30, INF, NAN]


@pytest.mark.parametrize("name", [name for name in UNARY if name != "frac"])
def test_special_values(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for kind in ("f4", "f8"):
        a = np.array(SPECIAL, kind)
        if name in ("sin", "cos", "tan"):
            a = a[np.isinf(a) | np.isnan(a) | (np.abs(a) < 1e10)]
        x, y = mt.tensor(a, requires_grad=True), torch.tensor(a, requires_grad=True)
        got, wanted = getattr(mt, name)(x), getattr(torch, name)(y)
        np.testing.assert_allclose(got.detach().numpy(), wanted.detach().numpy(), rtol=2e-6, atol=2e-7)
        got.backward(mt.ones_like(got))
        wanted.backward(torch.ones_like(wanted))
        keep = ~np.isnan(a) if name == "abs" else ...  # there PyTorch gives 0
        np.testing.assert_allclose(x.grad.numpy()[keep], y.grad.numpy()[keep], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in BINARY if name not in ("add", "sub", "rsub", "mul", "logaddexp")])
def test_special_pairs(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = (v.ravel() for v in np.meshgrid(*[np.array([-INF, -2.5, -1.0, 0.0, 1.0, 2.5, INF, NAN])] * 2))
    if name in ("remainder", "fmod", "floor_divide"):
        keep = np.isfinite(a)
        a, b = a[keep], b[keep]
    got, wanted = getattr(mt, name)(mt.tensor(a), mt.tensor(b)), getattr(torch, name)(torch.tensor(a), torch.tensor(b))
    np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-15)  # processors round pow as they do


def test_sigmoid_of_large_numbers():
    x = mt.tensor([-1000.0, 0.0, 1000.0], requires_grad=True)
    y = mt.sigmoid(x)
    assert y.tolist() == [0.0, 0.5, 1.0]
    y.backward(mt.ones(3))
    assert x.grad.tolist() == [0.0, 0.25, 0.0]


def test_erfinv_to_full_accuracy():
    mp = pytest.importorskip("mpmath")
    values = [0.0, 1e-300, 1e-8, 0.3, -0.7, 0.95, 0.9899, 0.99, 0.999, 1 - 1e-6, 1 - 1e-10, 1 - 2 ** -53, -1 + 1e-12]
    got = mt.erfinv(mt.tensor(np.array(values))).numpy()
    np.testing.assert_allclose(got, [float(mp.erfinv(mp.mpf(v))) for v in values], rtol=1e-14)
    assert mt.erfinv(mt.tensor([-1.0, 1.0])).tolist() == [-INF, INF]
    assert mt.erfinv(mt.tensor([1.5, NAN])).isnan().tolist() == [True, True]


def test_pow_at_its_edges():
    x = mt.tensor([0.0, 1.0], requires_grad=True)
    mt.pow(x, 0).backward(mt.ones(2))
    assert x.grad.tolist() == [0.0, 0.0]
    x = mt.tensor([-2.0], requires_grad=True)
    mt.pow(x, 2).backward(mt.ones(1))
    mt.pow(x, mt.tensor([2.0])).backward(mt.ones(1))  # no logarithm of x is taken for an exponent without gradient
    assert x.grad.tolist() == [-8.0]
    x, y = mt.tensor(2.0, requires_grad=True), mt.tensor(3.0, requires_grad=True)
    (x ** y).backward()
    assert x.grad.item() == 12.0 and y.grad.item() == pytest.approx(8 * math.log(2))
    x, y = mt.tensor([0.0, 0.0], requires_grad=True), mt.tensor([0.0, 2.0], requires_grad=True)
    (x ** y).backward(mt.ones(2))
    assert x.grad.tolist() == y.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.5, 2.0, 0.0])
def test_pow_with_a_constant(exponent):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = draw(3, 5, low=0.5, high=3.0)
    assert_gradients(lambda x: x ** exponent, a)
    assert_like_torch(lambda x: x ** exponent, lambda x: x ** exponent, a)
    assert_like_torch(lambda x: x ** exponent, lambda x: x ** exponent, a.astype("f4"), rtol=1e-5)
    assert_like_torch(lambda x: exponent ** x, lambda x: exponent ** x, a + 1)
    if exponent == int(exponent):
        assert_gradients(lambda x: x ** exponent, -a)
    x = mt.tensor(a)
    (x ** exponent).fill_(0.0)
    np.testing.assert_array_equal(x.numpy(), a)
    whole = np.array([-2, -1, 0, 1, 3])
    if exponent >= 0:
        assert_like_torch(lambda x: x ** exponent, lambda x: x ** exponent, np.abs(whole) if exponent % 1 else whole)
    assert_like_torch(lambda x: mt.pow(3, x), lambda x: torch.pow(3, x), np.array([-2, 0, 3]))
    assert_like_torch(mt.pow, torch.pow, *np.meshgrid(whole, np.array([-3, -2, 0, 5])))


def test_pow_of_whole_numbers_to_a_negative_constant():
    with pytest.raises(RuntimeError, match="no integer"):
        mt.tensor([1, 2]) ** -1


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_rounding_of_quotients(mode):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    def ours(x, y):
        return mt.div(x, y, rounding_mode=mode)

    def theirs(x, y):
        return torch.div(x, y, rounding_mode=mode)

    a, b = (v.ravel() for v in np.meshgrid(np.array([-7, -6, -1, 0, 5, 6]), np.array([-3, -2, 1, 4])))
    for kind in ("i4", "i8", "f4", "f8"):
        assert_like_torch(ours, theirs, a.astype(kind), b.astype(kind))
    assert_like_torch(ours, theirs, draw(3, 1), draw(5, seed=1))


def test_division_by_zero():
    for divide in (mt.floor_divide, mt.remainder, mt.fmod, lambda x, y: mt.div(x, y, rounding_mode="trunc")):
        with pytest.raises(RuntimeError, match=r"divided by zero"):
            divide(mt.tensor([1]), mt.tensor([0]))
    assert mt.div(mt.tensor([1, 0]), 0).tolist()[0] == INF
    with pytest.raises(RuntimeError, match="'floor' or 'trunc', got 'up'"):
        mt.div(mt.tensor([1.0]), 2, rounding_mode="up")


def test_gradients_at_kinks():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = np.array([0.0, -0.0, 2.0, 1.0]), np.array([0.0, 1.0, 2.0, 3.0])
    for name in ("abs", "sign", "floor", "round"):
        assert_like_torch(getattr(mt, name), getattr(torch, name), a)
    for name in ("maximum", "minimum"):
        assert_like_torch(getattr(mt, name), getattr(torch, name), a, b)
        _, weights, found = gradients(getattr(mt, name), [a, b])
        np.testing.assert_array_equal(found[0][[0, 2]], 0.5 * weights[0][[0, 2]])
        np.testing.assert_array_equal(found[0] + found[1], weights[0])


def test_one_tensor_as_both_operands():
    x = mt.tensor([1.0, 3.0], requires_grad=True)
    (mt.maximum(x, x) + x * x - x / x).backward(mt.ones(2))
    assert x.grad.tolist() == [3.0, 7.0]


@pytest.mark.parametrize("decimals", [0, 1, 2, -2])
def test_round(decimals):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 1.25, 1234.567, -0.045])
    assert_like_torch(lambda x: mt.round(x, decimals=decimals), lambda x: torch.round(x, decimals=decimals), a)


BOUNDS = [(-0.5, 0.5), (None, 0.5), (-0.5, None), (0.5, -0.5), (0, 1)]


@pytest.mark.parametrize("low, high", BOUNDS)
def test_clamp_by_numbers(low, high):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.concatenate([draw(11), [-0.5, 0.5, 0.0, 1.0, NAN, INF]])
    for kind in ("f4", "f8"):
        assert_like_torch(lambda x: mt.clamp(x, low, high), lambda x: torch.clamp(x, low, high), a.astype(kind))
    a = np.array([-3, 0, 3])
    assert_like_torch(lambda x: mt.clip(x, max=high, min=low), lambda x: torch.clip(x, max=high, min=low), a)
    assert_gradients(lambda x: mt.clamp(x, low, high), draw(3, 5))


@pytest.mark.parametrize("shapes", [((3, 5), (3, 5), (3, 5)), ((3, 1), (5,), ()), ((), (2, 3), (3,))], ids=str)
def test_clamp_by_tensors(shapes):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, low, high = (draw(*s, seed=i) for i, s in enumerate(shapes))
    assert_gradients(mt.clamp, a, low, high)
    assert_gradients(mt.clamp_min, a, low)
    assert_gradients(mt.clamp_max, a, high)
    a, low, high = np.broadcast_arrays(a, low, high)  # PyTorch wants it so
    assert_like_torch(mt.clamp, torch.clamp, a, low, high)
    assert_like_torch(mt.clamp_min, torch.clamp_min, a, low)
    assert_like_torch(mt.clamp_max, torch.clamp_max, a, high)


def test_clamp_at_its_bounds():
    x, low, high = (mt.tensor([v, v], requires_grad=True) for v in (1.0, 1.0, 1.0))
    (mt.clamp_min(x, low) + mt.clamp_max(x, high)).backward(mt.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 20.0] and low.grad.tolist() == high.grad.tolist() == [0.0, 0.0]


def test_clamp_on_one_side():
    x = mt.tensor([-1.0, 0.25, 2.0], requires_grad=True)
    (mt.clamp_min(x, 0.25) + 10 * mt.clamp_max(x, 0.25)).backward(mt.ones(3))
    assert x.grad.tolist() == [10.0, 11.0, 1.0]
    with pytest.raises(RuntimeError, match="min, max or both"):
        mt.clamp(x)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_where(shapes):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = (draw(*s, seed=i) for i, s in enumerate(shapes))
    condition = draw(*np.broadcast_shapes(*shapes), seed=2) > 0
    y = mt.where(mt.tensor(condition), mt.tensor(a), mt.tensor(b)).numpy()
    for where in np.ndindex(y.shape):
        assert y[where] == np.broadcast_to(a if condition[where] else b, y.shape)[where]
    assert_gradients(mt.where, condition, a, b)
    assert_like_torch(mt.where, torch.where, condition, a, b)
    assert_like_torch(lambda c, x: mt.where(c, x, 0.5), lambda c, x: torch.where(c, x, 0.5), condition, a.astype("f4"))
    assert_like_torch(lambda c, x: mt.where(c, 1, x), lambda c, x: torch.where(c, 1, x), condition, a)


def test_where_of_numbers_and_alone():
    condition = mt.tensor([[True, False], [False, True]])
    assert mt.where(condition, 1.0, 0.0).dtype == mt.float32
    assert mt.where(condition, 1, 0).dtype == mt.int64
    rows, columns = mt.where(condition)
    assert rows.tolist() == [0, 1] and columns.tolist() == [0, 1]
    assert [index.tolist() for index in mt.where(mt.tensor(True))] == [[0]]
    with pytest.raises(RuntimeError, match="boolean condition"):
        mt.where(mt.tensor([1, 0]), 1.0, 0.0)


def test_where_and_what_was_not_chosen():
    # what was not chosen gets zero, and zero times an infinite derivative is NaN: choose the argument before, too
    x = mt.tensor([0.0, 2.0, 3.0], requires_grad=True)
    mt.where(x > 2, mt.log2(x), 2 * x).backward(mt.ones(3))
    assert x.grad.isnan().tolist() == [True, False, False]
    x.grad = None
    mt.where(x > 2, mt.log2(mt.where(x > 2, x, 1.0)), 2 * x).backward(mt.ones(3))
    np.testing.assert_allclose(x.grad.numpy(), [2, 2, 0.480898], rtol=1e-6)
    g = mt.tensor([NAN, 1.0])
    x, y = mt.zeros(2, requires_grad=True), mt.zeros(2, requires_grad=True)
    mt.where(mt.tensor([True, False]), x, y).backward(g)  # a NaN that arrives stays with the chosen operand
    assert x.grad.isnan().tolist() == [True, False] and y.grad.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("shapes", [((3, 5), (3, 5)), ((2, 3, 5), (3, 1)), ((3, 1), (1, 5)), ((), ()), ((0, 3), (3,))],
                         ids=str)
@pytest.mark.parametrize("value", [-INF, 0, 2.5, True])
def test_masked_fill(shapes, value):
    a, mask = draw(*shapes[0]), draw(*shapes[1], seed=1) > 0
    y = mt.masked_fill(mt.tensor(a), mt.tensor(mask), -INF).numpy()
    for where in np.ndindex(y.shape):
        hidden = np.broadcast_to(mask, y.shape)[where]
        assert y[where] == (-INF if hidden else np.broadcast_to(a, y.shape)[where])
    def fill(x, m, v=value):
        return x.masked_fill(m, v)

    assert_like_torch(fill, fill, a.astype("f4"), mask)
    assert_like_torch(fill, fill, a, mask)
    assert_like_torch(fill, fill, a, mask, np.array(0.7))
    assert_gradients(fill, a, mask, np.array(0.7))


def test_masked_fill_stops_what_comes_back_for_a_hidden_element():
    x = mt.zeros(2, requires_grad=True)
    x.masked_fill(mt.tensor([True, False]), 0.0).backward(mt.tensor([NAN, 1.0]))
    assert x.grad.tolist() == [0.0, 1.0]


def test_masked_fill_limits():
    assert mt.tensor([1, 2]).masked_fill(mt.tensor([True, False]), 0.5).tolist() == [0, 2]
    half = mt.zeros(2, dtype=mt.float16).masked_fill(mt.tensor([True, False]), -1e9)
    assert half.dtype == mt.float16 and half.tolist() == [-INF, 0.0]
    with pytest.raises(RuntimeError, match="boolean mask"):
        mt.zeros(2).masked_fill(mt.tensor([1, 0]), 0.0)
    with pytest.raises(RuntimeError, match=r"shape \(2,\); use where"):
        mt.zeros(2).masked_fill(mt.tensor([True, False]), mt.zeros(2))


def test_lerp():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    start, end, weight = draw(3, 5), draw(5, seed=1), draw(3, 1, seed=2)
    assert_gradients(mt.lerp, start, end, weight)
    assert_like_torch(mt.lerp, torch.lerp, start, end, weight)
    start, end = start.astype("f4"), end.astype("f4")
    assert_like_torch(lambda x, y: mt.lerp(x, y, 0.3), lambda x, y: torch.lerp(x, y, 0.3), start, end, atol=1e-6)


def test_logaddexp_of_infinities():
    x = mt.tensor([-INF, -INF, 1000.0, INF], requires_grad=True)
    y = mt.tensor([-INF, 1.0, 1000.0, 0.0], requires_grad=True)
    z = mt.logaddexp(x, y)
    assert z.tolist() == pytest.approx([-INF, 1.0, 1000.0 + math.log(2), INF])
    z.backward(mt.ones(4))
    assert x.grad.tolist() == [0.0, 0.0, 0.5, 1.0] and y.grad.tolist() == [0.0, 1.0, 0.5, 0.0]


@pytest.mark.parametrize("values", [(), (3.0,), (3.0, 5.0, -7.0), (None, np.float64(4.0))])
def test_nan_to_num(values):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([NAN, INF, -INF, 1.5, -2.0])
    plain = [v.item() if isinstance(v, np.generic) else v for v in values]
    for kind in ("f4", "f8"):
        assert_like_torch(lambda x: mt.nan_to_num(x, *values), lambda x: torch.nan_to_num(x, *plain), a.astype(kind))
    assert mt.nan_to_num(mt.tensor([1, 2])).tolist() == [1, 2]


# Questions

@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = (v.ravel() for v in np.meshgrid(*[np.array([-INF, -1.0, 0.0, 2.0, INF, NAN])] * 2))
    ours, theirs = getattr(mt, name), getattr(torch, name)
    assert_like_torch(ours, theirs, a, b)
    assert_like_torch(ours, theirs, a[:, None].astype("f4"), b[:5])
    assert_like_torch(lambda x: ours(x, 1.5), lambda x: theirs(x, 1.5), np.array([1, 2]))
    assert_like_torch(lambda x: ours(x, 2), lambda x: theirs(x, 2), np.array([1, 2]))
    assert not ours(mt.tensor(a, requires_grad=True), 0.0).requires_grad
    long = dict(ne="not_equal", lt="less", le="less_equal", gt="greater", ge="greater_equal").get(name, name)
    assert getattr(mt, long) is ours


def test_isnan_isinf_isfinite():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for name in ("isnan", "isinf", "isfinite"):
        for a in (np.array([1.0, INF, -INF, NAN]), np.array([1, 2]), np.array([True]), np.array(NAN)):
            assert_like_torch(getattr(mt, name), getattr(torch, name), a)


@pytest.mark.parametrize("name", "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor".split())
def test_logic(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    ours, theirs = getattr(mt, name), getattr(torch, name)
    assert_like_torch(ours, theirs, a, b)
    assert_like_torch(ours, theirs, a[:, None], b)
    assert_like_torch(ours, theirs, np.array([5, 0, -3]), np.array([3, 2, 6]))
    assert_like_torch(ours, theirs, np.array([5, 0], "u1"), np.array([True, False]))
    if name.startswith("logical"):
        assert_like_torch(ours, theirs, np.array([0.0, 0.5, NAN]), np.array([1, 0, 0]))
    else:
        assert_like_torch(lambda x: ours(x, 6), lambda x: theirs(x, 6), np.array([5, 0, -3]))
        assert_like_torch(lambda x: ours(x, True), lambda x: theirs(x, True), a)
        with pytest.raises(TypeError, match="compare first"):
            ours(mt.zeros(2), mt.zeros(2))


def test_not():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for a in (np.array([True, False]), np.array([5, 0, -3]), np.array([5, 0], "u1")):
        assert_like_torch(mt.logical_not, torch.logical_not, a)
        assert_like_torch(mt.bitwise_not, torch.bitwise_not, a)
    assert_like_torch(mt.logical_not, torch.logical_not, np.array([0.0, 0.5, NAN]))
    with pytest.raises(TypeError, match="compare first"):
        ~mt.zeros(2)


@pytest.mark.parametrize("words", [{}, {"equal_nan": True}, {"rtol": 0.0}, {"atol": 1e-4}], ids=str)
def test_isclose(words):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a, b = (v.ravel() for v in np.meshgrid([0.0, 1.0, 1.00001, INF, -INF, NAN], [1e-9, 1.0, INF, NAN]))
    assert_like_torch(lambda x, y: mt.isclose(x, y, **words), lambda x, y: torch.isclose(x, y, **words), a, b)
    assert_like_torch(mt.isclose, torch.isclose, np.array([1, 2]), np.array([1, 3]))
    assert_like_torch(mt.isclose, torch.isclose, np.array([True, False]), np.array([True, True]))


def test_allclose():
    x = mt.tensor([1.0, 2.0])
    assert mt.allclose(x, x + 1e-7) is True and mt.allclose(x, x + 1e-2) is False
    with pytest.raises(RuntimeError, match="one dtype, got float32 and float64"):
        mt.allclose(x, x.double())


def test_equal():
    x = mt.tensor([1.0, 2.0])
    assert mt.equal(x, mt.tensor([1, 2])) is True
    assert mt.equal(x, x + 1) is False and mt.equal(x, x[None]) is False
    assert mt.equal(mt.tensor(NAN), mt.tensor(NAN)) is False


# Mistakes

@pytest.mark.parametrize("name", [*UNARY, "isnan", "logical_not", "bitwise_not", "nan_to_num"])
def test_a_number_is_not_a_tensor(name):
    with pytest.raises(TypeError, match="expected a Tensor, got float"):
        getattr(mt, name)(2.0)


@pytest.mark.parametrize("name", [*BINARY, "eq", "bitwise_and"])
def test_operands_must_be_tensors_or_numbers(name):
    with pytest.raises(TypeError, match=r"tensor"):
        getattr(mt, name)(mt.ones(2), [1.0, 2.0])
    with pytest.raises(TypeError):
        getattr(mt, name)(mt.ones(2), "1")


@pytest.mark.parametrize("name", [*BINARY, "eq", "lt", "clamp_min"])
def test_shapes_must_fit(name):
    with pytest.raises(RuntimeError, match=r"\(2, [35]\) and \(2, [53]\) do not fit.* [35] and [53] at dim -1"):
        getattr(mt, name)(mt.ones(2, 3), mt.ones(2, 5))


def test_other_names():
    for long, short in dict(absolute="abs", negative="neg", clip="clamp", arcsin="asin", arccos="acos", arctan="atan",
                            subtract="sub", multiply="mul", divide="div", true_divide="div").items():
        assert getattr(mt, long) is getattr(mt, short)


def test_a_product_keeps_only_what_a_gradient_needs():
    x, mask = mt.tensor([1.0, 2.0], requires_grad=True), mt.tensor([0.0, 1.0])
    y = x * mask
    with mt.no_grad():
        x += 1.0  # y = x mask needs mask alone for its gradient
    y.backward(mt.ones(2))
    assert x.grad.tolist() == [0.0, 1.0]
    y = x * mask
    mask += 1.0
    with pytest.raises(RuntimeError, match="mul needs was modified in place"):
        y.backward(mt.ones(2))


@pytest.mark.parametrize("limited", [
    lambda x: x.clamp(min=0), lambda x: x.clamp_min(0), lambda x: -(-x).clamp_max(0),
    lambda x: x.maximum(mt.zeros(2)), lambda x: -(-x).minimum(mt.zeros(2)),
])
def test_infinite_gradient_does_not_leak_through_a_limit(limited):
    x = mt.tensor([-1.0, 2.0], requires_grad=True)
    limited(x).sqrt().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [0.0, 0.5 / math.sqrt(2)], rtol=1e-6)


def test_infinite_gradient_of_the_only_largest_entry():
    x = mt.tensor([3.0, 1.0], requires_grad=True)
    (x.max() - 3).sqrt().backward()
    assert x.grad.tolist() == [math.inf, 0.0]


def test_isclose_of_whole_numbers_does_not_wrap_around():
    zero, last = mt.tensor([0], dtype=mt.uint8), mt.tensor([255], dtype=mt.uint8)
    assert mt.isclose(zero, last, atol=1).tolist() == mt.isclose(last, zero, atol=1).tolist() == [False]
    assert mt.isclose(zero, last, atol=255).tolist() == [True]


@pytest.mark.parametrize("use", [
    lambda v: mt.equal(v, v), mt.unique, mt.nonzero, mt.tensor, lambda v: mt.as_tensor([v, v]), mt.bernoulli, repr,
    lambda v: mt.multinomial(v, 1), lambda v: mt.normal(v, 1.0),
])
def test_values_left_behind_by_a_write_are_not_read(use):
    x = mt.tensor([0.25, 0.5], requires_grad=True) * 1
    view = x[:]
    x.mul_(2)
    with pytest.raises(RuntimeError, match="out of date"):
        use(view)
