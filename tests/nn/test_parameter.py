"""Parameters: what they share, copy and refuse."""
import copy

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.nn import Parameter, UninitializedParameter


def test_shares_memory_and_leaves_the_graph():
    x = mt.tensor([1.0, 2.0], requires_grad=True)
    p = Parameter(x * 2)
    assert isinstance(p, mt.Tensor) and p.is_leaf and p.requires_grad
    y = mt.ones(3)
    p = Parameter(y)
    with mt.no_grad():
        p.fill_(5.0)
    assert y.tolist() == [5.0, 5.0, 5.0]


def test_a_pending_backward_notices_a_write_through_the_parameter():
    x = mt.tensor([3.0], requires_grad=True)
    w = mt.tensor([2.0])
    p = Parameter(w, requires_grad=False)
    y = x * w
    p.fill_(7.0)
    with pytest.raises(RuntimeError, match="modified in place"):
        y.backward()


def test_results_of_operations_are_plain_tensors():
    p = Parameter(mt.ones(3))
    assert type(p * 2) is mt.Tensor and type(p.detach()) is mt.Tensor and type(p.data) is mt.Tensor


@pytest.mark.parametrize("grad", [True, False])
def test_deepcopy(grad):
    p = Parameter(mt.tensor([1.0, 2.0]), requires_grad=grad)
    p.note = ["mine"]
    p.grad, p.owner = mt.ones(2), {"holds": p}
    q = copy.deepcopy(p)
    assert type(q) is Parameter and q.requires_grad is grad and q.note == ["mine"] and q.note is not p.note
    assert q.grad is None and q.owner["holds"] is q
    with mt.no_grad():
        q.fill_(0.0)
    assert p.tolist() == [1.0, 2.0]


def test_deepcopy_of_a_pair_keeps_the_tie():
    p = Parameter(mt.ones(2))
    a, b = copy.deepcopy((p, p))
    assert a is b and a is not p


def test_refusals():
    with pytest.raises(TypeError, match=r"wrap the values in tensor"):
        Parameter([1.0, 2.0])
    with pytest.raises(RuntimeError, match="floating-point"):
        Parameter(mt.tensor([1, 2]))
    assert not Parameter(mt.tensor([1, 2]), requires_grad=False).requires_grad


def test_empty_and_repr():
    assert Parameter().shape == (0,)
    assert repr(Parameter(mt.ones(2))).startswith("Parameter containing:\ntensor([1., 1.]")


def test_own_attributes():
    p = Parameter(mt.ones(2))
    p.NANOGPT_SCALE_INIT = 1
    assert p.NANOGPT_SCALE_INIT == 1


def test_uninitialized():
    p = UninitializedParameter(dtype=mt.float64)
    with pytest.raises(RuntimeError, match="no shape yet"):
        p.shape  # noqa: B018
    assert repr(p) == "<UninitializedParameter>" and type(copy.deepcopy(p)) is UninitializedParameter
    p.materialize((2, 3))
    assert type(p) is Parameter and p.shape == (2, 3) and p.dtype == mt.float64 and p.requires_grad
    (p * 1.0).backward(mt.tensor(np.ones((2, 3))))
    assert p.grad.shape == (2, 3)
