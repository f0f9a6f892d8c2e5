"""What every test of a gradient uses: finite differences with a random cotangent, and PyTorch side by side."""
import numpy as np
import pytest

import minitorch_attn as mt

SEED = 20261


def leaf(array):
    """A tensor on a copy of `array`; floating-point ones require grad."""
    x = mt.tensor(np.array(array))
    x.requires_grad = x.dtype.kind == "f"
    return x


def draw(*shape, seed=0, low=None, high=None):
    """Float64 values: normal, or uniform in [low, high)."""
    rng = np.random.default_rng(SEED + seed)
    return rng.standard_normal(shape) if low is None else rng.uniform(low, high, shape)


def operation(forward, backward, name="op"):
    """A function of tensors with the result forward(*arrays) and the gradients backward(arrays, g), right or wrong."""
    def fn(*inputs):
        arrays = [x.array for x in inputs]
        return mt.Tensor.from_op(name, np.asarray(forward(*arrays)), inputs, lambda g: backward(arrays, g))
    return fn


def results_of(value):
    """The floating-point result tensors of a call, in order."""
    if isinstance(value, (tuple, list)):
        return [r for v in value for r in results_of(v)]
    return [value] if hasattr(value, "dtype") and hasattr(value, "backward") else []


def weighted(results, weights):
    """sum_i <result_i, weight_i>: an objective that no symmetry of the results can make constant."""
    return sum(float((r.detach().numpy().astype("f8") * w).sum()) for r, w in zip(results, weights))


def gradients(fn, arrays, weights=None):
    """Results, random cotangents and the gradients of <results, cotangents> for every floating input of `fn`."""
    inputs = [leaf(a) for a in arrays]
    results = [r for r in results_of(fn(*inputs)) if r.requires_grad]
    weights = weights or [draw(*r.shape, seed=100 + i) for i, r in enumerate(results)]
    total = None
    for r, w in zip(results, weights):
        part = (r * mt.tensor(np.asarray(w).astype(r.dtype))).sum()
        total = part if total is None else total + part
    total.backward()
    return results, weights, [x.grad.numpy() if x.grad is not None else None for x in inputs]


def assert_gradients(fn, *arrays, eps=1e-6, rtol=1e-6, atol=1e-7):
    """Hold the gradients of `fn` for float64 `arrays` against central differences, entry by entry.

    The objective is a random weighting of all results. Integer and boolean arrays are passed on unperturbed.
    """
    arrays = [np.array(a) for a in arrays]
    results, weights, found = gradients(fn, arrays)
    assert results, "no result requires grad"

    def objective(changed):
        with mt.no_grad():
            outs = [r for r in results_of(fn(*[mt.tensor(a.copy()) for a in changed])) if r.dtype.kind == "f"]
        return weighted(outs, weights)

    for i, a in enumerate(arrays):
        if a.dtype.kind != "f":
            continue
        assert a.dtype == np.float64, "finite differences need float64"
        numeric = np.zeros_like(a)
        for where in np.ndindex(a.shape):
            up, down = a.copy(), a.copy()
            up[where] += eps
            down[where] -= eps
            numeric[where] = (objective([*arrays[:i], up, *arrays[i + 1:]])
                              - objective([*arrays[:i], down, *arrays[i + 1:]])) / (2 * eps)
        got = found[i] if found[i] is not None else np.zeros_like(a)
        np.testing.assert_allclose(got, numeric, rtol=rtol, atol=atol, err_msg=f"gradient of argument {i}")


def assert_like_torch(ours, theirs, *arrays, rtol=1e-6, atol=1e-7):
    """Hold values, dtypes and gradients of `ours` against PyTorch's `theirs` on the same arrays.

    Both are functions of as many tensors as there are `arrays`; float64 arrays deserve the default tolerance,
    float32 ones about rtol=1e-4, atol=1e-5. Skips, saying so, where PyTorch is not installed.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    arrays = [np.array(a) for a in arrays]
    leaves = [torch.from_numpy(a.copy()).requires_grad_(a.dtype.kind == "f") for a in arrays]
    wanted = results_of(theirs(*leaves))
    with mt.no_grad():
        got = results_of(ours(*[mt.tensor(a.copy()) for a in arrays]))
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        assert str(w.dtype) == f"torch.{g.dtype}", f"dtype {g.dtype}, PyTorch {w.dtype}"
        np.testing.assert_allclose(g.numpy(), w.detach().numpy(), rtol=rtol, atol=atol, err_msg="value")
    if not any(w.requires_grad for w in wanted):
        return
    _, weights, found = gradients(ours, arrays)
    sum((w * torch.from_numpy(np.asarray(c)).to(w.dtype)).sum()
        for w, c in zip([w for w in wanted if w.requires_grad], weights)).backward()
    for i, (x, g) in enumerate(zip(leaves, found)):
        if x.grad is not None:
            assert isinstance(x, torch.Tensor) and g.dtype == x.grad.numpy().dtype
            np.testing.assert_allclose(g, x.grad.numpy(), rtol=rtol, atol=atol, err_msg=f"gradient of argument {i}")
