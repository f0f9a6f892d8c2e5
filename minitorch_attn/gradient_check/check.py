"""The check itself: backward against finite differences, with random cotangents, and the search for the cause."""
import time

import numpy

from . import guards
from .constants import name_of
from .evidence import Case, Point, second_point
from .graph import flat
from .hypotheses import constant, likely_cause
from .numeric import FIRST_STEP, rounding_noise, slopes
from .report import ArgumentReport, GradReport
from .subject import Subject
from .where import where_in_words

__all__ = ["GradcheckError", "explain_gradients", "gradcheck"]

FULL = 20_000      # with more entries than this, random directions instead, unless asked for
DIRECTIONS = 4     # how many in fast mode, for each argument
CAUSES_UP_TO = 2_000_000  # entries of a Jacobian; beyond, no cause is looked for
COTANGENTS = 2


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
        Accepted and ignored: dtypes are always checked, and the same call must give the same result.
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
    checked as float64; if no input requires grad, all floating-point inputs are checked; a function whose gradient is
    zero everywhere fails, for that proves nothing.
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

    The objective is <result, u> with a random cotangent u: for a plain sum many gradients vanish, and anything passes.

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
        Compare slopes along random directions only. By default where there are more than 20,000 entries.
    axes : {name or number: tuple of str}, or a sequence with one tuple for each input, optional
        Names of axes to use in the report; by default from lines like ``x : Tensor (B, T, C)`` of fn's docstring.
    names : sequence of str, optional
        Names of the inputs; by default those of fn's parameters.
    seed : int
        Of the random numbers, which are the check's own.

    Returns
    -------
    GradReport
    """
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

    us : random cotangents (K, M)
    analytic : for each cotangent, a list with the flat gradient of every argument
    """

    def __init__(self, subject, report, first_step, atol, rtol, fast, seed):
        self.subject, self.report, self.first_step, self.atol, self.rtol = subject, report, first_step, atol, rtol
        self.rng = numpy.random.default_rng(seed)
        size = sum(a.array.size for a in subject.arguments)
        report.fast = self.fast = size > FULL if fast is None else bool(fast)
        self.inspected = False

    def fail(self, kind, sentence, *facts, fatal=True):
        """Add a guard, once."""
        new = guards.guard(kind, sentence, *facts, fatal=fatal)
        if new not in self.report.guards:
            self.report.guards.append(new)

    def run(self):
        """All steps; stops early where what follows would mean nothing."""
        subject, report = self.subject, self.report
        subject.graph(subject.arrays)
        if not subject.kept:
            self.fail("nothing_to_check", guards.NO_RESULT)
            return
        report.guards += guards.about_calls(subject)
        if not report.ok:
            return
        y = subject.values(subject.arrays)
        finite = numpy.isfinite(y)
        if not finite.all():
            self.fail("not_finite", guards.RESULT_NOT_FINITE, (~finite).sum(), y.size, fatal=False)
        self.us = self.rng.standard_normal((COTANGENTS, y.size)) * finite
        self.noise = rounding_noise(lambda: subject.values(subject.arrays), subject.arrays, self.rng)
        for dtype in {r.dtype for r in subject.results(subject.arrays) if r.dtype.itemsize < 8}:
            self.fail("low_precision", guards.SMALL_RESULT, dtype, fatal=False)
            rounding = float(numpy.finfo(dtype).eps) * numpy.abs(y[finite]).max(initial=0)
            self.noise = numpy.maximum(self.noise, rounding)
        if not self.ask_backward():
            return
        steep = [self.compare(i) for i in range(len(subject.arguments))]
        if not any(steep) and y.size and sum(a.array.size for a in subject.arguments):
            self.fail("vacuous", guards.VACUOUS)
        self.explain()

    def ask_backward(self):
        """Fill in `analytic`; False if backward raises."""
        subject = self.subject
        for self.inspected in (False, True):
            graph = subject.graph(subject.arrays, self.inspected)
            try:
                found = [graph.gradients(u) for u in self.us]
                copies = [None if g is None else g.copy() for g in found[0]]
                again = graph.gradients(self.us[0])
                break
            except (AssertionError, ValueError, TypeError) as error:
                if self.inspected:
                    self.fail("wrong_shape", "backward raised {}: {}", type(error).__name__, error)
                    return False
            except RuntimeError as error:
                self.fail("not_repeatable", "backward raised RuntimeError: {}", error)
                return False
        if not self.inspected and any(g is None for g in found[0]):
            self.inspected = True
            graph = subject.graph(subject.arrays, True)
            graph.gradients(self.us[0])
        self.problems = graph.problems
        for problem in graph.problems:
            self.fail(problem.kind, "{}", problem.message, fatal=problem.kind != "no_gradient")
        self.report.guards += guards.about_gradients(subject, found[0], again, copies)
        self.analytic = [[numpy.zeros(a.size) if g is None else flat([g]) for g, a in zip(gs, subject.arrays)]
                         for gs in found]
        return True

    def compare(self, i):
        """Add the report of argument i; returns whether its true gradient is anywhere distinct from zero."""
        argument = self.subject.arguments[i]
        about = ArgumentReport(argument.name, argument.array.shape, argument.axes)
        self.report.arguments.append(about)
        return (self.along_directions if self.fast else self.entry_by_entry)(i, argument, about)

    def entry_by_entry(self, i, argument, about):
        """`compare` in full: one slope for every entry."""
        x, subject, shape = argument.array, self.subject, argument.array.shape
        found = slopes(lambda _: subject.values(subject.arrays), x, self.noise, self.first_step)
        numeric, doubt = found.value @ self.us.T, found.error @ numpy.abs(self.us).T  # (N, M) -> (N, K)
        analytic = numpy.stack([g[i] for g in self.analytic], axis=1)
        made_of = numpy.abs(found.value) @ numpy.abs(self.us).T
        allowed = self.allowed(numeric, doubt, made_of)
        kink = (found.kink & (self.us != 0).any(axis=0)).any(axis=1) & self.between(found, analytic)
        excess = numpy.nan_to_num(numpy.abs(analytic - numeric) / numpy.maximum(allowed, 1e-300), nan=1e300)
        excess[kink] = 0
        about.kinks, wrong = int(kink.sum()), excess > 1
        if about.kinks:
            self.fail("kink", guards.KINK, about.name, about.kinks, fatal=False)
        about.ok = not wrong.any()
        if x.size:
            k = int(excess.max(axis=0).argmax())
            about.analytic, about.numeric, about.tolerance, about.uncertainty = (
                v[:, k].reshape(shape) for v in (analytic, numeric, allowed, doubt))
            about.analytic = numpy.where(kink.reshape(shape), about.numeric, about.analytic)
            off = numpy.nan_to_num(numpy.abs(analytic - numeric)[:, k], nan=numpy.inf)
            worst = int(numpy.where(wrong[:, k] | about.ok, off, -1).argmax())
            about.worst_index = tuple(int(n) for n in numpy.unravel_index(worst, shape))
            about.step = float(numpy.median(found.step[worst]))
            if not about.ok:
                about.where = where_in_words(wrong.any(axis=1).reshape(shape), argument, about.numeric, subject.masks)
        return bool((numpy.abs(numeric) > allowed)[~kink].any())

    def allowed(self, numeric, doubt, made_of):
        """By how much backward and difference may differ."""
        if self.atol is not None or self.rtol is not None:
            return (self.atol or 0.0) + (self.rtol or 0.0) * numpy.abs(numeric)
        return 10 * doubt + 1e-8 * made_of + 1e-10 * made_of.max(axis=0, initial=0) + 1e-14

    def between(self, found, analytic):
        """Whether the gradient of each entry lies between the slopes to the left and to the right, (N,)."""
        fits = numpy.ones(len(analytic), bool)
        for k, u in enumerate(self.us):
            with numpy.errstate(all="ignore"):
                left, right = found.left * u, found.right * u
            low, high = (numpy.nansum(f(left, right), axis=1) for f in (numpy.fmin, numpy.fmax))
            unknown = ~(numpy.isfinite(left) & numpy.isfinite(right)).all(axis=1)
            slack = 1e-3 * (numpy.abs(low) + numpy.abs(high)) + 1e-6
            fits &= unknown | ((analytic[:, k] >= low - slack) & (analytic[:, k] <= high + slack))
        return fits

    def along_directions(self, i, argument, about):
        """`compare` in fast mode: one slope for each random direction."""
        x, subject = argument.array, self.subject
        start, ok, steep, seen = x.copy(), True, False, []
        for _ in range(DIRECTIONS):
            way = self.rng.standard_normal(x.shape) / max(1.0, x.size ** 0.5)

            def values(t, way=way):
                x[...] = start + t[0] * way
                return subject.values(subject.arrays)

            found = slopes(values, numpy.zeros(1), self.noise, self.first_step)
            x[...] = start
            numeric, doubt = found.value @ self.us.T, found.error @ numpy.abs(self.us).T
            made_of = numpy.abs(found.value) @ numpy.abs(self.us).T
            analytic = numpy.array([[g[i] @ way.reshape(-1) for g in self.analytic]])
            allowed = self.allowed(numeric, doubt, made_of)
            if found.kink.any():
                about.kinks += 1
                continue
            ok = ok and bool((numpy.abs(analytic - numeric) <= allowed).all())
            steep = steep or bool((numpy.abs(numeric) > allowed).any())
            seen.append((analytic, numeric, allowed, doubt))
        about.ok = ok
        if seen:
            about.analytic, about.numeric, about.tolerance, about.uncertainty = map(numpy.concatenate, zip(*seen))
        if not ok:
            self.sample(i, argument, about)
        return steep

    def sample(self, i, argument, about, most=256):
        """After fast mode found a mistake: look at some entries one by one."""
        x, subject = argument.array, self.subject
        entries = numpy.sort(self.rng.choice(x.size, min(most, x.size), replace=False))
        found = slopes(lambda _: subject.values(subject.arrays), x, self.noise, self.first_step, entries)
        numeric, doubt = (numpy.zeros(x.size) for _ in range(2))
        allowed = numpy.full(x.size, numpy.inf)
        numeric[entries], doubt[entries] = found.value @ self.us[0], found.error @ numpy.abs(self.us[0])
        allowed[entries] = self.allowed(numeric[entries], doubt[entries],
                                        numpy.abs(found.value) @ numpy.abs(self.us[0]))
        analytic = self.analytic[0][i].copy()
        rest = numpy.setdiff1d(numpy.arange(x.size), entries)
        numeric[rest] = analytic[rest]
        excess = numpy.abs(analytic - numeric) / allowed
        about.analytic, about.numeric, about.tolerance, about.uncertainty = (
            v.reshape(x.shape) for v in (analytic, numeric, allowed, doubt))
        about.worst_index = tuple(int(n) for n in numpy.unravel_index(int(excess.argmax()), x.shape))
        about.where = f"{(excess > 1).sum()} of the {len(entries)} entries looked at"

    def explain(self):
        """Name the cause of every wrong gradient, where it can be named."""
        reports, points = self.report.arguments, []
        malformed = {i: p for p in self.problems if p.kind != "no_gradient" for i in p.reached}
        for i, problem in malformed.items():
            # a smaller dtype makes the values inexact; if they are quite wrong, the dtype is not all
            near = numpy.allclose(reports[i].analytic, reports[i].numeric, rtol=1e-2, atol=1e-4)
            settled = reports[i].ok or (problem.kind == "wrong_dtype" and near)
            otherwise = "wrong_shape" if problem.kind == "wrong_shape" else "unclear"
            reports[i].cause = problem.cause if settled else otherwise
            reports[i].ok, reports[i].detail, reports[i].worst_index = False, problem.message, None
        wrong = [i for i, a in enumerate(reports) if not a.ok and i not in malformed]
        small = all(self.us.shape[1] * a.array.size <= CAUSES_UP_TO for a in self.subject.arguments)
        for i in wrong:
            reports[i].cause = "unclear"
            if small and numpy.isfinite(numpy.concatenate([g[i] for g in self.analytic])).all():
                points = points or self.points()
                first, second = (Case(p, i) for p in points)
                reports[i].cause, reports[i].explanations = likely_cause(first, second)
                self.describe(reports[i], first, points)
        if not wrong:
            self.report.guards[:] = [g for g in self.report.guards if g.kind != "no_gradient"]

    def points(self):
        """The two points at which hypotheses are tested."""
        subject = self.subject
        elsewhere = second_point(subject, self.rng)
        return [Point(subject, arrays, magnitude, self.inspected, self.rng)
                for arrays, magnitude in ((subject.arrays, 1.7), (elsewhere, 0.6))]

    def describe(self, about, case, points):
        """Fill in what is known about a named cause."""
        details = [d for c, d in about.explanations if c == about.cause and d]
        about.detail = min(details, key=len) if details else ""
        if about.cause in ("sign", "factor"):
            about.factor = -1.0 if about.cause == "sign" else constant(case)
        if about.cause == "factor":
            shapes = {a.name: (a.array.shape, a.axes) for a in self.subject.arguments}
            for k, r in enumerate(points[0].results):
                name = "the result" if len(points[0].results) == 1 else f"result {k}"
                shapes[name] = (r.shape, tuple(f"axis {n}" for n in range(r.ndim)))
            about.detail = name_of(about.factor, shapes)
