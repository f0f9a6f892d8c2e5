"""The number of threads, and what is computed by several of them at once."""
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import threads

openblas = pytest.mark.skipif(threads._get is None, reason="this NumPy's BLAS is not OpenBLAS")
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def printed_by(program, variables=None):
    """What a program prints that has this package as `mt`; it must not say anything on its error output."""
    begin = "import os, threading, minitorch_attn as mt\nfrom minitorch_attn import threads\n"
    got = subprocess.run([sys.executable, "-c", begin + program], env=variables, capture_output=True, text=True,
                         timeout=120)
    assert not got.stderr, got.stderr
    return got.stdout


@openblas
def test_what_is_set_is_what_blas_uses(set_num_threads):
    for n in (2, 1):
        set_num_threads(n)
        assert mt.get_num_threads() == threads._get() == n


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
    assert printed_by("print(mt.get_num_threads())", {**variables, name: "1"}) == "1\n"


def test_another_blas_is_left_alone(monkeypatch):
    monkeypatch.setattr(threads, "_get", None)
    monkeypatch.setattr(threads, "_set", None)
    mt.set_num_threads(3)
    assert mt.get_num_threads() == 1


@pytest.fixture
def three_threads(set_num_threads):
    set_num_threads(3)


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
        assert threads.at_work()
        return i, threads._get(), np.float32(1) / np.zeros(1, "f4")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = threads.at_once([lambda i=i: task(i) for i in range(3)])
    assert [i for i, _, _ in found] == [0, 1, 2]
    assert [n for _, n, _ in found] == [1, 1, 1]  # no thread of BLAS's beside those
    assert threads._get() == 3 and not threads.at_work()


@openblas
@pytest.mark.parametrize("in_main", [True, False])
def test_an_error_in_any_part_is_raised_when_all_have_ended(three_threads, in_main):
    meet, ended = threading.Barrier(3, timeout=60), []

    def task():
        meet.wait()
        if (threading.current_thread() is threading.main_thread()) == in_main:
            raise ValueError("in a part")
        time.sleep(0.05)
        ended.append(1)

    with pytest.raises(ValueError, match="in a part"):
        threads.at_once([task] * 3)
    assert len(ended) == (2 if in_main else 1)
    assert threads._get() == 3
    assert threads.at_once([int, int, int]) == [0, 0, 0]


@openblas
def test_a_number_set_meanwhile_is_kept(three_threads):
    def task():
        assert mt.get_num_threads() == 3  # as it will be again, though a product now stays in one
        mt.set_num_threads(2)

    threads.at_once([task, int])
    assert mt.get_num_threads() == threads._get() == 2


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
@forks
def test_a_forked_process_starts_threads_of_its_own():
    assert printed_by("""
mt.set_num_threads(2)
threads.at_once([int, int])
child = os.fork()
assert threads.at_once([int, int]) == [0, 0] and threads._get() == 2
if not child:
    os._exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") == "5\n"


@openblas
@forks
def test_a_process_forked_while_the_threads_work_has_them_too():
    assert printed_by("""
mt.set_num_threads(2)
inside, done = threading.Event(), threading.Event()
other = threading.Thread(target=threads.at_once, args=([inside.set, done.wait],))
other.start()
inside.wait()
child = os.fork()
if not child:
    os._exit(threads._get() + len(threads.at_once([int] * 3)) + 10 * threads.at_work())
done.set()
other.join()
print(threads._get(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""") == "2 5\n"


@openblas
def test_large_kernels_run_while_the_program_ends():
    assert printed_by("""
import atexit
mt.set_num_threads(2)
x = mt.randn(512, 1024)
atexit.register(lambda: print(tuple(mt.nn.functional.gelu(x).shape)))
""") == "(512, 1024)\n"
