"""Right gradients are never reported wrong: random operations, sizes and numbers.

``python tests/gradient_check/false_alarms.py [DRAWS] [SEED]`` makes 10,000 draws (some minutes); a test makes a few.
"""
import sys
import time

import numpy

from minitorch_attn.gradient_check.checkup import check_up
from minitorch_attn.gradient_check.samples import LAYERS, OPERATIONS, Draw

LARGE = {"TransformerEncoder", "TransformerDecoder", "Transformer"}  # made of layers that are drawn themselves


def alarms(draws, seed=0, tell=None):
    """Draw operations and layers at random and list the (name, seed, report) whose gradients are reported wrong.

    A gradient that is zero everywhere (softmax over an axis of size 1; the cosine of two numbers, that jumps where one
    changes its sign) makes a check prove nothing; that is no alarm where backward's gradient is zero, too.
    """
    rng = numpy.random.default_rng(seed)
    names = [name for name in [*OPERATIONS, *LAYERS] if name not in LARGE]
    found = []
    for k in range(draws):
        name, own = str(rng.choice(names)), int(rng.integers(2**31))
        report = check_up(name, draw=Draw(own, random_sizes=True)).report
        fatal = {g.kind for g in report.guards if g.fatal} - ({"vacuous", "kink"} if all_zero(report) else set())
        if fatal or any(not a.ok for a in report.arguments):
            found.append((name, own, report))
            if tell:
                tell(f"{name}, seed {own}:\n{report}")
        if tell and (k + 1) % 1000 == 0:
            tell(f"{k + 1} draws, {len(found)} false alarms")
    return found


def all_zero(report):
    """Whether backward's gradients and the differences are zero, but for rounding."""
    return all(abs(g).max(initial=0) < 1e-12 + 10 * a.uncertainty.max(initial=0) for a in report.arguments
               for g in (a.analytic, a.numeric) if g is not None)


if __name__ == "__main__":
    numbers = [int(a) for a in sys.argv[1:]] + [10_000, 0][len(sys.argv) - 1:]
    began = time.perf_counter()
    wrong = alarms(*numbers, tell=lambda text: print(text, flush=True))
    print(f"{numbers[0]} draws, {len(wrong)} false alarms, {time.perf_counter() - began:.0f} s")
    sys.exit(bool(wrong))
