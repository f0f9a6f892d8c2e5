"""Memory of a training, as the system counts it: ``python -m benchmarks.memory NAME LIBRARY`` in a fresh process.

The resting state is the resident set after the imports, the model, its optimizer and one pass through a small layer,
which makes either library start its threads and buffers. The peak is the most that the resident set ever was during
five steps (VmHWM, reset before). Growth is the difference of the resident sets after many steps and after a few.
"""
import contextlib
import importlib
import json
import os
import subprocess
import sys

from .trainings import TRAININGS, step_of
from .worker import environment

__all__ = ["KNOWN", "measure"]

STATUS = "/proc/self/status"
KNOWN = os.path.exists(STATUS)
STEPS = 5


def resident(line):
    """MB of this process now ("VmRSS") or at most ("VmHWM")."""
    with open(STATUS, encoding="ascii") as file:
        return next(int(row.split()[1]) for row in file if row.startswith(line)) * 1024 / 1e6


def forget_peak():
    """Let VmHWM begin anew, where the system permits; otherwise what the imports needed counts, too."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def watch(name, library, growth_steps):
    """In this process: MB at rest, the peak beyond it, and the growth over so many steps."""
    torch = importlib.import_module(library)
    if library == "torch":
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    torch.manual_seed(0)
    step = step_of(*TRAININGS[name](torch))
    torch.nn.Linear(64, 64)(torch.randn(64, 64)).square().mean().backward()
    rest = resident("VmRSS")
    forget_peak()
    for _ in range(STEPS):
        step()
    figures = {"rest": rest, "peak": resident("VmHWM") - rest}
    if growth_steps:
        for _ in range(growth_steps // 10):
            step()
        settled = resident("VmRSS")
        for _ in range(growth_steps):
            step()
        figures["growth"] = resident("VmRSS") - settled
    return figures


def measure(name, library, threads, growth_steps=0):
    """The same of a fresh process."""
    command = [sys.executable, "-m", "benchmarks.memory", name, library, str(growth_steps)]
    got = subprocess.run(command, env=environment(threads), stdout=subprocess.PIPE, text=True, check=True,
                         start_new_session=True)
    return json.loads(got.stdout)


if __name__ == "__main__":
    print(json.dumps(watch(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
