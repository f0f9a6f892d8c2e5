"""Run a PyTorch script without changing a line: the names that it imports from torch lead here instead."""
import contextlib
import os
import sys
import types

from .autograd import Tensor
from .torch_names import MODULES, NOT_COVERED

__all__ = ["run_script", "standing_in"]


class RefuseTheRest:
    """An import finder that refuses every module of PyTorch that is not in the table, whatever is installed."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(NOT_COVERED.format(name), name=name)


def loaded():
    """The modules named torch that Python knows at the moment, by name."""
    return {name: module for name, module in sys.modules.items() if name.split(".")[0] == "torch"}


@contextlib.contextmanager
def standing_in():
    """Within the block ``import torch`` gives this package, and every other import works as before.

    A PyTorch that is installed, or already imported, is out of reach meanwhile and comes back untouched.
    """
    finder, before = RefuseTheRest(), loaded()
    for name in before:
        del sys.modules[name]
    sys.modules.update(MODULES)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in loaded():
            del sys.modules[name]
        sys.modules.update(before)


@contextlib.contextmanager
def as_main(script, arguments):
    """Within the block the interpreter looks as it does under ``python SCRIPT ARGUMENTS``; gives ``__main__``."""
    main = types.ModuleType("__main__")
    main.__file__ = script
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    sys.argv, sys.path[:1] = [script, *arguments], [os.path.dirname(script)]
    sys.modules["__main__"] = main
    try:
        yield main
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = before


def point_to_the_list(error):
    """Where Python itself worded the error about a name that is not covered, say where the list is."""
    ours = {module.__name__ for module in MODULES.values()}
    if isinstance(error, ImportError) and error.name in ours:  # from torch.nn import Something
        error.msg += "; " + NOT_COVERED.format("it")
    elif isinstance(error, AttributeError) and isinstance(error.obj, Tensor):  # x.something()
        error.args = (f"{error}; " + NOT_COVERED.format("it"),)


def run_script(path, arguments=()):
    """Run the PyTorch script at `path` on this package, as ``python PATH ARGUMENTS`` would on PyTorch.

    Parameters
    ----------
    path : str
    arguments : sequence of str
        What the script finds in ``sys.argv[1:]``.

    Returns
    -------
    int
        The exit status: 0; 1 after an exception, whose traceback was printed and begins in the script; 2 if the
        script cannot be read, which one sentence on stderr says.

    Raises
    ------
    SystemExit
        As the script raised it.
    """
    script = os.path.abspath(path)
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"minitorch-attn run: cannot read the script {path}: {error.strerror}", file=sys.stderr)
        return 2
    with standing_in(), as_main(script, arguments) as main:
        try:
            exec(compile(source, script, "exec", dont_inherit=True), vars(main))
        except Exception as error:
            point_to_the_list(error)
            error = error.with_traceback(error.__traceback__.tb_next)  # without this frame
            sys.excepthook(type(error), error, error.__traceback__)  # which also ends other processes that train along
            return 1
    return 0
