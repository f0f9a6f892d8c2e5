"""The command line: ``minitorch-attn COMMAND``, or ``python -m minitorch_attn COMMAND``."""
import argparse
import sys

__all__ = ["main"]


def positive(text):
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"needs a whole number from 1 on, got {text!r}")
    return int(text)


def seed(text):
    """A whole number in [0, 2**64)."""
    if not text.isdecimal() or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"needs a whole number from 0 to 2**64 - 1, got {text!r}")
    return int(text)


def parser():
    """What can be said on the command line."""
    top = argparse.ArgumentParser(prog="minitorch-attn", description="Attention and Transformers from scratch on "
                                  "NumPy, under PyTorch's names.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    about = "train a small GPT on four poems, continue them, check its gradients, draw its attention"
    demo = commands.add_parser("demo", help=about, description=about.capitalize() + ".")
    demo.add_argument("--steps", type=positive, default=400, help="training steps (default: 400)")
    demo.add_argument("--seed", type=seed, default=0, help="of the random numbers (default: 0)")
    demo.add_argument("--text", metavar="FILE", help="learn this UTF-8 text instead of the poems")
    demo.add_argument("--out", metavar="DIR", default="out", help="folder for the figures (default: out)")

    about = "run a PyTorch script, unmodified, on this library"
    run = commands.add_parser("run", help=about, description=about.capitalize() + ".")
    run.add_argument("script", metavar="SCRIPT.py")
    rest = run.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="handed on as they are")
    rest.required = False  # else a missing script is reported as missing arguments too

    about = "print the versions of what is installed, and what computes"
    commands.add_parser("info", help=about, description=about.capitalize() + ".")
    return top


def main(arguments=None):
    """Carry out one command and return its exit status."""
    asked = vars(parser().parse_args(arguments))
    command = asked.pop("command")
    if command == "demo":
        from .demo import demo
        return demo(**asked)
    if command == "run":
        from .run import run_script
        return run_script(asked["script"], asked["arguments"])
    from .info import describe
    print(describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
