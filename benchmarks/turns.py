"""Taking turns: the processes that are compared work one after the other, again and again, never together.

What is compared are the ratios within each turn, not the times: a machine that is busy for a while is busy for all.
A player is what is timed in a process of its own; a unit is what it repeats, such as a training step.
"""
import statistics
import time

__all__ = ["TOO_WIDE", "enough", "ratio", "take_turns", "typical"]

PAUSE = 0.03  # seconds; for up to 20 ms the threads of the process before may look for more work
TOO_WIDE = 1.3  # the middle half of the ratios spans more than this: nothing can be concluded


def enough(play, seconds):
    """How many units fill a turn of so many seconds. The first ones allocate, and count for nothing."""
    play(1)
    once, _ = play(1)
    if once >= seconds:
        return 1
    several = min(int(seconds / once), 1000)
    took, _ = play(several)
    return max(1, round(seconds * several / took))


def take_turns(plays, turns, seconds):
    """The seconds a unit took, a row each turn and a column each player.

    Parameters
    ----------
    plays : list of functions
        From a number of units to the seconds that they took and a result.
    turns : int
    seconds : float
        About how long each turn of each player is, at least one unit.
    """
    units, rows = [enough(play, seconds) for play in plays], []
    for turn in range(turns):
        row = [0.0] * len(plays)
        order = range(len(plays))
        for i in order[::-1] if turn % 2 else order:  # nobody always follows the same one
            time.sleep(PAUSE)
            row[i] = plays[i](units[i])[0] / units[i]
        rows.append(row)
    return rows


def typical(rows, column):
    """The median seconds a unit of one player."""
    return statistics.median(row[column] for row in rows)


def ratio(rows, a=0, b=1):
    """Player a's time relative to b's: the median over the turns, the quartiles, and whether it is all noise."""
    low, middle, high = statistics.quantiles([row[a] / row[b] for row in rows], n=4, method="inclusive")
    return {"ratio": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)], "noisy": high > TOO_WIDE * low}
