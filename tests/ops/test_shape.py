"""Rearranging, joining and cutting."""
import itertools

import numpy as np
import pytest

import minitorch_attn as mt
from tests.harness import assert_gradients, assert_like_torch, draw, gradients, results_of

# name: (the operation for either library, the same with NumPy, shapes of the inputs)
CASES = {
    "reshape": (lambda lib, x: lib.reshape(x, (5, -1)), lambda a: a.reshape(5, 6), [(2, 3, 5)]),
    "reshape method": (lambda lib, x: x.reshape(3, 2, 5), lambda a: a.reshape(3, 2, 5), [(2, 15)]),
    "view": (lambda lib, x: x.view(6, -1), lambda a: a.reshape(6, 5), [(2, 3, 5)]),
    "view_as": (lambda lib, x: x.view_as(lib.zeros(5, 6)), lambda a: a.reshape(5, 6), [(2, 3, 5)]),
    "reshape_as": (lambda lib, x: x.reshape_as(lib.zeros(5, 6)), lambda a: a.reshape(5, 6), [(2, 3, 5)]),
    "flatten": (lambda lib, x: lib.flatten(x), lambda a: a.reshape(-1), [(2, 3, 5)]),
    "flatten middle": (lambda lib, x: x.flatten(1, -2), lambda a: a.reshape(2, 15, 7), [(2, 3, 5, 7)]),
    "unflatten": (lambda lib, x: x.unflatten(1, (3, -1)), lambda a: a.reshape(2, 3, 5, 7), [(2, 15, 7)]),
    "ravel": (lambda lib, x: x.ravel(), lambda a: a.reshape(-1), [(2, 3)]),
    "permute": (lambda lib, x: x.permute(2, 0, -2), lambda a: np.einsum("abc->cab", a), [(2, 3, 5)]),
    "permute dims": (lambda lib, x: lib.permute(x, dims=(1, 2, 0)), lambda a: np.einsum("abc->bca", a), [(2, 3, 5)]),
    "transpose": (lambda lib, x: lib.transpose(x, 0, -1), lambda a: np.einsum("abc->cba", a), [(2, 3, 5)]),
    "swapaxes": (lambda lib, x: x.swapaxes(1, 2), lambda a: np.einsum("abc->acb", a), [(2, 3, 5)]),
    "t": (lambda lib, x: x.t(), lambda a: np.einsum("ab->ba", a), [(2, 3)]),
    "T": (lambda lib, x: x.T, lambda a: np.einsum("ab->ba", a), [(2, 3)]),
    "mT": (lambda lib, x: x.mT, lambda a: np.einsum("abc->acb", a), [(2, 3, 5)]),
    "movedim": (lambda lib, x: lib.movedim(x, (0, 1), (-1, 0)), lambda a: np.einsum("abcd->bcda", a), [(2, 3, 5, 7)]),
    "movedim one": (lambda lib, x: x.movedim(-1, 1), lambda a: np.einsum("abc->acb", a), [(2, 3, 5)]),
    "squeeze": (lambda lib, x: x.squeeze(), lambda a: a.reshape(2, 3), [(1, 2, 1, 3)]),
    "squeeze dims": (lambda lib, x: x.squeeze((0, 1, -2)), lambda a: a.reshape(2, 3), [(1, 2, 1, 3)]),
    "unsqueeze": (lambda lib, x: lib.unsqueeze(x, dim=-2), lambda a: a.reshape(2, 1, 3), [(2, 3)]),
    "cat": (lambda lib, x, y, z: lib.cat([x, y, z], dim=1),
            lambda a, b, c: np.array([[*p, *q, *r] for p, q, r in zip(a, b, c)]), [(2, 3), (2, 5), (2, 1)]),
    "cat -1": (lambda lib, x, y: lib.concat((x, y), -1), lambda a, b: np.array([*a, *b]), [(2,), (3,)]),
    "cat one twice": (lambda lib, x: lib.concatenate([x, x]), lambda a: np.array([*a, *a]), [(2, 3)]),
    "stack": (lambda lib, x, y: lib.stack([x, y], dim=1), lambda a, b: np.array([[p, q] for p, q in zip(a, b)]),
              [(2, 3), (2, 3)]),
    "stack -1": (lambda lib, x, y: lib.stack((x, y), -1), lambda a, b: np.array([*zip(a, b)]), [(3,), (3,)]),
    "hstack": (lambda lib, x, y: lib.hstack([x, y]), lambda a, b: np.array([[*p, *q] for p, q in zip(a, b)]),
               [(2, 3), (2, 5)]),
    "vstack": (lambda lib, x, y: lib.vstack([x, y]), lambda a, b: np.array([a, *b]), [(3,), (2, 3)]),
    "meshgrid": (lambda lib, x, y: lib.meshgrid(x, y, indexing="ij"),
                 lambda a, b: (np.array([[p for q in b] for p in a]), np.array([[q for q in b] for p in a])),
                 [(2,), (3,)]),
    "meshgrid xy": (lambda lib, x, y: lib.meshgrid([x, y], indexing="xy"),
                    lambda a, b: (np.array([[p for p in a] for q in b]), np.array([[q for p in a] for q in b])),
                    [(2,), (3,)]),
    "narrow": (lambda lib, x: lib.narrow(x, 1, -4, 3), lambda a: a[:, 1:4], [(2, 5)]),
    "select": (lambda lib, x: x.select(1, -2), lambda a: a[:, 1], [(2, 3, 5)]),
    "split": (lambda lib, x: x.split(2, dim=1), lambda a: (a[:, :2], a[:, 2:4], a[:, 4:]), [(3, 5)]),
    "split sizes": (lambda lib, x: lib.split(x, [1, 0, 4], -1), lambda a: (a[:, :1], a[:, 1:1], a[:, 1:]), [(3, 5)]),
    "chunk": (lambda lib, x: lib.chunk(x, 3, dim=-1), lambda a: (a[:, :3], a[:, 3:6], a[:, 6:]), [(2, 7)]),
    "chunk fewer": (lambda lib, x: x.chunk(5), lambda a: (a[:2], a[2:4], a[4:6]), [(6, 2)]),
    "unbind": (lambda lib, x: lib.unbind(x, 1), lambda a: (a[:, 0], a[:, 1], a[:, 2]), [(2, 3, 5)]),
    "diagonal": (lambda lib, x: lib.diagonal(x, 1, 2, 0),
                 lambda a: np.array([[a[j + 1, k, j] for j in range(2)] for k in range(3)]), [(5, 3, 2)]),
    "diagonal below": (lambda lib, x: x.diagonal(-1), lambda a: np.array([a[1, 0], a[2, 1]]), [(3, 5)]),
    "diag of matrix": (lambda lib, x: lib.diag(x, 1), lambda a: np.array([a[0, 1], a[1, 2]]), [(2, 5)]),
    "diag of vector": (lambda lib, x: x.diag(-1), lambda a: np.array([[0, 0, 0], [a[0], 0, 0], [0, a[1], 0]]), [(2,)]),
    "unfold": (lambda lib, x: x.unfold(1, 3, 2),
               lambda a: np.array([[row[0:3], row[2:5], row[4:7]] for row in a]), [(2, 7)]),
    "unfold middle": (lambda lib, x: x.unfold(1, 2, 1),
                      lambda a: np.array([[[[m[i, k], m[i + 1, k]] for k in range(2)] for i in range(4)] for m in a]),
                      [(3, 5, 2)]),
    "contiguous": (lambda lib, x: x.contiguous(), lambda a: a, [(2, 3)]),
    "clone": (lambda lib, x: x.clone(), lambda a: a, [(2, 3)]),
    "flip": (lambda lib, x: lib.flip(x, dims=(0, -1)), lambda a: a[::-1, :, ::-1], [(2, 3, 5)]),
    "roll": (lambda lib, x: lib.roll(x, 2, 1), lambda a: np.array([[*r[-2:], *r[:-2]] for r in a]), [(2, 5)]),
    "roll flat": (lambda lib, x: x.roll(-1), lambda a: np.array([*a.ravel()[1:], a[0, 0]]).reshape(a.shape), [(2, 3)]),
    "roll two": (lambda lib, x: x.roll((1, -2), (0, 1)),
                 lambda a: np.array([[*r[2:], *r[:2]] for r in [a[2], a[0], a[1]]]), [(3, 5)]),
    "repeat": (lambda lib, x: x.repeat(2, 1, 3),
               lambda a: np.array([[[*r, *r, *r] for r in a] for _ in range(2)]), [(3, 5)]),
    "tile": (lambda lib, x: lib.tile(x, (2,)), lambda a: np.array([[*r, *r] for r in a]), [(3, 5)]),
    "tril": (lambda lib, x: lib.tril(x),
             lambda a: np.array([[[v * (j <= i) for j, v in enumerate(r)] for i, r in enumerate(m)] for m in a]),
             [(2, 3, 5)]),
    "triu": (lambda lib, x: x.triu(diagonal=1),
             lambda a: np.array([[v * (j >= i + 1) for j, v in enumerate(r)] for i, r in enumerate(a)]), [(3, 5)]),
}
EACH = pytest.mark.parametrize("name", CASES)


def arrays_of(name):
    return [draw(*shape, seed=i) for i, shape in enumerate(CASES[name][2])]


@EACH
def test_values(name):
    ours, plain, _ = CASES[name]
    arrays = arrays_of(name)
    wanted = plain(*arrays)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    strided = [mt.tensor(np.repeat(a, 2, axis=-1))[..., ::2] for a in arrays]  # the same values, not contiguous
    for inputs in ([mt.tensor(a) for a in arrays], strided):
        if inputs is strided and name.startswith("view"):
            continue
        got = results_of(ours(mt, *inputs))
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted):
            np.testing.assert_array_equal(g.numpy(), w, strict=True)


@EACH
def test_gradients(name):
    assert_gradients(lambda *x: CASES[name][0](mt, *x), *arrays_of(name))


@EACH
def test_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours = CASES[name][0]
    assert_like_torch(lambda *x: ours(mt, *x), lambda *x: ours(torch, *x), *arrays_of(name))


@EACH
def test_float32_and_whole_numbers_stay(name):
    ours = CASES[name][0]
    arrays = [a.astype("f4") for a in arrays_of(name)]
    results, _, found = gradients(lambda *x: ours(mt, *x), arrays)
    assert all(r.dtype == mt.float32 for r in results) and all(g.dtype == np.float32 for g in found)
    whole = results_of(ours(mt, *[mt.tensor(np.arange(a.size).reshape(a.shape)) for a in arrays]))
    assert all(r.dtype == mt.int64 and not r.requires_grad for r in whole)


VIEWS = """reshape view flatten unflatten ravel permute transpose t T mT movedim squeeze unsqueeze narrow select split
chunk unbind diagonal contiguous""".split()
COPIES = ["cat one twice", "clone", "flip", "roll", "repeat", "tile", "tril", "triu", "diag of matrix"]


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory_both_ways(name):
    x = mt.tensor(arrays_of(name)[0])
    for part in results_of(CASES[name][0](mt, x)):
        part.fill_(7.0)
        assert (x.numpy() == 7.0).sum() == part.numel()
        x.fill_(3.0)
        assert (part.numpy() == 3.0).all()


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not(name):
    x = mt.tensor(arrays_of(name)[0])
    before = x.numpy().copy()
    CASES[name][0](mt, x).fill_(7.0)
    np.testing.assert_array_equal(x.numpy(), before)


@pytest.mark.parametrize("name", [*COPIES, "cat", "cat -1", "stack", "stack -1", "hstack", "vstack", "contiguous"])
def test_transposed_inputs_give_results_in_order(name):
    """As in PyTorch, so that view() works on them."""
    arrays = [mt.tensor(np.ascontiguousarray(a.T)) for a in arrays_of(name)]
    if name == "clone":
        assert arrays[0].t().clone().stride() == (1, 2) and arrays[0][0].expand(5, 2).clone().is_contiguous()
    else:
        assert CASES[name][0](mt, *[mt.permute(a, *range(a.ndim)[::-1]) for a in arrays]).is_contiguous()


def test_contiguous_copies_only_where_it_must():
    x = mt.tensor(draw(2, 3))
    assert x.contiguous() is x
    y = x.t().contiguous()
    y[0] = 7.0
    assert (x.numpy() != 7.0).all() and y.view(6)[0].item() == 7.0


def test_view_refuses_to_copy():
    x = mt.tensor(draw(2, 3, 5))
    with pytest.raises(RuntimeError, match="contiguous"):
        x.transpose(0, 1).view(6, 5)
    assert x.transpose(0, 1).view(3, 2, 5, 1).shape == (3, 2, 5, 1)
    assert x.transpose(0, 1).reshape(6, 5).tolist() == x.transpose(0, 1).contiguous().view(6, 5).tolist()


def test_heads_are_split_by_their_own_axis():
    """Two heads of width 2 from width 4: head 0 holds the first half of every step."""
    x = mt.arange(8).view(1, 2, 4)
    heads = x.view(1, 2, 2, 2).transpose(1, 2)
    assert heads[0].tolist() == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]


def test_patches_keep_their_neighbourhood():
    image = mt.arange(16).view(4, 4)
    patches = image.unflatten(0, (2, 2)).unflatten(2, (2, 2)).transpose(1, 2).flatten(2).flatten(0, 1)
    assert patches[0].tolist() == [0, 1, 4, 5] and patches[3].tolist() == [10, 11, 14, 15]


# (fewest dims, operation) for sizes 0 and 1
ODD = [
    (0, lambda lib, x: x.reshape(x.numel(), 1)), (0, lambda lib, x: x.flatten()), (0, lambda lib, x: x.ravel()),
    (0, lambda lib, x: x.permute(tuple(range(x.ndim)[::-1]))), (0, lambda lib, x: x.transpose(0, -1)),
    (0, lambda lib, x: x.squeeze()), (0, lambda lib, x: x.squeeze(0)), (0, lambda lib, x: x.unsqueeze(-1)),
    (0, lambda lib, x: x.movedim(0, -1)), (0, lambda lib, x: lib.stack([x, x], -1)), (0, lambda lib, x: x.clone()),
    (0, lambda lib, x: lib.hstack([x, x])), (0, lambda lib, x: lib.vstack([x, x])),
    (0, lambda lib, x: lib.meshgrid(x.reshape(x.numel()), x.reshape(x.numel()), indexing="xy")),
    (0, lambda lib, x: x.flip(tuple(range(x.ndim)))), (0, lambda lib, x: x.roll(1)),
    (0, lambda lib, x: x.repeat(2, *[1] * x.ndim)), (0, lambda lib, x: x.repeat(*[0] * (x.ndim + 1))),
    (0, lambda lib, x: lib.tile(x, (2,))), (0, lambda lib, x: x.unfold(0, 0, 1)),
    (0, lambda lib, x: x.unfold(0, 1, 1) if x.numel() else x),
    (1, lambda lib, x: x.split(2)), (1, lambda lib, x: x.chunk(3)), (1, lambda lib, x: x.unbind()),
    (1, lambda lib, x: lib.cat([x, x])), (1, lambda lib, x: x.narrow(0, 0, 0)), (1, lambda lib, x: x.roll(1, 0)),
    (2, lambda lib, x: x.tril(-1)), (2, lambda lib, x: x.triu(1)), (2, lambda lib, x: x.mT),
    (2, lambda lib, x: x.diagonal()), (2, lambda lib, x: x.diagonal(5)), (2, lambda lib, x: x.unflatten(1, (1, -1))),
]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (0, 3), (3, 0, 2)], ids=str)
def test_odd_shapes_like_torch(shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for dims, call in ODD:
        if len(shape) >= dims:
            assert_like_torch(lambda x, call=call: call(mt, x), lambda x, call=call: call(torch, x), draw(*shape))


@pytest.mark.parametrize("a, b", [*itertools.product(["?", "u1", "i4", "i8", "f4", "f8"], repeat=2)])
def test_joining_promotes_like_torch(a, b):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = np.ones((2, 3), a), np.zeros((2, 3), b)
    assert_like_torch(lambda *x: mt.cat(x), lambda *x: torch.cat(x), *arrays)
    assert_like_torch(lambda *x: mt.stack(x), lambda *x: torch.stack(x), *arrays)


def test_cat_passes_each_input_its_own_dtype_back():
    x, y = mt.ones(2, requires_grad=True), mt.ones(3, dtype=mt.float64, requires_grad=True)
    mt.cat([x, y]).backward(mt.arange(5).to(mt.float64))
    assert x.grad.dtype == mt.float32 and x.grad.tolist() == [0, 1]
    assert y.grad.dtype == mt.float64 and y.grad.tolist() == [2, 3, 4]


def test_the_empty_vector_has_a_say_in_the_dtype():
    assert mt.cat([mt.zeros(0, dtype=mt.float64), mt.ones(2, 3)]).dtype == mt.float64


def test_cat_skips_the_empty_vector():
    x, nothing = mt.ones(2, 3, requires_grad=True), mt.zeros(0, requires_grad=True)
    y = mt.cat([nothing, x, nothing], dim=1)
    assert y.shape == (2, 3)
    y.backward(mt.ones(2, 3))
    assert nothing.grad.shape == (0,) and x.grad.tolist() == [[1.0] * 3] * 2


def test_reading_piece_by_piece_adds_up():
    x = mt.tensor(draw(3, 5), requires_grad=True)
    weights = draw(3, 5, seed=1)
    total = sum((row * mt.tensor(w)).sum() for row, w in zip(x.unbind(0), weights)) + sum(
        (part * 2.0).sum() for part in x.split(2, 1))
    total.backward()
    np.testing.assert_allclose(x.grad.numpy(), weights + 2.0)


X = mt.zeros(2, 3, 5)
ERRORS = {
    "reshape size": (lambda: X.reshape(7, 5), RuntimeError, "30 entries"),
    "reshape two unknown": (lambda: X.reshape(-1, -1), RuntimeError, "cannot become"),
    "reshape -2": (lambda: X.reshape(15, -2), RuntimeError, "-1"),
    "reshape dtype": (lambda: X.reshape(2.0, 15), TypeError, "float"),
    "flatten order": (lambda: X.flatten(2, 1), RuntimeError, "start_dim"),
    "flatten dim": (lambda: X.flatten(3), IndexError, "dim"),
    "unflatten": (lambda: X.unflatten(1, (2, 2)), RuntimeError, "split"),
    "unflatten rest": (lambda: X.unflatten(1, (2, -1)), RuntimeError, "split"),
    "permute few": (lambda: X.permute(0, 1), RuntimeError, "permute"),
    "permute twice": (lambda: X.permute(0, 1, 1), RuntimeError, "once"),
    "permute dim": (lambda: X.permute(0, 1, 3), IndexError, "dim"),
    "transpose dim": (lambda: X.transpose(0, 3), IndexError, "dim"),
    "t of a cube": (lambda: X.t(), RuntimeError, "2 dims"),
    "mT of a vector": (lambda: mt.zeros(3).mT, RuntimeError, "2 dims"),
    "movedim lengths": (lambda: X.movedim((0, 1), (2,)), RuntimeError, "as many"),
    "movedim twice": (lambda: X.movedim((0, 1), (2, 2)), RuntimeError, "once"),
    "squeeze dim": (lambda: X.squeeze(3), IndexError, "dim"),
    "unsqueeze dim": (lambda: X.unsqueeze(4), IndexError, "dim"),
    "cat of nothing": (lambda: mt.cat([]), RuntimeError, "at least one"),
    "cat shapes": (lambda: mt.cat([X, mt.zeros(2, 3, 7)]), RuntimeError, r"\(2, 3, 7\)"),
    "cat ranks": (lambda: mt.cat([X, mt.zeros(2, 3)]), RuntimeError, r"\(2, 3\)"),
    "cat numbers": (lambda: mt.cat([mt.zeros(()), mt.zeros(())]), RuntimeError, "cat"),
    "cat dim": (lambda: mt.cat([X, X], 3), IndexError, "dim"),
    "cat arrays": (lambda: mt.cat([np.zeros(2)]), TypeError, "Tensor"),
    "stack arrays": (lambda: mt.stack([mt.zeros(2), np.zeros(2)]), TypeError, "Tensor"),
    "stack of nothing": (lambda: mt.stack([]), RuntimeError, "at least one"),
    "stack shapes": (lambda: mt.stack([X, mt.zeros(2, 3)]), RuntimeError, r"\(2, 3\)"),
    "stack dim": (lambda: mt.stack([X, X], 4), IndexError, "dim"),
    "meshgrid indexing": (lambda: mt.meshgrid(mt.ones(2), indexing="yx"), RuntimeError, "indexing"),
    "narrow start": (lambda: X.narrow(1, 4, 0), IndexError, "start"),
    "narrow length": (lambda: X.narrow(1, 1, 3), RuntimeError, "exceed"),
    "select": (lambda: X.select(1, 3), IndexError, "out of range"),
    "select number": (lambda: mt.zeros(()).select(0, 0), IndexError, "one dim"),
    "split sizes": (lambda: X.split([1, 1], 1), RuntimeError, "add up"),
    "split size": (lambda: X.split(0, 1), RuntimeError, "at least 1"),
    "chunk": (lambda: X.chunk(0), RuntimeError, "at least 1"),
    "diagonal": (lambda: X.diagonal(0, 1, 1), RuntimeError, "once"),
    "diag": (lambda: X.diag(), RuntimeError, "vector"),
    "unfold size": (lambda: X.unfold(1, 4, 1), RuntimeError, "window"),
    "unfold step": (lambda: X.unfold(1, 2, 0), RuntimeError, "window"),
    "flip twice": (lambda: X.flip(0, 0), RuntimeError, "once"),
    "roll": (lambda: X.roll((1, 2), 0), RuntimeError, "one shift"),
    "repeat": (lambda: X.repeat(2, 2), RuntimeError, "repeat"),
    "repeat below 0": (lambda: X.repeat(2, 2, -1), RuntimeError, "repeat"),
    "tril": (lambda: mt.zeros(3).tril(), RuntimeError, "2 dims"),
    "triu": (lambda: mt.zeros(3).triu(), RuntimeError, "2 dims"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, words = ERRORS[name]
    with pytest.raises(error, match=words):
        call()
