"""Where a program's time and memory go: by operation, forward and backward apart, each with the lines that asked.

One clock is always charged to exactly one cell: to the operation that computes at the moment, to an optimizer's step,
to the walk back through the graph, or to everything outside. An operation that calls another hands the clock over and
gets it back, so nothing counts twice and the cells add up to the time that went by.

No operation knows that it is timed. While `profile` runs, the functions of ``ops`` and ``nn.functional`` have another
body (``__code__``), which turns the clock, so that they are timed under whatever name a program imported them; before
and afterwards they are what they are written as, and cost nothing more.
"""
import contextlib
import functools
import inspect
import os
import sys
import threading
import time
import types

import numpy

from . import autograd, ops
from .autograd import Partial, Tensor
from .backend import synchronize, whole_memory
from .nn import functional
from .optim import Optimizer, clipping
from .profile_report import Report
from .run import run_script
from .threads import at_work

__all__ = ["profile", "profile_script"]

FORWARD, BACKWARD = 0, 1
PACKAGE = os.path.dirname(__file__)

# Frames that are passed over in the search for a line: the operations themselves, and what stands between a call in a
# program or a layer and the operation. The rest of the package counts as layers, everything else as the program.
BETWEEN = tuple(os.path.join(PACKAGE, name) for name in (
    "ops" + os.sep, os.path.join("nn", "functional") + os.sep, os.path.join("nn", "module.py"), "autograd.py",
    "grad_mode.py", "methods.py", "profile.py"))
NUMPY = os.path.dirname(numpy.__file__) + os.sep  # whose errstate decorates some operations


@functools.cache
def kind_of(file):
    """Whether the code of a file is "between", a "layer" or the "program"."""
    if file.startswith((*BETWEEN, NUMPY)):
        return "between"
    return "layer" if file.startswith(PACKAGE + os.sep) else "program"


def place_of(frame):
    """The innermost line of the program that runs in `frame`, and that of a layer it called: (file, line) or None."""
    layer = None
    while frame is not None:
        file = frame.f_code.co_filename
        kind = kind_of(file)
        if kind == "program":
            return (file, frame.f_lineno), layer
        if kind == "layer" and layer is None:
            layer = file, frame.f_lineno
        frame = frame.f_back
    return None, layer


class Cell:
    """What one operation, called from one place, has cost: the pairs are of forward and backward.

    seconds : in this operation itself, without those that it called.
    bytes : of the tensors it made (not views), and of the gradients its backward made.
    """
    __slots__ = ("name", "place", "calls", "seconds", "bytes")

    def __init__(self, name, place=(None, None)):
        self.name, self.place, self.calls, self.seconds, self.bytes = name, place, 0, [0.0, 0.0], [0, 0]


class Meter:
    """The clock. It follows the thread that made it; operations in other threads count as outside.

    A kernel computed in parts by several threads (`threads.at_once`) counts as a whole: its time until all have ended,
    and the memory of its result.
    """

    def __init__(self):
        self.cells, self.outside, self.itself = {}, Cell("outside"), Cell("itself")
        self.cell, self.phase, self.thread = self.outside, FORWARD, threading.get_ident()
        self.began = self.since = time.perf_counter()

    def follows(self):
        """Whether the calling thread is measured; none is after `stop`, or while several compute parts of a kernel."""
        return self.thread == threading.get_ident() and not at_work()

    def turn(self, cell, phase):
        """Charge the time since the last turn to the cell that had the clock, and hand it to another."""
        synchronize()
        now = time.perf_counter()
        self.cell.seconds[self.phase] += now - self.since
        self.cell, self.phase, self.since = cell, phase, now

    def stop(self):
        """Charge the last stretch; what is still wrapped afterwards runs as if it were not."""
        self.turn(self.outside, FORWARD)
        self.thread = None

    def enter(self, name, frame):
        """The cell of the operation `name` called in `frame`, one call more; the search is charged to the profiler."""
        self.turn(self.itself, FORWARD)
        key = name, place_of(frame)
        if key not in self.cells:
            self.cells[key] = Cell(*key)
        self.cells[key].calls += 1
        return self.cells[key]

    def timed(self, function, name=None, phase=FORWARD):
        """`function` with the clock turned to it; without a name it is a method, named after its object's class."""
        def timed(*args, **kwargs):
            if not self.follows():
                return function(*args, **kwargs)
            before = self.cell, self.phase
            cell = self.enter(name or f"{type(args[0]).__name__}.{function.__name__}", sys._getframe(1))
            self.turn(cell, phase)
            try:
                return function(*args, **kwargs)
            finally:
                self.turn(*before)

        return timed

    def wrapping(self, wrap):
        """`Tensor.wrap`, noting the memory of each tensor that is not a view."""
        def noted(array, storage=None):
            x = wrap(array, storage)
            if storage is None and self.follows():
                self.cell.bytes[self.phase] += x.array.nbytes
            return x

        return noted

    def recording(self, from_op):
        """`Tensor.from_op`, its backward charged to the operation that called it.

        An operation of the program's own is seen here first: it is counted under its name, and its forward time,
        which lies before, stays outside.
        """
        def recorded(op, array, inputs, backward=None, view=False):
            if not self.follows():
                return from_op(op, array, inputs, backward, view)
            before, cell = (self.cell, self.phase), self.cell
            if cell is self.outside:
                cell = self.enter(op, sys._getframe(1))
                self.turn(cell, FORWARD)
            try:
                return from_op(op, array, inputs, backward and TimedBackward(backward, cell, self), view)
            finally:
                if cell is not before[0]:
                    self.turn(*before)

        return recorded


class TimedBackward:
    """A backward function that turns the clock to its operation's cell."""
    __slots__ = ("function", "cell", "meter", "__closure__")

    def __init__(self, function, cell, meter):
        self.function, self.cell, self.meter = function, cell, meter
        self.__closure__ = function.__closure__  # in which the engine looks for arrays that were overwritten

    def __call__(self, g):
        meter = self.meter
        if not meter.follows():
            return self.function(g)
        before = meter.cell, meter.phase
        meter.turn(self.cell, BACKWARD)
        try:
            results = self.function(g)
        finally:
            meter.turn(*before)
        self.cell.bytes[BACKWARD] += made(results, g)
        return results


def made(results, g):
    """Bytes of the arrays among a backward's results that are not the gradient `g` that came, or a part of it."""
    arrays = [gx.array if isinstance(gx, Partial) else gx for gx in results if gx is not None]
    memory = {id(whole): whole for whole in map(whole_memory, arrays)}
    memory.pop(id(whole_memory(g)), None)
    return sum([whole.nbytes for whole in memory.values()])


# The other body

def stand_in(*args, _timed, **kwargs):
    """The body that an operation has while it is timed; `_timed` is among the function's own keyword defaults."""
    return _timed(*args, **kwargs)


def operations():
    """The functions of ``ops``, ``nn.functional`` and gradient clipping with their names; decorators are left out.

    Those in place hold the operation they are named after in a closure, and so cannot change their body: they show
    as that operation, and as `Tensor.assign`, which they end in.
    """
    found = {}
    for module in (ops, functional, clipping):
        for name in getattr(module, "__all__", vars(module)):
            function = inspect.unwrap(getattr(module, name))
            if inspect.isfunction(function) and not function.__closure__:
                found[function] = function.__name__
    return found


def body_of(function):
    """What makes a function do what it does; it can be replaced while the function stays the same object."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


def give_body(function, body):
    function.__code__, function.__defaults__, function.__kwdefaults__ = body


def copy_of(function):
    """Another function with the same body."""
    copy = types.FunctionType(function.__code__, function.__globals__, function.__name__)
    give_body(copy, body_of(function))
    return copy


def replacements(meter):
    """Each function to be timed, with its timed form."""
    found = {function: meter.timed(copy_of(function), name) for function, name in operations().items()}
    found[Tensor.assign] = meter.timed(copy_of(Tensor.assign), "assign")
    found[Optimizer.step] = meter.timed(copy_of(Optimizer.step))
    for function in (Tensor.backward, autograd.grad):
        found[function] = meter.timed(copy_of(function), f"{function.__name__}()", BACKWARD)
    return found


@contextlib.contextmanager
def profile():
    """Measure what runs in the block: ``with profile() as report: ...``, then ``print(report)``.

    Time is the wall clock's, between waits for the device if there is one; memory is that of the tensors and
    gradients made, whether or not they were kept. The block runs a few microseconds an operation slower.

    Yields
    ------
    Report
        Filled while the block runs; see `Report.table`, `Report.rows` and `Report.as_dict`.

    Raises
    ------
    RuntimeError
        If a profile is running already.
    """
    if Tensor.backward.__code__ is stand_in.__code__:
        raise RuntimeError("a profile is running already; the report of the outer one covers this block too")
    meter = Meter()
    from_op, wrap, timed = Tensor.from_op, Tensor.wrap, replacements(meter)
    before = {function: body_of(function) for function in timed}
    try:
        Tensor.from_op, Tensor.wrap = staticmethod(meter.recording(from_op)), staticmethod(meter.wrapping(wrap))
        for function, replacement in timed.items():
            give_body(function, (stand_in.__code__, None, {"_timed": replacement}))
        yield Report(meter)
    finally:
        meter.stop()
        Tensor.from_op, Tensor.wrap = staticmethod(from_op), staticmethod(wrap)
        for function, body in before.items():
            give_body(function, body)


def profile_script(script, arguments=(), sort="total", top=None, json=None):
    """Run the PyTorch script as `run_script` does, then print where its time went, also if it ended early.

    Parameters
    ----------
    script : str
    arguments : sequence of str
        What the script finds in ``sys.argv[1:]``.
    sort, top
        As in `Report.table`.
    json : str, optional
        A file to write everything measured to.

    Returns
    -------
    int
        The script's exit status, as `run_script` gives it; 2 if the script cannot be read or `json` not be written,
        and then nothing has run.

    Raises
    ------
    SystemExit
        As the script raised it.
    """
    json = json if json is None else os.path.abspath(json)  # for the script may change the folder
    for path, mode, use in ((script, "rb", "read the script"), (json, "a", "write to")):
        try:
            if path is not None:
                open(path, mode).close()
        except OSError as error:
            print(f"minitorch-attn profile: cannot {use} {path}: {error.strerror}", file=sys.stderr)
            return 2
    try:
        with profile() as report:
            return run_script(script, arguments)
    finally:
        print(f"\n{report.table(sort, top)}")
        if json is not None:
            report.save(json)
