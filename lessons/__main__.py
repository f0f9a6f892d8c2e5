"""Run lessons on any array library: ``python lessons 00 13 --backend cupy``; without numbers, all of them in turn."""
import argparse
import os
import pathlib
import subprocess
import sys

LESSONS = sorted(pathlib.Path(__file__).resolve().parent.glob("[0-9]*.py"))


def main():
    ask = argparse.ArgumentParser(prog="python lessons", description=__doc__)
    ask.add_argument("numbers", nargs="*", metavar="NN", help=f"of {', '.join(p.stem[:2] for p in LESSONS)}")
    ask.add_argument("--backend", choices=("numpy", "dpnp", "cupy"), help="the array library that computes")
    asked = ask.parse_args()
    unknown = [n for n in asked.numbers if n not in [p.stem[:2] for p in LESSONS]]
    if unknown:
        ask.error(f"there is no lesson {unknown[0]!r}")
    environment = {**os.environ, **({"MINITORCH_BACKEND": asked.backend} if asked.backend else {})}
    for path in LESSONS:
        if not asked.numbers or path.stem[:2] in asked.numbers:
            print(f"{path.name}", flush=True)
            status = subprocess.run([sys.executable, str(path)], env=environment).returncode
            if status:
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
