"""What to run where a GPU is at hand, in under six minutes: ``python tests/gpu_check.py``.

Four parts, each in a process of its own and with a time limit of its own: which card and which versions; a part of the
test suite on CuPy; the demo; and the three trainings of ``benchmarks`` side by side with PyTorch on the same card.
What it prints at the end, from "figures" on, goes into docs/backends.md with the name of the card.

It needs CuPy and pytest, and for the comparisons a PyTorch built for the card. ``--backend dpnp`` (or numpy) goes
through the same steps without a GPU, PyTorch on the processor, to see that the script itself is in order.
"""
import argparse
import importlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
SHARES = {"tests": 170, "demo": 60, "benchmark": 90}  # seconds at most; the rest, to six minutes, is start-up
SUITE = ["tests/test_backend.py", "tests/test_switching.py", "tests/test_autograd.py", "tests/ops", "tests/nn",
         "tests/models", "tests/optim",
         "tests/gradient_check/test_check.py::test_right_gradients_pass_in_every_form_of_call"]
TURNS, STEPS, WARM_UP = 5, 10, 5  # of the median of how many turns, of how many steps each, after how many steps


def run(command, seconds, backend):
    """Run a command in the repository's folder; its exit status (None: out of time) and what it printed."""
    environment = {**os.environ, "MINITORCH_BACKEND": backend, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return None, (error.stdout or b"").decode(errors="replace")
    return done.returncode, done.stdout + done.stderr


def card(backend):
    """The card's name, driver and memory, and the versions of what computes."""
    import importlib.metadata
    found = {}
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["card"] = subprocess.run(asked, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        found["card"] = "none that nvidia-smi knows of"
    for name in ("numpy", "torch", *[d.name for d in importlib.metadata.distributions()
                                     if (d.name or "").startswith(backend)]):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return found


def tests(backend, seconds, workers):
    """The suite's last line, and the names of the tests that failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.txt"
        # the report is written line by line, so that it says how far the tests came if time runs out
        command = [sys.executable, "-m", "pytest", "--backend", backend, "-q", "--tb=line", "-p", "no:cacheprovider",
                   *(["-n", str(workers)] if workers else []), *SUITE]
        status, printed = run(["bash", "-c", f"exec \"$@\" > {report} 2>&1", "bash", *command], seconds, backend)
        printed = report.read_text(errors="replace")
    failed = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = (printed.strip().splitlines() or ["nothing was printed"])[-1]
    if status is None:
        marks = [c for line in printed.splitlines() if line.endswith("%]") for c in line.partition(" ")[0]]
        last = f"out of time: {marks.count('.')} passed, {marks.count('F')} failed so far; {last}"
    return {"status": status, "result": last, "failed": failed}


def demo(backend, seconds):
    """The demo's lines from training to the gradients."""
    with tempfile.TemporaryDirectory() as folder:
        status, printed = run([sys.executable, "-m", "minitorch_attn", "demo", "--backend", backend, "--steps",
                               "200", "--out", folder], seconds, backend)
    lines = [line for line in printed.splitlines() if line.startswith("training  ")]
    return {"status": status, "result": (lines or printed.strip().splitlines() or ["nothing was printed"])[-1]}


def time_training(name, library):
    """In this process: the median milliseconds of a step of one of the benchmark's trainings."""
    from benchmarks.trainings import TRAININGS
    torch = importlib.import_module(library)
    wait = torch.cuda.synchronize
    if library == "torch":
        if torch.cuda.is_available():
            torch.set_default_device("cuda")
        else:
            torch.set_num_threads(1)
            wait = lambda: None  # noqa: E731
    torch.manual_seed(0)
    optimizer, loss_of = TRAININGS[name](torch)

    def steps(count):
        for _ in range(count):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        wait()

    steps(WARM_UP)
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        steps(STEPS)
        times.append((time.perf_counter() - began) / STEPS * 1000)
    return statistics.median(times)


def benchmark(backend, seconds):
    """Milliseconds a step of each training, here and on PyTorch, one after the other."""
    rows, end = {}, time.monotonic() + seconds
    for name in ("mini_gpt", "vit", "seq2seq"):
        for library in ("minitorch_attn", "torch"):
            left = max(end - time.monotonic(), 1)
            status, printed = run([sys.executable, __file__, "--time", name, library], left, backend)
            ended = status == 0 and printed.strip().splitlines()[-1]
            rows.setdefault(name, {})[library] = (
                float(ended) if ended else "out of time" if status is None else printed.strip().splitlines()[-1])
    return rows


def held(figures):
    """Whether every part that ran came to its end and nothing failed."""
    times = [ms for row in figures.get("benchmark", {}).values() for ms in row.values()]
    return (figures.get("tests", {}).get("status", 0) == 0 and figures.get("demo", {}).get("status", 0) == 0
            and all(isinstance(ms, float) for ms in times))


PARTS = {"tests": tests, "demo": demo, "benchmark": benchmark}


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--backend", default="cupy", choices=["cupy", "dpnp", "numpy"])
    ask.add_argument("--parts", nargs="+", default=list(SHARES), choices=list(SHARES))
    ask.add_argument("--workers", type=int, default=min(8, (os.cpu_count() or 2) // 2), help="of pytest-xdist, or 0")
    ask.add_argument("--time", nargs=2, help=argparse.SUPPRESS)
    asked = ask.parse_args()
    if asked.time:
        print(time_training(*asked.time))
        return 0
    began = time.monotonic()
    status, printed = run([sys.executable, "-c", "import minitorch_attn"], 60, asked.backend)
    if status != 0:
        print(f"nothing to check: {(printed.strip().splitlines() or ['importing took over a minute'])[-1]}",
              file=sys.stderr)
        return 1
    figures = {"machine": card(asked.backend)}
    for part in asked.parts:
        print(part, "...", flush=True)
        extra = (asked.workers,) if part == "tests" else ()
        figures[part] = PARTS[part](asked.backend, SHARES[part], *extra)
    figures["seconds"] = round(time.monotonic() - began)
    print("figures")
    print(json.dumps(figures, indent=1))
    return 0 if held(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
