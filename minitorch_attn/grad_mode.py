"""Switches of the engine: whether graphs are recorded, whether lines are noted, whether NaN is hunted.

Each is a context manager and a decorator (of functions and of generators), nests, and puts back what was before.
"""
import functools
import inspect
import os
import sys

enabled = True     # operations on tensors that require grad are recorded in a graph
recording = False  # each node notes the line of the program that made it
anomaly = False    # backward raises at the first NaN


class _Switch:
    """This module's `variables` are `value` inside a ``with`` block, or while a decorated function runs."""
    variables, value = ("enabled",), False

    def __new__(cls, function=None):
        switch = object.__new__(cls)
        switch.before = []  # a stack, for one switch may be entered again before it is left
        return switch if function is None else switch(function)  # so that a bare @no_grad works too

    def __enter__(self):
        self.before.append([globals()[name] for name in self.variables])
        globals().update(dict.fromkeys(self.variables, self.value))
        return self

    def __exit__(self, *_):
        globals().update(zip(self.variables, self.before.pop()))

    def __call__(self, function):
        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                return self._drive(function(*args, **kwargs))
        else:
            @functools.wraps(function)
            def wrapper(*args, **kwargs):
                with self:
                    return function(*args, **kwargs)
        return wrapper

    def _drive(self, steps):
        """Run a generator's body inside the switch; between its yields the caller has its own setting."""
        resume, value = steps.send, None
        try:
            while True:
                with self:
                    item = resume(value)
                try:
                    resume, value = steps.send, (yield item)
                except Exception as error:  # thrown in by the caller: the body may want to catch it
                    resume, value = steps.throw, error
        except StopIteration as end:
            return end.value
        finally:
            with self:
                steps.close()


class no_grad(_Switch):
    """Record no graph: ``with no_grad():``, or ``@no_grad()`` above a function or generator."""


class inference_mode(_Switch):
    """The same as `no_grad`; PyTorch's further restrictions on the results do not apply."""


class enable_grad(_Switch):
    """Record graphs again inside `no_grad`."""
    value = True


class record_lines(_Switch):
    """Note in each node the line of the program that made it (``Node.line``)."""
    variables, value = ("recording",), True


class detect_anomaly(_Switch):
    """Raise at the first backward function that returns NaN, naming it and the line that called its forward."""
    variables, value = ("recording", "anomaly"), True


class set_grad_enabled:
    """Record graphs or not, by argument: from now on, or until the end of the block when used in a ``with``."""

    def __init__(self, mode):
        global enabled
        self.before, enabled = enabled, bool(mode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        global enabled
        enabled = self.before


def is_grad_enabled():
    """Whether operations on tensors that require grad are recorded in a graph."""
    return enabled


def calling_line():
    """The line of the program outside this package that runs now, as "file:line"."""
    package, frame = os.path.dirname(__file__), sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
