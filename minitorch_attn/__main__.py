"""The command line: ``minitorch-attn COMMAND``, or ``python -m minitorch_attn COMMAND``."""
import argparse
import sys

from .backend import DEVICE_KINDS
from .profile_report import SORTS
from .switching import use_backend

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


def add_script(command):
    """Let a command take a script and the script's own arguments."""
    command.add_argument("script", metavar="SCRIPT.py")
    rest = command.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="handed on as they are")
    rest.required = False  # else a missing script is reported as missing arguments too


def parser():
    """What can be said on the command line."""
    top = argparse.ArgumentParser(prog="minitorch-attn", description="Attention and Transformers from scratch on "
                                  "NumPy, under PyTorch's names.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    library = argparse.ArgumentParser(add_help=False)
    library.add_argument("--backend", choices=DEVICE_KINDS, help="the array library that computes (default: what "
                         "MINITORCH_BACKEND in the environment says, or numpy)")

    about = "train a small GPT on four poems, continue them, check its gradients, draw its attention"
    demo = commands.add_parser("demo", parents=[library], help=about, description=about.capitalize() + ".")
    demo.add_argument("--steps", type=positive, default=400, help="training steps (default: 400)")
    demo.add_argument("--seed", type=seed, default=0, help="of the random numbers (default: 0)")
    demo.add_argument("--text", metavar="FILE", help="learn this UTF-8 text instead of the poems")
    demo.add_argument("--out", metavar="DIR", default="out", help="folder for the figures (default: out)")
    demo.add_argument("--data-parallel", action="store_true", help="train in the processes that mpiexec -n N starts")

    about = "run a PyTorch script, unmodified, on this library"
    run = commands.add_parser("run", parents=[library], help=about, description=about.capitalize() + ".")
    add_script(run)

    about = "run a PyTorch script and show where its time and memory go, by operation and line"
    profile = commands.add_parser("profile", parents=[library], help=about, description=about.capitalize() + ".")
    profile.add_argument("--sort", choices=SORTS, default="total", help="what the table is sorted by (default: total)")
    profile.add_argument("--top", type=positive, metavar="N", help="show N operations, the others as one row")
    profile.add_argument("--json", metavar="FILE", help="write everything measured to this file too")
    add_script(profile)

    about = "check the gradients of operations and layers"
    check = commands.add_parser("gradcheck", parents=[library], help=about,
                                description=about.capitalize() + ", by finite differences.")
    check.add_argument("names", metavar="NAME", nargs="*", help="such as softmax, layer_norm or MultiheadAttention")
    check.add_argument("--all", action="store_true", help="all there are; the same as naming none")
    check.add_argument("--against", choices=["torch"], help="compare with this library as well")

    about = "print the versions of what is installed, and what computes"
    commands.add_parser("info", help=about, description=about.capitalize() + ".")
    return top


def main(arguments=None):
    """Carry out one command and return its exit status."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    asked = vars(parser().parse_args(arguments))
    command, backend = asked.pop("command"), asked.pop("backend", None)
    if backend is not None:
        try:
            use_backend(backend)
        except (ImportError, RuntimeError) as error:
            print(f"minitorch-attn {command}: {error}", file=sys.stderr)
            return 2
    if command == "demo":
        from .demo import demo
        return demo(**asked)
    if command in ("run", "profile"):
        rest = asked["arguments"]
        if arguments[-len(rest) - 1] == "--":  # argparse drops it, but it stands after the script and so belongs to it
            asked["arguments"] = ["--", *rest]
    if command == "run":
        from .run import run_script
        return run_script(asked["script"], asked["arguments"])
    if command == "profile":
        from .profile import profile_script
        return profile_script(**asked)
    if command == "gradcheck":
        from .gradient_check.checkup import checkup
        return checkup([] if asked["all"] else asked["names"], asked["against"])
    from .info import describe
    print(describe())
    return 0


if __name__ == "__main__":
    sys.exit(main())
