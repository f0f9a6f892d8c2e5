"""Prints the zoo's figures after its tests."""


def pytest_terminal_summary(terminalreporter):
    from .run_zoo import ZOO, outcome
    if outcome.cache_info().currsize < len(ZOO):
        return  # only some of them ran
    outcomes = [outcome(n) for n in range(len(ZOO))]
    count, line = len(outcomes), terminalreporter.write_line

    def share(n):
        return f"{n} of {count} ({n / count:.0%})"

    terminalreporter.section("bug zoo")
    line(f"found                         {share(sum(o.killed for o in outcomes))}")
    line(f"right cause named             {share(sum(o.verdict == 'right' for o in outcomes))}")
    line(f"wrong cause named             {sum(o.verdict == 'wrong' for o in outcomes)}")
    line(f"slip through a plain .sum()   {share(sum(not o.summed for o in outcomes))}")
    for o in outcomes:
        if o.verdict != "right":
            line(f"  {o.verdict:8} {o.mistake.name}: {o.mistake.title} (truth: {o.mistake.cause}, named: {o.named})")
