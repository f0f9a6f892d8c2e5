"""Switches of the engine: whether graphs are recorded, whether lines are noted, whether NaN is hunted.

Each is a context manager and a decorator (of functions and of generators), nests, and puts back what was before.
"""
import functools
import inspect
import os
import sys

import numpy

enabled = True     # operations on tensors that require grad are recorded in a graph
recording = False  # each node notes the line of the program that made it
anomaly = False    # backward raises at the first NaN


class _Switch:
    """Base of the switches: sets the module-level flags named in `variables` to `value`."""
    variables, value = ("enabled",), False

    def __new__(cls, function=None):
        switch = object.__new__(cls)
        switch.before = []  # a stack, for one switch may be entered again before it is left
        return switch(function) if callable(function) else switch  # so that a bare @no_grad works too

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
        """Like ``yield from steps``, but the switch is off while the caller runs."""
        resume, value = steps.send, None
        try:
            while True:
                with self:
                    item = resume(value)
                try:
                    value = yield item
                    resume = steps.send
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
    """The same as `no_grad`, or with ``mode=False`` as `enable_grad`; there is no further limit on the results."""

    def __new__(cls, mode=True):  # a bare @inference_mode passes the function
        switch = super().__new__(cls, mode)
        if not mode:
            switch.value = True
        return switch


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
    """Record graphs or not, by argument: from now on, or only in a ``with`` block or a decorated function."""

    def __init__(self, mode):
        global enabled
        self.mode, self.before, enabled = mode, enabled, bool(mode)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        global enabled
        enabled = self.before

    def __call__(self, function):
        self.__exit__()  # a decorator changes nothing until the function is called
        return enable_grad(function) if self.mode else no_grad(function)


def is_grad_enabled():
    """Whether operations on tensors that require grad are recorded in a graph."""
    return enabled


def calling_line():
    """The line of the program outside this package, and NumPy's `errstate` around it, that runs now: "file:line"."""
    passed_over = tuple(os.path.dirname(module.__file__) + os.sep for module in (sys.modules[__package__], numpy))
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(passed_over):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
