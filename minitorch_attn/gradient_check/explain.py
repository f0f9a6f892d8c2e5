"""The search for the cause of each wrong gradient."""
import numpy

from . import guards
from .constants import name_of
from .evidence import Case
from .hypotheses import likely_cause, only_ignores_g
from .point import Point, second_point

__all__ = ["Explanation"]

LARGEST = 200_000  # entries of a Jacobian; beyond, no cause is looked for


class Explanation:
    """Names the causes of the wrong gradients that a Check has found."""

    def __init__(self, check):
        self.check, self.subject, self.reports = check, check.subject, check.report.arguments
        self.elsewhere = None

    def run(self):
        """Fill in the cause of every wrong gradient."""
        check, malformed = self.check, self.about_form()
        if not all(a.ok for a in self.reports):
            for i, about in enumerate(self.reports):
                if not about.ok and i not in malformed:
                    about.cause, about.detail = "unclear", self.obstacle(i)
                    if not about.detail:
                        self.search(i, about)
        else:
            check.report.guards[:] = [g for g in check.report.guards if g.kind != "no_gradient"]

    def about_form(self):
        """Name the cause where what backward returned has the wrong form; returns the numbers of these arguments."""
        malformed = {i: p for p in self.check.problems if p.kind != "no_gradient" for i in p.reached}
        for i, problem in malformed.items():
            about = self.reports[i]
            # a smaller dtype makes the values inexact; if they are quite wrong, the dtype is not all
            near = about.analytic is not None and numpy.allclose(about.analytic, about.numeric, rtol=1e-2, atol=1e-4)
            settled = about.ok or (problem.kind == "wrong_dtype" and near)
            otherwise = problem.kind if problem.kind in ("wrong_shape", "wrong_form") else "unclear"
            about.cause = problem.cause if settled else otherwise
            about.ok, about.detail, about.worst_index = False, problem.message, None
        return malformed

    def obstacle(self, i):
        """Why no cause is looked for, or ""."""
        M, N = len(self.check.here.point.y), self.subject.arguments[i].array.size
        if any(g.kind == "not_repeatable" for g in self.check.report.guards):
            return "not looked for: backward gives another gradient at every call"
        if max(M * a.array.size for a in self.subject.arguments) > LARGEST:
            return f"not looked for: {M} results by {N} entries are too large to look; check a smaller input"
        if not all(numpy.isfinite(g[i]).all() for g in self.check.here.analytic):
            return "not looked for: the gradient is not finite"
        if max(M, N) < 2:
            return "not looked for: one number by one number is too little to tell causes apart; check more entries"
        if self.point_elsewhere() is None:
            return ("not looked for: no second set of values was found in the function's domain, and at one set "
                    "several causes may look alike")
        return ""

    def point_elsewhere(self):
        """A Point at other values; None if there are none."""
        if self.elsewhere is None:
            values = second_point(self.subject, self.check.rng)
            self.elsewhere = values and Point(self.subject, *values, self.check.rng, self.check.inspected)
        return self.elsewhere

    def search(self, i, about):
        """Look for the cause of the wrong gradient of argument i."""
        first = Case(self.check.shifted.get(i, self.check.here.point), i)
        second = Case(self.point_elsewhere(), i)
        if not (first.point.is_linear(i) and second.point.is_linear(i)):
            if only_ignores_g(first) and only_ignores_g(second):
                about.cause, about.explanations = "ignored_upstream", [("ignored_upstream", "")]
            else:
                about.detail = "not looked for: backward is not linear in g"
                self.check.fail("nonlinear", guards.NONLINEAR, about.name, fatal=False)
            return
        about.cause, fits = likely_cause(first, second)
        about.explanations = sorted(fits)
        if about.cause == "unclear":
            about.detail = ("several causes reproduce this gradient" if fits else
                            "none of the known causes reproduces this gradient")
            return
        details = [d for c, d in fits if c == about.cause and d]
        about.detail = min(details, key=len) if details else ""
        if about.cause == "sign" and not about.detail:
            about.factor = -1.0
        if about.cause == "factor":
            about.factor = next(c for (cause, _), c in fits.items() if cause == "factor")
            about.detail = self.factor_in_words(about, first)

    def factor_in_words(self, about, case):
        """Where the constant may come from."""
        shapes = {a.name: (a.array.shape, a.axes) for a in self.subject.arguments}
        for k, r in enumerate(case.point.results):
            name = "the result" if len(case.point.results) == 1 else f"result {k}"
            shapes[name] = (r.shape, tuple(f"axis {n}" for n in range(r.ndim)))
        mixes = bool((numpy.count_nonzero(numpy.abs(case.J) > 1e-9 * case.size, axis=1) > 1).any())
        named = name_of(about.factor, shapes, mixes)
        return ", ".join(filter(None, (about.detail, named)))
