"""Elementwise functions and softmax: by their formulas, by differences, and beside PyTorch."""
import math
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32

INF = math.inf


def normal_cdf(x):
    return 0.5 * math.erfc(-x / math.sqrt(2))


# name: (keywords, the formula for one number, the same composed of elementary operations)
ELEMENTWISE = {
    "relu": ({}, lambda x: max(x, 0.0), lambda x: x.clamp(min=0)),
    "relu6": ({}, lambda x: min(max(x, 0.0), 6.0), lambda x: x.clamp(0, 6)),
    "hardtanh": ({"min_val": -0.5, "max_val": 0.7}, lambda x: min(max(x, -0.5), 0.7), lambda x: x.clamp(-0.5, 0.7)),
    "leaky_relu": ({"negative_slope": 0.2}, lambda x: x if x > 0 else 0.2 * x,
                   lambda x: x.clamp(min=0) + 0.2 * x.clamp(max=0)),
    "elu": ({"alpha": 1.3}, lambda x: x if x > 0 else 1.3 * math.expm1(x),
            lambda x: x.clamp(min=0) + 1.3 * (x.clamp(max=0).exp() - 1)),
    "gelu": ({}, lambda x: x * normal_cdf(x), lambda x: x * (1 + mt.erf(x / 2 ** 0.5)) / 2),
    "gelu tanh": ({"approximate": "tanh"},
                  lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
                  lambda x: x / 2 * (1 + ((2 / math.pi) ** 0.5 * (x + 0.044715 * x ** 3)).tanh())),
    "silu": ({}, lambda x: x / (1 + math.exp(-x)), lambda x: x * x.sigmoid()),
    "softplus": ({}, lambda x: math.log1p(math.exp(x)), lambda x: (1 + x.exp()).log()),
    "softplus beta": ({"beta": 3.0, "threshold": 2.0}, lambda x: x if 3 * x > 2 else math.log1p(math.exp(3 * x)) / 3,
                      lambda x: mt.where(3 * x > 2, x, (1 + (3 * x).exp()).log() / 3)),
    "logsigmoid": ({}, lambda x: -math.log1p(math.exp(-x)), lambda x: -(1 + (-x).exp()).log()),
    "sigmoid": ({}, lambda x: 1 / (1 + math.exp(-x)), lambda x: 1 / (1 + (-x).exp())),
    "tanh": ({}, math.tanh, lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
}
EACH = pytest.mark.parametrize("name", ELEMENTWISE)


def function(name, lib=F):
    keywords = ELEMENTWISE[name][0]
    return lambda x: getattr(lib, name.split()[0])(x, **keywords)


@EACH
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (5, 7)])
def test_values_by_formula(name, shape):
    x = np.asarray(2 * draw(*shape))
    y = function(name)(mt.tensor(x)).numpy()
    assert y.shape == shape
    np.testing.assert_allclose(y, np.vectorize(ELEMENTWISE[name][1], otypes="d")(x), rtol=1e-12, atol=1e-14)


@EACH
def test_gradients(name):
    x = draw(5, 7, low=-3, high=3)
    assert_gradients(function(name), x)
    assert_gradients(lambda x: function(name)(x.transpose(0, 1)), x)
    assert_gradients(function(name), np.array(0.3))
    assert_equals_composed(function(name), ELEMENTWISE[name][2], x)
    assert_keeps_float32(function(name), x)


@EACH
def test_like_torch(name):
    torch = pytest.importorskip("torch")
    theirs = function(name, torch.nn.functional)
    grid = np.linspace(-12, 12, 997)
    assert_like_torch(function(name), theirs, grid)
    assert_like_torch(function(name), theirs, grid.astype("f4"), rtol=2e-6, atol=3e-6)
    assert_like_torch(function(name), theirs, np.array([0.0, -0.0, 1e-3, -1e-3]))


@EACH
def test_far_out_values_are_right_and_without_warning(name):
    x = np.array([-1e18, -1000, -300, 300, 1000, 1e18, 0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (y,), (w,), (gx,) = gradients(function(name), [x.astype("f4")])
    assert np.isfinite(y.detach().numpy()).all() and np.isfinite(gx).all()
    # by then each function has become a constant or a line
    rising = gx[:6] / w[:6]
    below, above = {
        "relu": (0, 1), "relu6": (0, 0), "hardtanh": (0, 0), "leaky_relu": (0.2, 1), "gelu": (0, 1), "silu": (0, 1),
        "softplus": (0, 1), "logsigmoid": (1, 0), "sigmoid": (0, 0), "tanh": (0, 0), "elu": (0, 1),
    }[name.split()[0]]
    np.testing.assert_allclose(rising, [below] * 3 + [above] * 3, atol=1e-6)


def test_logsigmoid_keeps_its_digits():
    (y,), (w,), (gx,) = gradients(F.logsigmoid, [np.array([-300.0, -40.0, 40.0])])
    np.testing.assert_allclose(y.detach().numpy(), [-300, -40, -math.exp(-40)], rtol=1e-15)
    np.testing.assert_allclose(gx / w, [1, 1, math.exp(-40)], rtol=1e-12)


def test_sigmoid_at_the_ends_of_float32():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(F.sigmoid(mt.tensor([-1000.0, 1000.0])).numpy(), [0, 1])


def test_both_forms_of_gelu_at_three():
    assert F.gelu(mt.tensor(3.0, dtype=mt.float64)).item() == pytest.approx(2.995950, abs=1e-6)
    assert F.gelu(mt.tensor(3.0, dtype=mt.float64), approximate="tanh").item() == pytest.approx(2.996363, abs=1e-6)
    with pytest.raises(ValueError, match="approximate"):
        F.gelu(mt.tensor(3.0), approximate="erf")


@pytest.mark.parametrize("name", ["relu", "relu6", "hardtanh", "leaky_relu", "elu", "silu"])
def test_in_place(name):
    x = mt.tensor(draw(5, 7))
    wanted = function(name)(x).numpy()
    assert function(name)(x, ) is not x
    y = getattr(F, name)(x, inplace=True, **ELEMENTWISE[name][0])
    assert y is x
    np.testing.assert_array_equal(x.numpy(), wanted)
    assert_equals_composed(lambda x: getattr(F, name)(x * 2, inplace=True), lambda x: getattr(F, name)(x * 2),
                           draw(5, 7))


@pytest.mark.parametrize("name", ["gelu", "silu", "softplus", "logsigmoid", "elu", "leaky_relu", "softmax"])
def test_whole_numbers_become_float32(name):
    dim = [0] if name == "softmax" else []
    y, wanted = getattr(F, name)(mt.tensor([-1, 0, 2]), *dim), getattr(F, name)(mt.tensor([-1.0, 0.0, 2.0]), *dim)
    assert y.dtype == mt.float32
    np.testing.assert_array_equal(y.numpy(), wanted.numpy())


def test_relu_of_whole_numbers_stays_whole():
    y = F.relu(mt.tensor([-1, 0, 2]))
    assert y.dtype == mt.int64 and y.tolist() == [0, 0, 2]


def test_rectifiers_let_nan_through():
    for name in ("relu", "leaky_relu", "hardtanh", "gelu", "silu"):
        assert math.isnan(getattr(F, name)(mt.tensor(math.nan)).item())


# Gates

@pytest.mark.parametrize("shape, dim", [((6, 5), 0), ((5, 6), 1), ((5, 6), -1), ((2, 4, 3), 1), ((0, 4), 1),
                                        ((2,), 0)])
def test_glu(shape, dim):
    x = draw(*shape)
    a, b = np.split(x, 2, axis=dim)
    np.testing.assert_allclose(F.glu(mt.tensor(x), dim).numpy(), a / (1 + np.exp(-b)), rtol=1e-12)
    assert_gradients(lambda x: F.glu(x, dim), x)
    assert_keeps_float32(lambda x: F.glu(x, dim), x)
    torch = pytest.importorskip("torch")
    assert_like_torch(lambda x: F.glu(x, dim), lambda x: torch.nn.functional.glu(x, dim), x)


def test_glu_needs_halves():
    with pytest.raises(RuntimeError, match="even"):
        F.glu(mt.tensor(draw(5, 3)))
    with pytest.raises(IndexError):
        F.glu(mt.tensor(draw(5, 4)), 2)


# Softmax

SOFT = pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
SHAPES = pytest.mark.parametrize("shape, dim", [((7,), 0), ((5, 7), 1), ((5, 7), 0), ((5, 7), -2), ((2, 3, 5), 1),
                                                ((3, 1), 1), ((1, 3), 1), ((2, 3, 257), -1)])


def by_formula(name, x, dim):
    """Each line for itself, in plain Python."""
    y = np.empty_like(x)
    for at in np.ndindex(*np.delete(x.shape, dim)):
        line = (*at[:dim % x.ndim], slice(None), *at[dim % x.ndim:])
        z = [-v if name == "softmin" else v for v in x[line]]
        total = math.fsum(math.exp(v) for v in z)
        y[line] = [v - math.log(total) if name == "log_softmax" else math.exp(v) / total for v in z]
    return y


def composed(name, x, dim):
    e = (-x if name == "softmin" else x).exp()
    p = e / e.sum(dim, keepdim=True)
    return p.log() if name == "log_softmax" else p


@SOFT
@SHAPES
def test_softmax(name, shape, dim):
    x = draw(*shape)
    def soft(x):
        return getattr(F, name)(x, dim)
    np.testing.assert_allclose(soft(mt.tensor(x)).numpy(), by_formula(name, x, dim), rtol=1e-12, atol=1e-15)
    assert_equals_composed(soft, lambda x: composed(name, x, dim), x)
    assert_keeps_float32(soft, x)
    if x.size < 100:
        assert_gradients(soft, x)
        assert_gradients(lambda x: soft(x.transpose(0, -1)).transpose(0, -1), x.T)


@SOFT
@SHAPES
def test_softmax_like_torch(name, shape, dim):
    torch = pytest.importorskip("torch")
    ours, theirs = (lambda x, lib=lib: getattr(lib, name)(x, dim=dim) for lib in (F, torch.nn.functional))
    assert_like_torch(ours, theirs, draw(*shape))
    assert_like_torch(ours, theirs, draw(*shape).astype("f4"), rtol=1e-4, atol=1e-5)
    assert_like_torch(ours, theirs, 100 * draw(*shape))  # too far apart to share one maximum
    for d in ("float64", "float32"):
        assert_like_torch(lambda x, d=d: getattr(F, name)(x, dim=dim, dtype=getattr(mt, d)),
                          lambda x, d=d: getattr(torch.nn.functional, name)(x, dim=dim, dtype=getattr(torch, d)),
                          draw(*shape).astype("f4"), rtol=1e-4, atol=1e-5)


@SOFT
def test_lines_far_apart_and_far_from_zero(name):
    """Whatever is added to a line, its softmax stays; a line 10000 below its neighbour does not vanish."""
    x = draw(5, 7)
    moved = x + np.array([-10000, 0, 10000, 1e6, -300])[:, None]
    got = getattr(F, name)(mt.tensor(moved), 1).numpy()
    np.testing.assert_allclose(got, by_formula(name, x, 1), rtol=1e-8)
    np.testing.assert_array_equal(F.softmax(mt.tensor([-10000.0, -10000.0]), 0).numpy(), [0.5, 0.5])


@pytest.mark.parametrize("spread", [29.0, 31.0])
def test_both_choices_of_what_is_subtracted_keep_float32_digits(spread):
    x = draw(5, 7, low=-1, high=1)
    x[0] -= spread - 2
    x[1, 0] = spread / 2
    got = F.softmax(mt.tensor(x.astype("f4")), 1).numpy()
    np.testing.assert_allclose(got, by_formula("softmax", x.astype("f4").astype("d"), 1), rtol=4e-6)


@SOFT
def test_infinite_and_nan_elements(name):
    x = np.array([[-INF, -INF, -INF], [-INF, 1, 2], [INF, 1, 2], [math.nan, 1, 2], [0, 1, 2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (y,), _, (gx,) = gradients(lambda x: getattr(F, name)(x, 1), [x])
    y = y.detach().numpy()
    assert np.isnan(y[3]).all() and np.isfinite(y[4]).all() and np.isfinite(gx[4]).all()
    if name != "softmin":
        assert np.isnan(y[0]).all() and np.isnan(y[2]).any()
        p = np.exp(y[1]) if name == "log_softmax" else y[1]
        np.testing.assert_allclose(p, [0, 1 / (1 + math.e), math.e / (1 + math.e)])
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(y, getattr(torch.nn.functional, name)(torch.tensor(x), 1).numpy())


@SOFT
@pytest.mark.parametrize("shape, dim", [((0, 3), 1), ((3, 0), 1), ((0, 3), 0), ((0,), 0)])
def test_nothing_in_nothing_out(name, shape, dim):
    (y,), _, (gx,) = gradients(lambda x: getattr(F, name)(x, dim), [np.zeros(shape)])
    assert y.shape == gx.shape == shape


@pytest.mark.parametrize("name, value", [("softmax", 1.0), ("log_softmax", 0.0), ("softmin", 1.0)])
@pytest.mark.parametrize("dim", [0, -1])
def test_one_number_is_a_line_of_one(name, value, dim):
    (y,), _, (gx,) = gradients(lambda x: getattr(F, name)(x, dim), [np.array(2.0)])
    assert y.shape == gx.shape == () and y.item() == value and gx == 0


@SOFT
@pytest.mark.parametrize("shape, dim", [((5, 7), 2), ((5, 7), -3), ((), 1)])
def test_a_dim_out_of_range(name, shape, dim):
    with pytest.raises(IndexError, match="dim"):
        getattr(F, name)(mt.tensor(np.zeros(shape)), dim)


def test_float16_is_computed_in_float32():
    x = np.linspace(-9, 9, 4096).astype("f2")
    for name in ("softmax", "log_softmax"):
        (y,), _, (gx,) = gradients(lambda x, name=name: getattr(F, name)(x, 0), [x])
        wide = getattr(F, name)(mt.tensor(x.astype("f4")), 0).numpy().astype("f2")
        assert y.dtype == gx.dtype == np.float16
        np.testing.assert_array_equal(y.detach().numpy(), wide)
    assert F.softmax(mt.tensor(x), 0, dtype=mt.float32).dtype == mt.float32


def test_softmax_is_a_name_of_the_package_too():
    assert mt.softmax is F.softmax and mt.log_softmax is F.log_softmax and mt.relu is F.relu


@pytest.mark.parametrize("fn", [F.relu, F.relu6, lambda x: F.hardtanh(x, 0, 5)])
def test_an_infinite_gradient_does_not_pass_where_the_slope_is_zero(fn):
    x = mt.tensor([-1.0, 0.0, 1.0, 4.0], requires_grad=True)
    fn(x).sqrt().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [0, 0, 0.5, 0.25])
