"""Data sets and the batches drawn from them: PyTorch's ``torch.utils.data``, in one process.

With the same seed the order of samples is PyTorch's (with ``num_workers=0`` there), and so is the number of random
numbers taken from the default generator on the way.
"""
import collections.abc
import copy
import itertools
import math
import warnings

import numpy

from . import dtypes
from .autograd import Tensor
from .backend import to_device
from .ops import stack
from .random import Generator, source

__all__ = ["BatchSampler", "DataLoader", "Dataset", "IterableDataset", "RandomSampler", "Sampler",
           "SequentialSampler", "Subset", "SubsetRandomSampler", "TensorDataset", "default_collate",
           "default_convert", "random_split"]


class Dataset:
    """Samples by number: a subclass defines ``__getitem__(index)`` and ``__len__()``.

    It may also define ``__getitems__(indices)``, which returns a list of samples and is then used for whole batches.
    """

    def __getitem__(self, index):
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__()")


class IterableDataset(Dataset):
    """Samples one after another: a subclass defines ``__iter__()``, and ``__len__()`` if it knows it."""

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__()")


class TensorDataset(Dataset):
    """Sample i is the tuple of entry i of each tensor.

    Parameters
    ----------
    *tensors : Tensor (N, ...)
        All with the same number N of samples.

    Raises
    ------
    AssertionError
        If the tensors have different N.
    """

    def __init__(self, *tensors):
        sizes = [len(x) for x in tensors]
        if len(set(sizes)) != 1:  # AssertionError is PyTorch's choice
            raise AssertionError(f"TensorDataset needs tensors with the same number of samples, got {sizes}")
        self.tensors = tensors

    def __getitem__(self, index):
        return tuple(x[index] for x in self.tensors)

    def __len__(self):
        return len(self.tensors[0])


class Subset(Dataset):
    """The samples of `dataset` that stand at `indices` (a sequence of ints), in that order."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index):
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices):
        """A list of samples."""
        return fetch(self.dataset, [self.indices[i] for i in indices])

    def __len__(self):
        return len(self.indices)


def random_split(dataset, lengths, generator=None):
    """Divide `dataset` at random into parts that have no sample in common.

    Parameters
    ----------
    dataset : Dataset
    lengths : list of ints that add up to its size, or of fractions that add up to 1
        A fraction f stands for floor(f * size); what is left goes to the first parts, one sample each.
    generator : Generator, optional
        The default generator if None.

    Returns
    -------
    list of Subset

    Raises
    ------
    ValueError
        If the lengths do not add up, or a fraction lies outside [0, 1].
    """
    size = len(dataset)
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        if any(not 0 <= fraction <= 1 for fraction in lengths):
            raise ValueError(f"a fraction must lie in [0, 1], got {list(lengths)}")
        lengths = [math.floor(size * fraction) for fraction in lengths]
        for i in range(size - sum(lengths)):
            lengths[i % len(lengths)] += 1
        if 0 in lengths:
            warnings.warn(f"random_split: part {lengths.index(0)} of {lengths} is empty", stacklevel=2)
    if sum(lengths) != size:
        raise ValueError(f"lengths add up to {sum(lengths)}, the data set has {size} samples")
    order = source(generator).permutation(size).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - length:end]) for end, length in zip(ends, lengths)]


class Sampler:
    """The order in which samples are read: a subclass defines ``__iter__()``, which yields indices."""

    def __init__(self, data_source=None):
        self.data_source = data_source

    def __iter__(self):
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__()")


class SequentialSampler(Sampler):
    """0, 1, ..., len(data_source) - 1."""

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


class RandomSampler(Sampler):
    """Indices in random order, new at each pass.

    Parameters
    ----------
    data_source : Dataset
    replacement : bool
        Draw every index anew, so that some come twice; otherwise each comes once before any comes again.
    num_samples : int, optional
        How many to draw; len(data_source) if None.
    generator : Generator, optional
        If None, each pass uses one of its own, seeded from the default generator.

    Raises
    ------
    TypeError
        If `replacement` is not a bool.
    ValueError
        If there is nothing to draw: `num_samples`, or the length it defaults to, is not a positive int.
    """

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        if not isinstance(replacement, bool):
            raise TypeError(f"replacement must be a bool, got {replacement!r}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        if not isinstance(self.num_samples, int) or self.num_samples <= 0:
            raise ValueError(f"num_samples must be a positive int, got {self.num_samples!r}"
                             + "; the data set is empty" * (num_samples is None))

    @property
    def num_samples(self):
        """How many indices one pass yields."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self):
        n = len(self.data_source)
        generator = self.generator or Generator().manual_seed(random_seed())
        if self.replacement:
            yield from generator.integers((self.num_samples,), 0, n).tolist()
            return
        for _ in range(self.num_samples // n):
            yield from generator.permutation(n).tolist()
        # also drawn when nothing of it is used, for a generator that others share is then where PyTorch's is
        yield from generator.permutation(n).tolist()[:self.num_samples % n]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in random order, new at each pass, from `generator` or the default one."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        for i in source(self.generator).permutation(len(self.indices)).tolist():
            yield self.indices[i]

    def __len__(self):
        return len(self.indices)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from `sampler`; the last may be shorter, or with `drop_last` is left out then.

    Raises
    ------
    ValueError
        If `batch_size` is not a positive int, or `drop_last` not a bool.
    """

    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ValueError(f"batch_size must be a positive int, got {batch_size!r}")
        if not isinstance(drop_last, bool):
            raise ValueError(f"drop_last must be a bool, got {drop_last!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self):
        extra = 0 if self.drop_last else self.batch_size - 1
        return (len(self.sampler) + extra) // self.batch_size


class DataLoader:
    """Batches of a data set: iterating once over the loader is one pass over the data.

    Differs from PyTorch: batches are made in this process whatever `num_workers` says; `pin_memory` does nothing.

    Parameters
    ----------
    dataset : Dataset, or anything with ``__getitem__`` and ``__len__``; or IterableDataset
    batch_size : int or None
        Samples in a batch; None yields single samples, converted by `default_convert`.
    shuffle : bool
        A `RandomSampler` in place of a `SequentialSampler`.
    sampler : iterable of indices, instead of `shuffle`
    batch_sampler : iterable of lists of indices, instead of `batch_size`, `shuffle`, `sampler` and `drop_last`
    num_workers, pin_memory, timeout, worker_init_fn, multiprocessing_context, prefetch_factor, persistent_workers,
    pin_memory_device, in_order : accepted
        Everything is computed in this process, in order; `worker_init_fn` is not called.
    collate_fn : function from a list of samples to a batch; `default_collate` if None
    drop_last : bool
        Leave out a last batch that is shorter.
    generator : Generator, optional
        For the order; see `RandomSampler`.

    Raises
    ------
    ValueError
        If options exclude each other, or a number is negative.
    """

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0,
                 collate_fn=None, pin_memory=False, drop_last=False, timeout=0, worker_init_fn=None,
                 multiprocessing_context=None, generator=None, *, prefetch_factor=None, persistent_workers=False,
                 pin_memory_device="", in_order=True):
        if num_workers < 0 or timeout < 0:
            raise ValueError(f"num_workers and timeout must not be negative, got {num_workers} and {timeout}")
        stream = isinstance(dataset, IterableDataset)
        if stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("an IterableDataset decides its own order: shuffle, sampler and batch_sampler do not "
                             "apply")
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle exclude each other")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise ValueError("batch_size=None makes no batches, so drop_last does not apply")
        if sampler is None and not stream:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_sampler is not None:
            batch_size = None
        elif batch_size is not None:
            # a stream has no indices; its samples themselves are put into batches
            batch_sampler = BatchSampler(dataset if stream else sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last, self.generator = dataset, batch_size, drop_last, generator
        self.sampler, self.batch_sampler, self.num_workers = sampler, batch_sampler, num_workers
        self.collate_fn = collate_fn or (default_convert if batch_sampler is None else default_collate)

    def __iter__(self):
        random_seed(self.generator)  # PyTorch draws a seed for its workers here, also when it has none
        return self._batches()

    def _batches(self):
        if isinstance(self.dataset, IterableDataset):
            found = self.dataset if self.batch_sampler is None else self.batch_sampler
        elif self.batch_sampler is None:
            found = (self.dataset[i] for i in self.sampler)
        elif self.collate_fn is default_collate:
            yield from (collated(self.dataset, indices) for indices in self.batch_sampler)
            return
        else:
            found = (fetch(self.dataset, indices) for indices in self.batch_sampler)
        for samples in found:
            yield self.collate_fn(samples)

    def __len__(self):
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        return len(self.dataset if self.sampler is None else self.sampler)


def default_collate(batch):
    """Turn a list of samples into one sample whose every tensor has a new first axis, the batch.

    Tensors and arrays are stacked, ints become an int64 Tensor, floats a float64 one, texts stay a list; dicts,
    tuples (which become lists), named tuples and lists are turned entry by entry.

    Raises
    ------
    TypeError
        If samples hold anything else.
    RuntimeError
        If samples have different lengths or shapes.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return stack(list(batch), 0)
    if isinstance(first, numpy.ndarray):
        if first.dtype.kind not in dtypes.CATEGORY:
            raise TypeError(f"default_collate: arrays of {first.dtype} cannot become tensors")
        return stack([Tensor.wrap(to_device(array)) for array in batch], 0)
    if isinstance(first, float):  # numpy.float64 is one too
        return Tensor.wrap(to_device(list(batch), dtypes.float64))
    if isinstance(first, (int, numpy.number, numpy.bool_)):
        dtype = dtypes.scalar_dtype(batch) if isinstance(first, int) else None  # [1, 2.5] has the default dtype
        return Tensor.wrap(to_device(numpy.array(batch, dtype)))
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return _like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if not isinstance(first, collections.abc.Sequence):
        raise TypeError("default_collate: samples must hold tensors, arrays, numbers, texts, dicts or lists, found "
                        f"{type(first).__name__}; pass a collate_fn that puts them together")
    if any(len(sample) != len(first) for sample in batch):
        raise RuntimeError("default_collate: each sample should be of equal size, got lengths "
                           f"{sorted({len(sample) for sample in batch})}")
    columns = [default_collate(column) for column in zip(*batch)]
    return type(first)(*columns) if hasattr(first, "_fields") else columns


def default_convert(sample):
    """Turn the arrays in one sample into Tensors and leave everything else as it is."""
    if isinstance(sample, (numpy.ndarray, numpy.number, numpy.bool_)):
        return Tensor.wrap(to_device(sample)) if sample.dtype.kind in dtypes.CATEGORY else sample
    if isinstance(sample, collections.abc.Mapping):
        return _like(sample, {key: default_convert(value) for key, value in sample.items()})
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*map(default_convert, sample))
    if isinstance(sample, (list, tuple)):
        return [default_convert(value) for value in sample]
    return sample


def _like(mapping, entries):
    """A mapping of the same type with these entries; a plain dict if the type cannot be copied."""
    try:
        result = copy.copy(mapping)
        result.update(entries)
        return result
    except (TypeError, AttributeError):
        return entries


def fetch(dataset, indices):
    """The samples at `indices` as a list."""
    if callable(getattr(dataset, "__getitems__", None)):
        return dataset.__getitems__(indices)
    return [dataset[i] for i in indices]


def collated(dataset, indices):
    """``default_collate(fetch(dataset, indices))``; rows of tensors are gathered at once, ten times faster."""
    if type(dataset) is Subset:
        return collated(dataset.dataset, [dataset.indices[i] for i in indices])
    if type(dataset) is TensorDataset:
        return list(dataset[[int(i) for i in indices]])
    return default_collate(fetch(dataset, indices))


def random_seed(generator=None):
    """A whole number in [0, 2**63), drawn as PyTorch draws its seeds."""
    return int(source(generator).integers((), 0, 2**63))
