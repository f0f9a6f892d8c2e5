"""The parts of a run: each measures, and yields a row for each thing measured.

A row is a dict: `name`, `ours` and `theirs` in `unit` (smaller is better, but for tokens a second), and where both
are there, `ratio` of our cost to theirs (below 1: ours is less), its `quartiles`, and whether they are too far apart
(`noisy`). `others` holds what stands beside, in the same unit, and `losses` what shows that it was the same training.
"""
import contextlib
import functools

from . import kernels, memory, overhead, peers, process, trainings
from .turns import ratio, take_turns, typical
from .worker import Worker

__all__ = ["PARTS"]

US = ("minitorch_attn", "torch")
TURNS_A_PROCESS = 4  # an even number, so that each begins as often; why not all: docs/performance.md, "begins anew"


def player(worker, part, case):
    """A function from a number of units to the seconds that this worker takes."""
    return functools.partial(worker.play, part, case)


def row(name, unit, factor, rows, **more):
    """What two players' turns came to; seconds times `factor` are in `unit`."""
    ours, theirs = (round(factor * typical(rows, column), 4) for column in (0, 1))
    return {"name": name, "unit": unit, "ours": ours, "theirs": theirs, **ratio(rows), **more}


def training_turns(asked, libraries, case):
    """The turns of two libraries at a training, every few of them in new processes."""
    rows = []
    while len(rows) < asked.turns:
        with Worker(libraries[0], asked.threads) as one, Worker(libraries[1], asked.threads) as other:
            plays = [player(worker, "trainings", case) for worker in (one, other)]
            rows += take_turns(plays, min(TURNS_A_PROCESS, asked.turns - len(rows)), asked.seconds)
    return rows


def control(asked, _):
    """PyTorch against itself, on the smallest training: what differs from 1 here is the machine's doing."""
    yield row("PyTorch against itself", "ms", 1000, training_turns(asked, ("torch", "torch"), "mini_gpt"))


def training_rows(asked, cases):
    """A step of each training."""
    for case in cases:
        yield row(case, "ms", 1000, training_turns(asked, US, case))


def kernel_rows(asked, cases):
    """Each kernel forward and backward."""
    with Worker(US[0], asked.threads) as ours, Worker(US[1], asked.threads) as theirs:
        for case in cases:
            plays = [player(worker, "kernels", case) for worker in (ours, theirs)]
            yield row(kernels.label(case), "ms", 1000, take_turns(plays, asked.turns, asked.seconds))


def generation_rows(asked, cases):
    """Tokens a second, from position 1 to so many."""
    with Worker(US[0], asked.threads) as ours, Worker(US[1], asked.threads) as theirs:
        for case in cases:
            positions = case.partition("/")[2]
            plays = [player(worker, "generation", positions) for worker in (ours, theirs)]
            made = row(f"{positions} tokens", "tokens/s", 1, take_turns(plays, asked.turns, asked.seconds))
            yield {**made, **{who: round(int(positions) / made[who], 1) for who in ("ours", "theirs")}}


def process_rows(asked, cases):
    """Import, and the first figure, each in fresh processes."""
    for case in cases:
        programs = [*process.PROGRAMS[case], *process.BESIDE.values()]
        rows = take_turns([process.player(program, asked.threads) for program in programs], asked.turns, 0)
        beside = {name: round(1000 * typical(rows, i), 1) for i, name in enumerate(process.BESIDE, start=2)}
        yield row(case, "ms", 1000, rows, others=beside)


def memory_rows(asked, cases):
    """The peak of a training's step beyond the resting state, and the growth over many steps."""
    if not memory.KNOWN:
        yield {"name": "memory", "skipped": "this system has no /proc/self/status"}
        return
    for case in cases:
        steps = asked.growth_steps if case == "mini_gpt" else 0
        ours, theirs = (memory.measure(case, library, asked.threads, steps) for library in US)
        yield {"name": f"{case}, peak", "unit": "MB", "ours": round(ours["peak"], 1),
               "theirs": round(theirs["peak"], 1), "ratio": round(ours["peak"] / theirs["peak"], 3),
               "others": {f"at rest, {library}": round(one["rest"], 1) for library, one in zip(US, (ours, theirs))}}
        if steps:
            yield {"name": f"{case}, growth in {steps} steps", "unit": "MB", "ours": round(ours["growth"], 2),
                   "theirs": round(theirs["growth"], 2)}


def overhead_rows(asked, cases):
    """The share of matrix products in a step of the larger GPT; what a node of the graph costs."""
    with contextlib.ExitStack() as stack:
        def start(library):
            return stack.enter_context(Worker(library, asked.threads))

        if "products" in cases:
            plays = [player(start(library), *case) for library in US
                     for case in (("overhead", "products"), ("trainings", "large_gpt"))]
            rows = take_turns(plays, asked.turns, asked.seconds)
            shares = [ratio(rows, 2 * i, 2 * i + 1) for i in (0, 1)]
            yield {"name": "matrix products in a step of large_gpt", "unit": "share",
                   "ours": shares[0]["ratio"], "theirs": shares[1]["ratio"],
                   "noisy": any(share["noisy"] for share in shares)}
        if "chain" in cases:
            chains = [(US[0], "chain"), (US[1], "chain"), ("numpy", "chain"), (US[0], "nothing")]
            plays = [player(start(library), "overhead", which) for library, which in chains]
            rows = take_turns(plays, asked.turns, asked.seconds)
            made = row("a node of a chain", "us", 1e6 / overhead.NODES, rows)
            bare = round(1e6 / overhead.NODES * typical(rows, 2), 4)
            engine = round(1e6 / overhead.NODES * typical(rows, 3), 4)
            yield {**made, "others": {"NumPy alone": bare, "ours beyond NumPy": round(made["ours"] - bare, 4),
                                      "a node that computes nothing": engine}}


def peer_rows(asked, cases):
    """The peers' training: milliseconds a step, and the ratio to PyTorch's; ours is one of them."""
    for case in cases:
        with contextlib.ExitStack() as stack:
            plays, losses = {}, {}
            for name in ("torch", "minitorch_attn", *peers.PEERS):
                if name in peers.PEERS and name not in peers.installed():
                    yield {"name": f"{case}, {name}", "skipped": "not installed"}
                    continue
                worker = stack.enter_context(Worker(name, asked.threads))
                # without PyTorch there is nothing to compare with: it has no limit, and its failure ends the run
                losses[name] = first_losses(worker, case, None if name == "torch" else asked.patience)
                if losses[name] is None:
                    yield {"name": f"{case}, {name}", "skipped": "failed, or took too long to start"}
                else:
                    plays[name] = player(worker, "peers", case)
            rows = take_turns(list(plays.values()), asked.turns, asked.seconds)
            for i, name in enumerate(plays):
                if name != "torch":
                    chosen = [[one[i], one[0]] for one in rows]
                    yield row(f"{case}, {name}", "ms", 1000, chosen,
                              losses={who: losses[who] for who in (name, "torch")})


def first_losses(worker, case, patience):
    """The losses of the first five steps.

    None if the worker fails, or has not answered after `patience` seconds; without a limit, its failure is raised.
    """
    try:
        return [worker.play("peers", case, 1, patience)[1] for _ in range(5)]
    except SystemExit:
        if patience is None:
            raise
        return None


PARTS = {  # name: (what it measures, its cases, and those of them that run only when named)
    "control": (control, ["itself"], []),
    "trainings": (training_rows, list(trainings.TRAININGS), []),
    "kernels": (kernel_rows, list(kernels.CASES), []),
    "generation": (generation_rows, ["tokens/500"], []),
    "process": (process_rows, list(process.PROGRAMS), []),
    "memory": (memory_rows, list(trainings.TRAININGS), []),
    "overhead": (overhead_rows, ["products", "chain"], []),
    "peers": (peer_rows, list(peers.SIZES), ["large_gpt"]),
}
