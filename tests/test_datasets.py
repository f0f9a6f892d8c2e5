import datetime
import importlib.resources
import re

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.datasets import date_pairs, digit_reversal, digits, quadrants, tang_poems

FOLDER = importlib.resources.files("minitorch_attn.datasets")


def seeded(seed=0):
    return mt.Generator().manual_seed(seed)


def test_tang_poems_are_four_regular_quatrains():
    poems = tang_poems()
    assert len(poems) == 96 and len(set(poems)) == 73
    for i in range(0, 96, 6):  # five characters and a mark
        assert poems[i + 5] == "，。"[i // 6 % 2] and not set(poems[i:i + 5]) & set("，。")
    assert poems.startswith("床前明月光，疑是地上霜。") and poems.endswith("愿君多采撷，此物最相思。")


def test_the_data_says_where_it_comes_from():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "Public domain" in readme and "CC BY" in readme and "UCI" in readme
    for file in FOLDER.iterdir():
        assert file.name in readme or file.suffix in ("", ".py", ".md"), file.name


def date_of(written):
    """What a reader takes a date for, worked out from its words alone."""
    months = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
    words = re.findall(r"[A-Za-z]+", written)
    numbers = [int(n) for n in re.findall(r"\d+", written)]
    if re.fullmatch(r"\d{8}", written):
        numbers = [int(written[6:]), int(written[4:6]), int(written[:4])]
    if words:
        numbers.insert(1, months.index(words[-1][:3].lower()) + 1)
    day, month, year = numbers
    date = datetime.date(year + (0 if year > 99 else 1900 if year >= 50 else 2000), month, day)
    if len(words) == 2:
        assert words[0] == date.strftime("%A")
    return date


def test_date_pairs_mean_the_same_day_and_no_day_comes_twice():
    pairs = date_pairs(5000, seeded())
    assert all(date_of(written).isoformat() == iso for written, iso in pairs)
    assert len({iso for _, iso in pairs}) == 5000
    # two of the eight ways differ only in how many letters and figures they write
    assert len({re.sub(r"\d+", "9", re.sub("[A-Za-z]+", "a", written)) for written, _ in pairs}) == 7
    assert min(iso for _, iso in pairs) < "1952" and max(iso for _, iso in pairs) > "2048"
    assert all(written.isascii() and len(written) <= 28 for written, _ in pairs)


def test_date_pairs_are_all_the_days_there_are():
    isos = sorted(iso for _, iso in date_pairs(36525, seeded()))
    assert isos[0] == "1950-01-01" and isos[-1] == "2049-12-31" and date_pairs(0) == []
    for n in (-1, 36526):
        with pytest.raises(ValueError, match=f"got {n}"):
            date_pairs(n)


def test_digit_reversal():
    source, target, lengths = digit_reversal(50, 7, shortest=2, generator=seeded())
    assert source.shape == target.shape == (50, 7) and set(lengths.tolist()) == {2, 3, 4, 5, 6, 7}
    for s, t, n in zip(source.tolist(), target.tolist(), lengths.tolist()):
        assert t[:n] == s[:n][::-1] and s[n:] == t[n:] == [10] * (7 - n) and max(s[:n]) < 10
    source, target, lengths = digit_reversal(11, 5, generator=seeded())
    assert (lengths == 5).all() and (target == source.flip(1)).all()
    assert digit_reversal(2, 5, 1, pad=12, generator=seeded())[0].dtype == mt.int64
    for shortest in (0, 6):
        with pytest.raises(ValueError, match=f"shortest={shortest}"):
            digit_reversal(3, 5, shortest)


def test_digits_are_those_of_the_archive():
    images, labels = digits()
    assert images.shape == (1797, 1, 8, 8) and images.dtype == mt.float32 and labels.dtype == mt.int64
    assert np.bincount(labels.numpy()).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    first = images.numpy()[0, 0] * 16
    assert labels[:5].tolist() == [0, 1, 2, 3, 4] and first[0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]
    assert images.numpy().min() == 0 and images.numpy().max() == 1
    original = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed").load_digits()
    assert np.array_equal(images.numpy()[:, 0] * 16, original.images)
    assert np.array_equal(labels.numpy(), original.target)


def test_digits_are_parted_into_training_and_test():
    (all_images, all_labels), (train, y), (test, z) = digits(), digits("train"), digits("test")
    assert len(train) == len(y) == 1438 and len(test) == len(z) == 359
    assert np.array_equal(test.numpy(), all_images.numpy()[4::5])
    assert np.array_equal(z.numpy(), all_labels.numpy()[4::5])
    assert np.array_equal(np.sort(np.concatenate([y.numpy(), z.numpy()])), np.sort(all_labels.numpy()))
    with pytest.raises(ValueError, match="'validation'"):
        digits("validation")


def test_the_digits_file_is_small():
    assert len((FOLDER / "digits.npz").read_bytes()) <= 100_000


@pytest.mark.parametrize("size, channels, side", [(32, 3, 6), (16, 1, 3)])
def test_quadrants(size, channels, side):
    images, labels = quadrants(200, size, channels, generator=seeded())
    assert images.shape == (200, channels, size, size) and images.dtype == mt.float32 and labels.dtype == mt.int64
    bright = images.numpy().mean(1)
    half = size // 2
    for i, label in enumerate(labels.tolist()):
        sums = {(r, c): bright[i, r:r + side, c:c + side].sum() for r in range(size - side + 1)
                for c in range(size - side + 1)} if i < 10 else {}
        if sums:
            row, column = max(sums, key=sums.get)
            assert label == 2 * (row >= half) + (column >= half)
            assert row % half + side <= half and column % half + side <= half
    assert sorted(set(labels.tolist())) == [0, 1, 2, 3]
    if channels == 3:
        np.testing.assert_allclose(images.numpy().mean(), 2 * side**2 / size**2, atol=0.005)


def test_quadrants_sizes_that_will_not_do():
    for size in (11, 13, 10):
        with pytest.raises(ValueError, match=f"got {size}"):
            quadrants(1, size)


@pytest.mark.parametrize("make", [lambda g: date_pairs(20, g),
                                  lambda g: digit_reversal(20, 5, 2, generator=g)[0].tolist(),
                                  lambda g: quadrants(20, 12, 1, generator=g)[0].tolist()])
def test_the_same_seed_gives_the_same_data(make):
    assert make(seeded(1)) == make(seeded(1)) != make(seeded(2))
    mt.manual_seed(1)
    assert make(None) == make(seeded(1))
