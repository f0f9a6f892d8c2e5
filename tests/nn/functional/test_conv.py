"""Windows: convolution, pooling, unfolding and padding, by loops, by differences, and beside PyTorch."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw, gradients
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32


def two(value):
    return (value, value) if isinstance(value, int) else value


def zero_padded(x, pads, value=0.0):
    return np.pad(x, [(0, 0)] * (x.ndim - 2) + [(p, q) for p, q in pads], constant_values=value)


def convolved(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    """Cross-correlation by loops over everything."""
    (sh, sw), (dh, dw), (kh, kw) = two(stride), two(dilation), w.shape[2:]
    if padding == "same":
        pads = [(d * (k - 1) // 2, d * (k - 1) - d * (k - 1) // 2) for k, d in ((kh, dh), (kw, dw))]
    else:
        pads = [(p, p) for p in two(0 if padding == "valid" else padding)]
    x = zero_padded(x, pads)
    oh, ow = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    y = np.zeros((len(x), len(w), oh, ow))
    per_group, outputs = w.shape[1], len(w) // groups
    for n, o, p, q in np.ndindex(y.shape):
        for c, i, j in np.ndindex(w.shape[1:]):
            y[n, o, p, q] += w[o, c, i, j] * x[n, o // outputs * per_group + c, sh * p + dh * i, sw * q + dw * j]
    return y if b is None else y + b[:, None, None]


# shape of x, shape of the weight, keywords
IMAGES = [
    ((2, 3, 5, 7), (4, 3, 2, 3), {}),
    ((2, 3, 5, 7), (4, 3, 2, 3), {"stride": (2, 3), "padding": (1, 2)}),
    ((1, 2, 7, 8), (3, 2, 3, 2), {"stride": 2, "padding": 1, "dilation": (2, 3)}),
    ((2, 4, 5, 3), (6, 2, 2, 2), {"groups": 2}),
    ((2, 3, 4, 5), (6, 1, 3, 2), {"groups": 3, "padding": "same"}),
    ((1, 2, 5, 6), (3, 2, 2, 3), {"padding": "same", "dilation": 2}),
    ((2, 3, 4, 6), (5, 3, 2, 3), {"stride": (2, 3), "padding": "valid"}),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((0, 2, 3, 3), (5, 2, 2, 2), {}),
]


@pytest.mark.filterwarnings("ignore:Using padding='same'")  # PyTorch copies the input for an even kernel, and says so
@pytest.mark.parametrize("shape, weight, keywords", IMAGES, ids=str)
def test_conv2d(shape, weight, keywords):
    x, w, b = draw(*shape), draw(*weight, seed=1), draw(weight[0], seed=2)
    def conv(x, w, b=None):
        return F.conv2d(x, w, b, **keywords)
    np.testing.assert_allclose(conv(*map(mt.tensor, (x, w, b))).numpy(), convolved(x, w, b, **keywords), atol=1e-12)
    np.testing.assert_allclose(conv(*map(mt.tensor, (x, w))).numpy(), convolved(x, w, **keywords), atol=1e-12)
    for arguments in ((x, w), (x, w, b)):
        assert_gradients(conv, *arguments)
        assert_keeps_float32(conv, *arguments)
    torch = pytest.importorskip("torch")
    assert_like_torch(conv, lambda x, w, b: torch.nn.functional.conv2d(x, w, b, **keywords), x, w, b)
    if len(x):
        assert_like_torch(conv, lambda x, w, b: torch.nn.functional.conv2d(x, w, b, **keywords), x[0], w, b)


@pytest.mark.parametrize("shape, weight, keywords", [
    ((2, 3, 7), (5, 3, 2), {}), ((2, 3, 7), (5, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 4, 8), (6, 2, 3), {"groups": 2, "dilation": 2}),
    ((2, 3, 7), (5, 3, 4), {"padding": "same"}),
    ((3, 7), (5, 3, 2), {"stride": (3,), "padding": (2,), "dilation": (2,)}),
    ((2, 3, 6), (5, 3, 3), {"stride": 3, "padding": "valid"}),
])
def test_conv1d(shape, weight, keywords):
    x, w, b = draw(*shape), draw(*weight, seed=1), draw(weight[0], seed=2)
    def conv(x, w, b=None):
        return F.conv1d(x, w, b, **keywords)
    assert_gradients(conv, x, w, b)
    assert_keeps_float32(conv, x, w)
    torch = pytest.importorskip("torch")
    assert_like_torch(conv, lambda x, w, b: torch.nn.functional.conv1d(x, w, b, **keywords), x, w, b)
    assert_like_torch(conv, lambda x, w: torch.nn.functional.conv1d(x, w, **keywords), x, w)


def test_conv1d_by_formula():
    x, w = draw(2, 3, 7), draw(5, 3, 2, seed=1)
    expected = np.einsum("nclk,ock->nol", np.stack([x[:, :, 0:5:2], x[:, :, 2:7:2]], -1), w)
    got = F.conv1d(mt.tensor(x), mt.tensor(w), stride=2, dilation=2).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_a_convolution_is_unfolding_and_a_product():
    def composed(x, w, b):
        y = w.reshape(5, -1) @ F.unfold(x, (2, 3), stride=(1, 2), padding=1)
        return (y + b[:, None]).reshape(2, 5, 5, 4)

    assert_equals_composed(lambda x, w, b: F.conv2d(x, w, b, stride=(1, 2), padding=1), composed,
                           draw(2, 3, 4, 7), draw(5, 3, 2, 3, seed=1), draw(5, seed=2))


def test_patches_are_read_row_by_row():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    patches = F.conv2d(mt.tensor(x), mt.tensor(np.eye(4).reshape(4, 1, 2, 2)), stride=2)
    assert patches.flatten(2).transpose(1, 2).tolist()[0][0] == [0, 1, 4, 5]
    assert F.unfold(mt.tensor(x), 2, stride=2).transpose(1, 2).tolist()[0][0] == [0, 1, 4, 5]
    x = np.arange(48.0).reshape(1, 2, 4, 6)
    first = F.unfold(mt.tensor(x), (2, 3), stride=(2, 3))[0, :, 0]
    assert first.tolist() == [0, 1, 2, 6, 7, 8, 24, 25, 26, 30, 31, 32]


def test_gradients_that_are_not_contiguous_and_inputs_that_need_none():
    w = draw(5, 3, 2, 3, seed=1)
    assert_gradients(lambda x, w: F.conv2d(x.transpose(2, 3), w).permute(3, 0, 2, 1), draw(2, 3, 5, 4), w)
    x, w = mt.tensor(draw(2, 3, 4, 5)), mt.tensor(w, requires_grad=True)
    F.conv2d(x, w).square().sum().backward()
    assert x.grad is None and w.grad.shape == w.shape


@pytest.mark.parametrize("call, said", [
    (lambda x, w: F.conv2d(x, w[:, :2]), "needs x"), (lambda x, w: F.conv2d(x, w, groups=2), "needs x"),
    (lambda x, w: F.conv2d(x[0, 0], w), "needs x"), (lambda x, w: F.conv2d(x, w, w[0, 0, 0]), "bias"),
    (lambda x, w: F.conv2d(x.float(), w), "one dtype"), (lambda x, w: F.conv2d(x, w, dilation=5), "larger"),
    (lambda x, w: F.conv2d(x, w, padding="same", stride=2), "same"), (lambda x, w: F.conv1d(x, w), "conv1d"),
    (lambda x, w: F.unfold(x, 9), "larger"), (lambda x, w: F.fold(x[0, :2], 5, 2), "fold"),
    (lambda x, w: F.max_pool2d(x, 2, padding=2), "half"),
    (lambda x, w: F.avg_pool2d(x, 9), "larger"),
])
def test_errors(call, said):
    with pytest.raises(RuntimeError, match=said):
        call(mt.tensor(draw(2, 3, 5, 7)), mt.tensor(draw(4, 3, 2, 3)))


# Windows as columns

WINDOWS = pytest.mark.parametrize("shape, kernel, keywords", [
    ((2, 3, 5, 7), (2, 3), {}), ((2, 3, 5, 7), 2, {"stride": (2, 3), "padding": (1, 0)}),
    ((1, 2, 7, 8), (3, 2), {"dilation": (2, 3)}),
    ((3, 5, 7), (2, 3), {"padding": 1}), ((0, 2, 3, 3), 2, {}),
])


@WINDOWS
def test_unfold(shape, kernel, keywords):
    x = draw(*shape)
    def columns(x):
        return F.unfold(x, kernel, **keywords)
    if x.ndim == 4 and x.size:  # each cell of the window as a convolution with a single one
        kh, kw = two(kernel)
        picks = np.eye(shape[1] * kh * kw).reshape(-1, shape[1], kh, kw)
        expected = convolved(x, picks, **keywords)
        np.testing.assert_allclose(columns(mt.tensor(x)).numpy(), expected.reshape(*expected.shape[:2], -1))
    assert_gradients(columns, x)
    torch = pytest.importorskip("torch")
    if x.size:
        assert_like_torch(columns, lambda x: torch.nn.functional.unfold(x, kernel, **keywords), x)


@WINDOWS
def test_fold_is_the_transpose_of_unfold(shape, kernel, keywords):
    """<unfold x, c> = <x, fold c> for all x and c."""
    x, size = draw(*shape), shape[-2:]
    columns = F.unfold(mt.tensor(x), kernel, **keywords).numpy()
    c = draw(*columns.shape, seed=1)
    def folded(c):
        return F.fold(c, size, kernel, **keywords)
    assert folded(mt.tensor(c)).shape == shape
    np.testing.assert_allclose((columns * c).sum(), (x * folded(mt.tensor(c)).numpy()).sum(), atol=1e-10)
    assert_gradients(folded, c)
    torch = pytest.importorskip("torch")
    if x.size:
        assert_like_torch(folded, lambda c: torch.nn.functional.fold(c, size, kernel, **keywords), c)


# Pooling

POOLS = [
    ((2, 3, 5, 7), (2, 3), {}), ((2, 3, 5, 7), 2, {"stride": 1}), ((2, 3, 5, 7), 3, {"stride": 2, "padding": 1}),
    ((1, 2, 6, 7), (2, 3), {"stride": (2, 2), "padding": (0, 1), "ceil_mode": True}),
    ((1, 2, 5, 5), 2, {"stride": 3, "ceil_mode": True}),
    ((1, 2, 4, 7), 2, {"stride": 3, "padding": 1, "ceil_mode": True}),  # the last window would start outside
    ((3, 5, 7), 2, {}), ((1, 2, 5, 6), (3, 2), {"stride": (2, 3), "padding": (1, 1), "ceil_mode": True}),
]


@pytest.mark.parametrize("shape, kernel, keywords", POOLS, ids=str)
@pytest.mark.parametrize("more", [{}, {"count_include_pad": False}, {"divisor_override": 3}], ids=str)
def test_avg_pool2d(shape, kernel, keywords, more):
    x = draw(*shape)
    def pool(x):
        return F.avg_pool2d(x, kernel, **keywords, **more)
    if not keywords.get("padding") and not keywords.get("ceil_mode") and x.ndim == 4:
        kh, kw = two(kernel)
        ones = np.full((shape[1], 1, kh, kw), 1 / more.get("divisor_override", kh * kw))
        expected = convolved(x, ones, stride=keywords.get("stride", kernel), groups=shape[1])
        np.testing.assert_allclose(pool(mt.tensor(x)).numpy(), expected)
    assert_gradients(pool, x)
    assert_keeps_float32(pool, x)
    torch = pytest.importorskip("torch")
    assert_like_torch(pool, lambda x: torch.nn.functional.avg_pool2d(x, kernel, **keywords, **more), x)


@pytest.mark.parametrize("shape, kernel, keywords", [
    *POOLS, ((2, 3, 7, 8), 2, {"dilation": (2, 3), "padding": 1, "stride": 2}),
], ids=str)
def test_max_pool2d(shape, kernel, keywords):
    x = draw(*shape)
    def pool(x):
        return F.max_pool2d(x, kernel, **keywords)
    y, where = F.max_pool2d(mt.tensor(x), kernel, return_indices=True, **keywords)
    found = np.take_along_axis(x.reshape(*shape[:-2], -1), where.numpy().reshape(*shape[:-2], -1), -1)
    np.testing.assert_array_equal(found.reshape(y.shape), y.numpy())
    if not keywords:
        kh, kw = two(kernel)
        for at in np.ndindex(*y.shape):
            window = x[(*at[:-2], slice(at[-2] * kh, at[-2] * kh + kh), slice(at[-1] * kw, at[-1] * kw + kw))]
            assert y.numpy()[at] == window.max()
    assert_gradients(pool, x)
    assert_keeps_float32(pool, x)
    torch = pytest.importorskip("torch")
    assert_like_torch(pool, lambda x: torch.nn.functional.max_pool2d(x, kernel, **keywords), x)
    theirs = torch.nn.functional.max_pool2d(torch.tensor(x), kernel, return_indices=True, **keywords)[1]
    np.testing.assert_array_equal(where.numpy(), theirs.numpy())


@pytest.mark.parametrize("keywords", [
    {"kernel_size": 2}, {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
])
@pytest.mark.parametrize("name", ["avg_pool1d", "max_pool1d"])
def test_pooling_of_sequences(name, keywords):
    torch = pytest.importorskip("torch")
    for shape in ((2, 3, 8), (3, 7)):
        assert_gradients(lambda x: getattr(F, name)(x, **keywords), draw(*shape))
        assert_like_torch(lambda x: getattr(F, name)(x, **keywords),
                          lambda x: getattr(torch.nn.functional, name)(x, **keywords), draw(*shape))


def test_pooling_whole_numbers():
    x = mt.tensor([[[1, 2], [4, 9]]])
    assert F.avg_pool2d(x, 2).tolist() == [[[4]]] and F.max_pool2d(x, 2).tolist() == [[[9]]]


# Padding

@pytest.mark.parametrize("mode, numpy_mode", [
    ("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"),
])
@pytest.mark.parametrize("shape, pads", [
    ((2, 3, 5), (2, 1)), ((2, 3, 5), (0, 4)), ((2, 3, 5, 7), (1, 2, 3, 0)), ((2, 3), (1, 1)), ((0, 3, 5), (2, 1)),
])
def test_pad(mode, numpy_mode, shape, pads):
    x = draw(*shape)
    def pad(x):
        return F.pad(x, pads, mode)
    last = [(a, b) for a, b in zip(pads[::2], pads[1::2])][::-1]
    expected = np.pad(x, [(0, 0)] * (x.ndim - len(last)) + last, numpy_mode)
    np.testing.assert_array_equal(pad(mt.tensor(x)).numpy(), expected)
    assert_gradients(pad, x)
    assert_keeps_float32(pad, x)


@pytest.mark.parametrize("mode, pads, expected", [
    ("constant", (1, 2), [0, 1, 2, 3, 0, 0]), ("constant", (-1, 1), [2, 3, 0]), ("constant", (-2, -1), []),
    ("constant", (0, 0), [1, 2, 3]), ("reflect", (1, 2), [2, 1, 2, 3, 2, 1]), ("reflect", (-1, 1), [2, 3, 2]),
    ("replicate", (1, 2), [1, 1, 2, 3, 3, 3]), ("replicate", (2, -2), [1, 1, 1]),
    ("circular", (1, 2), [3, 1, 2, 3, 1, 2]), ("circular", (-1, 1), [2, 3, 2]), ("circular", (0, 0), [1, 2, 3]),
])
def test_pad_examples(mode, pads, expected):
    x = np.array([[1.0, 2, 3]])
    assert F.pad(mt.tensor(x), pads, mode).tolist() == [expected]
    if expected:
        assert_gradients(lambda x: F.pad(x, pads, mode), x)
    torch = pytest.importorskip("torch")
    if pads != (-2, -1):
        assert_like_torch(lambda x: F.pad(x, pads, mode), lambda x: torch.nn.functional.pad(x, pads, mode), x)


def test_pad_with_a_value_and_whole_numbers():
    assert F.pad(mt.tensor([1, 2]), (1, 1), value=7).tolist() == [7, 1, 2, 7]
    assert F.pad(mt.tensor([True]), (1, 0)).tolist() == [False, True]
    (y,), (w,), (gx,) = gradients(lambda x: F.pad(x, (1, -1), value=-5.0), [np.array([1.0, 2.0])])
    assert y.tolist() == [-5, 1] and gx.tolist() == [w[1], 0]


@pytest.mark.parametrize("pads, mode, error", [
    ((1,), "constant", RuntimeError), ((1, 1, 1, 1), "constant", RuntimeError), ((-2, -2), "constant", RuntimeError),
    ((3, 0), "reflect", RuntimeError), ((0, 4), "circular", RuntimeError), ((1, 1), "mirror", NotImplementedError),
])
def test_pad_errors(pads, mode, error):
    with pytest.raises(error):
        F.pad(mt.tensor([1.0, 2.0, 3.0]), pads, mode)


@pytest.mark.parametrize("options", [dict(padding=1), dict(padding=1, ceil_mode=True), dict(ceil_mode=True)])
def test_max_pooling_never_chooses_the_padding(options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = np.full((2, 3, 3, 3), -np.inf, "f4")
    x[0, 0, 0, 1] = 1
    a = mt.tensor(x, requires_grad=True)
    b = torch.tensor(x, requires_grad=True)
    y, index = F.max_pool2d(a, 2, 2, return_indices=True, **options)
    z, wanted = torch.nn.functional.max_pool2d(b, 2, 2, return_indices=True, **options)
    np.testing.assert_array_equal(index.numpy(), wanted.numpy())
    g = draw(*y.shape).astype("f4")
    y.backward(mt.tensor(g))
    z.backward(torch.tensor(g))
    np.testing.assert_array_equal(a.grad.numpy(), b.grad.numpy())


def test_max_pooling_lets_an_infinite_gradient_through_to_the_largest_alone():
    x = mt.tensor([[[0.0, -1.0]]], requires_grad=True)
    F.max_pool1d(x, 2).sqrt().sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[[np.inf, 0]]])


def test_average_pooling_of_large_float16_numbers():
    x = mt.full((1, 1, 4, 4), 30000.0, dtype=mt.float16)
    assert float(F.avg_pool2d(x, 4)) == float(F.avg_pool1d(x[0], 4)[0, 0, 0]) == 30000
    assert F.avg_pool2d(x, 4).dtype == mt.float16


@pytest.mark.parametrize("name, call", [
    ("dilation", lambda x, w: F.conv2d(x, w, dilation=0)), ("stride", lambda x, w: F.conv2d(x, w, stride=(1, 2, 3))),
    ("stride", lambda x, w: F.conv2d(x, w, stride=0)), ("padding", lambda x, w: F.conv2d(x, w, padding=-1)),
    ("padding", lambda x, w: F.conv2d(x, w, padding="foo")), ("padding", lambda x, w: F.max_pool2d(x, 2, padding=-1)),
    ("dilation", lambda x, w: F.max_pool2d(x, 2, 1, 0, 0)), ("stride", lambda x, w: F.max_pool2d(x, 2, 0)),
    ("dilation", lambda x, w: F.unfold(x, 2, dilation=0)), ("kernel_size", lambda x, w: F.unfold(x, 0)),
    ("kernel_size", lambda x, w: F.avg_pool2d(x, (2, 0))),
    ("stride", lambda x, w: F.conv1d(x[0, :, 0], w[0], stride=1.5)),
    ("padding", lambda x, w: F.conv1d(x[0, :, 0], w[0], padding="foo")),
    ("divisor_override", lambda x, w: F.avg_pool2d(x, 2, divisor_override=0))])
def test_sizes_that_make_no_sense_are_named(name, call):
    with pytest.raises(RuntimeError, match=name):
        call(mt.ones(1, 2, 5, 5), mt.ones(2, 2, 2, 2))
