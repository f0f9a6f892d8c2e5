"""Small data that comes with the package or is made by rule; README.md beside this file says where each comes from.

What is made by rule is drawn from the generator that is passed, or else from the one that `manual_seed` sets, so that
the same seed gives the same data.
"""
import datetime
import importlib.resources

import numpy

from ..dtypes import float32
from ..ops import arange, randint, randn, randperm, tensor, where

__all__ = ["date_pairs", "digit_reversal", "digits", "quadrants", "tang_poems"]

FIRST_DAY, DAYS = datetime.date(1950, 1, 1), 36525  # a hundred years
MONTHS = "January February March April May June July August September October November December".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


def tang_poems():
    """Four Tang poems as one string of 96 characters, each poem four lines of five with their punctuation.

    Public domain: Li Bai, Meng Haoran, Wang Zhihuan and Wang Wei, all of the eighth century.
    """
    file = importlib.resources.files(__name__) / "tang_poems.txt"
    return "".join(file.read_text(encoding="utf-8").split())


def date_pairs(n, generator=None):
    """`n` different days from 1950 to 2049, each as someone might write it and as ISO 8601 has it.

    Parameters
    ----------
    n : int
        At most 36525, the number of days. No day comes twice: the days of ``pairs[:k]`` are none of ``pairs[k:]``.
    generator : Generator, optional

    Returns
    -------
    list of (str, str)
        Such as ("Wednesday, 7 March 1973", "1973-03-07"), ("Mar 7, 1973", ...), ("7.3.73", ...). Where only numbers
        are written, the day stands before the month. All in ASCII.

    Raises
    ------
    ValueError
        If `n` is negative or there are not so many days.
    """
    if not 0 <= n <= DAYS:
        raise ValueError(f"there are {DAYS} days to choose from, so n must lie in [0, {DAYS}], got {n}")
    days = randperm(DAYS, generator=generator)[:n].tolist()
    ways = randint(0, len(WAYS), (n,), generator=generator).tolist()
    dates = [FIRST_DAY + datetime.timedelta(days=day) for day in days]
    return [(WAYS[way](date), date.isoformat()) for date, way in zip(dates, ways)]


# A date has one meaning in each: two figures for the year are of the hundred years above. Names are English, whatever
# the machine's language.
WAYS = [
    lambda d: f"{d.day} {MONTHS[d.month - 1]} {d.year}",
    lambda d: f"{MONTHS[d.month - 1]} {d.day}, {d.year}",
    lambda d: f"{d.day} {MONTHS[d.month - 1][:3]} {d.year % 100:02}",
    lambda d: f"{MONTHS[d.month - 1][:3]} {d.day} {d.year}",
    lambda d: f"{WEEKDAYS[d.weekday()]}, {d.day} {MONTHS[d.month - 1]} {d.year}",
    lambda d: f"{d.day}.{d.month}.{d.year % 100:02}",
    lambda d: f"{d.day:02}/{d.month:02}/{d.year}",
    lambda d: f"{d.year}{d.month:02}{d.day:02}",
]


def digit_reversal(n, length=8, shortest=None, pad=10, generator=None):
    """Sequences of random digits, and the same from back to front.

    Parameters
    ----------
    n : int
    length : int
        L, of the longest.
    shortest : int, optional
        Each length is drawn evenly from `shortest` to `length`; all have `length` unless given.
    pad : int
        What fills up the shorter ones, at the end.
    generator : Generator, optional

    Returns
    -------
    source : Tensor (n, L), int64
        Digits 0 to 9, then `pad`.
    target : Tensor (n, L), int64
        The digits of each row in reverse, then `pad`.
    lengths : Tensor (n,), int64

    Raises
    ------
    ValueError
        If `shortest` does not lie in [1, length].
    """
    shortest = length if shortest is None else shortest
    if not 1 <= shortest <= length:
        raise ValueError(f"lengths must go from at least 1 up to length={length}, got shortest={shortest}")
    source = randint(0, 10, (n, length), generator=generator)
    lengths = randint(shortest, length + 1, (n,), generator=generator)
    place = arange(length).expand(n, length)                                  # (L,) -> (n, L)
    mirrored = lengths[:, None] - 1 - place                                   # negative past the end
    target = source.gather(1, mirrored.clamp(min=0))
    return where(place < lengths[:, None], source, pad), where(mirrored >= 0, target, pad), lengths


def digits(part="all"):
    """1797 handwritten digits as grey images, in the order of the archive.

    From the Optical Recognition of Handwritten Digits data set by E. Alpaydin and C. Kaynak, UCI Machine Learning
    Repository 1998, under the licence CC BY 4.0; its test set, in the form that scikit-learn ships.

    Parameters
    ----------
    part : "all", "train" or "test"
        Every fifth image is for testing: 359 of them; the other 1438 are for training.

    Returns
    -------
    images : Tensor (N, 1, 8, 8), float32
        From 0 for paper to 1 for ink, in steps of 1/16.
    labels : Tensor (N,), int64
        0 to 9.

    Raises
    ------
    ValueError
        If `part` is another word.

    References
    ----------
    Alpaydin, Kaynak (1998), "Optical Recognition of Handwritten Digits", UCI, doi:10.24432/C50P49.
    """
    if part not in ("all", "train", "test"):
        raise ValueError(f'part must be "all", "train" or "test", got {part!r}')
    with (importlib.resources.files(__name__) / "digits.npz").open("rb") as file:
        content = numpy.load(file, allow_pickle=False)
        images, labels = content["images"], content["labels"]
    held_out = numpy.arange(len(labels)) % 5 == 4
    chosen = {"all": slice(None), "train": ~held_out, "test": held_out}[part]
    return tensor(images[chosen, None] / 16, dtype=float32), tensor(labels[chosen].astype("int64"))


def quadrants(n, size=32, channels=3, generator=None):
    """Noisy images with one bright square, and the quadrant in which it lies.

    The square lies wholly inside its quadrant; 6 pixels wide in images of 32. A model that forgets where its patches
    come from cannot do better than chance.

    Parameters
    ----------
    n : int
    size : int
        Height and width of the images, even and at least 12.
    channels : int
    generator : Generator, optional

    Returns
    -------
    images : Tensor (n, channels, size, size), float32
        Normal noise of deviation 0.3, plus 2 inside the square, in all channels.
    labels : Tensor (n,), int64
        0 top left, 1 top right, 2 bottom left, 3 bottom right.

    Raises
    ------
    ValueError
        If `size` is odd or below 12.
    """
    if size < 12 or size % 2:
        raise ValueError(f"size must be even and at least 12, got {size}")
    half, side = size // 2, size * 6 // 32
    labels = randint(0, 4, (n,), generator=generator)
    top = labels // 2 * half + randint(0, half - side + 1, (n,), generator=generator)
    left = labels % 2 * half + randint(0, half - side + 1, (n,), generator=generator)
    place = arange(size)
    rows = (place >= top[:, None]) & (place < top[:, None] + side)            # (n,) -> (n, size)
    columns = (place >= left[:, None]) & (place < left[:, None] + side)
    square = (rows[:, :, None] & columns[:, None, :]).float()                 # -> (n, size, size)
    return randn(n, channels, size, size, generator=generator) * 0.3 + 2.0 * square[:, None], labels
