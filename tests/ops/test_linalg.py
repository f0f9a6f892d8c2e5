"""Matrix products and einsum: against loops, finite differences and PyTorch."""
import itertools
import re

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import xp
from tests.harness import assert_gradients, assert_like_torch, draw


def plain_matmul(x, y):
    """sum_k x[..., i, k] y[..., k, j] by loops, a vector standing for one row or column."""
    a = x[None, :] if x.ndim == 1 else x
    b = y[:, None] if y.ndim == 1 else y
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = np.broadcast_to(a, lead + a.shape[-2:]), np.broadcast_to(b, lead + b.shape[-2:])
    z = np.zeros((*lead, a.shape[-2], b.shape[-1]), x.dtype)
    for where in np.ndindex(z.shape):
        *batch, i, j = where
        for k in range(a.shape[-1]):
            z[where] += a[(*batch, i, k)] * b[(*batch, k, j)]
    z = z[..., 0, :] if x.ndim == 1 else z
    return z[..., 0] if y.ndim == 1 else z


SHAPES = [
    ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 5)), ((2, 3), (3, 5)),
    ((7, 2, 3), (3, 5)), ((7, 2, 3), (3,)), ((3,), (7, 3, 5)), ((2, 3), (7, 3, 5)),
    ((7, 2, 3), (7, 3, 5)), ((1, 2, 3), (7, 3, 5)), ((7, 2, 3), (1, 3, 5)), ((5, 1, 2, 3), (7, 3, 2)),
    ((2, 5, 1, 2, 3), (3, 2)), ((1, 1), (1, 1)), ((1,), (1,)),
    ((0, 3), (3, 5)), ((2, 0), (0, 5)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 5)), ((7, 0, 3), (3,)), ((0,), (0,)),
]


@pytest.mark.parametrize("a, b", SHAPES)
def test_matmul(a, b):
    x, y = draw(*a), draw(*b, seed=1)
    np.testing.assert_allclose((mt.tensor(x) @ mt.tensor(y)).numpy(), plain_matmul(x, y), rtol=1e-12, atol=1e-14)
    assert_gradients(mt.matmul, x, y)
    assert_like_torch(lambda x, y: x @ y, lambda x, y: x @ y, x, y)
    assert_like_torch(mt.matmul, lambda x, y: x.matmul(y), x.astype("f4"), y.astype("f4"), rtol=1e-5, atol=1e-6)
    whole = (x * 5).astype("i8"), (y * 5).astype("i8")
    product = mt.matmul(mt.tensor(whole[0]), mt.tensor(whole[1]))
    assert product.dtype == mt.int64
    np.testing.assert_array_equal(product.numpy(), plain_matmul(*whole))


def test_matmul_of_transposed_and_repeated_operands():
    x, y = draw(3, 2, 5), draw(7, 5, seed=1)
    assert_gradients(lambda x, y: x.transpose(0, 1) @ y.T, x, y)
    assert_gradients(lambda x, y: x.transpose(1, 2).transpose(1, 2) @ y.T.expand(3, 5, 7), x, y)
    assert_gradients(lambda x: x @ x.mT, x)
    assert_gradients(lambda x, y: (x @ y.T).transpose(0, 2), x, y)  # the gradient that arrives is not contiguous
    assert_gradients(lambda x, y: (x @ y.T).sum(), x, y)            # or has steps of 0


def test_matmul_keeps_only_what_a_gradient_needs():
    x, y = mt.tensor(draw(2, 3), requires_grad=True), mt.tensor(draw(3, 5))
    z = x @ y
    x.data.zero_()  # no gradient reads x, so that writing to it does no harm
    z.backward(mt.ones(2, 5, dtype=mt.float64))
    np.testing.assert_allclose(x.grad.numpy(), np.broadcast_to(y.numpy().sum(1), (2, 3)))
    assert y.grad is None


def test_one_matrix_times_a_batch_sums_the_gradient_over_the_batch():
    left = mt.ones(2, 3, requires_grad=True)
    (left @ mt.arange(12.0).reshape(2, 3, 2)).backward(mt.ones(2, 2, 2))
    assert left.grad.tolist() == [[14, 22, 30], [14, 22, 30]]


@pytest.mark.parametrize("a, b", [
    ((2, 3), (2, 3)), ((3,), (5,)), ((2, 3), (5,)), ((7, 2, 3), (5, 3, 2)), ((2, 3), (7, 2, 3)), ((5, 2, 3), (7, 3)),
])
def test_matmul_names_shapes_that_do_not_fit(a, b):
    with pytest.raises(RuntimeError, match=re.escape(f"shapes {a} and {b} do not fit")):
        mt.ones(a) @ mt.ones(b)


def test_matmul_errors():
    with pytest.raises(RuntimeError, match="at least one dim"):
        mt.tensor(2.0) @ mt.ones(2)
    with pytest.raises(RuntimeError, match="one dtype, got float32 and float64"):
        mt.ones(2, 2) @ mt.ones(2, 2, dtype=mt.float64)
    with pytest.raises(TypeError, match="expected a Tensor"):
        mt.ones(2, 2) @ np.ones((2, 2))
    with pytest.raises(TypeError, match="expected a Tensor"):
        np.ones((2, 2)) @ mt.ones(2, 2)


STRICT = [
    ("mm", [(2, 3), (3, 5)], [(2, 3), (3,)]),
    ("bmm", [(7, 2, 3), (7, 3, 5)], [(7, 2, 3), (1, 3, 5)]),
    ("mv", [(2, 3), (3,)], [(2, 3), (3, 1)]),
    ("dot", [(3,), (3,)], [(1, 3), (3,)]),
    ("outer", [(3,), (5,)], [(3, 1), (5,)]),
]


@pytest.mark.parametrize("name, good, bad", STRICT)
def test_products_of_a_fixed_number_of_dims(name, good, bad):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, y = draw(*good[0]), draw(*good[1], seed=1)
    expected = np.multiply.outer(x, y) if name == "outer" else plain_matmul(x, y)
    np.testing.assert_allclose(getattr(mt, name)(mt.tensor(x), mt.tensor(y)).numpy(), expected, rtol=1e-12)
    assert_gradients(getattr(mt, name), x, y)
    assert_like_torch(getattr(mt, name), getattr(torch, name), x, y)
    assert_like_torch(getattr(mt, name), getattr(torch, name), x.astype("f4"), y.astype("f4"), rtol=1e-5, atol=1e-6)
    with pytest.raises(RuntimeError, match=name):
        getattr(mt, name)(mt.ones(bad[0]), mt.ones(bad[1]))


@pytest.mark.parametrize("first", [(), (5,), (2, 1), (2, 5)])
@pytest.mark.parametrize("beta, alpha", [(1, 1), (0.5, 2), (-1.5, 0)])
@pytest.mark.parametrize("name, shapes", [("addmm", [(2, 3), (3, 5)]), ("baddbmm", [(7, 2, 3), (7, 3, 5)])])
def test_addmm_and_baddbmm(name, shapes, first, beta, alpha):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, a, b = draw(*first), draw(*shapes[0], seed=1), draw(*shapes[1], seed=2)

    def run(library):
        return lambda *t: getattr(library, name)(*t, beta=beta, alpha=alpha)

    found = run(mt)(mt.tensor(x), mt.tensor(a), mt.tensor(b))
    np.testing.assert_allclose(found.numpy(), beta * x + alpha * plain_matmul(a, b), rtol=1e-12)
    assert_gradients(run(mt), x, a, b)
    assert_like_torch(run(mt), run(torch), x, a, b)
    assert_like_torch(run(mt), run(torch), *(v.astype("f4") for v in (x, a, b)), rtol=1e-4, atol=1e-5)


def test_addmm_with_beta_zero_ignores_its_first_operand():
    nan, a, b = mt.full((5,), float("nan")), mt.ones(2, 3), mt.ones(3, 5)
    assert mt.addmm(nan, a, b, beta=0, alpha=2).tolist() == [[6.0] * 5] * 2
    whole = [mt.ones(*shape, dtype=mt.int64) for shape in ((5,), (2, 3), (3, 5))]
    assert mt.addmm(*whole, beta=0.5, alpha=2.5).tolist() == [[6] * 5] * 2  # 0 and 2, as PyTorch


@pytest.mark.parametrize("a, b, dims", [
    ((2, 3, 5), (3, 5, 7), 2), ((2, 3, 5), (5, 3, 7), ([1, 2], [1, 0])), ((2, 3), (5, 7), 0), ((3,), (3,), 1),
    ((2, 3, 5), (7, 2), ([-3], [-1])), ((2, 1, 5), (3, 5, 7), 2),
])
def test_tensordot(a, b, dims):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, y = draw(*a), draw(*b, seed=1)
    if 1 not in a:
        found = mt.tensordot(mt.tensor(x), mt.tensor(y), dims)
        np.testing.assert_allclose(found.numpy(), np.tensordot(x, y, dims), rtol=1e-12)
    assert_gradients(lambda x, y: mt.tensordot(x, y, dims), x, y)
    assert_like_torch(lambda x, y: mt.tensordot(x, y, dims), lambda x, y: torch.tensordot(x, y, dims), x, y)


def test_inner():
    x, y = draw(2, 5), draw(3, 7, 5, seed=1)
    np.testing.assert_allclose(mt.inner(mt.tensor(x), mt.tensor(y)).numpy(), np.inner(x, y), rtol=1e-12)
    assert_gradients(mt.inner, x, y)
    assert_gradients(mt.inner, draw(), y)


def test_tensordot_errors():
    x, y = mt.ones(2, 3), mt.ones(3, 5)
    for dims in (2, ([1], [1]), 3, -1, ([0, 1], [0])):
        with pytest.raises(RuntimeError, match=r"tensordot|axis"):
            mt.tensordot(x, y, dims)
    with pytest.raises(IndexError, match="dim must lie in"):
        mt.tensordot(x, y, ([4], [0]))


# einsum

def plain_einsum(equation, *arrays):
    """One pass over every value of every letter; no '...', and with '->'."""
    inputs, out = equation.replace(" ", "").split("->")
    terms = inputs.split(",")
    sizes = {}
    for term, a in zip(terms, arrays):
        for letter, n in zip(term, a.shape):
            sizes[letter] = n if n != 1 else sizes.get(letter, 1)
    z = np.zeros([sizes[letter] for letter in out], arrays[0].dtype)
    for values in itertools.product(*(range(n) for n in sizes.values())):
        at = dict(zip(sizes, values))
        product = 1
        for term, a in zip(terms, arrays):
            product = product * a[tuple(at[letter] if n != 1 else 0 for letter, n in zip(term, a.shape))]
        z[tuple(at[letter] for letter in out)] += product
    return z


EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 5)),
    ("ij,kj->ki", (2, 3), (5, 3)),
    ("bthd,bshd->bhts", (2, 3, 5, 7), (2, 2, 5, 7)),
    ("bhts,bshd->bthd", (2, 5, 3, 2), (2, 2, 5, 7)),
    ("i,j->ij", (3,), (5,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij,ij->ji", (2, 3), (2, 3)),
    ("ij,kl->", (2, 3), (5, 2)),           # everything summed away
    ("ijk,kl->il", (2, 5, 3), (3, 2)),     # j only in the first operand, and summed
    ("ij,j->i", (2, 3), (3,)),
    (",ij->ij", (), (2, 3)),
    (",->", (), ()),
    ("abcd->bd", (3, 2, 3, 2)),            # summed axes in between
    ("abc->cab", (2, 3, 5)),
    ("ab->", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii->", (3, 3)),
    ("iijj->ij", (2, 2, 3, 3)),
    ("iii->i", (3, 3, 3)),
    ("iij,jk->ki", (2, 2, 3), (3, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 5), (5, 2)),
    ("ij,ik,il->jkl", (2, 3), (2, 5), (2, 2)),
    ("i,i,i->i", (3,), (3,), (3,)),
    ("a,ab,abc->", (2,), (2, 3), (2, 3, 5)),
    ("ij,jk->ik", (2, 1), (3, 5)),         # an axis of size 1 is repeated
    ("bij,bjk->bik", (1, 2, 3), (5, 3, 2)),
    ("aB,Bc->ac", (2, 3), (3, 5)),
    ("ij,jk->ik", (0, 3), (3, 5)),
    ("ij,jk->ik", (2, 0), (0, 5)),
]


@pytest.mark.parametrize("equation, shapes", [(e, s) for e, *s in EQUATIONS])
def test_einsum(equation, shapes):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    found = mt.einsum(equation, *(mt.tensor(a) for a in arrays))
    np.testing.assert_allclose(found.numpy(), plain_einsum(equation, *arrays), rtol=1e-12, atol=1e-14)
    assert_gradients(lambda *t: mt.einsum(equation, *t), *arrays)
    assert_like_torch(lambda *t: mt.einsum(equation, *t), lambda *t: torch.einsum(equation, *t), *arrays)
    assert_like_torch(lambda *t: mt.einsum(equation, *t), lambda *t: torch.einsum(equation, *t),
                      *(a.astype("f4") for a in arrays), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("equation, shapes", [
    ("...ij,...jk->...ik", [(7, 2, 3), (7, 3, 5)]),
    ("...ij,...jk->...ik", [(1, 7, 2, 3), (3, 1, 3, 5)]),
    ("...ij,jk->...ik", [(7, 2, 3), (3, 5)]),
    ("...ij,...jk->...ik", [(2, 3), (7, 3, 5)]),
    ("b...i,...i->...b", [(2, 3, 5, 7), (5, 7)]),
    ("...ij->ij", [(7, 2, 3)]),                 # the axes under ... are summed
    ("i...->...", [(2, 3, 5)]),
    ("...ii->...i", [(7, 3, 3)]),
    ("...,...->...", [(2, 3), (3,)]),
    ("ij,jk", [(2, 3), (3, 5)]),
    ("ba", [(2, 3)]),                           # alphabetical: transposed
    ("bA", [(2, 3)]),                           # capitals come first
    ("ii", [(3, 3)]),
    ("...ij,...jk", [(7, 2, 3), (3, 5)]),
    (" i j , j k -> i k ", [(2, 3), (3, 5)]),
    ("i->", [(3,)]),
    ("...", [(2, 3)]),
])
def test_einsum_with_ellipsis_and_implied_result(equation, shapes):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    assert_gradients(lambda *t: mt.einsum(equation, *t), *arrays)
    assert_like_torch(lambda *t: mt.einsum(equation, *t), lambda *t: torch.einsum(equation, *t), *arrays)


def test_einsum_over_axes_in_between_repeats_the_gradient_along_them():
    x = mt.tensor(draw(3, 2, 3, 2), requires_grad=True)
    y = mt.einsum("abcd->bd", x)
    (y ** 2).sum().backward()
    expected = np.broadcast_to(2 * x.detach().numpy().sum((0, 2))[None, :, None, :], (3, 2, 3, 2))
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-12)


def test_einsum_of_lists_and_sublists():
    x, y = mt.tensor(draw(7, 2, 3)), mt.tensor(draw(3, 5, seed=1))
    expected = (x @ y).numpy()
    for found in (mt.einsum("bij,jk->bik", [x, y]), mt.einsum(x, [0, 1, 2], y, [2, 30], [0, 1, 30]),
                  mt.einsum(x, [0, 1, 2], y, [2, 30]), mt.einsum(x, [Ellipsis, 2], y, [2, 3], [Ellipsis, 3])):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_einsum_with_one_tensor_in_two_places():
    assert_gradients(lambda x: mt.einsum("ij,kj->ik", x, x), draw(2, 3))


@pytest.mark.parametrize("equation, shapes, message", [
    ("ij,jk->ik", [(2, 3)], "has 2 operands, got 1"),
    ("ij->ij", [(2, 3, 5)], "does not fit a tensor with 3 dims"),
    ("ijk...->ij", [(2, 3)], "does not fit a tensor with 2 dims"),
    ("ij,jk->ik", [(2, 3), (5, 7)], "axis 'j' is 3 long in one place and 5"),
    ("ii->i", [(2, 3)], "axis 'i' is 2"),
    ("ii->i", [(1, 3)], "axis 'i' is 1 and 3 long"),
    ("ij->iij", [(2, 3)], "each letter of the operands once"),
    ("ij->ik", [(2, 3)], "each letter of the operands once"),
    ("i1->i", [(2, 3)], "consists of letters"),
    ("i....->i", [(2, 3)], "consists of letters"),
])
def test_einsum_errors(equation, shapes, message):
    with pytest.raises(RuntimeError, match=message):
        mt.einsum(equation, *(mt.ones(shape) for shape in shapes))


def test_einsum_needs_tensors_of_one_dtype():
    with pytest.raises(RuntimeError, match="one dtype"):
        mt.einsum("ij,jk->ik", mt.ones(2, 2), mt.ones(2, 2, dtype=mt.float64))
    with pytest.raises(TypeError, match="expected a Tensor"):
        mt.einsum("ij->ij", np.ones((2, 2)))
    assert mt.einsum("ij,jk->ik", mt.tensor([[1, 2]]), mt.tensor([[3], [4]])).tolist() == [[11]]


@pytest.mark.parametrize("shapes", [
    ((1, 3), (3, 2)), ((4, 3), (3, 1)), ((4, 3), (3,)), ((3,), (3,)), ((5, 1, 3), (3, 2))])
def test_half_products_of_vectors(shapes):
    a, b = (draw(*shape, seed=i).astype("f2") for i, shape in enumerate(shapes))
    x, y = mt.tensor(a, requires_grad=True), mt.tensor(b, requires_grad=True)
    z = mt.matmul(x, y)
    z.backward(mt.ones_like(z))
    assert {z.dtype, x.grad.dtype, y.grad.dtype} == {mt.float16}
    np.testing.assert_allclose(z.detach().numpy(), a.astype("f8") @ b.astype("f8"), rtol=5e-3, atol=5e-3)


def test_an_error_of_the_array_library_is_not_called_a_misfit(monkeypatch):
    def broken(*arrays):
        raise ValueError("no such kernel")

    monkeypatch.setitem(vars(xp), "matmul", broken)
    for shapes in ([(2, 3), (3, 2)], [(5, 2, 3), (1, 3, 4)], [(7, 5, 2, 3), (5, 3, 1)]):
        with pytest.raises(ValueError, match="no such kernel"):
            mt.matmul(*(mt.ones(shape) for shape in shapes))
    for shapes in ([(2, 3), (2, 3)], [(5, 2, 3), (4, 3, 4)], [(7, 5, 2, 3), (7, 3, 1)]):
        with pytest.raises(RuntimeError, match="do not fit"):
            mt.matmul(*(mt.ones(shape) for shape in shapes))
