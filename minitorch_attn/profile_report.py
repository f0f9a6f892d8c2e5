"""What `profile` measured, as a table for people and as numbers for programs."""
import json
import os
from typing import NamedTuple

__all__ = ["SORTS", "Report", "Row"]

MIB = 2**20
OUTSIDE, OVERHEAD = "outside operations", "the profiler itself"
PACKAGE = os.path.dirname(__file__)


class Row(NamedTuple):
    """One operation, or one operation called from one place.

    forward, backward : seconds in the operation itself, without those that it called
    forward_bytes, backward_bytes : of the tensors, and of the gradients, that it made
    places : the same figures for each line that called it, the most expensive first; empty for a place
    where : "file:line" of the program, and of the layer that it called, if any; "" for an operation as a whole
    """
    name: str
    calls: int
    forward: float
    backward: float
    forward_bytes: int
    backward_bytes: int
    places: tuple = ()
    where: str = ""

    @property
    def total(self):
        """Seconds, forward and backward."""
        return self.forward + self.backward


SORTS = {
    "total": lambda row: -row.total,
    "forward": lambda row: -row.forward,
    "backward": lambda row: -row.backward,
    "calls": lambda row: -row.calls,
    "memory": lambda row: -row.forward_bytes - row.backward_bytes,
    "name": lambda row: row.name,
}  # by what the table can be sorted; the largest comes first


class Report:
    """The result of a profile; ``print(report)`` shows the table."""

    def __init__(self, meter):
        self.meter = meter

    @property
    def outside(self):
        """Seconds outside operations: Python itself, data, other libraries."""
        return self.meter.outside.seconds[0]

    @property
    def overhead(self):
        """Seconds in which the profiler looked for the lines that called."""
        return self.meter.itself.seconds[0]

    @property
    def seconds(self):
        """Seconds measured: the sum of all rows, `outside` and `overhead`."""
        return self.meter.since - self.meter.began

    def rows(self, sort="total"):
        """One `Row` an operation.

        Raises
        ------
        ValueError
            If `sort` is none of "total", "forward", "backward", "calls", "memory", "name".
        """
        if sort not in SORTS:
            raise ValueError(f"a profile is sorted by {', '.join(SORTS)}; got {sort!r}")
        found = {}
        for cell in list(self.meter.cells.values()):
            found.setdefault(cell.name, []).append(
                Row(cell.name, cell.calls, *cell.seconds, *cell.bytes, where=worded(cell.place)))
        rows = [summed(name, places)._replace(places=tuple(sorted(places, key=SORTS["total"])))
                for name, places in found.items()]
        return sorted(rows, key=SORTS[sort])

    def table(self, sort="total", top=None, lines=3):
        """The table as text.

        Parameters
        ----------
        sort : str
            As in `rows`.
        top : int, optional
            Show only so many operations, and the others as one row.
        lines : int
            Show, below an operation that was called from several lines, so many of them: the most expensive ones.
        """
        rows = self.rows(sort)
        top = len(rows) if top is None else top
        if rows[top:]:
            rows[top:] = [summed(f"{len(rows) - top} more", rows[top:])]
        width = max(len(name) for name in (OUTSIDE, OVERHEAD, *[row.name for row in rows]))
        text = [f"{'operation':{width}} {'calls':>8} {'forward ms':>11} {'backward ms':>11} {'share':>6} "
                f"{'forward MiB':>11} {'backward MiB':>12}  where"]
        for row in rows:
            single = len(row.places) == 1
            text.append(self.line(row, row.name, row.places[0].where if single else "", width))
            text += [] if single else [self.line(place, "", place.where, width) for place in row.places[:lines]]
        for name, seconds in ((OUTSIDE, self.outside), (OVERHEAD, self.overhead), ("all", self.seconds)):
            text.append(f"{name:{width}} {'':8} {1e3 * seconds:11.1f} {'':11} {self.share(seconds)}")
        return "\n".join(line.rstrip() for line in text)

    __str__ = __repr__ = table

    def share(self, seconds):
        """`seconds` as a part of all."""
        return f"{seconds / (self.seconds or 1):6.1%}"

    def line(self, row, name, where, width):
        """One line of the table."""
        return (f"{name:{width}} {row.calls:8} {1e3 * row.forward:11.1f} {1e3 * row.backward:11.1f} "
                f"{self.share(row.total)} {row.forward_bytes / MIB:11.1f} {row.backward_bytes / MIB:12.1f}  {where}")

    def as_dict(self):
        """Everything measured, in seconds and bytes, as dicts and lists that JSON can hold."""
        def plain(row):
            figures = row._asdict()
            del figures["places"], figures["where"]
            return figures

        operations = [{**plain(row), "places": [{"where": p.where, **plain(p)} for p in row.places]}
                      for row in self.rows()]
        return {"seconds": self.seconds, "outside": self.outside, "overhead": self.overhead, "operations": operations}

    def save(self, path):
        """Write `as_dict` to a JSON file."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.as_dict(), file, indent=1)


def summed(name, rows):
    """The row `name` with the figures of `rows` added up."""
    return Row(name, *[sum(row[i] for row in rows) for i in range(1, 6)])


def worded(place):
    """A place as text: "train.py:12", or "train.py:12 in nn/linear.py:40" if a layer of the package called."""
    return " in ".join(f"{shortened(file)}:{line}" for file, line in filter(None, place))


def shortened(file):
    """A file as seen from the package, for one of its own, or else from the working folder."""
    for folder in (PACKAGE, os.getcwd()):
        if file.startswith(folder + os.sep):
            return os.path.relpath(file, folder)
    return file
