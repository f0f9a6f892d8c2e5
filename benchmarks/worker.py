"""In a process of its own: does what it is told and says how long it took.

``python -m benchmarks.worker LIBRARY`` reads lines "PART CASE UNITS" and answers each with a line of JSON. `PART` is
a module of this package with a function ``make(case, library)``, which returns the function that does one unit: a
training step, a kernel forward and backward, a pass of generation.
"""
import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time

__all__ = ["Worker", "environment"]


def environment(threads):
    """The variables of a process that computes with so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUM_CPU_THREADS")
    return {**os.environ, **dict.fromkeys(names, str(threads))}


class Worker:
    """The other side: starts such a process and asks it.

    Only the case asked for last is kept: its memory is freed before the next one is made.
    """

    def __init__(self, library, threads):
        self.name = library
        self.process = subprocess.Popen([sys.executable, "-m", "benchmarks.worker", library], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(threads),
                                        start_new_session=True)  # the terminal's Ctrl-C is for the one who asks

    def play(self, part, case, units, patience=None):
        """Run `units` units: the seconds that they took, and what the last one returned, if it is a number.

        Raises
        ------
        SystemExit
            If the process fails, or has not answered after `patience` seconds.
        """
        alarm = threading.Timer(patience, self.process.kill) if patience else None
        if alarm:
            alarm.start()
        with contextlib.suppress(BrokenPipeError):  # it ended already
            self.process.stdin.write(f"{part} {case} {units}\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if alarm:
            alarm.cancel()
        if not answer:
            raise SystemExit(f"benchmarks: {self.name} failed on {part} {case}; its error is above")
        return json.loads(answer)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(BrokenPipeError):  # it ended already
            self.process.stdin.close()  # its loop ends, and what its library opened is closed in order
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def work(library):
    """Answer the lines of stdin until it ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a library prints must not look like an answer
    if library == "torch":
        importlib.import_module("torch").set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    current = do = None
    for line in sys.stdin:
        part, case, units = line.split()
        if (part, case) != current:
            current, do = (part, case), None  # free the one before
            do = importlib.import_module(f"benchmarks.{part}").make(case, library)
        if int(units) > 1:
            do()  # the other process had the caches until now
        began = time.perf_counter()
        for _ in range(int(units)):
            result = do()
        seconds = time.perf_counter() - began
        print(json.dumps([seconds, result if isinstance(result, float) else None]), file=answers, flush=True)


if __name__ == "__main__":
    work(sys.argv[1])
