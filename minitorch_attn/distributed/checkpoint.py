"""Checkpoints of a training in several processes: one file, which one process can read, too."""
from .. import checkpoint
from ..random import Generator
from . import world
from .data_parallel import DistributedDataParallel
from .world import get_rank, seed_rank

__all__ = ["load", "save"]


def save(path, model=None, **others):
    """`minitorch_attn.checkpoint.save` by rank 0, for which the others wait, so that afterwards all can read it.

    A `DistributedDataParallel` is written under its model's plain names. If rank 0 cannot write, all ranks raise.
    Takes and raises what `minitorch_attn.checkpoint.save` does.
    """
    failure = None
    if get_rank() == 0:
        try:
            checkpoint.save(path, _plain(model), **others)
        except Exception as error:
            failure = error
    if world.communicator is not None:
        failure = world.communicator.bcast(failure, root=0)  # what all wait for
    if failure is not None:
        raise failure


def load(path, model=None, **others):
    """`minitorch_attn.checkpoint.load` on every rank, which gives all the same state.

    The file holds the random state of rank 0, which rank 0 takes up to the bit if asked to; the others then seed
    themselves from it, each with a number of its own, for with rank 0's state their dropout would be the same.

    Takes, returns and raises what `minitorch_attn.checkpoint.load` does.
    """
    found = checkpoint.load(path, _plain(model), **others)
    wanted = others.get("rng")
    if found["rng"] is not None and (others.get("optimizer") is not None if wanted is None else wanted):
        if get_rank() > 0:
            generator = Generator()
            generator.set_state(found["rng"])
            seed_rank(int(generator.integers((), 0, 2**63)))
    return found


def _plain(model):
    return model.module if isinstance(model, DistributedDataParallel) else model
