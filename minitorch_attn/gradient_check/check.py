"""The check itself: its calls, and its steps one after the other."""
import time

import numpy

from . import guards
from .compare import COTANGENTS, Comparison
from .explain import Explanation
from .graph import BackwardError, flat
from .numeric import FIRST_STEP
from .point import Point, second_point
from .report import ArgumentReport, GradReport
from .subject import Subject
from .where import where_in_words

__all__ = ["GradcheckError", "explain_gradients", "gradcheck"]

FULL = 20_000   # with more entries than this, random directions instead, unless asked for
DIRECTIONS = 4  # how many in fast mode, for each argument; half as many at other values
LOOKED_AT = 256  # entries looked at one by one where fast mode finds a mistake


class GradcheckError(RuntimeError):
    """Raised by `gradcheck` for a wrong gradient; its text is the report, and `report` has it as a GradReport."""

    def __init__(self, report):
        super().__init__(f"\n{report}")
        self.report = report


def gradcheck(fn, inputs, *, eps=None, atol=None, rtol=None, raise_exception=True, nondet_tol=0.0, fast_mode=None,
              check_undefined_grad=True, check_grad_dtypes=True, check_batched_grad=False, check_forward_ad=False,
              check_backward_ad=True, masked=None, axes=None, names=None, seed=0):
    """Whether the gradients of `fn` agree with finite differences.

    Parameters
    ----------
    fn, inputs, eps, atol, rtol, fast_mode, axes, names, seed
        As in `explain_gradients`.
    raise_exception : bool
        Raise if they do not, instead of returning False.
    nondet_tol, check_undefined_grad, check_grad_dtypes, check_backward_ad, masked
        Accepted and ignored: dtypes are always checked, the same call must give the same result, and what backward
        does for a missing gradient is not tried.
    check_batched_grad, check_forward_ad
        Must be False.

    Returns
    -------
    bool

    Raises
    ------
    GradcheckError
        If a gradient is wrong, or the check proves nothing; a RuntimeError, whose text says where and why.
    NotImplementedError
        If batched gradients or forward mode are asked for.

    Differs from PyTorch: tolerances come from the differences' own error unless given; inputs of less than float64 are
    checked as float64, and so are modules and tensors that the function uses; if no input requires grad, all
    floating-point inputs are checked; the gradient is compared at other values, too; a function whose gradient is zero
    everywhere, or cannot be compared, fails, for that proves nothing.
    """
    if check_batched_grad or check_forward_ad:
        raise NotImplementedError("gradcheck has no batched gradients and no forward mode: leave these at False")
    report = explain_gradients(fn, inputs, eps=eps, atol=atol, rtol=rtol, fast_mode=fast_mode, axes=axes, names=names,
                               seed=seed)
    if raise_exception and not report.ok:
        raise GradcheckError(report)
    return report.ok


def explain_gradients(fn, inputs, *, eps=None, atol=None, rtol=None, fast_mode=None, axes=None, names=None, seed=0):
    """Hold the gradients of `fn` against finite differences, and where they are wrong say where and why.

    The objective is <result, u> with random weights u: for a plain sum many gradients vanish, and anything passes. It
    is compared at the given values and at others nearby, where zeros and ones hide no factor.

    Parameters
    ----------
    fn : function of tensors, or Module (whose parameters are checked, too)
        Returns a tensor, or tuples, lists or dicts of them. The same inputs must give the same result.
    inputs : Tensor or tuple
        Checked are those that require grad; if none does, all of floating point.
    eps : float, optional
        The largest step of the sweep; for an entry above 1, times that entry.
    atol, rtol : float, optional
        Let backward and numeric differ by atol + rtol |numeric|. By default the tolerance of each entry is ten times
        the uncertainty of its difference, plus 1e-8 of the slopes it is made of, for backward's own rounding.
    fast_mode : bool, optional
        Compare slopes along four random directions, at the given values only. By default where there are more than
        20,000 entries. A wrong entry among N shows less, by about 1 / sqrt(N): 1 % in one of a million is seen.
    axes : {name or number: tuple of str}, or a sequence with one tuple for each input, optional
        Names of axes to use in the report; by default from lines like ``x : Tensor (B, T, C)`` of fn's docstring.
    names : sequence of str, optional
        Names of the inputs; by default those of fn's parameters.
    seed : int
        Of the random numbers, which are the check's own.

    Returns
    -------
    GradReport

    Raises
    ------
    ValueError
        If `axes` or `eps` do not fit: an unknown input, another number of axes, a step that is not positive.
    """
    if eps is not None and not eps > 0:
        raise ValueError(f"eps is the largest step and must be positive, got {eps}")
    began = time.perf_counter()
    subject = Subject(fn, inputs, axes, names)
    report = GradReport(subject.title)
    with subject.state_kept():
        report.guards += guards.about_inputs(subject)
        if subject.arguments:
            Check(subject, report, eps or FIRST_STEP, atol, rtol, fast_mode, seed).run()
    report.seconds = time.perf_counter() - began
    return report


class Check:
    """One run of `explain_gradients`: what its steps share.

    here : Comparison at the given values
    shifted : {number: Point}, for arguments whose gradient is wrong at other values only
    """

    def __init__(self, subject, report, first_step, atol, rtol, fast, seed):
        self.subject, self.report, self.rng = subject, report, numpy.random.default_rng(seed)
        self.options = {"first_step": first_step, "atol": atol, "rtol": rtol}
        size = sum(a.array.size for a in subject.arguments)
        report.fast = self.fast = size > FULL if fast is None else bool(fast)
        self.inspected, self.here, self.problems, self.shifted = False, None, [], {}

    def fail(self, kind, sentence, *facts, fatal=True):
        """Add a guard, once."""
        new = guards.guard(kind, sentence, *facts, fatal=fatal)
        if new not in self.report.guards:
            self.report.guards.append(new)

    def run(self):
        """All steps; stops early where what follows would mean nothing."""
        subject, report = self.subject, self.report
        report.guards += guards.about_calls(subject)
        if not report.ok:
            return
        subject.graph(subject.arrays)
        if not subject.kept:
            self.fail("nothing_to_check", guards.NO_RESULT)
            return
        point = self.point(subject.arrays, subject.constants)
        finite = numpy.isfinite(point.y)
        if not finite.all():
            self.fail("not_finite", guards.RESULT_NOT_FINITE, (~finite).sum(), finite.size, fatal=False)
        for dtype in {r.dtype for r in point.results if r.dtype.itemsize < 8}:
            self.fail("low_precision", guards.SMALL_RESULT, dtype, fatal=False)
        if not self.ask_backward(point):
            return
        found = [self.compare(i) for i in range(len(subject.arguments))]
        self.judge(found)
        if not self.fast and not self.problems:
            self.look_elsewhere()
        Explanation(self).run()
        if not numpy.array_equal(self.here.point.values(), point.y, equal_nan=True):
            self.fail("random", guards.RANDOM)

    def point(self, arrays, constants):
        return Point(self.subject, arrays, constants, self.rng, self.inspected)

    def ask_backward(self, point):
        """Set up `here`; False if backward raises."""
        us = point.cotangents(self.rng, COTANGENTS)
        for self.inspected in (False, True):
            point = point if not self.inspected else self.point(point.arrays, point.constants)
            try:
                found = [point.graph.gradients(u) for u in us]
                copies = [None if g is None else g.copy() for g in found[0]]
                again = point.graph.gradients(us[0])
                if self.inspected or all(g is not None for gs in found for g in gs):
                    break
            except Exception as error:  # whatever a wrong backward may raise
                if self.inspected:
                    self.fail("backward_raised", "{}", error if isinstance(error, BackwardError) else
                              f"backward raised {type(error).__name__}: {error}")
                    return False
        self.problems = point.graph.problems
        for problem in self.problems:
            self.fail(problem.kind, "{}", problem.message, fatal=problem.kind != "no_gradient")
        self.report.guards += guards.about_gradients(self.subject, found[0], again, copies)
        analytic = [[numpy.zeros(a.size) if g is None else flat([g]) for g, a in zip(gs, point.arrays)]
                    for gs in found]
        self.here = Comparison(point, self.rng, **self.options, us=us, analytic=analytic)
        return True

    def compare(self, i):
        """Add the report of argument i; returns what was found."""
        argument = self.subject.arguments[i]
        about = ArgumentReport(argument.name, argument.array.shape, argument.axes)
        self.report.arguments.append(about)
        if not self.fast:
            found = self.here.entries(i)
            self.fill(about, i, self.here, found)
            return found
        found, ways = self.here.directions(i, DIRECTIONS)
        about.ok = not found.wrong.any()
        if about.ok:
            about.analytic, about.numeric, about.tolerance, about.uncertainty = found[:4]
        else:
            first = self.here.wrong_entry(i, ways[int(found.wrong.argmax())])
            others = self.rng.choice(argument.array.size, min(LOOKED_AT, argument.array.size) - 1, replace=False)
            entries = numpy.unique([first, *others])
            self.fill(about, i, self.here, self.here.entries(i, entries), entries)
        return found

    def fill(self, about, i, comparison, found, entries=None):
        """Put what was `found` for all entries of argument i, or for some, into its report."""
        argument, shape = self.subject.arguments[i], about.shape
        wrong, excess = found.wrong, found.excess
        about.ok = about.ok and not wrong.any()
        if not excess.size:
            return
        k = int(excess.max(axis=0).argmax())  # the cotangent that shows most
        numeric = found.numeric[:, k]
        about.analytic = numpy.where(found.compared, found.analytic[:, k], numeric)
        about.numeric, about.tolerance, about.uncertainty = numeric, found.allowed[:, k], found.doubt[:, k]
        worst = int(excess[:, k].argmax())
        about.step = float(found.step[worst])
        if entries is not None:
            about.where = f"{wrong.sum()} of the {len(entries)} entries looked at"
            worst, rest = int(entries[worst]), comparison.analytic[k][i]
            about.analytic, about.numeric, about.tolerance, about.uncertainty = (
                spread_out(values, entries, others) for values, others in (
                    (about.analytic, rest), (about.numeric, rest), (about.tolerance, numpy.full(rest.size, numpy.inf)),
                    (about.uncertainty, numpy.zeros(rest.size))))
        elif not about.ok:
            about.where = where_in_words(wrong.reshape(shape), argument, comparison.point.arrays[i],
                                         numeric.reshape(shape), self.subject.masks)
        about.worst_index = tuple(int(n) for n in numpy.unravel_index(worst, shape))
        about.analytic, about.numeric, about.tolerance, about.uncertainty = (
            a.reshape(shape) for a in (about.analytic, about.numeric, about.tolerance, about.uncertainty))

    def judge(self, found):
        """Say where the comparison proves nothing, for each argument by itself."""
        for about, f in zip(self.report.arguments, found):
            about.kinks = int(f.kinks.sum())
            about.tested = bool(f.compared.any()) or not len(f.compared)
            if self.fast and not about.tested:
                self.fail("untested", guards.NO_DIRECTION, about.name)
                continue
            if about.kinks:
                self.fail("kink", guards.KINK, about.name, about.kinks, fatal=not about.tested)
            for entries, sentence in ((f.edge, guards.EDGE), (f.unresolved & ~f.edge, guards.UNRESOLVED)):
                if entries.any() and not self.fast:
                    self.fail("untested", sentence, int(entries.sum()), about.name)
        flat_ones = [(about, f) for about, f in zip(self.report.arguments, found)
                     if about.ok and about.tested and f.numeric.size and not f.steep]
        for about, f in flat_ones:
            about.tested = False
            if (numpy.abs(f.numeric) > 10 * f.doubt + 1e-12 * self.here.usual).any():
                self.fail("vacuous", guards.LOOSE, about.name)
            elif not any(f.steep for f in found):
                self.fail("vacuous", guards.VACUOUS)
            else:
                self.fail("flat", guards.FLAT, about.name, fatal=False)

    def look_elsewhere(self):
        """Compare at other values along random directions, and where that fails entry by entry."""
        values = second_point(self.subject, self.rng)
        if values is None:
            return
        try:
            there = Comparison(self.point(*values), self.rng, **self.options)
        except Exception as error:  # whatever a wrong backward may raise
            self.fail("backward_raised", "at other values backward raised {}: {}", type(error).__name__, error)
            return
        for i, about in enumerate(self.report.arguments):
            if about.ok and about.analytic is not None and there.directions(i, DIRECTIONS // 2)[0].wrong.any():
                found = there.entries(i)
                if found.wrong.any():
                    self.fill(about, i, there, found)
                    about.tested, self.shifted[i] = True, there.point
                    self.fail("elsewhere", guards.ELSEWHERE, about.name, fatal=False)


def spread_out(values, entries, others):
    """`values` at the places `entries`, and `others` elsewhere."""
    result = others.copy()
    result[entries] = values
    return result
