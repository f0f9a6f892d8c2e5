"""The number of threads of matrix products."""
import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import threads
from minitorch_attn.backend import to_device, to_host, xp


@pytest.fixture
def asked(monkeypatch):
    """The numbers of threads that BLAS is told, while two are wanted."""
    calls = []
    monkeypatch.setattr(threads, "_set_blas_threads", calls.append)
    monkeypatch.setattr(threads, "_threads", 2)
    return calls


@pytest.mark.parametrize("a, b", [((3, 5), (5, 7)), ((2, 3, 5), (5, 7)), ((2, 3, 5), (2, 5, 7)), ((3, 0), (0, 7))])
def test_products(a, b):
    a, b = np.random.default_rng(0).standard_normal(a), np.random.default_rng(1).standard_normal(b)
    np.testing.assert_allclose(to_host(threads.matrix_product(to_device(a), to_device(b))), a @ b, rtol=1e-12)
    out = to_device(np.empty((a @ b).shape))
    assert threads.matrix_product(to_device(a), to_device(b), out=out) is out
    np.testing.assert_allclose(to_host(out), a @ b, rtol=1e-12)


@pytest.mark.skipif(xp.name != "numpy", reason="only NumPy has BLAS below it")
def test_small_products_take_one_thread_and_put_the_number_back(asked):
    small, large = np.ones((8, 8), "f4"), np.ones((2048, 2048), "f4")
    threads.matrix_product(small, small)
    assert asked == [1, 2]
    threads.matrix_product(small, large[:8])
    assert asked == [1, 2] * 2
    threads.matrix_product(large, large[:, :8])
    assert asked == [1, 2] * 2
    with pytest.raises(ValueError, match="mismatch"):
        threads.matrix_product(small, small[:3])
    assert asked == [1, 2] * 3


def test_set_num_threads(asked):
    mt.set_num_threads(3)
    assert mt.get_num_threads() == 3 and asked == [3]
    for wrong in (0, -1, 1.0, True, "2"):
        with pytest.raises(RuntimeError, match="positive whole number"):
            mt.set_num_threads(wrong)
    assert mt.get_num_threads() == 3 and asked == [3]


def test_the_environment_says_how_many():
    code = "import minitorch_attn as mt; print(mt.get_num_threads())"
    for text, number in {"3": "3", "0": None, "many": None, "": None}.items():
        got = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OMP_NUM_THREADS": text},
                             capture_output=True, text=True)
        assert got.stdout.strip() == (number or str(len(os.sched_getaffinity(0)))), got.stderr


@pytest.mark.skipif(xp.name != "numpy", reason="only NumPy has BLAS below it")
def test_blas_really_listens():
    blas = ctypes.PyDLL(np._core._multiarray_umath.__file__)
    names = [n for n in ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")
             if hasattr(blas, n)]
    if not names:
        pytest.skip("this NumPy's BLAS is not OpenBLAS")
    before = mt.get_num_threads()
    try:
        for n in (2, 1):
            mt.set_num_threads(n)
            assert getattr(blas, names[0])() == n
    finally:
        mt.set_num_threads(before)
