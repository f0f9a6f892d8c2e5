"""Schedules: rates written out, and PyTorch's sequences."""
import copy
import json
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import Parameter
from minitorch_attn.optim import lr_scheduler as schedules

STEPS = 40


def optimizer_of(package=mt, cls="SGD", lrs=(0.8, 0.05), **options):
    """One with a group for each rate."""
    one = Parameter if package is mt else package.nn.Parameter
    groups = [{"params": [one(package.tensor([1.0]))], "lr": lr} for lr in lrs]
    return getattr(package.optim, cls)(groups, lr=0.3, **options)


def rates(optimizer, scheduler, steps=STEPS):
    """The rates of all groups before the first step and after each."""
    found = [[group["lr"] for group in optimizer.param_groups]]
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        found.append([group["lr"] for group in optimizer.param_groups])
        assert scheduler.get_last_lr() == found[-1]
    return np.array(found)


class Halving:
    """A factor with a state of its own."""

    def __init__(self):
        self.calls = 0

    def __call__(self, k):
        self.calls += 1
        return 0.5**k


class Both:
    """Two schedules act at once."""

    def __init__(self, *parts):
        self.parts = parts

    def step(self):
        for part in self.parts:
            part.step()

    def get_last_lr(self):
        return self.parts[-1].get_last_lr()


CASES = {
    "lambda": lambda S, o: S.LambdaLR(o, lambda k: 1 / (1 + k)),
    "lambda a group": lambda S, o: S.LambdaLR(o, [lambda k: 0.9**k, lambda k: min(1, k / 10)]),
    "lambda object": lambda S, o: S.LambdaLR(o, Halving()),
    "step": lambda S, o: S.StepLR(o, 7, gamma=0.3),
    "step 1": lambda S, o: S.StepLR(o, 1),
    "multistep": lambda S, o: S.MultiStepLR(o, [11, 3, 3, 29], gamma=0.5),
    "exponential": lambda S, o: S.ExponentialLR(o, 0.93),
    "constant": lambda S, o: S.ConstantLR(o, 0.25, 6),
    "linear": lambda S, o: S.LinearLR(o, 0.1, 0.7, 13),
    "linear default": lambda S, o: S.LinearLR(o),
    "linear down": lambda S, o: S.LinearLR(o, 1.0, 0.0, 50),
    "cosine": lambda S, o: S.CosineAnnealingLR(o, 50),
    "cosine up again": lambda S, o: S.CosineAnnealingLR(o, 7, eta_min=0.01),
    "cosine 1": lambda S, o: S.CosineAnnealingLR(o, 1, eta_min=0.01),
    "restarts": lambda S, o: S.CosineAnnealingWarmRestarts(o, 7, eta_min=0.01),
    "restarts longer": lambda S, o: S.CosineAnnealingWarmRestarts(o, 3, T_mult=2),
    "one cycle": lambda S, o: S.OneCycleLR(o, 0.7, total_steps=STEPS + 1, cycle_momentum=False),
    "one cycle a group": lambda S, o: S.OneCycleLR(o, [0.7, 0.1], epochs=7, steps_per_epoch=11, pct_start=0.2,
                                                   anneal_strategy="linear", cycle_momentum=False),
    "one cycle, peak first": lambda S, o: S.OneCycleLR(o, 0.7, total_steps=50, pct_start=0.0, cycle_momentum=False),
    "chained": lambda S, o: Both(S.ExponentialLR(o, 0.9), S.StepLR(o, 7, 0.5)),
    "warm-up then cosine": lambda S, o: S.SequentialLR(
        o, [S.LinearLR(o, 0.1, total_iters=5), S.CosineAnnealingLR(o, 20)], [5]),
    "five in a row": lambda S, o: S.SequentialLR(
        o, [S.ConstantLR(o, 0.5, 3), S.ExponentialLR(o, 0.8), S.StepLR(o, 2), S.MultiStepLR(o, [1, 3]),
            S.CosineAnnealingWarmRestarts(o, 4)], [5, 11, 17, 25]),
}


@pytest.mark.parametrize("name", CASES)
def test_like_torch(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours, theirs = optimizer_of(), optimizer_of(torch)
    found = rates(ours, CASES[name](schedules, ours))
    wanted = rates(theirs, CASES[name](torch.optim.lr_scheduler, theirs))
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)


K = np.arange(STEPS + 1)


@pytest.mark.parametrize("name, factor", [
    ("lambda", 1 / (1 + K)), ("step", 0.3**(K // 7)), ("exponential", 0.93**K),
    ("multistep", np.where(K < 3, 1, np.where(K < 11, 0.25, np.where(K < 29, 0.125, 0.0625)))),
    ("constant", np.where(K < 6, 0.25, 1)), ("linear", 0.1 + 0.6 * np.minimum(K, 13) / 13),
    ("cosine", (1 + np.cos(np.pi * K / 50)) / 2),
    ("warm-up then cosine", np.where(K < 5, 0.1 + 0.9 * K / 5, (1 + np.cos(np.pi * (K - 5) / 20)) / 2)),
    ("chained", 0.9**K * 0.5**(K // 7)),
])
def test_closed_form(name, factor):
    o = optimizer_of()
    found = rates(o, CASES[name](schedules, o))
    np.testing.assert_allclose(found, factor[:, None] * np.array([[0.8, 0.05]]), rtol=1e-9, atol=1e-12)


def test_sequence_in_a_sequence():
    """Milestones of the inner one count from its own beginning (PyTorch's come one step early there)."""
    def make(o):
        inner = schedules.SequentialLR(o, [schedules.ConstantLR(o, 0.5, 3), schedules.ExponentialLR(o, 0.8)], [4])
        return schedules.SequentialLR(o, [schedules.StepLR(o, 2), inner], [5])

    o = optimizer_of(lrs=(1.0,))
    wanted = [1, 1, 0.1, 0.1, 0.01, 0.5, 0.5, 0.5, 1, 1, 0.8, 0.64, 0.512]
    np.testing.assert_allclose(rates(o, make(o), 12)[:, 0], wanted, rtol=1e-12)


@pytest.mark.parametrize("cls, options", [("SGD", dict(momentum=0.5)), ("AdamW", {})])
def test_one_cycle_moves_momentum_like_torch(cls, options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    found = []
    for package, S in ((mt, schedules), (torch, torch.optim.lr_scheduler)):
        o = optimizer_of(package, cls, **options)
        s = S.OneCycleLR(o, 0.7, total_steps=20)
        for _ in range(20):
            group = o.param_groups[0]
            found.append((group["lr"], *(group["betas"] if cls == "AdamW" else (group["momentum"],))))
            o.step()
            s.step()
    np.testing.assert_allclose(found[:20], found[20:], rtol=1e-12)


@pytest.mark.parametrize("strategy", ["cos", "linear"])
def test_one_cycle_to_its_last_call_like_torch(strategy):
    """Also the call after the last training step, which goes past the end; one more is refused."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    made = [(o, S.OneCycleLR(o, 0.1, total_steps=10, anneal_strategy=strategy, cycle_momentum=False))
            for o, S in ((optimizer_of(), schedules), (optimizer_of(torch), torch.optim.lr_scheduler))]
    found, wanted = (rates(o, s, 10) for o, s in made)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    assert found[9].max() < 1e-6 and abs(found[10]).max() > 1e-4
    for _, s in made:
        with pytest.raises(ValueError, match="10"):
            s.step()


def test_constant_factor_zero():
    o = optimizer_of(lrs=(0.5, 0.25))
    np.testing.assert_array_equal(rates(o, schedules.ConstantLR(o, 0.0, 3), 5)[:, 1], [0, 0, 0, 0.25, 0.25, 0.25])


def test_restarts_at_fractions_like_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ours, theirs = optimizer_of(), optimizer_of(torch)
    s = schedules.CosineAnnealingWarmRestarts(ours, 3, T_mult=2)
    t = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(theirs, 3, T_mult=2)
    for batch in range(60):
        s.step(batch / 5)
        t.step(batch / 5)
        assert s.get_last_lr() == pytest.approx(t.get_last_lr(), rel=1e-12) and s.last_epoch == t.last_epoch
    with pytest.raises(ValueError, match="negative"):
        s.step(-1)


@pytest.mark.parametrize("name", [n for n in CASES if n != "chained"])
def test_resumed(name):
    """A schedule made anew continues from the saved state; the state passes through JSON."""
    o = optimizer_of()
    s = CASES[name](schedules, o)
    rates(o, s, 8)
    kept = json.loads(json.dumps(s.state_dict())), copy.deepcopy(o.state_dict())
    again = optimizer_of(lrs=(0.3, 0.3))
    r = CASES[name](schedules, again)
    r.load_state_dict(kept[0])
    again.load_state_dict(kept[1])
    np.testing.assert_array_equal(rates(again, r, 20), rates(o, s, 20))


def test_resumed_by_last_epoch_like_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    makers = [lambda S, o, k: S.StepLR(o, 3, last_epoch=k), lambda S, o, k: S.ExponentialLR(o, 0.9, last_epoch=k),
              lambda S, o, k: S.CosineAnnealingLR(o, 20, last_epoch=k), lambda S, o, k: S.LinearLR(o, last_epoch=k),
              lambda S, o, k: S.LambdaLR(o, lambda k: 0.5**k, last_epoch=k)]
    for make in makers:
        found = []
        for package, S in ((mt, schedules), (torch, torch.optim.lr_scheduler)):
            o = optimizer_of(package)
            rates(o, make(S, o, -1), 4)
            found.append(rates(o, make(S, o, 4), 10))
        np.testing.assert_allclose(*found, rtol=1e-12)


def test_user_schedule_under_the_old_name():
    """The form found in many programs: base_lrs and last_epoch in get_lr."""
    class Inverse(schedules._LRScheduler):
        def get_lr(self):
            return [base / (1 + self.last_epoch) for base in self.base_lrs]

    o = optimizer_of()
    s = Inverse(o)
    assert isinstance(s, schedules.LRScheduler)
    np.testing.assert_allclose(rates(o, s), np.array([[0.8, 0.05]]) / (1 + K)[:, None])
    assert o.param_groups[0]["initial_lr"] == 0.8 and s.base_lrs == [0.8, 0.05]


def test_warm_up():
    o = optimizer_of(lrs=(1e-3,))
    s = schedules.LambdaLR(o, schedules.warmup_lambda(4))
    np.testing.assert_allclose(rates(o, s, 6)[:, 0], [2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3, 1e-3], rtol=1e-12)
    assert schedules.warmup_lambda(0)(0) == 1.0


def test_warm_up_then_cosine():
    factor = schedules.warmup_cosine_lambda(4, 10, final_factor=0.1)
    found = [factor(k) for k in range(13)]
    np.testing.assert_allclose(found[:5], [0.2, 0.4, 0.6, 0.8, 1.0])
    np.testing.assert_allclose(found[4:10], [0.1 + 0.9 * (1 + math.cos(math.pi * j / 6)) / 2 for j in range(6)])
    np.testing.assert_allclose(found[10:], 0.1)
    with pytest.raises(ValueError, match="above warmup_steps"):
        schedules.warmup_cosine_lambda(4, 4)


@pytest.mark.parametrize("make, error, words", [
    (lambda o: schedules.StepLR([1.0], 3), TypeError, "Optimizer"),
    (lambda o: schedules.StepLR(o, 3, last_epoch=2), KeyError, "initial_lr"),
    (lambda o: schedules.LambdaLR(o, [abs]), ValueError, "2 functions"),
    (lambda o: schedules.ConstantLR(o, 1.5), ValueError, "factor"),
    (lambda o: schedules.LinearLR(o, 0.0), ValueError, "start_factor"),
    (lambda o: schedules.LinearLR(o, 0.5, 1.5), ValueError, "end_factor"),
    (lambda o: schedules.CosineAnnealingWarmRestarts(o, 0), ValueError, "T_0"),
    (lambda o: schedules.OneCycleLR(o, 0.1), ValueError, "total_steps"),
    (lambda o: schedules.OneCycleLR(o, 0.1, 5, pct_start=2.0), ValueError, "pct_start"),
    (lambda o: schedules.OneCycleLR(o, [0.1], 5), ValueError, "max_lr"),
    (lambda o: schedules.OneCycleLR(o, 0.1, 5, three_phase=True), NotImplementedError, "three_phase"),
    (lambda o: schedules.SequentialLR(o, [schedules.StepLR(o, 3)], [4]), ValueError, "milestone"),
    (lambda o: schedules.SequentialLR(o, [schedules.StepLR(optimizer_of(), 3)], []), ValueError, "this optimizer"),
    (lambda o: schedules.LRScheduler(o), NotImplementedError, "get_lr"),
    (lambda o: rates(o, schedules.OneCycleLR(o, 0.1, 5)), ValueError, "total_steps=5"),
])
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make(optimizer_of())


def test_a_loaded_state_cannot_overwrite_other_attributes():
    optimizer = mt.optim.SGD([Parameter(mt.ones(1))], lr=0.1)
    schedule = schedules.StepLR(optimizer, 2)
    schedule.load_state_dict({**schedule.state_dict(), "last_epoch": 7, "optimizer": None, "step": None})
    assert schedule.optimizer is optimizer and schedule.last_epoch == 7 and callable(schedule.step)


def test_the_state_of_another_kind_is_refused_and_nothing_changed():
    optimizer = mt.optim.SGD([Parameter(mt.ones(1))], lr=0.1)
    ours, theirs = schedules.StepLR(optimizer, 2), schedules.ExponentialLR(optimizer, 0.5)
    theirs.step()
    with pytest.raises(ValueError, match="StepLR: step_size"):
        ours.load_state_dict(theirs.state_dict())
    assert ours.last_epoch == 0
