"""Adam and AdamW against the formula and against PyTorch, step by step."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import Parameter
from tests.optim.parity import assert_steps_like_torch, label, one_step

OPTIONS = [dict(), dict(weight_decay=0.2), dict(amsgrad=True), dict(amsgrad=True, weight_decay=0.2, maximize=True),
           dict(betas=(0.5, 0.7), eps=1e-3), dict(maximize=True), dict(betas=(0.0, 0.9))]


@pytest.mark.parametrize("dtype", ["f8", "f4"])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
@pytest.mark.parametrize("options", OPTIONS, ids=label)
def test_like_torch(name, options, dtype):
    assert_steps_like_torch(name, dict(lr=0.05, **options), dtype)


def test_first_step_is_lr_whatever_the_size_of_the_gradient():
    for g in (1e-3, 1.0, -1e6):
        assert one_step(mt.optim.Adam, dict(lr=0.1), 1.0, [g])[0] == pytest.approx(1 - 0.1 * np.sign(g), rel=1e-5)


def test_adamw_decays_before_the_step():
    """p = 1, g = 1, lr = wd = 0.1: 1 * 0.99 - 0.1 = 0.89, not (1 - 0.1) * 0.99 = 0.891."""
    assert one_step(mt.optim.AdamW, dict(lr=0.1, weight_decay=0.1), 1.0, [1.0])[0] == pytest.approx(0.89, abs=1e-8)


def test_adam_decays_through_the_gradient():
    """The penalty changes the sign of g = -0.1: with wd = 0.2 it is +0.1, and the first step goes down."""
    assert one_step(mt.optim.Adam, dict(lr=0.1), 1.0, [-0.1])[0] == pytest.approx(1.1, abs=1e-7)
    assert one_step(mt.optim.Adam, dict(lr=0.1, weight_decay=0.2), 1.0, [-0.1])[0] == pytest.approx(0.9, abs=1e-7)


def test_amsgrad_keeps_the_largest():
    """After one gradient of 100 and then zeros, v shrinks but the step's denominator does not."""
    p = Parameter(mt.tensor(np.array([0.0])))
    o = mt.optim.Adam([p], betas=(0.9, 0.5), amsgrad=True)
    for g in (100.0, 0.0, 0.0):
        p.grad = mt.tensor(np.array([g]))
        o.step()
    assert o.state[p]["max_exp_avg_sq"].numpy()[0] == 5000.0 and o.state[p]["exp_avg_sq"].numpy()[0] == 1250.0


def test_gradients_are_not_written_to():
    for options in (dict(), dict(weight_decay=0.1, decoupled_weight_decay=False, maximize=True)):
        p = Parameter(mt.tensor(np.ones((3, 5))))
        p.grad = mt.tensor(np.full((3, 5), 2.0))
        mt.optim.Adam([p], lr=0.1, **options).step()
        np.testing.assert_array_equal(p.grad.numpy(), np.full((3, 5), 2.0))


def test_float32_stays():
    p = Parameter(mt.tensor(np.ones((2, 3), "f4")))
    p.grad = mt.tensor(np.ones((2, 3), "f4"))
    o = mt.optim.AdamW([p], lr=np.float64(0.1))
    o.step()
    assert p.dtype == "f4" and all(o.state[p][k].dtype == "f4" for k in ("exp_avg", "exp_avg_sq"))


def test_state_from_torch():
    """What PyTorch's state_dict holds, its tensors turned into ours, continues PyTorch's training."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    theirs = torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.float64))
    other = torch.optim.AdamW([theirs], lr=0.1)
    theirs.grad = torch.tensor([0.5, -3.0], dtype=torch.float64)
    other.step()
    ours = Parameter(mt.tensor(theirs.detach().numpy().copy()))
    mine = mt.optim.AdamW([ours])
    saved = other.state_dict()
    saved["state"] = {i: {k: mt.tensor(v.numpy().copy()) for k, v in s.items()} for i, s in saved["state"].items()}
    mine.load_state_dict(saved)
    theirs.grad = torch.tensor([0.25, 2.0], dtype=torch.float64)
    ours.grad = mt.tensor(np.array([0.25, 2.0]))
    other.step()
    mine.step()
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-13)


@pytest.mark.parametrize("options, words", [
    (dict(lr=-1.0), "Invalid lr"), (dict(eps=-1e-8), "Invalid eps"), (dict(weight_decay=-0.1), "Invalid weight_decay"),
    (dict(betas=(1.0, 0.9)), "index 0: 1.0"), (dict(betas=(0.9, -0.1)), "index 1: -0.1"),
], ids=label)
@pytest.mark.parametrize("cls", [mt.optim.Adam, mt.optim.AdamW])
def test_errors(cls, options, words):
    with pytest.raises(ValueError, match=words):
        one_step(cls, options, 1.0, [])


def test_ignored_keywords():
    plain = one_step(mt.optim.AdamW, dict(lr=0.1), 1.0, [1.0, 2.0])
    assert one_step(mt.optim.AdamW, dict(lr=0.1, fused=True, foreach=True, capturable=True), 1.0, [1.0, 2.0]) == plain
    with pytest.raises(NotImplementedError):
        one_step(mt.optim.Adam, dict(differentiable=True), 1.0, [])
