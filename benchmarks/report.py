"""What a run says: a table for each part, the doubts, figures as JSON, and a chart."""
import importlib.metadata
import json
import math
import os
import platform
import statistics

__all__ = ["draw", "figures", "geometric_mean", "judge", "save", "table_head", "table_line"]

BIAS = 0.05  # so far may the control's median be from 1


def table_head(part):
    """The line above the rows of a part."""
    return f"{part:45} {'unit':>8} {'ours':>9} {'PyTorch':>9} {'ratio':>7}   middle half"


def table_line(row):
    """One row, and below it what stands beside."""
    if "skipped" in row:
        return f"{row['name']:45} {row['skipped']}"
    line = f"{row['name']:45} {row['unit']:>8} {short(row['ours']):>9} {short(row['theirs']):>9}"
    if "ratio" in row:
        line += f" {row['ratio']:7.2f}"
    if "quartiles" in row:
        line += "   {:.2f} to {:.2f}".format(*row["quartiles"])
    line += "  noisy" if row.get("noisy") else ""
    for name, figure in row.get("others", {}).items():
        line += f"\n    {name:41} {row['unit']:>8} {short(figure):>9}"
    if "losses" in row:
        line += "".join(f"\n    losses, {who:33} " + " ".join(f"{loss:9.5f}" for loss in losses)
                        for who, losses in row["losses"].items())
    return line


def short(figure):
    """Four digits."""
    return f"{figure:.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"


def geometric_mean(rows):
    """Of the ratios."""
    return math.exp(statistics.fmean(math.log(row["ratio"]) for row in rows))


def judge(parts):
    """Sentences on how far the figures can be trusted."""
    said = []
    for row in parts.get("control", []):
        if row["noisy"] or abs(row["ratio"] - 1) > BIAS:
            low, high = row["quartiles"]
            said.append(f"TOO NOISY TO JUDGE: PyTorch against itself came to {row['ratio']:.2f} "
                        f"({low:.2f} to {high:.2f}); run it again when nothing else runs.")
    noisy = [f"{part}: {row['name']}" for part, rows in parts.items() for row in rows if row.get("noisy")]
    if noisy:
        said.append("Too noisy to judge, the middle half is too wide: " + "; ".join(noisy) + ".")
    if not said:
        said.append("No row was too noisy to judge.")
    return said


def figures(parts, asked):
    """All of it, with what is needed to read it later."""
    def version(name):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return None

    means = {part: round(geometric_mean(rows), 3) for part, rows in parts.items()
             if part in ("trainings", "kernels") and rows}
    return {"threads": asked.threads, "turns": asked.turns, "seconds_a_turn": asked.seconds,
            "machine": platform.machine(), "processors": os.cpu_count(), "python": platform.python_version(),
            "versions": {name: version(name) for name in
                         ("minitorch_attn", "torch", "numpy", "autograd", "mygrad", "dezero", "tinygrad")},
            "geometric_mean": means, "doubts": judge(parts), "parts": parts}


def save(figures, path):
    """Write the figures as JSON."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(figures, file, indent=1)


def draw(parts, path):
    """A bar for each ratio to PyTorch on a logarithmic axis, from 1; the line in a bar's end is the middle half."""
    from matplotlib.figure import Figure
    bars = [(part, row) for part, rows in parts.items() for row in rows if row.get("ratio", 0) > 0]
    figure = Figure(figsize=(9, 1.2 + 0.24 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for place, (_part, row) in enumerate(bars):
        ratio = row["ratio"]
        axes.barh(place, ratio - 1, left=1, height=0.7, color="#2a7f9e" if ratio <= 1 else "#c8643c",
                  alpha=0.4 if row.get("noisy") else 1)
        low, high = row.get("quartiles", (ratio, ratio))
        axes.plot([low, high], [place, place], color="black", linewidth=1)
        label = {"x": min(1, low), "ha": "right"} if ratio > 1 else {"x": max(1, high), "ha": "left"}
        axes.text(label["x"], place, f" {ratio:.2f} ", ha=label["ha"], va="center", fontsize=7)
    for place in range(1, len(bars)):
        if bars[place][0] != bars[place - 1][0]:
            axes.axhline(place - 0.5, color="0.8", linewidth=0.8)
    axes.set_yticks(range(len(bars)), [f"{part}: {row['name']}" for part, row in bars], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    ticks = [t for t in (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if axes.get_xlim()[0] <= t <= axes.get_xlim()[1]]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axes.minorticks_off()
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_xlabel("cost relative to PyTorch: to the left of 1, less than PyTorch; pale: too noisy to judge")
    figure.savefig(path, dpi=110, format="png")
