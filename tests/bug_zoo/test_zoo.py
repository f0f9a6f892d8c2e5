"""Every mistake of the zoo is found, no cause is wrong, most are named; `conftest.py` prints the figures."""
import pytest

from .run_zoo import ZOO, outcome


def test_every_edit_fits_the_source():
    """All that do not at once, to be brought up to date after a kernel was rewritten."""
    stale = []
    for mistake in ZOO:
        try:
            mistake.build()
        except AssertionError as error:
            stale.append(str(error))
    assert not stale, "\n".join(stale)


@pytest.mark.parametrize("number", range(len(ZOO)), ids=lambda n: f"{ZOO[n].name}: {ZOO[n].title}")
def test_found_and_never_with_a_wrong_cause(number):
    found = outcome(number)
    assert found.killed, "this mistake slips through"
    assert found.verdict != "wrong", f"named {found.named}, the truth is {found.mistake.cause}\n{found.report}"


def test_figures():
    outcomes = [outcome(n) for n in range(len(ZOO))]
    assert len(outcomes) >= 80
    assert sum(o.verdict == "right" for o in outcomes) >= 0.85 * len(outcomes)
    assert sum(o.mistake.cause == "unclear" for o in outcomes) <= 0.12 * len(outcomes)
    assert any(not o.summed for o in outcomes), "a plain sum is blind for some"
