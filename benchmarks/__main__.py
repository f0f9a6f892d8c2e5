"""Speed and memory side by side with PyTorch and others: ``python -m benchmarks``.

Each library works in a process of its own with the same number of threads, and they take turns; what is reported is
the median over the turns of the ratio of their times. docs/performance.md tells what is measured and how to read it.
"""
import argparse
import importlib.util
import os

from . import report
from .parts import PARTS
from .trainings import TRAININGS

QUICK = {"turns": 3, "seconds": 0.02, "growth_steps": 50}


def processors():
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def chosen(names):
    """The cases of each part that the names ask for: a part, PART:CASE, or a training.

    Raises
    ------
    ValueError
        If a name stands for nothing.
    """
    if not names:
        return {part: [case for case in cases if case not in extra] for part, (_, cases, extra) in PARTS.items()}
    picked = {}
    for name in names:
        part, _, wanted = (name if name not in TRAININGS else f"trainings:{name}").partition(":")
        _, cases, extra = PARTS.get(part, (None, [], []))
        found = [case for case in cases if (wanted in (case, case.partition("/")[0]) if wanted else case not in extra)]
        if not found:
            raise ValueError(name)
        picked[part] = [*picked.get(part, []), *found]
    return {part: list(dict.fromkeys(picked[part])) for part in PARTS if part in picked}


def parser():
    """The command line."""
    ask = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.split("\n")[0])
    ask.add_argument("which", nargs="*", metavar="NAME", help=f"of the parts {', '.join(PARTS)}; a training "
                     f"({', '.join(TRAININGS)}); or PART:CASE, as kernels:softmax (default: every part)")
    ask.add_argument("--threads", type=int, default=processors(), help="for every library (default: all processors)")
    ask.add_argument("--turns", type=int, default=15, help="how often each library has its turn, at least 2")
    ask.add_argument("--seconds", type=float, default=0.08, help="about how long a turn is, at least one step")
    ask.add_argument("--growth-steps", type=int, default=1000, help="over how many steps growth is measured")
    ask.add_argument("--patience", type=float, default=90, help="seconds a peer may take for its first steps")
    ask.add_argument("--quick", action="store_true", help="few and short turns, to see that all works")
    ask.add_argument("--json", metavar="FILE", help="write the figures there")
    ask.add_argument("--chart", metavar="FILE", help="draw the ratios there, as a PNG")
    return ask


def refuse_wrong_input(ask, asked):
    """End with a message on what cannot be measured or written; now, not after minutes of measuring."""
    if asked.turns < 2 or asked.threads < 1 or asked.seconds < 0 or asked.growth_steps < 1:
        ask.error("the numbers are too small")
    for path in filter(None, (asked.json, asked.chart)):
        asked_for = path if os.path.exists(path) else os.path.dirname(path) or "."
        if os.path.isdir(path) or not os.access(asked_for, os.W_OK):
            ask.error(f"{path} cannot be written")
    if importlib.util.find_spec("torch") is None:
        ask.error("PyTorch is not installed, and without it there is nothing to compare with: "
                  "python -m pip install --editable '.[test]'")


def measure(asked, cases, parts):
    """Print and put in `parts` the rows of each part, one after the other."""
    for part, wanted in cases.items():
        parts[part] = []
        print(f"\n{report.table_head(part)}", flush=True)
        for row in PARTS[part][0](asked, wanted):
            parts[part].append(row)
            print(report.table_line(row), flush=True)
        if part in ("trainings", "kernels"):
            print(f"geometric mean of the ratios {report.geometric_mean(parts[part]):.2f}", flush=True)


def main():
    """Measure what is asked for; the exit status, that of an interruption if there was one."""
    ask = parser()
    asked = ask.parse_args()
    for option, value in QUICK.items() if asked.quick else ():
        setattr(asked, option, value)
    try:
        cases = chosen(asked.which)
    except ValueError as error:
        ask.error(f"nothing to measure is called {error}; see --help")
    refuse_wrong_input(ask, asked)
    print(f"{asked.threads} threads, {asked.turns} turns of about {asked.seconds:g} s; "
          "a ratio below 1 is less time or memory than PyTorch's", flush=True)
    parts, status = {}, 0
    try:
        measure(asked, cases, parts)
    except KeyboardInterrupt:
        print("\nInterrupted: what was measured until now is kept.")
        status = 130
    print("\n" + "\n".join(report.judge(parts)))
    if asked.json:
        report.save(report.figures(parts, asked), asked.json)
    if asked.chart:
        report.draw(parts, asked.chart)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
