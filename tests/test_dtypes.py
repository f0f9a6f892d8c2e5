"""Mixing element types follows PyTorch's rule."""
import itertools

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import dtypes

NAMES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("a, b", list(itertools.product(NAMES, NAMES)))
def test_promote_types_like_torch(a, b):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    want = torch.promote_types(getattr(torch, a), getattr(torch, b))
    assert str(want) == f"torch.{mt.promote_types(getattr(mt, a), getattr(mt, b))}"


@pytest.mark.parametrize("vector, point, number", list(itertools.product(NAMES, NAMES, [True, 2, 2.5])))
def test_result_type_like_torch(vector, point, number):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    want = torch.result_type(torch.zeros(3, dtype=getattr(torch, vector)),
                             torch.zeros((), dtype=getattr(torch, point)))
    got = mt.result_type(mt.zeros(3, dtype=getattr(mt, vector)), mt.zeros((), dtype=getattr(mt, point)))
    assert str(want) == f"torch.{got}"
    want = torch.result_type(torch.zeros(3, dtype=getattr(torch, vector)), number)
    assert str(want) == f"torch.{mt.result_type(mt.zeros(3, dtype=getattr(mt, vector)), number)}"
    want = torch.result_type(torch.zeros((), dtype=getattr(torch, point)), number)
    assert str(want) == f"torch.{mt.result_type(mt.zeros((), dtype=getattr(mt, point)), number)}"


def test_numbers_never_promote_a_float_tensor():
    x = mt.zeros(3)
    for number in (2, 2.5, True, np.float64(2.5), np.int64(123456)):
        assert (x * number).dtype == mt.float32
        assert (number / (x + 1)).dtype == mt.float32


def test_default_dtype_can_be_changed_and_must_be_floating():
    with pytest.raises(TypeError, match="floating point"):
        mt.set_default_dtype(mt.int64)
    mt.set_default_dtype(mt.float64)
    try:
        assert mt.tensor([1.5]).dtype == mt.float64
    finally:
        mt.set_default_dtype(mt.float32)
    assert mt.tensor([1.5]).dtype == mt.float32


def test_a_word_is_no_number():
    with pytest.raises(TypeError, match="real number"):
        dtypes.scalar_dtype("3")
