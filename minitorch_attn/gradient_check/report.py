"""What a check found: values in code, text for a terminal, HTML for a notebook, a figure."""
import html
import textwrap
from dataclasses import dataclass, field

import numpy

from .causes import CAUSES

__all__ = ["ArgumentReport", "GradReport", "Guard"]

WIDTH = 80
BROKEN = {"backward_raised", "not_repeatable", "shared_memory"}  # guards that are about the backward


@dataclass
class Guard:
    """Something about the check itself that has to be said.

    kind : one of `GUARDS` in guards.py
    message : a sentence
    fatal : whether the check fails for it
    """
    kind: str
    message: str
    fatal: bool


@dataclass
class ArgumentReport:
    """What was found for one input or parameter.

    ok : whether its gradient is right
    cause : None if it is, else an identifier from `CAUSES`
    detail : what more is known about the cause
    factor : the constant, where the cause is "factor" (-1 for "sign"); else None
    explanations : all (cause, detail) that reproduce the wrong gradient
    worst_index : index of the worst entry, by its error in units of the tolerance; None if there is no entry
    analytic, numeric : the gradient by backward and by finite differences, for a random cotangent, like the argument
    tolerance : by how much they may differ, entry by entry
    uncertainty : how far off the finite differences themselves may be, entry by entry
    where : where the wrong entries are, in words
    kinks : how many entries stand on a kink, where there is no gradient to compare with
    tested : whether anything was compared that a wrong gradient would not pass
    """
    name: str
    shape: tuple
    axes: tuple
    ok: bool = True
    cause: str | None = None
    detail: str = ""
    factor: float | None = None
    explanations: list = field(default_factory=list)
    worst_index: tuple | None = None
    analytic: numpy.ndarray | None = None
    numeric: numpy.ndarray | None = None
    tolerance: numpy.ndarray | None = None
    uncertainty: numpy.ndarray | None = None
    step: float = 0.0
    where: str = ""
    kinks: int = 0
    tested: bool = True

    @property
    def error(self):
        """The largest difference between the two gradients."""
        if self.analytic is None or not self.analytic.size:
            return 0.0
        return float(numpy.nan_to_num(numpy.abs(self.analytic - self.numeric), nan=numpy.inf).max())

    @property
    def head(self):
        """Its name and shape."""
        return f"  {self.name} {self.shape}"

    def lines(self, width=30):
        """The report of this argument as lines of text, its verdict after `width` characters."""
        head = self.head.ljust(width)
        if self.ok:
            doubt = float(self.uncertainty.max(initial=0)) if self.uncertainty is not None else 0.0
            kinks = f", {self.kinks} on a kink" if self.kinks else ""
            if not self.tested:
                return [f"{head} untested{kinks}"]
            return [f"{head} ok     error {self.error:.0e}, uncertain by {doubt:.0e}{kinks}"]
        named = f"likely cause: {self.cause}" if self.cause != "unclear" else "cause unclear"
        return [f"{head} WRONG  {named}", *self.findings()]

    def findings(self):
        """The lines below a wrong argument's first one."""
        if self.worst_index is not None:
            i = self.worst_index
            at = ", ".join(f"{name} {k}" for name, k in zip(self.axes, i) if not name.startswith("axis "))
            place = f"{self.name}[{', '.join(map(str, i))}]" if i else self.name
            yield f"    worst entry  {place}" + (f"  ({at})" if at else "") + ", for a random g"
            yield f"    backward     {self.analytic[i]:+.9e}"
            doubt = f"to within {self.uncertainty[i]:.0e} (differences, step {self.step:.0e})"
            yield f"    true value   {self.numeric[i]:+.9e}, {doubt}"
        if self.where and self.worst_index is not None:
            yield f"    where        {self.where}"
        told = CAUSES[self.cause]
        meaning = told.meaning + (f": {self.detail}" if self.detail else "")
        if self.factor is not None and self.cause == "factor":
            detail = f" ({self.detail})" if self.detail else ""
            meaning = f"the gradient is {self.factor:.6g} times the true one{detail}"
        yield from wrapped("    meaning      ", meaning)
        if self.cause == "unclear" and self.explanations:
            yield from wrapped("    candidates   ", "; ".join(sorted({c for c, _ in self.explanations})))
        yield from wrapped("    what to do   ", told.advice)


def wrapped(label, text):
    """`text` in lines that all start below the end of `label`."""
    return textwrap.wrap(text, WIDTH, initial_indent=label, subsequent_indent=" " * len(label))


@dataclass
class GradReport:
    """What `explain_gradients` found; ``print(report)`` tells it, and in a notebook it shows itself.

    ok : whether every gradient is right and the check proves something
    arguments : list of ArgumentReport; ``report["x"]`` or ``report[0]`` gives one
    guards : list of Guard
    title : the function's name
    seconds : how long it took
    fast : whether only slopes along random directions were compared
    """
    title: str
    arguments: list = field(default_factory=list)
    guards: list = field(default_factory=list)
    seconds: float = 0.0
    fast: bool = False

    @property
    def ok(self):
        return all(a.ok for a in self.arguments) and not any(g.fatal for g in self.guards)

    def __bool__(self):
        return self.ok

    def __getitem__(self, key):
        if isinstance(key, int):
            return self.arguments[key]
        return {a.name: a for a in self.arguments}[key]

    @property
    def verdict(self):
        """The first line of the report."""
        wrong = sum(not a.ok for a in self.arguments)
        if wrong:
            return f"WRONG, {wrong} of {len(self.arguments)}"
        if any(g.kind in BROKEN and g.fatal for g in self.guards):
            return "WRONG: the backward is broken"
        return "FAILED: this check proves nothing" if not self.ok else "ok"

    def __str__(self):
        mode = ", along random directions only" if self.fast else ""
        lines = [f"Gradients of {self.title}: {self.verdict} ({self.seconds:.2f} s{mode})"]
        width = max([30, *(len(a.head) for a in self.arguments)])
        for argument in self.arguments:
            lines += argument.lines(width)
        told = {a.detail for a in self.arguments}
        for guard in self.guards:
            lines += [] if guard.message in told else wrapped("  ! " if guard.fatal else "  note: ", guard.message)
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self):
        parts = [f"<p><b>Gradients of {html.escape(self.title)}: {html.escape(self.verdict)}</b></p>"]
        for a in self.arguments:
            lines = "\n".join(a.lines())
            parts.append(f"<pre style='margin:0'>{html.escape(lines)}</pre>")
            if not a.ok and a.analytic is not None and a.analytic.size:
                parts.append(heat_table(a))
        parts += [f"<p>{html.escape(g.message)}</p>" for g in self.guards]
        return "<div>" + "".join(parts) + "</div>"

    def plot(self, path=None):
        """Draw the size of every argument's error, in units of what is allowed, as heat maps.

        Parameters
        ----------
        path : str, optional
            Write a PNG there.

        Returns
        -------
        The path, or without one the matplotlib Figure.
        """
        from matplotlib.ticker import MaxNLocator

        from ..plot import new_figure, save
        shown = [a for a in self.arguments if a.analytic is not None and a.analytic.size]
        figure, axes = new_figure(3.2 * max(len(shown), 1), 3.2, 1, max(len(shown), 1))
        for ax, a in zip(axes[0], shown):
            image = ax.imshow(as_matrix(excess(a)), cmap="Reds", vmin=-1, vmax=12, aspect="auto")
            rows, columns = labels(a)
            ax.set(title=f"{a.name}: {'ok' if a.ok else a.cause}", xlabel=columns, ylabel=rows)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        if shown:
            figure.colorbar(image, ax=list(axes[0]), label="log10(error / tolerance)\nabove 0 is wrong")
        return figure if path is None else save(figure, path)


def excess(a):
    """log10 of the error in units of the tolerance, within -1 and 12, like the argument."""
    with numpy.errstate(all="ignore"):
        error = numpy.abs(a.analytic - a.numeric) / numpy.maximum(a.tolerance, 1e-300)
    return numpy.log10(numpy.clip(numpy.nan_to_num(error, nan=1e12), 0.1, 1e12))


def as_matrix(values):
    """An array of any shape as a matrix: the last axis across, all others down."""
    return values.reshape(1, 1) if values.ndim == 0 else values.reshape(-1, values.shape[-1])


def labels(a):
    """What stands down and across in `as_matrix` of an argument."""
    return " x ".join(a.axes[:-1]), a.axes[-1] if a.axes else ""


def heat_table(a, most=32):
    """The argument's errors as an HTML table of coloured cells."""
    rows = ""
    for row in as_matrix(excess(a))[:most, :most]:
        reds = [int(255 - 17 * max(v, 0)) for v in row]
        rows += "<tr>" + "".join(f"<td style='width:14px;height:14px;background:rgb(255,{c},{c})'></td>" for c in reds)
    return f"<table style='border-collapse:collapse'>{rows}</table>"
