"""The number of threads, and what is computed by several of them at once."""
import os
import subprocess
import sys
import threading

import numpy as np
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


@pytest.fixture
def three_threads():
    before = mt.get_num_threads()
    mt.set_num_threads(3)
    yield
    mt.set_num_threads(before)


@openblas
def test_parts_are_everything_once(three_threads):
    rows = np.arange(11)
    pieces = threads.parts(11, threads.LARGE)
    assert len(pieces) == 3
    assert np.array_equal(np.concatenate([rows[piece] for piece in pieces]), rows)
    assert threads.parts(2, threads.LARGE) == [slice(0, 1), slice(1, 2)]
    assert threads.parts(11, threads.LARGE - 1) == [slice(0, 11)]


@openblas
def test_results_stand_in_order_and_come_from_several_threads(three_threads):
    meet = threading.Barrier(3, timeout=60)  # which three threads pass together, or none

    def task(i):
        meet.wait()
        return i, mt.get_num_threads(), np.float32(1) / np.zeros(1, "f4")  # a warning would be an error here

    found = threads.at_once([lambda i=i: task(i) for i in range(3)])
    assert [i for i, _, _ in found] == [0, 1, 2]
    assert [n for _, n, _ in found] == [1, 1, 1]  # no thread of BLAS's beside those
    assert mt.get_num_threads() == 3


@openblas
def test_an_error_in_any_part_is_raised(three_threads):
    def fail():
        raise ValueError("in a part")

    for tasks in ([fail, int, int], [int, int, fail]):
        with pytest.raises(ValueError, match="in a part"):
            threads.at_once(tasks)
        assert mt.get_num_threads() == 3
    assert threads.at_once([int, int, int]) == [0, 0, 0]


@openblas
def test_threads_that_are_at_work_are_not_asked_again(three_threads):
    here = threading.get_ident()

    def outer():
        inner = threads.at_once([threading.get_ident] * 5)  # whoever asks now does all of it
        return len(set(inner)) == 1 and inner[0] == threading.get_ident(), threading.get_ident()

    alone, where = zip(*threads.at_once([outer] * 4))
    assert all(alone) and here in where
    inside, done = threading.Event(), threading.Event()
    meet = threading.Thread(target=lambda: threads.at_once([inside.set, lambda: done.wait(60)]))
    meet.start()  # another thread of the program has the threads ...
    inside.wait(60)
    assert threads.at_once([threading.get_ident] * 5) == [here] * 5
    done.set()
    meet.join()
    assert mt.get_num_threads() == 3  # ... and what it gives back is not what it found meanwhile


@openblas
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_starts_threads_of_its_own():
    code = ("import os, minitorch_attn as mt\nfrom minitorch_attn import threads\nmt.set_num_threads(2)\n"
            "threads.at_once([int, int])\nchild = os.fork()\n"
            "assert threads.at_once([int, int]) == [0, 0]\n"
            "os._exit(0) if child == 0 else print(os.waitpid(child, 0)[1])")
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert got.stdout == "0\n", got.stderr
