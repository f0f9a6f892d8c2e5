"""The same layer here and in PyTorch, drawn from the same seed, for the tests of layers."""
import numpy as np
import pytest

import minitorch_attn as mt
from tests.harness import assert_like_torch


def twins(name, *args, seed=0, **kwargs):
    """(ours, theirs): two layers made by the same call after the same seed, in float64 with the same weights.

    Their first values, drawn in float32, must agree already.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(seed)
    theirs = getattr(torch.nn, name)(*args, **kwargs)
    mt.manual_seed(seed)
    ours = getattr(mt.nn, name)(*args, **kwargs)
    mine, other = ours.state_dict(), theirs.state_dict()
    assert list(mine) == list(other)
    for key, value in other.items():
        assert str(value.dtype) == f"torch.{mine[key].dtype}"
        np.testing.assert_allclose(mine[key].numpy(), value.numpy(), rtol=3e-7, atol=1e-7, err_msg=key)
    assert repr(ours) == repr(theirs).replace("NonDynamicallyQuantizable", "")  # what a Linear is called in attention
    theirs = theirs.double()
    ours = ours.double()
    ours.load_state_dict({key: mt.tensor(value.numpy().copy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


def assert_twins_agree(ours, theirs, *arrays):
    """Hold results, gradients of inputs and gradients of parameters against PyTorch's, in float64."""
    assert_like_torch(ours, theirs, *arrays)
    for (name, p), (other, q) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        assert name == other
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-6, atol=1e-7, err_msg=name)


def assert_float32_stays(layer, *arrays):
    """A float32 layer gives float32 results and float32 gradients."""
    inputs = [mt.tensor(a.astype("f4") if a.dtype.kind == "f" else a) for a in arrays]
    for x in inputs:
        x.requires_grad = x.dtype.kind == "f"
    y = layer(*inputs)
    assert y.dtype == mt.float32
    y.backward(mt.ones(y.shape))
    wanted = [x for x in [*inputs, *layer.parameters()] if x.requires_grad]
    assert wanted and all(x.grad.dtype == mt.float32 for x in wanted)
