"""Reading and writing by position."""
import itertools

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import shares_memory, xp
from tests.harness import assert_gradients, assert_like_torch, draw, gradients

pytestmark = pytest.mark.filterwarnings("ignore:indexing with dtype torch.uint8")
SHAPE = (2, 3, 5)
MASK = np.array([[True, False, True], [False, False, True]])

# Every form of index, on a tensor of SHAPE. Arrays become tensors of either library, lists and numbers stay.
INDICES = {
    "int": 1,
    "negative int": -1,
    "two ints": (1, -2),
    "all ints": (1, 2, 3),
    "NumPy int": np.int64(1),
    "slice": slice(1, 2),
    "slice past the end": slice(1, 99),
    "empty slice": slice(3, 1),
    "step": (..., slice(0, None, 2)),
    "negative ends": (slice(None), slice(-3, -1)),
    "None": None,
    "None between": (slice(None), None, 1),
    "ellipsis": ...,
    "ellipsis first": (..., 2),
    "ellipsis between": (1, ..., 2),
    "ellipsis for nothing": (1, ..., 2, 3),
    "empty tuple": (),
    "0-d tensor": np.array(1),
    "0-d tensor and slice": (slice(None), np.array(-2)),
    "ids": np.array([1, 0, 1, 1]),
    "negative ids": np.array([-1, 0, -2]),
    "int32 ids": np.array([1, 0], "i4"),
    "list": [1, 0, 1],
    "range": range(2),
    "empty list": [],
    "ids of two dims": np.array([[1, 0, 1], [0, 0, 1]]),
    "ids in the middle": (slice(None), np.array([2, 0, 2, 1])),
    "ids at the end": (..., np.array([[4, 0], [4, 1]])),
    "ids side by side": (slice(None), np.array([2, 0, 2, 1]), np.array([4, 4, 4, 0])),
    "ids that broadcast": (np.array([[1], [0]]), np.array([2, 0, 2])),
    "ids apart": (np.array([1, 0]), slice(None), np.array([4, 4])),
    "ids apart by None": (np.array([1, 0]), None, np.array([2, 2])),
    "ids apart behind a slice": (slice(None), np.array([2, 0]), None, np.array([4, 1])),
    "int and ids apart": (1, slice(None), np.array([4, 0, 4, 1])),
    "ids and int apart": (np.array([1, 0, 1]), slice(None), 2),
    "ids, slice, int": (np.array([1, 0, 1]), slice(1, 3), 2),
    "slice, ids, None": (slice(0, 1), [2, 0], None, slice(None, None, 2)),
    "all ids": ([1, 0, 1], [2, 2, 0], [4, 4, 4]),
    "mask of all": np.arange(30).reshape(SHAPE) % 7 < 3,
    "mask of the first dims": MASK,
    "mask of one dim": MASK[:, 0],
    "mask of the last dims": (slice(None), np.arange(15).reshape(3, 5) % 2 == 0),
    "empty mask": np.zeros(SHAPE, bool),
    "mask as a list": [True, False],
    "mask and ids": (slice(None), MASK[0], np.array([1, 4])),
    "mask and slice": (MASK, slice(1, 4)),
    "int and mask": (1, MASK[0]),
    "True": True,
    "False": False,
    "0-d mask": np.array(True),
    "uint8 mask": np.array([1, 0], "u1"),
}
EACH = pytest.mark.parametrize("name", INDICES)


def index_for(make, name):
    """The index, with arrays turned into tensors by `make`."""
    index = INDICES[name]
    if isinstance(index, tuple):
        return tuple(make(v) if isinstance(v, np.ndarray) else v for v in index)
    return make(index) if isinstance(index, np.ndarray) else index


def plain_positions(name):
    """Which entries the index picks, as flat positions: NumPy's answer, once ints have dropped their dims."""
    a, index = np.arange(30).reshape(SHAPE), INDICES[name]
    # beside ids NumPy broadcasts an int with them, and so moves their common dim to the front; PyTorch does not
    dim = {"int and ids apart": 0, "ids and int apart": 2, "ids, slice, int": 2}.get(name)
    if dim is not None:
        a, index = np.take(a, index[dim], axis=dim), (*index[:dim], *index[dim + 1:])
    return a[index != 0 if name == "uint8 mask" else index]


@EACH
def test_reading(name):
    x = mt.tensor(draw(*SHAPE))
    wanted = x.numpy().reshape(-1)[plain_positions(name)]
    got = x[index_for(mt.tensor, name)]
    assert isinstance(got.array, xp.ndarray)
    np.testing.assert_array_equal(got.numpy(), wanted)
    assert got.is_contiguous() or (isinstance(INDICES[name], (slice, tuple)) and shares_memory(got.array, x.array))
    strided = mt.tensor(np.repeat(draw(*SHAPE), 2, axis=-1))[..., ::2]
    np.testing.assert_array_equal(strided[index_for(mt.tensor, name)].numpy(), wanted)
    np.testing.assert_array_equal(x[index_for(lambda a: a, name)].numpy(), wanted)  # NumPy arrays in the index


@EACH
def test_reading_gradients(name):
    index = index_for(mt.tensor, name)
    assert_gradients(lambda x: x[index], draw(*SHAPE))
    assert_gradients(lambda x: x.transpose(0, 2).exp().transpose(0, 2)[index], draw(*SHAPE))


@EACH
def test_reading_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours, theirs = index_for(mt.tensor, name), index_for(torch.from_numpy, name)
    assert_like_torch(lambda x: x[ours], lambda x: x[theirs], draw(*SHAPE))
    assert_like_torch(lambda x: x[ours], lambda x: x[theirs], draw(*SHAPE).astype("f4"))


@EACH
def test_writing_outside_a_graph(name):
    x = mt.tensor(draw(*SHAPE))
    wanted, positions = x.numpy().copy(), plain_positions(name)
    values = draw(*positions.shape, seed=1)
    for where, v in zip(positions.ravel(), values.ravel()):
        wanted.reshape(-1)[where] = v
    view = x.reshape(-1)
    x[index_for(mt.tensor, name)] = mt.tensor(values)
    np.testing.assert_array_equal(x.numpy(), wanted)
    np.testing.assert_array_equal(view.numpy(), wanted.ravel())  # the memory itself was written
    x[index_for(mt.tensor, name)] = 7
    wanted.reshape(-1)[positions.ravel()] = 7
    np.testing.assert_array_equal(x.numpy(), wanted)


def written(index):
    def write(x, v):
        y = x * 2.0
        y[index] = v
        return y * 3.0, y
    return write


@EACH
def test_writing_gradients(name):
    shape = plain_positions(name).shape
    write = written(index_for(mt.tensor, name))
    assert_gradients(write, draw(*SHAPE), draw(*shape, seed=1))
    assert_gradients(write, draw(*SHAPE), draw(*shape[-1:], seed=2))
    assert_gradients(write, draw(*SHAPE), draw(seed=3))


@EACH
def test_writing_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    positions = plain_positions(name)
    if len(set(positions.ravel().tolist())) < positions.size:
        pytest.skip("PyTorch gives every value for a repeated entry a gradient, not only the one that stays")
    ours, theirs = index_for(mt.tensor, name), index_for(torch.from_numpy, name)
    assert_like_torch(written(ours), written(theirs), draw(*SHAPE), draw(*positions.shape, seed=1))


def test_only_the_last_of_several_values_gets_a_gradient():
    x, v = mt.zeros(3, requires_grad=True), mt.ones(4, requires_grad=True)
    y = x * 1.0
    y[[0, 2, 0, 0]] = v
    y.backward(mt.tensor([2.0, 3.0, 5.0]))
    assert x.grad.tolist() == [0, 3, 0] and v.grad.tolist() == [0, 5, 0, 2]


def test_basic_indices_give_views_and_others_copies():
    x = mt.zeros(3, 5)
    x[1][2] = 1.0
    x[:, 4].fill_(2.0)
    x[0, 0].fill_(3.0)
    x[None, 2, ..., 1:3].fill_(4.0)
    x[[0, 1]].fill_(9.0)
    x[x > 100].fill_(9.0)
    assert x.tolist() == [[3, 0, 0, 0, 2], [0, 0, 1, 0, 2], [0, 4, 4, 0, 2]]


def test_a_later_change_of_the_ids_changes_no_gradient():
    x, ids = mt.tensor(draw(3), requires_grad=True), mt.tensor([2, 2])
    mask, numbers = mt.tensor([True, False, False]), np.array([1])
    y = mt.cat([x[ids], x[mask], x[numbers], x.gather(0, ids), x.index_select(0, ids)])
    ids.fill_(0)
    mask.fill_(False)
    numbers[0] = 0
    y.backward(mt.arange(8).to(mt.float64))
    assert x.grad.tolist() == [2, 3, 0 + 1 + 4 + 5 + 6 + 7]


def test_writing_keeps_the_dtype():
    x = mt.zeros(3, dtype=mt.int64)
    x[0] = 1.75
    x[1:] = mt.tensor([2.5, 3.5], requires_grad=True)
    assert x.dtype == mt.int64 and x.tolist() == [1, 2, 3] and not x.requires_grad
    y = mt.zeros(3)
    y[1] = mt.tensor(2.0, dtype=mt.float64, requires_grad=True)
    assert y.dtype == mt.float32 and y.requires_grad


def test_a_value_of_another_dtype_gets_its_own_back():
    y, v = mt.zeros(3), mt.ones(2, dtype=mt.float64, requires_grad=True)
    y[1:] = v
    y.backward(mt.tensor([2.0, 3.0, 5.0]))
    assert v.grad.dtype == mt.float64 and v.grad.tolist() == [3.0, 5.0]


def test_overlapping_source_and_target():
    x = mt.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_a_result_built_step_by_step():
    h = mt.tensor(draw(3, 2), requires_grad=True)
    out = mt.zeros(3, 2, dtype=mt.float64)
    for t in range(3):
        out[t] = h[t] * (t + 1.0)
    weights = draw(3, 2, seed=1)
    (out * mt.tensor(weights)).sum().backward()
    np.testing.assert_allclose(h.grad.numpy(), weights * np.array([[1.0], [2.0], [3.0]]))


@pytest.mark.parametrize("index", [0, slice(0, 2), (0, 1), [1, 1], np.array([True, False, True]), (..., 1)], ids=repr)
def test_adding_to_a_part_in_place(index):
    def add(x, v):
        y = x * 2.0
        y[index] += v
        return y * y

    assert_gradients(add, draw(3, 2), draw(seed=1))
    if not isinstance(index, list):  # for an entry written twice PyTorch counts both gradients
        assert_like_torch(add, add, draw(3, 2), draw(seed=1))


def test_adding_to_one_part_leaves_other_views_out_of_date():
    x = mt.tensor(draw(3, 2), requires_grad=True)
    y = x * 1.0
    row = y[1]
    y[0] += 1.0
    y[1] = 0.0
    with pytest.raises(RuntimeError, match="out of date"):
        row * 2.0


def test_a_failed_write_changes_nothing():
    x = mt.tensor(draw(3, 2), requires_grad=True)
    y = x * 1.0
    before = y.tolist()
    for index, value in [(0, mt.ones(3)), ([0, 9], 1.0), ((0, 0), mt.ones(2)), (5, 1.0), (np.zeros(2, bool), 1.0)]:
        for target in (y, y.detach()):
            with pytest.raises((RuntimeError, IndexError)):
                target[index] = value
        with pytest.raises((RuntimeError, IndexError)):
            y[index] += value
        assert y.tolist() == before and (y * 2.0).requires_grad
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1.0
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] += 1.0
    assert x.tolist() == before
    (x * 2.0).backward(mt.ones(3, 2, dtype=mt.float64))


FLOATS = mt.tensor(draw(*SHAPE))
READ_ERRORS = {
    "int": (2, IndexError), "negative int": (-3, IndexError), "second int": ((0, 3), IndexError),
    "ids": ([0, 2], IndexError), "negative ids": ((slice(None), [0, -4]), IndexError),
    "too many": ((0, 0, 0, 0), IndexError), "too many with ids": ((0, 0, 0, [0]), IndexError),
    "int beside ids": ((2, [0]), IndexError), "float": (1.5, IndexError), "float ids": (mt.tensor([1.0]), IndexError),
    "string": ("a", IndexError), "mask shape": (mt.tensor([True, False, True]), IndexError),
    "mask of too many dims": (mt.zeros(2, 3, 5, 1) > 0, IndexError),
    "backwards": (slice(None, None, -1), ValueError),
    "ids that do not broadcast": (([0, 1], [0, 1, 2]), IndexError), "two ellipses": ((..., ...), IndexError),
}


@pytest.mark.parametrize("name", READ_ERRORS)
def test_reading_errors(name):
    index, error = READ_ERRORS[name]
    with pytest.raises(error):
        FLOATS[index]
    with pytest.raises(error):
        FLOATS[index] = 0.0


def test_ids_past_the_end_raise_and_do_not_wrap():
    with pytest.raises(IndexError, match="5"):
        mt.arange(5)[mt.tensor([5, 6])]
    with pytest.raises(IndexError, match="-6"):
        mt.arange(5)[mt.tensor([-6])]


# One id for each entry

IDS = np.array([[[2, 0, 2, 1]], [[0, 0, 0, 1]]])  # (2, 1, 4), into (2, 3, 5) along dim 1
LONG = np.array([[2, 0, 2, 1, 0, 2, 1], [1, 1, 1, 0, 2, 0, 1]])  # (2, 7), into (3, 5) along dim 1
DISTINCT = np.array([[2, 0, 4], [1, 0, 3]])  # (2, 3), into (3, 5) along dim 1
ROWS = np.array([2, 0, 2, 2])


def plain_gather(a, dim, ids):
    y = np.zeros(ids.shape, a.dtype)
    for where in np.ndindex(ids.shape):
        y[where] = a[(*where[:dim], ids[where], *where[dim + 1:])]
    return y


def plain_scatter(a, dim, ids, src, add=False):
    y = a.copy()
    for where in np.ndindex(ids.shape):
        there = (*where[:dim], ids[where], *where[dim + 1:])
        y[there] = src[where] + (y[there] if add else 0)
    return y


# name: (for either library with its ids, with NumPy, ids, shapes of the floating-point inputs)
CASES = {
    "gather": (lambda lib, i, x: lib.gather(x, 1, i), lambda i, a: plain_gather(a, 1, i), IDS, [SHAPE]),
    "gather longer": (lambda lib, i, x: x.gather(dim=-1, index=i), lambda i, a: plain_gather(a, 1, i), LONG, [(3, 5)]),
    "gather vector": (lambda lib, i, x: x.gather(0, i), lambda i, a: plain_gather(a, 0, i), ROWS, [(3,)]),
    "scatter": (lambda lib, i, x, s: x.scatter(1, i, s), lambda i, a, s: plain_scatter(a, 1, i, s),
                DISTINCT, [(3, 5), (2, 3)]),
    "scatter number": (lambda lib, i, x: lib.scatter(x, -1, i, 0.5),
                       lambda i, a: plain_scatter(a, 1, i, np.full(i.shape, 0.5)), LONG, [(3, 5)]),
    "scatter value": (lambda lib, i, x: x.scatter(0, i, value=2), lambda i, a: plain_scatter(a, 0, i, np.full(4, 2)),
                      ROWS, [(3,)]),
    "scatter reduce": (lambda lib, i, x: lib.scatter(x, 1, i, 0.5, reduce="add"),
                       lambda i, a: plain_scatter(a, 1, i, np.full(i.shape, 0.5), True), LONG, [(3, 5)]),
    "scatter_add": (lambda lib, i, x, s: lib.scatter_add(x, 1, i, s),
                    lambda i, a, s: plain_scatter(a, 1, i, s, True), LONG, [(3, 5), (2, 7)]),
    "take_along_dim": (lambda lib, i, x: lib.take_along_dim(x, i - 3, 1), lambda i, a: np.take_along_axis(a, i - 3, 1),
                       IDS, [(2, 3, 1)]),
    "take_along_dim flat": (lambda lib, i, x: lib.take_along_dim(x, i), lambda i, a: a.reshape(-1)[i.reshape(-1)],
                            LONG, [(3, 5)]),
    "index_select": (lambda lib, i, x: lib.index_select(x, 1, i), lambda i, a: np.stack([a[:, k] for k in i], 1),
                     ROWS, [SHAPE]),
    "index_add": (lambda lib, i, x, s: lib.index_add(x, 1, i, s, alpha=2.5),
                  lambda i, a, s: a + 2.5 * sum(s[:, n:n + 1] * (np.arange(3) == k)[:, None] for n, k in enumerate(i)),
                  ROWS, [SHAPE, (2, 4, 5)]),
    "index_copy": (lambda lib, i, x, s: lib.index_copy(x, 0, i, s), lambda i, a, s: np.array([s[1], a[1], s[0]]),
                   np.array([2, 0]), [(3, 5), (2, 5)]),
    "index_fill": (lambda lib, i, x: lib.index_fill(x, 1, i, 0.5),
                   lambda i, a: np.stack([a[:, 0] * 0 + 0.5, a[:, 1], a[:, 2] * 0 + 0.5], 1), ROWS, [SHAPE]),
    "index_fill tensor": (lambda lib, i, x, v: x.index_fill(0, i, v),
                          lambda i, a, v: np.array([a[0] * 0 + v, a[1], a[2] * 0 + v]), ROWS, [(3, 5), ()]),
    "take": (lambda lib, i, x: lib.take(x, i), lambda i, a: np.array([[a.ravel()[k] for k in r] for r in i]),
             LONG - 3, [(3, 5)]),
    "repeat_interleave": (lambda lib, i, x: lib.repeat_interleave(x, 3, dim=1),
                          lambda i, a: np.array([[v for v in r for _ in range(3)] for r in a]), ROWS, [(2, 5)]),
    "repeat_interleave flat": (lambda lib, i, x: x.repeat_interleave(2),
                               lambda i, a: np.array([v for v in a.ravel() for _ in range(2)]), ROWS, [(2, 3)]),
    "repeat_interleave counts": (lambda lib, i, x: x.repeat_interleave(i, dim=0),
                                 lambda i, a: np.array([r for r, n in zip(a, i) for _ in range(n)]), ROWS, [(4, 3)]),
    "masked_select": (lambda lib, i, x: lib.masked_select(x, i > 1),
                      lambda i, a: np.array([v for row in a for v, k in zip(row, i) if k > 1]), ROWS, [(3, 4)]),
}
EACH_CASE = pytest.mark.parametrize("name", CASES)


def case(name):
    ours, plain, ids, shapes = CASES[name]
    return ours, plain, ids, [draw(*shape, seed=i) for i, shape in enumerate(shapes)]


@EACH_CASE
def test_values(name):
    ours, plain, ids, arrays = case(name)
    for kind in ("i8", "i4"):
        got = ours(mt, mt.tensor(ids.astype(kind)), *[mt.tensor(a) for a in arrays])
        np.testing.assert_allclose(got.numpy(), plain(ids, *arrays), rtol=1e-14)
        assert got.dtype == mt.float64
    strided = [mt.tensor(np.repeat(a, 2, axis=0))[::2] if a.ndim else mt.tensor(a) for a in arrays]
    got = ours(mt, mt.tensor(np.repeat(ids, 2, axis=0))[::2], *strided)
    assert got.is_contiguous()
    np.testing.assert_allclose(got.numpy(), plain(ids, *arrays), rtol=1e-14)


@EACH_CASE
def test_gradients(name):
    ours, _, ids, arrays = case(name)
    assert_gradients(lambda i, *x: ours(mt, i, *x), ids, *arrays)


@EACH_CASE
def test_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "scatter reduce":
        pytest.skip("PyTorch has no gradient for it")
    ours, _, ids, arrays = case(name)
    assert_like_torch(lambda i, *x: ours(mt, i, *x), lambda i, *x: ours(torch, i, *x), ids, *arrays)


@EACH_CASE
def test_float32_stays(name):
    ours, _, ids, arrays = case(name)
    results, _, found = gradients(lambda i, *x: ours(mt, i, *x), [ids, *[a.astype("f4") for a in arrays]])
    assert results[0].dtype == mt.float32 and all(g.dtype == np.float32 for g in found[1:])


def test_only_the_last_of_several_scattered_gets_a_gradient():
    ids = np.array([[0, 0, 2], [1, 1, 1]])
    assert_gradients(lambda i, x, s: x.scatter(1, i, s), ids, draw(3, 5), draw(2, 3, seed=1))
    assert_gradients(lambda i, x, s: x.index_copy(0, i, s), np.array([1, 1, 0]), draw(3, 5), draw(3, 5, seed=1))


def test_src_may_be_larger_than_the_index():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, s, i = draw(3, 5), draw(3, 7, seed=1), DISTINCT
    for name in ("scatter", "scatter_add"):
        got = getattr(mt, name)(mt.tensor(x), 1, mt.tensor(i), mt.tensor(s))
        wanted = getattr(torch, name)(torch.from_numpy(x), 1, torch.from_numpy(i), torch.from_numpy(s))
        np.testing.assert_allclose(got.numpy(), wanted.numpy())
        assert_gradients(lambda i, x, s, name=name: getattr(mt, name)(x, 1, i, s), i, x, s)


# (fewest dims, operation of ids like x, of no ids, and of x) for sizes 0 and 1
ODD = [
    (0, lambda lib, i, o, x: x.gather(0, i)), (0, lambda lib, i, o, x: x.scatter_add(0, i, x * 2)),
    (0, lambda lib, i, o, x: x.scatter(0, i, 2.0)), (0, lambda lib, i, o, x: x[x > 0]),
    (0, lambda lib, i, o, x: x[...]), (0, lambda lib, i, o, x: x[None]), (0, lambda lib, i, o, x: x[(i + 1) > 0]),
    (0, lambda lib, i, o, x: lib.masked_select(x, x > 0)), (0, lambda lib, i, o, x: x.repeat_interleave(2)),
    (0, lambda lib, i, o, x: lib.nonzero(x)), (0, lambda lib, i, o, x: lib.nonzero(x, as_tuple=True)),
    (0, lambda lib, i, o, x: lib.unique(x.detach(), return_inverse=True, return_counts=True)),
    (1, lambda lib, i, o, x: lib.take_along_dim(x, i, 0)), (1, lambda lib, i, o, x: x.repeat_interleave(2, 0)),
    (1, lambda lib, i, o, x: x.repeat_interleave(o.new_zeros(x.shape[0]), 0)),
    (1, lambda lib, i, o, x: x.index_select(0, o)), (1, lambda lib, i, o, x: x.index_fill(0, o, 1.0)),
    (1, lambda lib, i, o, x: x[o]), (1, lambda lib, i, o, x: x[i]),
]


@pytest.mark.parametrize("shape", [(), (1,), (0,), (1, 1), (3, 0)], ids=str)
def test_odd_shapes_like_torch(shape):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    for dims, call in ODD:
        if len(shape) >= dims:
            assert_like_torch(lambda *x, call=call: call(mt, *x), lambda *x, call=call: call(torch, *x),
                              np.zeros(shape, "i8"), np.zeros(0, "i8"), draw(*shape))


def test_numbers_count_as_vectors_of_one():
    x, zero = mt.tensor(2.0, requires_grad=True), mt.tensor([0])
    y = mt.index_select(x, 0, zero) + mt.index_add(x, 0, zero, mt.tensor(3.0)) * mt.index_fill(x, 0, zero, 7.0)
    assert y.shape == () and y.item() == 2.0 + 5.0 * 7.0
    y.backward()
    assert x.grad.item() == 1.0 + 7.0
    assert mt.index_copy(x, 0, zero, mt.tensor([5.0])).item() == 5.0


I, J = mt.tensor([[0, 1]]), mt.tensor([0, 1])
M = mt.zeros(2, 3)
ERRORS = {
    "gather past the end": (lambda: M.gather(0, mt.tensor([[2, 0, 0]])), IndexError, r"\[0, 2\), got 2"),
    "gather negative": (lambda: M.gather(0, mt.tensor([[-1, 0, 0]])), IndexError, "got -1"),
    "gather ranks": (lambda: M.gather(0, J), RuntimeError, "as many dims"),
    "gather larger": (lambda: M.gather(0, mt.zeros(2, 4).long()), RuntimeError, "no larger"),
    "gather floats": (lambda: M.gather(0, mt.zeros(1, 3)), RuntimeError, "integers"),
    "gather dim": (lambda: M.gather(2, I), IndexError, "dim"),
    "gather list": (lambda: M.gather(0, [0]), TypeError, "Tensor"),
    "scatter past the end": (lambda: M.scatter(1, mt.tensor([[3]]), 1.0), IndexError, r"\[0, 3\), got 3"),
    "scatter negative": (lambda: M.scatter_add(1, mt.tensor([[-1]]), mt.ones(1, 1)), IndexError, "got -1"),
    "scatter small source": (lambda: M.scatter(1, I, mt.ones(1, 1)), RuntimeError, "larger than the source"),
    "scatter dtype": (lambda: M.scatter(1, I, mt.ones(1, 2, dtype=mt.float64)), RuntimeError, "float64"),
    "scatter reduce": (lambda: M.scatter(1, I, 1.0, reduce="multiply"), NotImplementedError, "add"),
    "index_select past the end": (lambda: M.index_select(0, mt.tensor([2])), IndexError, "got 2"),
    "index_select negative": (lambda: M.index_select(0, mt.tensor([-1])), IndexError, "got -1"),
    "index_select ranks": (lambda: M.index_select(0, I), IndexError, "one dim"),
    "index_fill tensor": (lambda: M.index_fill(0, J, mt.ones(2)), RuntimeError, "index_copy"),
    "index_add shape": (lambda: M.index_add(0, J, mt.ones(3, 3)), RuntimeError, r"\(2, 3\)"),
    "index_copy dtype": (lambda: M.index_copy(0, J, mt.ones(2, 3, dtype=mt.int64)), RuntimeError, "int64"),
    "take_along_dim": (lambda: mt.take_along_dim(M, J, 0), RuntimeError, "as many dims"),
    "take_along_dim range": (lambda: mt.take_along_dim(M, mt.tensor([[-3]]), 0), IndexError, "-3"),
    "take": (lambda: mt.take(M, mt.tensor([6])), IndexError, "6"),
    "repeat_interleave": (lambda: M.repeat_interleave(J, dim=1), RuntimeError, "3 entries"),
    "repeat_interleave below 0": (lambda: M.repeat_interleave(-1), RuntimeError, "got"),
    "masked_select": (lambda: M.masked_select(M), RuntimeError, "boolean mask"),
    "masked_select shape": (lambda: M.masked_select(mt.zeros(4) > 0), RuntimeError, "broadcast"),
    "bincount": (lambda: mt.bincount(mt.tensor([-1])), RuntimeError, "from 0"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, error, words = ERRORS[name]
    with pytest.raises(error, match=words):
        call()


# What has no gradient

def test_nonzero():
    a = np.array([[0, 3, 0], [1, 0, 2]])
    wanted = [[i, j] for i, j in itertools.product(range(2), range(3)) if a[i, j]]
    x = mt.tensor(a)
    assert mt.nonzero(x).tolist() == wanted and mt.argwhere(x).tolist() == wanted
    assert x[x.nonzero(as_tuple=True)].tolist() == [3, 1, 2]


def test_unique():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    a = np.array([[3, 1, 3], [2, 1, 3], [3, 1, 3]])
    for options in itertools.product([True, False], [True, False], [None, 0, -1]):
        named = dict(zip(("return_inverse", "return_counts", "dim"), options))
        assert_like_torch(lambda x, named=named: mt.unique(x, **named),
                          lambda x, named=named: torch.unique(x, **named), a)
    nan = float("nan")
    assert mt.tensor([2.0, nan, 2.0, nan]).unique().shape == (3,)
    x = mt.tensor([[1.0, nan], [1.0, nan], [0.0, 5.0], [0.0, 5.0]])
    before = x.numpy().copy()
    assert x.unique(dim=0).shape == (3, 2) and np.array_equal(x.numpy(), before, equal_nan=True)


def test_bincount():
    x = mt.tensor([1, 3, 1])
    assert mt.bincount(x).tolist() == [0, 2, 0, 1] and mt.bincount(x, minlength=5).tolist() == [0, 2, 0, 1, 0]
    assert mt.bincount(x, mt.tensor([0.5, 2.0, 0.25])).tolist() == [0, 0.75, 0, 2.0]


def test_counts_alone():
    assert mt.repeat_interleave(mt.tensor([2, 0, 3])).tolist() == [0, 0, 2, 2, 2]
