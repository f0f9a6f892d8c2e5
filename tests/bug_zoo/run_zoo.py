"""Running the zoo through the checker, and through one whose objective is a plain sum."""
import functools
from typing import NamedTuple

import numpy as np

import minitorch_attn as mt
from minitorch_attn.gradient_check import explain_gradients

from .zoo import ZOO


class Outcome(NamedTuple):
    """What became of one mistake.

    killed : whether the checker found it
    named : {argument: cause} of the arguments found wrong
    verdict : "right" if a cause was named and none was wrong, "wrong" if one was, else "unclear"
    summed : whether the checker with a plain sum found it
    """
    mistake: object
    killed: bool
    named: dict
    verdict: str
    summed: bool
    report: object


def truth(mistake, argument):
    """The true cause of a mistake as it shows in an argument."""
    if isinstance(mistake.cause, dict):
        return mistake.cause.get(argument, mistake.cause.get("*", "unclear"))
    return mistake.cause


@functools.cache
def outcome(number):
    """The outcome for mistake `number` of the zoo."""
    mistake = ZOO[number]
    fn, tensors = mistake.build()
    report = explain_gradients(fn, tensors, names=getattr(fn, "names", None))
    named = {a.name: a.cause for a in report.arguments if not a.ok}
    judged = {name: cause for name, cause in named.items() if cause != "unclear"}
    right = [cause == truth(mistake, name) for name, cause in judged.items()]
    verdict = "wrong" if not all(right) else "right" if right else "unclear"
    return Outcome(mistake, not report.ok, named, verdict, found_by_sum(fn, tensors), report)


def found_by_sum(fn, tensors, eps=1e-6):
    """Whether a checker with objective fn(x).sum(), in float64, step 1e-6, tolerance 1e-5, finds a mistake."""
    leaves = [mt.tensor(t.array.copy(), requires_grad=t.requires_grad) for t in tensors]

    def objective(inputs):
        value = fn(*inputs)
        values = value if isinstance(value, tuple) else (value,)
        total = 0.0
        for v in values:
            if v.dtype.kind == "f":
                total = total + v.sum()
        return total

    try:
        objective(leaves).backward()
    except (AssertionError, ValueError):
        return True
    for k, leaf in enumerate(leaves):
        if not leaf.requires_grad:
            continue
        got = np.zeros(leaf.shape) if leaf.grad is None else leaf.grad.numpy()
        for index in np.ndindex(leaf.shape):
            moved = []
            for step in (eps, -eps):
                array = tensors[k].array.copy()
                array[index] += step
                inputs = [mt.tensor(array if i == k else t.array.copy()) for i, t in enumerate(tensors)]
                with mt.no_grad():
                    moved.append(objective(inputs).item())
            slope = (moved[0] - moved[1]) / (2 * eps)
            if not abs(got[index] - slope) <= 1e-5 + 1e-4 * abs(slope):
                return True
    return False
