"""Equal entries come out of an unstable sort where PyTorch puts them."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.ops import ties


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17, 31, 64, 100, 257, 1000])
@pytest.mark.parametrize("kinds", [1, 2, 5, 50])
def test_ties_like_torch(n, kinds):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rows = np.random.default_rng(n).integers(0, kinds, (3, n))
    for dtype in ("int64", "float32", "bool"):
        x = rows.astype(dtype)
        for descending in (False, True):
            mine, theirs = mt.sort(mt.tensor(x), -1, descending), torch.sort(torch.from_numpy(x), -1, descending)
            np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())
            mine = mt.argsort(mt.tensor(x.T.copy()), 0, descending)
            np.testing.assert_array_equal(mine.numpy(), theirs.indices.numpy().T)
    for k in {1, min(2, n), n // 70 + 1, n // 9 + 1, n // 2, n}:
        for largest in (True, False):
            mine = mt.topk(mt.tensor(rows), k, largest=largest)
            theirs = torch.topk(torch.from_numpy(rows), k, largest=largest)
            np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())


def test_nan_ties_like_torch():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = np.where(np.arange(50) % 3 == 0, np.nan, np.arange(50) % 4).astype("f4")
    for descending in (False, True):
        mine, theirs = mt.sort(mt.tensor(x), 0, descending), torch.sort(torch.from_numpy(x), 0, descending)
        np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())
    mine, theirs = mt.topk(mt.tensor(x), 21), torch.topk(torch.from_numpy(x), 21)
    np.testing.assert_array_equal(mine.indices.numpy(), theirs.indices.numpy())


def test_stable_sort_keeps_the_order():
    x = np.random.default_rng(0).integers(0, 3, 500)
    np.testing.assert_array_equal(mt.sort(mt.tensor(x), stable=True).indices.numpy(), np.argsort(x, kind="stable"))


@pytest.mark.parametrize("algorithm", ["sort", "select"])
def test_heapsort_takes_over_when_quicksort_goes_wrong(algorithm, monkeypatch):
    monkeypatch.setattr(ties, "depth_limit", lambda n: 0)
    keys = np.random.default_rng(1).permutation(101)
    places = ties.sort_order(keys, False) if algorithm == "sort" else ties.top_order(keys, 37, False)
    assert keys[places].tolist() == list(range(101 if algorithm == "sort" else 37))
