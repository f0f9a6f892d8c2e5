"""Steps of an optimizer here and in PyTorch on the same numbers."""
import copy

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import Parameter
from tests.harness import draw

SHAPES = [(3, 5), (7,), (), (11, 13), (2, 1, 3)]
STEPS = 20


def label(options):
    return ",".join(f"{k}={v}" for k, v in options.items()) if isinstance(options, dict) else None


def one_step(cls, options, value, gradients):
    """The values of a single number after each of the gradients."""
    p = Parameter(mt.tensor(np.array([value])))
    o, found = cls([p], **options), []
    for g in gradients:
        p.grad = mt.tensor(np.array([g]))
        o.step()
        found.append(p.detach().numpy()[0])
    return found


def gradient(step, i, shape):
    """Some are missing at some steps; parameter 4 gets its first at step 5."""
    if (step, i) in {(3, 1), (4, 1), (9, 0), (9, 1)} or (i == 4 and step < 5):
        return None
    return draw(*shape, seed=300 + 10 * step + i) * 10.0**draw(seed=900 + step, low=-3, high=1)


def assert_steps_like_torch(name, options, dtype):
    """Two groups with their own rates, missing gradients, and a state saved and loaded half way."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    start = [draw(*shape, seed=i).astype(dtype) for i, shape in enumerate(SHAPES)]
    ours = [Parameter(mt.tensor(a.copy())) for a in start]
    theirs = [torch.nn.Parameter(torch.tensor(a)) for a in start]

    def make(cls, params):
        return cls([{"params": params[:2]}, {"params": params[2:], "lr": options["lr"] / 7}], **options)

    mine, other = make(getattr(mt.optim, name), ours), make(getattr(torch.optim, name), theirs)
    tolerance = dict(rtol=1e-12, atol=1e-13) if dtype == "f8" else dict(rtol=2e-6, atol=1e-6)
    for step in range(STEPS):
        for i, shape in enumerate(SHAPES):
            g = gradient(step, i, shape)
            ours[i].grad = None if g is None else mt.tensor(np.array(g, dtype))
            theirs[i].grad = None if g is None else torch.tensor(np.array(g, dtype))
        mine.step()
        other.step()
        for i, (p, q) in enumerate(zip(ours, theirs)):
            assert p.dtype == dtype
            np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), err_msg=f"{step} {i}", **tolerance)
        if step == STEPS // 2:
            saved = copy.deepcopy(mine.state_dict())
            mine = make(getattr(mt.optim, name), ours)
            mine.load_state_dict(saved)
    compare_states(mine.state_dict(), other.state_dict(), tolerance)


def compare_states(ours, theirs, tolerance):
    assert ours["state"].keys() == theirs["state"].keys()
    for i, state in theirs["state"].items():
        for key, value in state.items():
            found = ours["state"][i][key]
            found = found if isinstance(found, int) else found.numpy()
            np.testing.assert_allclose(found, value.numpy(), err_msg=f"state {i} {key}", **tolerance)
    for group, wanted in zip(ours["param_groups"], theirs["param_groups"], strict=True):
        assert {k: v for k, v in group.items() if k in wanted} == {k: wanted[k] for k in group if k in wanted}
        assert group.keys() <= wanted.keys()
