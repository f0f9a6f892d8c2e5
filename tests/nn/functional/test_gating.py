"""Gates against PyTorch, finite differences and their parts."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, assert_like_torch, draw
from tests.nn.functional.composed import assert_equals_composed, assert_keeps_float32


@pytest.mark.parametrize("shape", [(3, 5), (1,), (), (0, 3)], ids=str)
def test_swiglu(shape):
    arrays = draw(*shape), draw(*shape, seed=1)

    def theirs(gate, x):
        import torch
        return torch.nn.functional.silu(gate) * x

    assert_gradients(F.swiglu, *arrays)
    assert_like_torch(F.swiglu, theirs, *arrays)
    assert_keeps_float32(F.swiglu, *arrays)
    assert_equals_composed(F.swiglu, lambda gate, x: F.silu(gate) * x, *arrays)


def test_far_from_zero():
    y = F.swiglu(mt.tensor([-1000.0, 1000.0]), mt.tensor([2.0, 2.0]))
    assert np.array_equal(y.numpy(), [0, 2000])


def test_mistakes():
    for other in (mt.zeros(5), mt.zeros(3, dtype=mt.float64)):
        with pytest.raises(RuntimeError, match="one shape and dtype"):
            F.swiglu(mt.zeros(3), other)
