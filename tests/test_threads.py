"""The number of threads of matrix products."""
import os
import subprocess
import sys

import pytest

import minitorch_attn as mt
from minitorch_attn import threads

openblas = pytest.mark.skipif(threads._get is None, reason="this NumPy's BLAS is not OpenBLAS")


@openblas
def test_what_is_set_is_what_blas_uses():
    before = mt.get_num_threads()
    try:
        for n in (2, 1):
            mt.set_num_threads(n)
            assert mt.get_num_threads() == threads._get() == n
    finally:
        mt.set_num_threads(before)


@pytest.mark.parametrize("wrong", [0, -1, 1.0, True, "2"])
def test_other_numbers_are_refused(wrong):
    before = mt.get_num_threads()
    with pytest.raises(RuntimeError, match="positive whole number"):
        mt.set_num_threads(wrong)
    assert mt.get_num_threads() == before


@openblas
@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_the_environment_says_how_many_at_the_start(name):
    variables = {key: value for key, value in os.environ.items() if not key.endswith("NUM_THREADS")}
    got = subprocess.run([sys.executable, "-c", "import minitorch_attn as mt; print(mt.get_num_threads())"],
                         env={**variables, name: "1"}, capture_output=True, text=True)
    assert got.stdout == "1\n", got.stderr


def test_another_blas_is_left_alone(monkeypatch):
    monkeypatch.setattr(threads, "_get", None)
    monkeypatch.setattr(threads, "_set", None)
    mt.set_num_threads(3)
    assert mt.get_num_threads() == 1
