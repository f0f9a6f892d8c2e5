"""A fused kernel held against the same function composed of elementary operations."""
import numpy as np

from tests.harness import gradients


def assert_equals_composed(fused, composed, *arrays, rtol=1e-9, atol=1e-11):
    """Values, dtypes and gradients of `fused` are those of `composed` on the same arrays."""
    got, weights, got_gradients = gradients(fused, arrays)
    wanted, _, wanted_gradients = gradients(composed, arrays, weights)
    assert len(got) == len(wanted) > 0
    for g, w in zip(got, wanted):
        assert (g.dtype, g.shape) == (w.dtype, w.shape)
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=rtol, atol=atol, err_msg="value")
    for i, (g, w) in enumerate(zip(got_gradients, wanted_gradients)):
        if w is not None:
            np.testing.assert_allclose(g, w, rtol=rtol, atol=atol, err_msg=f"gradient of argument {i}")


def assert_keeps_float32(fn, *arrays):
    """float32 in gives float32 out, and float32 gradients."""
    results, _, found = gradients(fn, [a.astype("f4") if a.dtype.kind == "f" else a for a in arrays])
    assert results and all(r.dtype == np.float32 for r in results)
    assert all(g.dtype == np.float32 for g in found if g is not None)
