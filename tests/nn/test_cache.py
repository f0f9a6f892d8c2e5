"""The KV cache: order, windows, trimming, and what it refuses."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.backend import shares_memory


def piece(*values, heads=3):
    """Keys (2, heads, T, 1) that hold `values`, and values ten times as large."""
    k = mt.tensor(np.broadcast_to(np.array(values, "f4")[:, None], (2, heads, len(values), 1)).copy())
    return k, 10 * k


def held(result):
    k, v = result
    assert np.array_equal(v.numpy(), 10 * k.numpy()) and (k.numpy() == k.numpy()[:1, :1]).all()
    return k.numpy()[0, 0, :, 0].tolist()


def test_appends_in_order():
    cache = nn.KVCache(7)
    assert held(cache.append(*piece(0, 1, 2))) == [0, 1, 2]
    assert held(cache.append(*piece(3))) == [0, 1, 2, 3]
    assert held(cache.append(*piece(4, 5, 6))) == [0, 1, 2, 3, 4, 5, 6]
    assert held(cache.read()) == [0, 1, 2, 3, 4, 5, 6]
    assert (cache.length, len(cache), cache.offset) == (7, 7, 0)


def test_length_counts_time_and_not_heads():
    cache = nn.KVCache(20)
    cache.append(*piece(0, 1, 2, heads=12))
    assert cache.length == 3


def test_a_window_keeps_the_last_tokens():
    cache = nn.KVCache(window=4)
    assert held(cache.append(*piece(0, 1, 2))) == [0, 1, 2]
    assert held(cache.append(*piece(3))) == [0, 1, 2, 3]
    assert held(cache.append(*piece(4))) == [1, 2, 3, 4]
    assert (cache.length, cache.offset) == (5, 1)


@pytest.mark.parametrize("window", [1, 2, 3, 5])
@pytest.mark.parametrize("steps", [[1] * 23, [3, 1, 1, 4, 2, 9, 1, 1, 1], [12, 1, 1, 11, 1]])
def test_a_window_of_any_history(window, steps):
    """New tokens come last, before them the window - 1 ones that the first of them sees."""
    cache, read = nn.KVCache(window=window), 0
    for n in steps:
        got = held(cache.append(*piece(*range(read, read + n))))
        assert got == list(range(max(0, read - window + 1), read + n))
        read += n
        assert cache.length == read and held(cache.read()) == list(range(cache.offset, read))
        assert len(got) <= n + window - 1
    assert cache.keys.shape[-2] <= max(2 * window, window + max(steps))


def test_trim_forgets_the_end():
    cache = nn.KVCache(7)
    cache.append(*piece(0, 1, 2, 3))
    cache.trim(2)
    assert held(cache.append(*piece(7, 8))) == [0, 1, 7, 8]
    with pytest.raises(ValueError, match="4 tokens to 5"):
        cache.trim(5)


@pytest.mark.parametrize("window", [1, 2, 3, 4])
@pytest.mark.parametrize("read", range(1, 14))
def test_trim_of_a_window_is_right_or_refused(window, read):
    """After trimming the cache acts like one that read the kept prefix only, or says that it cannot."""
    refused = 0
    for kept in range(read + 1):
        cache, fresh = nn.KVCache(window=window), nn.KVCache(window=window)
        for t in range(read):
            cache.append(*piece(t))
        for t in range(kept):
            fresh.append(*piece(t))
        try:
            cache.trim(kept)
        except RuntimeError as error:
            assert "read the sequence anew" in str(error)
            refused += 1
            continue
        if kept:
            assert held(cache.read()) == held(fresh.read())
        for t in range(90, 90 + 2 * window):
            assert held(cache.append(*piece(t))) == held(fresh.append(*piece(t)))
    assert refused < read + 1 and (read < 3 * window or refused > 0)


def test_reorder_picks_samples():
    cache = nn.KVCache(5)
    k = mt.arange(6.0).reshape(3, 1, 2, 1)
    cache.append(k, k)
    cache.reorder(mt.tensor([2, 2, 0]))
    assert cache.read()[0].numpy()[:, 0, :, 0].tolist() == [[4, 5], [4, 5], [0, 1]]
    with pytest.raises(IndexError, match="rows"):
        cache.reorder(mt.tensor([3]))


def test_memory_is_set_aside_once():
    cache = nn.KVCache(100)
    cache.append(*piece(0))
    keys = cache.keys
    for t in range(1, 100):
        k, _ = cache.append(*piece(t))
        assert cache.keys is keys and shares_memory(k.array, keys)


def test_mistakes():
    for options in ({}, {"capacity": 3, "window": 3}, {"capacity": 0}, {"window": 0}):
        with pytest.raises(ValueError, match="either a capacity or a window"):
            nn.KVCache(**options)
    cache = nn.KVCache(3)
    with pytest.raises(RuntimeError, match="nothing has been appended"):
        cache.read()
    cache.append(*piece(0, 1))
    with pytest.raises(RuntimeError, match="2 of 3 places are taken"):
        cache.append(*piece(2, 3))
    for k in (mt.zeros(2, 5, 1, 1), mt.zeros(2, 3, 1, 2), mt.zeros(2, 3, 1, 1, dtype=mt.float64)):
        with pytest.raises(RuntimeError, match="does not continue"):
            cache.append(k, k)
    with pytest.raises(RuntimeError, match="as many keys as values"):
        cache.append(mt.zeros(2, 3, 1, 1), mt.zeros(2, 3, 0, 1))
    k, v = piece(2)
    k.requires_grad = True
    with pytest.raises(RuntimeError, match="no_grad"):
        cache.append(k, v)
    with mt.no_grad():
        assert held(cache.append(k, v)) == [0, 1, 2]
