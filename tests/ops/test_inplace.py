"""Writing in place: what is written, who sees it, and that no gradient is silently wrong."""
import random

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import ops
from tests.harness import assert_gradients, assert_like_torch, draw

POSITIVE = draw(3, 5, low=0.5, high=2.0)
OTHER = draw(3, 5, seed=1, low=0.5, high=2.0)
MASK = np.array([[True, False, False, True, False]] * 2 + [[False] * 5])
IDS = np.array([2, 0])

# name: the method at work on `x`, for either library; `y` is a second tensor
CALLS = {
    "add_": lambda lib, x, y: x.add_(y, alpha=2.5),
    "sub_": lambda lib, x, y: x.sub_(y),
    "mul_": lambda lib, x, y: x.mul_(y),
    "div_": lambda lib, x, y: x.div_(y),
    "pow_": lambda lib, x, y: x.pow_(y),
    "remainder_": lambda lib, x, y: x.remainder_(0.75),
    "fmod_": lambda lib, x, y: x.fmod_(0.75),
    "floor_divide_": lambda lib, x, y: x.floor_divide_(0.75),
    "neg_": lambda lib, x, y: x.neg_(),
    "abs_": lambda lib, x, y: x.abs_(),
    "sign_": lambda lib, x, y: x.sign_(),
    "square_": lambda lib, x, y: x.square_(),
    "reciprocal_": lambda lib, x, y: x.reciprocal_(),
    "exp_": lambda lib, x, y: x.exp_(),
    "expm1_": lambda lib, x, y: x.expm1_(),
    "log_": lambda lib, x, y: x.log_(),
    "log1p_": lambda lib, x, y: x.log1p_(),
    "sqrt_": lambda lib, x, y: x.sqrt_(),
    "rsqrt_": lambda lib, x, y: x.rsqrt_(),
    "sin_": lambda lib, x, y: x.sin_(),
    "cos_": lambda lib, x, y: x.cos_(),
    "sigmoid_": lambda lib, x, y: x.sigmoid_(),
    "tanh_": lambda lib, x, y: x.tanh_(),
    "erf_": lambda lib, x, y: x.erf_(),
    "floor_": lambda lib, x, y: x.floor_(),
    "ceil_": lambda lib, x, y: x.ceil_(),
    "round_": lambda lib, x, y: x.round_(),
    "trunc_": lambda lib, x, y: x.trunc_(),
    "relu_": lambda lib, x, y: x.sub_(1.1).relu_(),
    "clamp_": lambda lib, x, y: x.clamp_(min=0.7, max=1.5),
    "clip_": lambda lib, x, y: x.clip_(0.7, 1.5),
    "clamp_min_": lambda lib, x, y: x.clamp_min_(1.1),
    "clamp_max_": lambda lib, x, y: x.clamp_max_(1.1),
    "masked_fill_": lambda lib, x, y: x.masked_fill_(lib.tensor(MASK), 3.5),
    "lerp_": lambda lib, x, y: x.lerp_(y, 0.25),
    "nan_to_num_": lambda lib, x, y: x.nan_to_num_(),
    "tril_": lambda lib, x, y: x.tril_(1),
    "triu_": lambda lib, x, y: x.triu_(1),
    "fill_": lambda lib, x, y: x.fill_(3.5),
    "fill_ tensor": lambda lib, x, y: x.fill_(y[0, 1]),
    "zero_": lambda lib, x, y: x.zero_(),
    "copy_": lambda lib, x, y: x.copy_(y),
    "copy_ row": lambda lib, x, y: x.copy_(y[1]),
    "index_fill_": lambda lib, x, y: x.index_fill_(0, lib.tensor(IDS), 3.5),
    "index_add_": lambda lib, x, y: x.index_add_(0, lib.tensor(IDS), y[1:], alpha=2),
    "index_copy_": lambda lib, x, y: x.index_copy_(0, lib.tensor(IDS), y[1:]),
    "scatter_": lambda lib, x, y: x.scatter_(0, lib.tensor(IDS[:, None]), y[:2, :1]),
    "scatter_ number": lambda lib, x, y: x.scatter_(1, lib.tensor(IDS[:, None]), 3.5),
    "scatter_add_": lambda lib, x, y: x.scatter_add_(1, lib.tensor(IDS[:, None]), y[:2, :1]),
    "squeeze_": lambda lib, x, y: x.unsqueeze_(1).squeeze_(1),
    "unsqueeze_": lambda lib, x, y: x.unsqueeze_(-1),
    "transpose_": lambda lib, x, y: x.transpose_(0, 1),
    "t_": lambda lib, x, y: x.t_(),
    "+=": lambda lib, x, y: x.__iadd__(y),
    "-=": lambda lib, x, y: x.__isub__(y[0]),
    "*=": lambda lib, x, y: x.__imul__(2.5),
    "/=": lambda lib, x, y: x.__itruediv__(y),
    "**=": lambda lib, x, y: x.__ipow__(2),
}
EACH = pytest.mark.parametrize("name", CALLS)
RESHAPING = {"squeeze_", "unsqueeze_", "transpose_", "t_"}


@EACH
def test_writes_the_memory_and_returns_the_tensor(name):
    x, y = mt.tensor(POSITIVE), mt.tensor(OTHER)
    same, flat = x.detach(), x.view(-1)
    returned = CALLS[name](mt, x, y)
    assert returned is x
    if name not in RESHAPING:
        np.testing.assert_array_equal(same.numpy(), x.numpy())
        np.testing.assert_array_equal(flat.numpy(), x.numpy().ravel())
    else:
        x.fill_(7.0)
        assert same.tolist() == [[7.0] * 5] * 3


@EACH
def test_through_a_view_the_base_sees_it(name):
    if name in RESHAPING:
        pytest.skip("changes the view, not the memory")
    base = mt.tensor(np.repeat(POSITIVE, 2, axis=0))
    before = base.numpy().copy()
    part = base[::2]
    CALLS[name](mt, part, mt.tensor(OTHER))
    wanted = CALLS[name](mt, mt.tensor(POSITIVE), mt.tensor(OTHER)).numpy()
    np.testing.assert_allclose(base.numpy()[::2], wanted, rtol=5e-16)
    np.testing.assert_array_equal(base.numpy()[1::2], before[1::2])


@EACH
def test_gradients(name):
    def call(x, y):
        z = x * 1.5
        CALLS[name](mt, z, y)
        return z * z, z

    assert_gradients(call, POSITIVE, OTHER)


@EACH
def test_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if name == "floor_divide_":
        pytest.skip("PyTorch has no gradient for it, here it is zero")
    for kind in ("f8", "f4"):
        tolerance = {} if kind == "f8" else {"rtol": 1e-4, "atol": 1e-5}
        assert_like_torch(lambda x, y: CALLS[name](mt, x.clone(), y), lambda x, y: CALLS[name](torch, x.clone(), y),
                          POSITIVE.astype(kind), OTHER.astype(kind), **tolerance)


@EACH
def test_a_leaf_is_not_written(name):
    x = mt.tensor(POSITIVE, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        CALLS[name](mt, x, mt.tensor(OTHER))
    np.testing.assert_array_equal(x.detach().numpy(), POSITIVE)
    with mt.no_grad():
        CALLS[name](mt, x, mt.tensor(OTHER))
    assert x.requires_grad and x.is_leaf
    (x * 2.0).backward(mt.ones(*x.shape, dtype=mt.float64))
    assert x.grad.shape == x.shape


def test_every_name_is_tested():
    from minitorch_attn.ops import inplace
    tested = {name.split()[0] for name in CALLS}
    rest = {"bitwise_and_", "bitwise_or_", "bitwise_xor_", "detach_", "requires_grad_", "erfinv_"}
    assert set(inplace.__all__) - rest <= tested
    assert all(getattr(inplace, name).__name__ == name for name in inplace.__all__ if name != "clip_")


def test_bits():
    x = mt.tensor([True, True, False])
    x &= mt.tensor([True, False, True])
    assert x.tolist() == [True, False, False]
    x |= mt.tensor([False, True, False])
    assert x.tolist() == [True, True, False]
    x ^= mt.tensor([True, False, True])
    assert x.tolist() == [False, True, True]


# What fits

def test_dtypes_that_fit_are_kept():
    x = mt.zeros(3)
    x += mt.ones(3, dtype=mt.float64)
    assert x.dtype == mt.float32 and x.tolist() == [1.0] * 3
    x += mt.arange(3)
    assert x.dtype == mt.float32 and x.tolist() == [1.0, 2.0, 3.0]
    n = mt.zeros(3, dtype=mt.int32)
    n += mt.arange(3)
    assert n.dtype == mt.int32 and n.tolist() == [0, 1, 2]
    y = mt.ones(3, requires_grad=True) * 1.0
    z = mt.ones(3, dtype=mt.float64, requires_grad=True)
    y *= z * 2.0
    assert y.dtype == mt.float32
    y.backward(mt.arange(3).float())
    assert z.grad.dtype == mt.float64 and z.grad.tolist() == [0.0, 2.0, 4.0]


BAD = {
    "float into int": (lambda x: x.long().add_(0.5), r"int64"),
    "quotient of ints": (lambda x: x.long().div_(2), r"int64"),
    "exp of ints": (lambda x: x.long().exp_(), r"int64"),
    "int into bool": (lambda x: (x > 0).add_(1), "bool"),
    "larger": (lambda x: x[0].add_(x), r"\(3, 5\)"),
    "larger mask": (lambda x: x[0].masked_fill_(x > 0, 1.0), r"\(3, 5\)"),
    "fill with many": (lambda x: x.fill_(x[0]), "copy_"),
    "copy of another shape": (lambda x: x.copy_(x[:, 0]), r"\(3,\)"),
}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", BAD)
def test_bad_writes_change_nothing(name, graph):
    call, words = BAD[name]
    leaf = mt.tensor(POSITIVE, requires_grad=graph)
    x = leaf * 1.0
    with pytest.raises(RuntimeError, match=words):
        call(x)
    np.testing.assert_array_equal(x.detach().numpy(), POSITIVE)
    if graph:
        (x * 2.0).backward(mt.ones(3, 5, dtype=mt.float64))  # and x is still of use
        assert leaf.grad.tolist() == [[2.0] * 5] * 3


def test_a_fraction_is_not_added_to_whole_numbers():
    n = mt.arange(3)
    with pytest.raises(RuntimeError, match="int64"):
        n += 0.5
    with pytest.raises(RuntimeError, match="int64"):
        n /= 2
    assert n.tolist() == [0, 1, 2]


# Who sees what, and which gradients come out

def pair():
    x = mt.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    return x, x * 3.0


def test_a_use_before_the_write_keeps_the_old_value():
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1
    z = y * y
    y[0] = 5
    (z + y).sum().backward()
    assert x.grad.tolist() == [2.0, 5.0]


def test_overwritten_entries_pass_no_gradient():
    x, y = pair()
    y[:2] = 0
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 3, 3]


def test_a_tensor_wholly_overwritten_stays_in_the_graph():
    x, y = pair()
    y.zero_()
    assert y.requires_grad
    (y * x).backward(mt.ones(4))
    assert x.grad.tolist() == [0.0] * 4


def test_an_identity_written_over_itself():
    x, y = pair()
    y.copy_(y * 2.0)
    y.backward(mt.ones(4))
    assert x.grad.tolist() == [6.0] * 4


@pytest.mark.parametrize("write", [lambda part: part.zero_(), lambda part: part.mul_(2.0),
                                   lambda part: part.__setitem__(0, 1.0)])
def test_base_of_a_view_written_in_a_graph_raises(write):
    x, y = pair()
    part = y[:2]
    write(part)
    with pytest.raises(RuntimeError, match="out of date"):
        y * 2.0
    with pytest.raises(RuntimeError, match="out of date"):
        y.add_(1.0)
    with pytest.raises(RuntimeError, match="out of date"):
        y.detach()
    assert (y.requires_grad, x.grad) == (True, None)


def test_view_of_a_base_written_in_a_graph_raises():
    _, y = pair()
    part, rest = y[:2], y[2:]
    y.mul_(2.0)
    for view in (part, rest):
        with pytest.raises(RuntimeError, match="out of date"):
            view * 2.0
    assert (y[:2] * 1.0).tolist() == [6.0, 12.0]


def test_disjoint_views_stay_usable():
    x, y = pair()
    left, right = y[:2], y[2:]
    left.mul_(2.0)
    right.mul_(5.0)
    mt.cat([left, right]).backward(mt.ones(4))
    assert left.tolist() == [6.0, 12.0] and right.tolist() == [45.0, 60.0]
    assert x.grad.tolist() == [6.0, 6.0, 15.0, 15.0]


def test_a_write_outside_the_graph_is_seen_by_views_in_it():
    x, y = pair()
    part = y[:2]
    with mt.no_grad():
        y.fill_(7.0)
    assert part.tolist() == [7.0, 7.0]
    with mt.no_grad():
        part.fill_(8.0)
    assert y.tolist() == [8.0, 8.0, 7.0, 7.0]
    y.backward(mt.ones(4))
    assert x.grad.tolist() == [3.0] * 4


WRITES = {
    "itself": lambda y: y.add_(1.0),
    "detached": lambda y: y.detach().add_(1.0),
    "an entry": lambda y: y.__setitem__(1, 9.0),
    "a view": lambda y: y[1:].add_(1.0),
    "two views, the needed one first": lambda y: (y[1:2].add_(1.0), y[3:].add_(1.0)),
    "two views, the needed one last": lambda y: (y[3:].add_(1.0), y[1:2].add_(1.0)),
    "the data": lambda y: y.data.mul_(2.0),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_pending_backward_that_needs_the_old_values_raises(name):
    _, y = pair()
    z = y[:3] * y[:3]
    with mt.no_grad():
        WRITES[name](y)
    with pytest.raises(RuntimeError, match="modified in place"):
        z.backward(mt.ones(3))


def test_a_pending_backward_of_a_result_that_is_needed_raises():
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    with mt.no_grad():
        y.zero_()
    with pytest.raises(RuntimeError, match="exp"):
        y.backward(mt.ones(2))
    z = x * 1.0
    z.exp_()  # recorded: its backward needs what it wrote
    with mt.no_grad():
        z.zero_()
    with pytest.raises(RuntimeError, match="modified in place"):
        z.backward(mt.ones(2))


@pytest.mark.parametrize("name", WRITES)
def test_a_pending_backward_that_needs_no_old_values_runs(name):
    x, y = pair()
    z = y[:3] + y[:3]
    with mt.no_grad():
        WRITES[name](y)
    z.backward(mt.ones(3))
    assert x.grad.tolist() == [6.0, 6.0, 6.0, 0.0]


def test_a_leaf_written_under_no_grad():
    w = mt.tensor([1.0, 2.0], requires_grad=True)
    w.mul(2.0).backward(mt.ones(2))
    with mt.no_grad():
        w -= 0.5 * w.grad
        w[0] = 7.0
    assert w.is_leaf and w.requires_grad and w.tolist() == [7.0, 1.0]
    w.grad.zero_()
    (w * w).backward(mt.ones(2))
    assert w.grad.tolist() == [14.0, 2.0]


@pytest.mark.parametrize("view", [lambda w: w[0], lambda w: w.view(4)[1:], lambda w: w.t()[0],
                                  lambda w: w.unsqueeze(0)])
def test_a_view_of_a_leaf_is_not_written(view):
    w = mt.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        view(w).add_(1.0)
    with pytest.raises(RuntimeError, match="leaf"):
        view(w)[0] = 1.0
    assert w.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    (w * w).backward(mt.ones(2, 2))
    with mt.no_grad():
        view(w).zero_()
    assert 0.0 in w.reshape(4).tolist()


def test_gradients_share_no_memory():
    a, b = mt.ones(2, requires_grad=True), mt.ones(2, requires_grad=True)
    upstream = mt.ones(2)
    c = a + b
    c.backward(upstream)
    a.grad += 1
    assert b.grad.tolist() == [1.0, 1.0] and upstream.tolist() == [1.0, 1.0] and a.grad.tolist() == [2.0, 2.0]


def test_what_was_added_to_in_place_is_a_view_again():
    x, y = pair()
    part = y[:2]
    part += 1.0
    y[:2] = part
    assert (part * 1.0).tolist() == [4.0, 7.0]
    part.mul(2.0).backward(mt.ones(2), retain_graph=True)
    assert x.grad.tolist() == [6.0, 6.0, 0.0, 0.0]
    y.mul_(10.0)
    with pytest.raises(RuntimeError, match="out of date"):
        part * 1.0
    base, other = mt.zeros(3), mt.ones(1, requires_grad=True)
    same = base.detach()
    same.copy_(other.expand(3))
    with pytest.raises(RuntimeError, match="out of date"):
        base.copy_(other.expand(3) * 2.0)  # `same` would not see it


def test_relu_at_its_corner():
    x = mt.tensor([0.0, -0.0, float("nan"), -2.0, 3.0], requires_grad=True)
    y = x * 1.0
    y.relu_().backward(mt.ones(5))
    np.testing.assert_array_equal(y.detach().numpy(), [0, 0, float("nan"), 0, 3])
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_integer_buffers_keep_out_of_the_graph():
    counts, x = mt.zeros(2, dtype=mt.int64), mt.ones(2, requires_grad=True)
    counts += 1
    counts[0] = x[0] * 5.0
    counts.copy_(x * 3.0)
    assert counts.tolist() == [3, 3] and not counts.requires_grad


# The tensor itself

def test_reshaping_in_place_keeps_the_graph():
    x = mt.tensor(draw(2, 3), requires_grad=True)
    y = x * 2.0
    y.t_().unsqueeze_(0).transpose_(1, 2).squeeze_()
    assert y.shape == (2, 3)
    weights = draw(2, 3, seed=1)
    y.backward(mt.tensor(weights))
    np.testing.assert_allclose(x.grad.numpy(), 2.0 * weights)
    with mt.no_grad():
        z = x * 2.0
        z.t_()
        x.t_()
    assert z.shape == (3, 2) and not z.requires_grad and x.shape == (3, 2) and x.is_leaf


def test_reshaping_a_computed_tensor_under_no_grad_keeps_its_history():
    x = mt.tensor(draw(2, 3), requires_grad=True)
    y = x * 2.0
    with mt.no_grad():
        y.t_()
    y.backward(mt.ones(3, 2, dtype=mt.float64))
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_detach_and_requires_grad():
    x = mt.ones(2, requires_grad=True)
    y = x * 2.0
    assert y.detach_() is y and not y.requires_grad and y.is_leaf
    assert y.requires_grad_() is y and y.requires_grad
    y.mul(3.0).backward(mt.ones(2))
    assert y.grad.tolist() == [3.0, 3.0] and x.grad is None
    with pytest.raises(RuntimeError, match="float"):
        mt.arange(2).requires_grad_()
    assert ops.requires_grad_(y, False) is y and not y.requires_grad


# Any program: the same as PyTorch, or an error

MOVES = {
    "new": lambda lib, x, y, i, c: x * (1 + c),
    "product": lambda lib, x, y, i, c: x * y if x.shape == y.shape else x * x,
    "exp": lambda lib, x, y, i, c: (x * 0.1).exp(),
    "row": lambda lib, x, y, i, c: x[i] if x.ndim else x.detach(),
    "part": lambda lib, x, y, i, c: x[..., 1:] if x.ndim else x.unsqueeze(0),
    "turned": lambda lib, x, y, i, c: x.t() if x.ndim == 2 else x.reshape(-1),
    "scale": lambda lib, x, y, i, c: x.mul_(1 + c),
    "add": lambda lib, x, y, i, c: x.add_(y) if x.shape == y.shape else x.add_(c),
    "copy": lambda lib, x, y, i, c: x.copy_(y * 1.5) if x.shape == y.shape else x.zero_(),
    "exp in place": lambda lib, x, y, i, c: x.mul_(0.1).exp_(),
    "fill": lambda lib, x, y, i, c: x.masked_fill_(x > c, 0.5),
    "write": lambda lib, x, y, i, c: x.__setitem__(i, 2.0 * c) if x.ndim and x.shape[0] else None,
    "write ids": lambda lib, x, y, i, c: x.__setitem__([0], c) if x.ndim and x.shape[0] else None,
}


def perform(lib, array, moves):
    """The values of all tensors that a program makes, and the gradient of a random weighting of them."""
    leaf = lib.tensor(array, requires_grad=True)
    tensors = [leaf * 2.0, lib.ones(2, 3, dtype=lib.float64)]
    for name, p, q, i, c, recorded in moves:
        x, y = tensors[int(p * len(tensors))], tensors[int(q * len(tensors))]
        with lib.set_grad_enabled(recorded):
            if name != "add to part":
                result = MOVES[name](lib, x, y, i, c)
                tensors += [result] if result is not None and result is not x else []
            elif x.ndim and x.shape[0]:
                x[i] += c
    objective, values = leaf.sum() * 0.0, []
    for n, x in enumerate(tensors):
        objective = objective + (x * lib.tensor(draw(*x.shape, seed=n))).sum()
        values.append(x.detach().numpy().copy())
    objective.backward()
    return [*values, leaf.grad.numpy()]


@pytest.mark.parametrize("seed", range(20))
def test_any_program_is_as_in_torch_or_raises(seed):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng, array, compared = random.Random(seed), draw(2, 3), 0
    for _ in range(20):
        moves = [(rng.choice([*MOVES, "add to part"]), rng.random(), rng.random(), rng.choice([0, -1]), rng.random(),
                  rng.random() < 0.8) for _ in range(rng.randint(3, 9))]
        try:
            wanted, got = perform(torch, array, moves), perform(mt, array, moves)
        except RuntimeError:
            continue
        compared += 1
        for w, g in zip(wanted, got):
            np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-12, err_msg=str(moves))
    assert compared >= 3
