"""Data sets, samplers and loaders: what comes out, and that PyTorch gives the same in the same order."""
import collections
import itertools

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import data
from minitorch_attn.random import Generator

SIZE = 23
Point = collections.namedtuple("Point", ["x", "y"])


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


class Squares(data.Dataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __getitem__(self, index):
        return index, float(index) ** 2

    def __len__(self):
        return self.size


class Stream(data.IterableDataset):
    def __init__(self, size=SIZE):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size


def lists(batches):
    """Batches of numbers as nested lists."""
    return [[x.tolist() for x in batch] if isinstance(batch, (list, tuple)) else batch.tolist() for batch in batches]


def both(torch):
    """(our package, our data module), then PyTorch's."""
    return (mt, data), (torch, torch.utils.data)


@pytest.mark.parametrize("options", [
    dict(batch_size=5, shuffle=True), dict(batch_size=5, shuffle=True, drop_last=True), dict(batch_size=SIZE + 7),
    dict(batch_size=4), dict(shuffle=True), dict(batch_size=None), dict(batch_size=None, shuffle=True),
    dict(batch_size=1, drop_last=True),
], ids=str)
def test_batches_like_torch(torch, options):
    """Two passes, and a random number after them: the default generator has moved as far as PyTorch's."""
    found = []
    for package, d in both(torch):
        package.manual_seed(7)
        loader = d.DataLoader(range(SIZE), **options)
        passes = [[np.asarray(b).tolist() for b in loader] for _ in range(2)]
        found.append((len(loader), passes, package.rand(3).tolist()))
    assert found[0] == found[1]
    if options.get("shuffle"):
        assert found[0][1][0] != found[0][1][1]


def test_own_generator_like_torch(torch):
    found = []
    for package, d in both(torch):
        package.manual_seed(1)
        g = package.Generator().manual_seed(3)
        loader = d.DataLoader(range(SIZE), batch_size=4, shuffle=True, generator=g)
        batches = lists(itertools.chain(loader, loader))
        found.append((batches, package.randint(0, 100, (5,), generator=g).tolist(), package.rand(2).tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize("options", [
    dict(), dict(num_samples=9), dict(num_samples=2 * SIZE), dict(num_samples=2 * SIZE + 5), dict(replacement=True),
    dict(replacement=True, num_samples=100), dict(replacement=True, num_samples=64),
], ids=str)
def test_random_sampler_like_torch(torch, options):
    found = []
    for package, d in both(torch):
        package.manual_seed(5)
        sampler = d.RandomSampler(range(SIZE), **options)
        own = package.Generator().manual_seed(9)
        other = d.RandomSampler(range(SIZE), generator=own, **options)
        found.append((list(sampler), list(sampler), list(other), package.rand(2).tolist(), len(sampler),
                      package.randint(0, 10**6, (3,), generator=own).tolist()))
    assert found[0] == found[1]
    order = found[0][0]
    if not options:
        assert sorted(order) == list(range(SIZE)) and order != sorted(order)


def test_subset_random_sampler_like_torch(torch):
    found = []
    for package, d in both(torch):
        package.manual_seed(5)
        sampler = d.SubsetRandomSampler([2, 3, 5, 7, 11, 13])
        found.append((list(sampler), list(d.DataLoader(range(20), sampler=sampler, batch_size=None)), len(sampler)))
    assert found[0] == found[1]


@pytest.mark.parametrize("lengths", [[17, 6], [0, 23], [0.5, 0.5], [0.3, 0.3, 0.4], [0.1, 0.7, 0.2]], ids=str)
@pytest.mark.parametrize("own", [False, True])
def test_random_split_like_torch(torch, lengths, own):
    found = []
    for package, d in both(torch):
        package.manual_seed(11)
        options = dict(generator=package.Generator().manual_seed(2)) if own else {}
        parts = d.random_split(range(SIZE), list(lengths), **options)
        found.append(([list(p) for p in parts], package.rand(1).item()))
    assert found[0] == found[1]
    assert sorted(itertools.chain(*found[0][0])) == list(range(SIZE))


def test_random_split_errors():
    with pytest.raises(ValueError, match="add up to 22, the data set has 23"):
        data.random_split(range(SIZE), [20, 2])
    with pytest.raises(ValueError, match="fraction"):
        data.random_split(range(SIZE), [1.5, -0.5])
    with pytest.warns(UserWarning, match="empty"):
        assert [len(p) for p in data.random_split(range(1), [0.5, 0.5])] == [1, 0]


def test_tensor_dataset():
    x, y = mt.tensor(np.arange(14.0).reshape(7, 2)), mt.tensor(np.arange(7))
    d = data.TensorDataset(x, y)
    assert len(d) == 7 and d[3][0].tolist() == [6.0, 7.0] and d[3][1].tolist() == 3
    batches = list(data.DataLoader(d, batch_size=3))
    assert [b[0].shape for b in batches] == [(3, 2), (3, 2), (1, 2)]
    assert lists(batches)[1] == [[[6.0, 7.0], [8.0, 9.0], [10.0, 11.0]], [3, 4, 5]]
    assert batches[0][0].dtype == x.dtype and batches[0][1].dtype == mt.int64
    with pytest.raises(AssertionError, match=r"\[7, 3\]"):
        data.TensorDataset(x, y[:3])


def test_rows_gathered_at_once_equal_rows_put_together():
    x, y = mt.tensor(np.arange(30.0).reshape(10, 3)), mt.tensor(np.arange(10))
    for d in (data.TensorDataset(x, y), data.Subset(data.TensorDataset(x, y), list(range(9, -1, -1))),
              data.random_split(data.TensorDataset(x, y), [7, 3])[0]):
        for sampler in ([1, 0, 5, 3, 3], mt.tensor([1, 0, 5, 3, 3]), np.array([1, 0, 5, 3, 3])):
            fast = list(data.DataLoader(d, batch_size=2, sampler=sampler))
            slow = list(data.DataLoader(d, 2, sampler=sampler, collate_fn=lambda s: data.default_collate(s)))
            assert lists(fast) == lists(slow) and [type(b) for b in fast] == [type(b) for b in slow]
            assert [[t.dtype for t in b] for b in fast] == [[t.dtype for t in b] for b in slow]
    with pytest.raises(IndexError):
        list(data.DataLoader(data.TensorDataset(x), sampler=[10]))


def test_batches_are_copies():
    x = mt.tensor(np.zeros((4, 2)))
    (batch,), = data.DataLoader(data.TensorDataset(x), batch_size=4)
    batch.array[...] = 1
    assert not x.numpy().any()


def test_subset_of_subset():
    part = data.Subset(data.Subset(Squares(), [2, 3, 5, 7]), [3, 0])
    assert len(part) == 2 and part[0] == (7, 49.0)
    assert lists(data.DataLoader(part, batch_size=2)) == [[[7, 2], [49.0, 4.0]]]
    x = data.Subset(data.TensorDataset(mt.tensor(np.arange(9))), [4, 2, 8])
    assert x[[2, 0]][0].tolist() == [8, 4]


def test_getitems_reads_a_whole_batch_at_once():
    class Counting(Squares):
        calls = 0

        def __getitems__(self, indices):
            self.calls += 1
            return [self[i] for i in indices]

    d = Counting()
    batches = lists(data.DataLoader(d, batch_size=10))
    assert d.calls == 3 and batches == lists(data.DataLoader(Squares(), batch_size=10))


def test_samplers():
    assert list(data.SequentialSampler(range(4))) == [0, 1, 2, 3]
    for drop_last, wanted in ((False, [[0, 1, 2], [3, 4, 5], [6]]), (True, [[0, 1, 2], [3, 4, 5]])):
        sampler = data.BatchSampler(data.SequentialSampler(range(7)), 3, drop_last)
        assert list(sampler) == wanted and len(sampler) == len(wanted)
        assert lists(data.DataLoader(range(7), batch_sampler=sampler)) == wanted
    exact = data.BatchSampler(range(6), 3, drop_last=True)
    assert list(exact) == [[0, 1, 2], [3, 4, 5]] and len(exact) == 2
    loader = data.DataLoader(range(10), batch_size=2, sampler=[9, 1, 4])
    assert lists(loader) == [[9, 1], [4]] and len(loader) == 2


@pytest.mark.parametrize("options, wanted", [
    (dict(batch_size=10), [10, 10, 3]), (dict(batch_size=10, drop_last=True), [10, 10]), (dict(), [1] * SIZE),
])
def test_stream(torch, options, wanted):
    loader = data.DataLoader(Stream(), **options)
    batches = list(loader)
    assert [len(b) for b in batches] == wanted and len(loader) == len(wanted)
    assert list(itertools.chain(*lists(batches))) == list(range(sum(wanted)))
    assert list(data.DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]

    class Theirs(torch.utils.data.IterableDataset):
        __iter__, __len__ = Stream.__iter__, Stream.__len__
        size = SIZE

    assert lists(torch.utils.data.DataLoader(Theirs(), **options)) == lists(batches)


def test_endless_stream_is_read_no_further_than_needed():
    class Endless(data.IterableDataset):
        def __iter__(self):
            for self.last in itertools.count():
                yield self.last

    d = Endless()
    batches = iter(data.DataLoader(d, batch_size=4))
    assert next(batches).tolist() == [0, 1, 2, 3] and d.last == 3
    with pytest.raises(TypeError):
        len(data.DataLoader(d, batch_size=4))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_and_pinned_memory_are_accepted(num_workers):
    calls = []
    loader = data.DataLoader(Squares(), 6, num_workers=num_workers, pin_memory=True, worker_init_fn=calls.append,
                             persistent_workers=num_workers > 0, collate_fn=lambda batch: [i for i, _ in batch])
    assert list(loader) == [list(range(k, min(k + 6, SIZE))) for k in range(0, SIZE, 6)] and not calls


def test_loader_draws_when_it_is_begun_and_two_may_run_at_once(torch):
    found = []
    for package, d in both(torch):
        package.manual_seed(3)
        loader = d.DataLoader(range(9), batch_size=2, shuffle=True)
        a, b = iter(loader), iter(loader)
        found.append([x.tolist() for x in (next(a), next(b), next(a), next(b))] + [package.rand(1).item()])
    assert found[0] == found[1]


SAMPLES = {
    "ints": [3, 5, 7], "floats": [0.5, 1.5], "bools": [True, False], "texts": ["a", "b"], "bytes": [b"a", b"b"],
    "numpy float32": [np.float32(1), np.float32(2)], "numpy float64": [np.float64(1)], "numpy bool": [np.bool_(True)],
    "arrays": [np.arange(3), np.arange(3) + 1], "float arrays": [np.ones((2, 3), "f4")] * 2, "0-d": [np.array(2.0)],
    "tuples": [(1, 2.0, "x"), (3, 4.0, "y")], "lists": [[1, 2], [3, 4]], "nested": [((1, 2), [3.0]), ((4, 5), [6.0])],
    "dicts": [{"x": 1, "y": np.ones(2)}, {"x": 2, "y": np.zeros(2)}], "named": [Point(1, 2.0), Point(3, 4.0)],
}


def plain(value):
    """A collated value with types and dtypes spelled out."""
    if hasattr(value, "numpy"):
        return str(value.numpy().dtype), value.tolist()
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(v) for v in value]
    return value


@pytest.mark.parametrize("name", SAMPLES)
def test_collate_and_convert_like_torch(torch, name):
    assert plain(data.default_collate(SAMPLES[name])) == plain(torch.utils.data.default_collate(SAMPLES[name]))
    for sample in SAMPLES[name]:
        assert plain(data.default_convert(sample)) == plain(torch.utils.data.default_convert(sample))


def test_collate_tensors():
    batch = [(mt.tensor(np.full((2, 3), i, "f4")), i) for i in range(5)]
    x, y = data.default_collate(batch)
    assert x.shape == (5, 2, 3) and x.dtype == mt.float32 and y.tolist() == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(x.numpy()[3], 3)


@pytest.mark.parametrize("make, error, words", [
    (lambda: data.default_collate([object()]), TypeError, "collate_fn"),
    (lambda: data.default_collate([None]), TypeError, "NoneType"),
    (lambda: data.default_collate([np.array(["a"])]), TypeError, "U1"),
    (lambda: data.default_collate([[1, 2], [3]]), RuntimeError, "equal size"),
    (lambda: data.BatchSampler(range(3), 0, False), ValueError, "positive int"),
    (lambda: data.BatchSampler(range(3), True, False), ValueError, "positive int"),
    (lambda: data.BatchSampler(range(3), 2, 1), ValueError, "bool"),
    (lambda: data.RandomSampler(range(3), replacement=1), TypeError, "bool"),
    (lambda: data.RandomSampler(range(3), num_samples=0), ValueError, "positive int"),
    (lambda: data.RandomSampler([]), ValueError, "empty"),
    (lambda: data.DataLoader(range(3), shuffle=True, sampler=[1]), ValueError, "exclude each other"),
    (lambda: data.DataLoader(range(3), 2, batch_sampler=[[1]]), ValueError, "batch_sampler excludes"),
    (lambda: data.DataLoader(range(3), None, drop_last=True), ValueError, "drop_last"),
    (lambda: data.DataLoader(range(3), num_workers=-1), ValueError, "num_workers"),
    (lambda: data.DataLoader(Stream(), shuffle=True), ValueError, "own order"),
    (lambda: data.DataLoader(Stream(), sampler=[1]), ValueError, "own order"),
    (lambda: iter(data.DataLoader(range(3), generator=3)), TypeError, "generator"),
    (lambda: data.Dataset()[0], NotImplementedError, "__getitem__"),
    (lambda: iter(data.IterableDataset()), NotImplementedError, "__iter__"),
    (lambda: iter(data.Sampler()), NotImplementedError, "__iter__"),
])
def test_errors(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_stacking_different_shapes_says_so():
    with pytest.raises(RuntimeError):
        data.default_collate([mt.tensor(np.ones(2)), mt.tensor(np.ones(3))])


def test_seed_is_drawn_like_torch(torch):
    mt.manual_seed(13)
    torch.manual_seed(13)
    assert [data.random_seed() for _ in range(5)] == [torch.empty((), dtype=torch.int64).random_().item()
                                                      for _ in range(5)]
    assert data.random_seed(Generator().manual_seed(1)) == data.random_seed(Generator().manual_seed(1))


@pytest.mark.parametrize("batch", [[1, 2.5], [2.5, 1], [True, False], [True, 2], [1, 2]])
def test_mixed_numbers_have_the_dtype_that_pytorch_gives_them(batch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert f"torch.{data.default_collate(batch).dtype}" == str(torch.utils.data.default_collate(batch).dtype)
