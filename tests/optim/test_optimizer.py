"""What all optimisers share: groups, state, joining small tensors into runs. Shown with AdamW and SGD."""
import copy

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.backend import to_host
from minitorch_attn.nn import Parameter
from minitorch_attn.optim import SGD, Adam, AdamW, Optimizer, optimizer
from tests.harness import draw

SHAPES = [(3, 5), (7,), (), (2, 3, 5), (11, 13), (0,)]


def parameters(shapes=SHAPES, dtype="f8", seed=0):
    return [Parameter(mt.tensor(draw(*shape, seed=seed + i).astype(dtype))) for i, shape in enumerate(shapes)]


def set_gradients(params, step, skip=()):
    for i, p in enumerate(params):
        p.grad = None if i in skip else mt.tensor(draw(*p.shape, seed=1000 + 50 * step + i).astype(p.dtype))


def values(params):
    return [p.detach().numpy().copy() for p in params]


def assert_equal(found, wanted, rtol=0, atol=0):
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=rtol, atol=atol)


@pytest.mark.parametrize("chunk", [1, 8, 20, 10**9])
@pytest.mark.parametrize("cls, options", [(AdamW, {}), (Adam, dict(amsgrad=True, weight_decay=0.1)),
                                          (SGD, dict(momentum=0.9, dampening=0.1)), (SGD, {})])
def test_joining_changes_nothing(monkeypatch, cls, options, chunk):
    """Cut into chunks of any size, the result is that of one optimizer a parameter, bit by bit."""
    together, alone = parameters(), parameters()
    monkeypatch.setattr(optimizer, "CHUNK", chunk)
    one = cls(together, lr=0.1, **options)
    many = [cls([p], lr=0.1, **options) for p in alone]
    for step in range(6):
        skip = {1, 4} if step in (2, 4) else {0} if step == 3 else ()
        set_gradients(together, step, skip)
        set_gradients(alone, step, skip)
        one.step()
        for o in many:
            o.step()
        assert_equal(values(together), values(alone))


def test_small_tensors_are_one_run_and_large_ones_are_cut(monkeypatch):
    calls = []
    monkeypatch.setattr(optimizer, "CHUNK", 30)
    monkeypatch.setattr(SGD, "rule", lambda self, group, t, p, g: calls.append(p.size))
    params = parameters([(3, 5), (7,), (67,), (2,), (5,)])
    o = SGD(params)
    set_gradients(params, 0)
    o.step()
    assert calls == [22, 30, 30, 7, 7]


def test_no_gradient_means_no_change():
    """Neither values nor moments nor the count of steps move, though weight decay and momentum would."""
    params = parameters()
    o = AdamW(params, lr=0.1, weight_decay=0.3)
    set_gradients(params, 0)
    o.step()
    before, moments = values(params)[1], o.state[params[1]]["exp_avg"].numpy().copy()
    set_gradients(params, 1, skip={1})
    o.step()
    np.testing.assert_array_equal(params[1].detach().numpy(), before)
    np.testing.assert_array_equal(o.state[params[1]]["exp_avg"].numpy(), moments)
    assert [o.state[p]["step"] for p in params] == [2, 1, 2, 2, 2, 2]
    frozen = parameters([(2,), (3,)])
    frozen[0].requires_grad = False
    o = AdamW(frozen)
    set_gradients(frozen, 0, skip={0})
    o.step()
    assert frozen[0] not in o.state or not o.state[frozen[0]]


def test_state_can_be_read_written_and_replaced():
    """The arrays in ``state`` are the ones that the rule uses, whoever put them there."""
    params, other = parameters(), parameters()
    o, reference = AdamW(params, lr=0.1), AdamW(other, lr=0.1)
    for step in range(4):
        set_gradients(params, step)
        set_gradients(other, step)
        o.step()
        reference.step()
        assert_equal([o.state[p]["exp_avg"].numpy() for p in params],
                     [reference.state[p]["exp_avg"].numpy() for p in other])
        if step == 1:
            for opt, ps in ((o, params), (reference, other)):
                opt.state[ps[0]]["exp_avg"].array[...] = 0.5
            o.state[params[3]]["exp_avg_sq"] = mt.tensor(o.state[params[3]]["exp_avg_sq"].numpy().copy())
            o.state[params[4]]["exp_avg"].array = o.state[params[4]]["exp_avg"].array.copy()
    assert_equal(values(params), values(other))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_resumed_from_state_dict(dtype):
    params = parameters(dtype=dtype)
    o = AdamW([{"params": params[:2], "lr": 0.2}, {"params": params[2:]}], lr=0.1, amsgrad=True)
    for step in range(4):
        set_gradients(params, step, skip={2} if step == 1 else ())
        o.step()
    saved, start = copy.deepcopy(o.state_dict()), values(params)
    assert [g["params"] for g in saved["param_groups"]] == [[0, 1], [2, 3, 4, 5]]
    assert saved["state"][2]["step"] == 3 and saved["state"][3]["step"] == 4

    again = [Parameter(mt.tensor(v.copy())) for v in start]
    p = AdamW([{"params": again[:2]}, {"params": again[2:]}], lr=0.7)
    p.load_state_dict(saved)
    assert p.param_groups[0]["lr"] == 0.2 and p.param_groups[1]["amsgrad"] is True
    for step in range(4, 8):
        set_gradients(params, step)
        set_gradients(again, step)
        o.step()
        p.step()
    assert_equal(values(again), values(params))
    assert all(s["exp_avg"].dtype == dtype for s in p.state.values())
    assert saved["state"][3]["step"] == 4, "loading copies"


def test_resumed_adam_is_no_cold_start():
    """lr 0.1; g = 1, then g = 0.1: 0.825919 with the state, 0.8 without."""
    for keep, wanted in ((True, 0.825919), (False, 0.8)):
        p = Parameter(mt.tensor(np.array([1.0])))
        o = Adam([p], lr=0.1)
        p.grad = mt.tensor(np.array([1.0]))
        o.step()
        fresh = Adam([p], lr=0.1)
        if keep:
            fresh.load_state_dict(o.state_dict())
        p.grad = mt.tensor(np.array([0.1]))
        fresh.step()
        np.testing.assert_allclose(p.detach().numpy(), wanted, atol=1e-6)


def test_replaced_data_and_changed_dtype():
    """After ``p.data = ...`` or ``module.to(dtype)`` the new array is the one that is updated."""
    params = parameters([(2, 3), (5,)], "f4")
    o = AdamW(params, lr=0.1)
    set_gradients(params, 0)
    o.step()
    old = params[0].array
    kept = old.copy()
    params[0].data = mt.tensor(np.ones((2, 3), "f4"))
    set_gradients(params, 1)
    o.step()
    np.testing.assert_array_equal(to_host(old), to_host(kept))
    assert (params[0].detach().numpy() != 1).all()
    for p in params:
        p.data = mt.tensor(p.detach().numpy().astype("f8"))
    set_gradients(params, 2)
    o.step()
    assert all(p.dtype == "f8" and o.state[p]["exp_avg"].dtype == "f8" for p in params)


def test_non_contiguous_parameter():
    p, q = Parameter(mt.tensor(draw(3, 5))), Parameter(mt.tensor(draw(3, 5)))
    p.data = mt.tensor(np.zeros((5, 3)))
    p.array = q.array.T.copy().T  # as q, but in memory column by column
    for x in (p, q):
        x.grad = mt.tensor(draw(3, 5, seed=1))
        AdamW([x], lr=0.1).step()
    np.testing.assert_array_equal(p.detach().numpy(), q.detach().numpy())


def test_two_parameters_on_the_same_memory_get_both_updates():
    p = Parameter(mt.tensor(np.array([1.0, 2.0])))
    q = Parameter(p.data)
    for x, g in ((p, 1.0), (q, 10.0)):
        x.grad = mt.tensor(np.array([g, g]))
    SGD([p, q], lr=0.1).step()
    np.testing.assert_allclose(p.detach().numpy(), [1 - 1.1, 2 - 1.1])


def test_deepcopy_of_model_and_optimizer_together():
    params = parameters()
    o = AdamW(params, lr=0.1)
    set_gradients(params, 0)
    o.step()
    twins, p = copy.deepcopy((params, o))
    start = values(params)
    for step in range(1, 4):
        set_gradients(twins, step)
        p.step()
    assert_equal(values(params), start)
    for step in range(1, 4):
        set_gradients(params, step)
        o.step()
    assert_equal(values(twins), values(params))
    assert_equal([p.state[x]["exp_avg"].numpy() for x in twins], [o.state[x]["exp_avg"].numpy() for x in params])


def test_a_loaded_state_is_a_copy():
    params, other = parameters(), parameters()
    o, p = AdamW(params, lr=0.1), AdamW(other, lr=0.1)
    set_gradients(params, 0)
    o.step()
    p.load_state_dict(o.state_dict())
    kept = [o.state[x]["exp_avg"].numpy().copy() for x in params]
    p.param_groups[0]["lr"] = 0.5
    set_gradients(other, 1)
    p.step()
    assert_equal([o.state[x]["exp_avg"].numpy() for x in params], kept)
    assert o.param_groups[0]["lr"] == 0.1 and o.state[params[0]]["step"] == 1


def test_update_is_seen_by_a_pending_backward():
    """A graph made before the step needs the old weights; it must raise, not use the new ones."""
    w = Parameter(mt.tensor(draw(3)))
    x = mt.tensor(draw(3, seed=1))
    x.requires_grad = True
    y = (w * x).sum()
    w.grad = mt.tensor(draw(3, seed=2))
    SGD([w], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified in place"):
        y.backward()


def test_state_of_the_same_weight_in_a_plain_training():
    """Gradients of a graph, not made up: least squares by AdamW equals the loop written out."""
    a, b = draw(11, 3), draw(11, seed=1)
    w = Parameter(mt.tensor(draw(3, seed=2)))
    plain, m, v = w.detach().numpy().copy(), np.zeros(3), np.zeros(3)
    o = AdamW([w], lr=0.05, weight_decay=0.1)
    for t in range(1, 8):
        o.zero_grad()
        error = mt.tensor(a) @ w - mt.tensor(b)
        (error * error).mean().backward()
        o.step()
        g = 2 / 11 * a.T @ (a @ plain - b)
        plain *= 1 - 0.05 * 0.1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        plain -= 0.05 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(w.detach().numpy(), plain, rtol=1e-12)


def test_closure_runs_with_gradients_and_its_loss_is_returned():
    p = Parameter(mt.tensor(np.array([2.0])))
    o = SGD([p], lr=0.1)

    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with mt.no_grad():
        assert float(o.step(closure)) == 4.0
    np.testing.assert_allclose(p.detach().numpy(), 2 - 0.1 * 4)
    assert o.step() is None


def test_zero_grad():
    p, q = parameters([(2,), (3,)])
    p.grad = mt.tensor(np.ones(2))
    o = SGD([p, q])
    kept = p.grad
    o.zero_grad(set_to_none=False)
    assert p.grad is kept and not kept.numpy().any() and q.grad is None
    o.zero_grad()
    assert p.grad is None


def test_groups():
    p, q, r = parameters([(2,), (3,), (5,)])
    o = AdamW([{"params": [p], "lr": 0.5}, {"params": q}], lr=0.1)
    o.add_param_group({"params": iter([r]), "weight_decay": 0.0})
    assert [g["lr"] for g in o.param_groups] == [0.5, 0.1, 0.1]
    assert [g["weight_decay"] for g in o.param_groups] == [0.01, 0.01, 0.0]
    assert o.param_groups[1]["params"] == [q]
    named = SGD([("w", p), ("b", q)])
    assert named.param_groups[0]["param_names"] == ["w", "b"]
    assert "lr: 0.001" in repr(named)


def test_own_subclass_that_overrides_step():
    class Sign(Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, dict(lr=lr))

        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        self.state[p]["seen"] = self.state[p].get("seen", 0) + 1
                        with mt.no_grad():
                            p.data = mt.tensor(p.detach().numpy() - group["lr"] * np.sign(p.grad.numpy()))

    p = Parameter(mt.tensor(np.array([1.0, 2.0])))
    p.grad = mt.tensor(np.array([3.0, -4.0]))
    o = Sign([p], lr=0.5)
    o.step()
    np.testing.assert_array_equal(p.detach().numpy(), [0.5, 2.5])
    assert o.state_dict()["state"] == {0: {"seen": 1}}


def leaf(*shape):
    return Parameter(mt.tensor(np.ones(shape)))


@pytest.mark.parametrize("make, error, words", [
    (lambda: SGD([]), ValueError, "empty parameter list"),
    (lambda: SGD(leaf(2)), TypeError, r"\[tensor\]"),
    (lambda: SGD([1.0]), TypeError, "float"),
    (lambda: SGD([leaf(2) * 2.0]), ValueError, "non-leaf"),
    (lambda: SGD([{"params": {leaf(2)}}]), TypeError, "order"),
    (lambda: SGD([leaf(2)]).add_param_group([leaf(3)]), TypeError, "dict"),
    (lambda: SGD([leaf(2)]).add_param_group({"params": [("w", leaf(3))]}), ValueError, "names"),
    (lambda: SGD([leaf(2)], lr=mt.tensor(0.1)), TypeError, "lr must be a number"),
    (lambda: SGD([leaf(2)], differentiable=True), NotImplementedError, "differentiable"),
    (lambda: Optimizer([leaf(2)], {}).moments({}), NotImplementedError, "rule"),
])
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_errors_about_parameters_given_twice():
    p = leaf(2)
    with pytest.raises(ValueError, match="more than once"):
        SGD([p, p])
    with pytest.raises(ValueError, match="more than once"):
        SGD([{"params": [p]}, {"params": [leaf(3), p]}])


def test_errors_about_shapes_and_loading():
    p = leaf(2, 3)
    o = SGD([p], momentum=0.9)
    p.grad = mt.tensor(np.ones((3, 2)))
    with pytest.raises(RuntimeError, match=r"\(2, 3\).*\(3, 2\)"):
        o.step()
    p.grad = mt.tensor(np.ones((2, 3)))
    o.step()
    for other, words in ((SGD([leaf(2, 3), leaf(5)]), "2"), (SGD([{"params": [leaf(2)]}, {"params": [leaf(3)]}]), "2"),
                         (SGD([leaf(7)]), r"\(2, 3\), the parameter has \(7,\)")):
        with pytest.raises(ValueError, match=words):
            other.load_state_dict(o.state_dict())
        assert not other.state
