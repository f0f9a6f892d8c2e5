"""Which samples each rank reads."""
import math

from ..autograd import Tensor
from ..data import Sampler
from ..random import Generator
from .world import get_rank, get_world_size

__all__ = ["DistributedSampler", "shard"]


def shard(batch):
    """This rank's part of a batch that all ranks hold: rows r, r + R, r + 2R, ... for rank r of R.

    The parts make up the batch, each row once, whatever its size; where it has fewer rows than there are ranks, some
    parts are empty. Ranks hold the same batches if each reads the whole data set by the same order, that is, if
    `DataLoader` gets a ``generator`` seeded alike on all.

    Parameters
    ----------
    batch : Tensor (B, ...), or tuple, list or dict of such
        Anything else in it is kept as it is.

    Returns
    -------
    like `batch`, with about B / R rows
    """
    if isinstance(batch, Tensor):
        return batch[get_rank()::get_world_size()]
    if isinstance(batch, dict):
        return {key: shard(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        parts = [shard(value) for value in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch


class DistributedSampler(Sampler):
    """This rank's share of the samples, for a `DataLoader` that reads no others; the numbers are PyTorch's.

    All ranks shuffle alike and take every R-th index, so that each sample is read by one rank. They must also make
    equally many steps, so if the number of samples is no multiple of R the first few of the order come again at its
    end, or with `drop_last` the last few are left out. To read each sample exactly once, see `shard`.

    Parameters
    ----------
    dataset : Dataset
    num_replicas, rank : int, optional
        R and r; those of this process if None.
    shuffle : bool
    seed : int
        Of the order, together with the epoch; the same on all ranks.
    drop_last : bool

    Raises
    ------
    ValueError
        If `rank` does not lie in [0, num_replicas).
    """

    def __init__(self, dataset, num_replicas=None, rank=None, shuffle=True, seed=0, drop_last=False):
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        self.num_replicas = get_world_size() if num_replicas is None else num_replicas
        self.rank = get_rank() if rank is None else rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank must lie in [0, {self.num_replicas}), got {self.rank}")

    def set_epoch(self, epoch):
        """Say which pass comes next; each has its own order. Without it all have the same."""
        self.epoch = epoch

    def __iter__(self):
        n, total = len(self.dataset), len(self) * self.num_replicas
        order = list(range(n))
        if self.shuffle:
            order = Generator().manual_seed(self.seed + self.epoch).permutation(n).tolist()
        if total > n:
            order = (order * math.ceil(total / max(n, 1)))
        return iter(order[self.rank:total:self.num_replicas])

    def __len__(self):
        if self.drop_last:
            return len(self.dataset) // self.num_replicas
        return math.ceil(len(self.dataset) / self.num_replicas)
