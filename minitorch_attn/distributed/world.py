"""The processes of one training, which MPI calls ranks: who is there, what they tell each other, how they end."""
import atexit
import datetime
import os
import sys
import time
import traceback

import numpy

from ..autograd import Tensor
from ..backend import to_device, to_host
from ..random import manual_seed

__all__ = ["ReduceOp", "all_reduce", "average", "barrier", "broadcast", "destroy_process_group", "get_rank",
           "get_world_size", "init_process_group", "is_available", "is_initialized", "seed_rank"]

PATIENCE = datetime.timedelta(seconds=60)
# variables in which a starter says how many it started: the mpiexec of MPICH, that of Open MPI, and torchrun
SIZES = "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"

communicator = None  # MPI's, of all ranks, from init_process_group() to destroy_process_group()
everyone = None      # another of all ranks, for how they end; it stays


class ReduceOp:
    """How `all_reduce` combines what the ranks hold."""
    SUM, AVG, PRODUCT, MIN, MAX = "SUM", "AVG", "PROD", "MIN", "MAX"


def is_available():
    """Whether mpi4py and an MPI library are installed."""
    try:
        _mpi()
    except ImportError:
        return False
    return True


def is_initialized():
    """Whether `init_process_group` was called."""
    return communicator is not None


def get_rank():
    """The number of this process, from 0 to ``get_world_size() - 1``."""
    return 0 if communicator is None else communicator.Get_rank()


def get_world_size():
    """How many processes there are."""
    return 1 if communicator is None else communicator.Get_size()


def init_process_group(backend="mpi", init_method=None, timeout=PATIENCE, world_size=-1, rank=-1):
    """Join the processes that ``mpiexec -n N`` has started; a program started without it is a world of one.

    From here on an exception that ends one rank ends all: its traceback is printed with the rank's number, and MPI
    stops the others, which would wait for it for ever.

    Differs from PyTorch: MPI carries every message, whatever `backend` is named, and mpiexec, not torchrun with its
    environment variables, says who has which rank.

    Parameters
    ----------
    backend, init_method : ignored
    timeout : datetime.timedelta
        How long a rank whose program has ended without `destroy_process_group` (by ``sys.exit``, say) waits for the
        others before it ends them. After `destroy_process_group` it waits as long as they take.
    world_size, rank : int, optional
        What MPI must agree with.

    Raises
    ------
    ImportError
        If mpi4py or its MPI library is missing.
    RuntimeError
        If it was called before, or the program was started by the mpiexec of another MPI than mpi4py's, or by
        torchrun, so that every process believes itself alone.
    ValueError
        If MPI has another `world_size` or `rank`.
    """
    global communicator
    if communicator is not None:
        raise RuntimeError("init_process_group() was called before; once is enough for the whole program")
    mpi = _mpi()
    size, here = mpi.COMM_WORLD.Get_size(), mpi.COMM_WORLD.Get_rank()
    started = {int(os.environ[name]) for name in SIZES if os.environ.get(name, "").isdecimal()}
    if size == 1 and started and 1 not in started:
        raise RuntimeError(f"{max(started)} processes were started, but the MPI library of mpi4py sees one alone: "
                           "they were started by torchrun, or by the mpiexec of another MPI. Use the mpiexec of "
                           f"{mpi.Get_library_version()[:40]!r}")
    if world_size not in (-1, size) or rank not in (-1, here):
        raise ValueError(f"this is rank {here} of {size}, not {rank} of {world_size}: mpiexec -n decides")
    communicator = mpi.COMM_WORLD
    if size > 1 and everyone is None:
        _agree_on_the_end(timeout.total_seconds())


def _mpi():
    """The module MPI of mpi4py; importing it starts MPI."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py is there, an MPI library is not
        raise ImportError("training in several processes needs mpi4py and an MPI library: "
                          "pip install 'minitorch_attn[mpi]'") from error
    return MPI


def destroy_process_group():
    """Say that the work in common is done; what a rank does afterwards it does alone, and may take its time."""
    global communicator
    communicator = None


# how ranks end ------------------------------------------------------------------------------------------------------

def _agree_on_the_end(patience):
    """Have this rank end the others if it fails, and wait for them if it is done first."""
    global everyone
    everyone = communicator.Dup()  # a duplicate: what is said at the end meets no message of the work
    sys.excepthook = _stop_all
    atexit.register(_wait_for_all, patience)


def _stop_all(kind, error, trace):
    """The excepthook of every rank: print what happened, and end all ranks."""
    print(f"rank {everyone.Get_rank()} of {everyone.Get_size()} failed, and all ranks end with it:\n"
          + "".join(traceback.format_exception(kind, error, trace)), end="", file=sys.stderr, flush=True)
    everyone.Abort(1)


def _wait_for_all(patience):
    """Wait until every rank's program has ended; asleep, for MPI's own waiting takes a processor from the others."""
    arrived, began = everyone.Ibarrier(), time.monotonic()  # a barrier that returns at once, and can be asked later
    while not arrived.Test():
        if communicator is not None and time.monotonic() - began > patience:
            print(f"rank {everyone.Get_rank()} ended without destroy_process_group(), and {patience:g} seconds later "
                  "others still run; they may be waiting for it, so all end now", file=sys.stderr, flush=True)
            everyone.Abort(1)
        time.sleep(0.01)


# what ranks tell each other -----------------------------------------------------------------------------------------

def barrier():
    """Wait until every rank has come here."""
    if communicator is not None:
        communicator.Barrier()


def agree(call, brought):
    """Compare what the ranks bring to a call in common, before MPI would hang over it or take bytes for others.

    Raises
    ------
    RuntimeError
        On every rank, unless all have come to the same `call` with the same text `brought`.
    """
    everyones = communicator.allgather((call, brought))
    if any(other != everyones[0] for other in everyones):
        found = "; ".join(f"rank {r}: {c} of {b:.200}" for r, (c, b) in enumerate(everyones))
        raise RuntimeError(f"the ranks do not bring the same to a call in common, {found}")


def described(*arrays):
    """The dtypes and shapes of arrays or tensors, as `agree` compares them."""
    return ", ".join(f"{a.dtype}{a.shape}" for a in arrays)


def all_reduce(tensor, op=ReduceOp.SUM):
    """Replace `tensor`, in place and on every rank, by the sum over all ranks, or what else `op` says.

    Raises
    ------
    ValueError
        If `op` is none of those of `ReduceOp`.
    RuntimeError
        On every rank, if the ranks bring different dtypes, shapes or `op`.
    """
    known = {name: value for name, value in vars(ReduceOp).items() if name.isupper()}
    if op not in known.values():
        raise ValueError(f"op must be one of {', '.join(f'ReduceOp.{name}' for name in known)}, got {op!r}")
    if communicator is not None:
        agree(f"all_reduce {op}", described(tensor))
        total = combined(numpy.array(to_host(tensor.array), order="C"), "SUM" if op == ReduceOp.AVG else op)
        if op == ReduceOp.AVG:
            total = total / get_world_size()
        tensor.array[...] = to_device(total.astype(tensor.dtype))
        tensor.mark_written()


def broadcast(tensor, src=0):
    """Replace `tensor`, in place, by what rank `src` holds.

    Raises
    ------
    RuntimeError
        On every rank, if the ranks bring different dtypes, shapes or `src`.
    """
    broadcast_all([tensor], src)


def average(value, count=1):
    """The mean over all ranks, where this one's `value` is itself the mean of `count` things.

    m = sum_r n_r v_r / sum_r n_r; a rank with n_r = 0 does not count, whatever its v_r

    So the mean loss of the whole batch is ``average(loss.item(), count=len(targets))``.

    Parameters
    ----------
    value : number, or Tensor
        Takes part in no graph.
    count : number

    Returns
    -------
    float, or Tensor like `value`

    Raises
    ------
    ValueError
        If `count` is negative, or no rank has any.
    RuntimeError
        On every rank, if the ranks' values have different shapes.
    """
    single = not isinstance(value, Tensor)
    own = numpy.asarray(value if single else to_host(value.array), dtype=numpy.float64)
    if not count >= 0:
        raise ValueError(f"count must not be negative, got {count}")
    if communicator is not None:
        agree("average", f"shape {own.shape}")
    sums = combined(numpy.append(own * count if count else numpy.zeros_like(own), float(count)))
    if sums[-1] == 0:
        raise ValueError("no rank has anything to average: count is 0 on all of them")
    mean = own if get_world_size() == 1 else (sums[:-1] / sums[-1]).reshape(own.shape)
    return float(mean) if single else Tensor.wrap(to_device(mean.astype(value.dtype)))


def seed_rank(seed):
    """Seed the default generator with a number of this rank's own, so that dropout differs from rank to rank.

    Called after the model was made from one `manual_seed`. Rank 0 gets `seed` itself. The others' seeds are far
    from it, for with ``seed + rank`` the run with seed 0 and the one with seed 1 would share most of their numbers.
    """
    step = 0x9E3779B1  # 2^32 divided by the golden ratio, whose multiples lie far apart; odd, so that no two of these
    return manual_seed((seed + step * get_rank()) % 2**64)  # agree in the low 32 bits


def combined(array, op="SUM"):
    """The host `array`, whose memory is used, summed over all ranks; float16, which MPI lacks, as float32."""
    array = array.astype(numpy.float32) if array.dtype == numpy.float16 else array
    if communicator is not None:
        mpi = _mpi()
        communicator.Allreduce(mpi.IN_PLACE, array, op=getattr(mpi, op))
    return array


def broadcast_all(tensors, src=0):
    """`broadcast` of several tensors as one message of bytes."""
    if communicator is None or not tensors:
        return
    agree(f"broadcast from rank {src}", described(*tensors))
    hosts = [numpy.ascontiguousarray(to_host(x.array)).reshape(-1).view(numpy.uint8) for x in tensors]
    message, start = numpy.concatenate(hosts), 0
    communicator.Bcast(message, root=src)
    for x, host in zip(tensors, hosts):
        x.array[...] = to_device(message[start:start + host.size].view(x.dtype).reshape(x.shape))
        x.mark_written()
        start += host.size
