"""One model in several processes: the same weights everywhere, and gradients averaged over all.

The loss of a whole batch of n targets is L = 1/n sum_r n_r L_r, if rank r holds n_r of them and L_r is their mean.
Its gradient is therefore the mean of the ranks' gradients, weighted by n_r, and that is all there is to it.
"""
import contextlib

from .. import dtypes, grad_mode
from ..autograd import Node, Tensor
from ..backend import to_device, to_host, xp
from ..nn import Module
from ..optim.optimizer import join, split
from . import world
from .world import agree, broadcast_all, combined, get_rank, get_world_size

__all__ = ["DistributedDataParallel", "average_gradients", "broadcast_state"]

EARLIER = 1 << 62  # more than all numbers that nodes ever get


def broadcast_state(module, src=0):
    """Give every rank the parameters and persistent buffers of rank `src`.

    Raises
    ------
    ValueError
        If the module of this rank has other names, shapes or dtypes, or trains other parameters.
    """
    if get_world_size() == 1:
        return
    state = module.state_dict(keep_vars=True)
    own = {name: f"{x.dtype}{x.shape}{', trained' * x.requires_grad}" for name, x in state.items()}
    given = world.communicator.bcast(own, root=src)
    for name in [*given, *own]:
        if own.get(name) != given.get(name):
            raise ValueError(f"the ranks have different models: {name} is {own.get(name, 'missing')} on rank "
                             f"{get_rank()} and {given.get(name, 'missing')} on rank {src}")
    broadcast_all(list(state.values()), src)


def average_gradients(parameters, count=1):
    """Replace the gradients of all ranks by their mean, weighted by `count`: called after ``backward()``.

    g <- sum_r n_r g_r / sum_r n_r

    All gradients of one dtype travel as one array by one Allreduce. A gradient that is None on some ranks counts as
    zero there; one that is None on all stays None, so that the optimizer passes over it as it would in one process.

    Parameters
    ----------
    parameters : iterable of Tensors
        The same on every rank.
    count : number
        n_r, the targets of which this rank's loss is the mean; at 0 its gradients, NaN perhaps, do not count.

    Raises
    ------
    ValueError
        If `count` is negative, or 0 on every rank.
    RuntimeError
        On every rank, if one trains other parameters than another.
    """
    if not count >= 0:
        raise ValueError(f"count must not be negative, got {count}")
    if get_world_size() == 1:
        return
    groups = {}
    for x in parameters:
        if x.requires_grad:
            groups.setdefault(x.dtype, []).append(x)
    groups = dict(sorted(groups.items(), key=lambda group: str(group[0])))
    agree("average_gradients", ", ".join(f"{len(xs)} {dtype} parameters with {sum(x.array.size for x in xs)} entries"
                                         for dtype, xs in groups.items()))
    for dtype, trained in groups.items():
        _average(trained, dtype, count)


def _average(parameters, dtype, count):
    """`average_gradients` of parameters of one dtype."""
    used = [x.grad is not None and count > 0 for x in parameters]
    kind = dtypes.float32 if dtype == dtypes.float16 else dtype  # a float16 ends at 65504: no room for sums
    weighted = [xp.multiply(x.grad.array, float(count), dtype=kind) if u else xp.zeros(x.shape, kind)
                for x, u in zip(parameters, used)]
    # behind the gradients in the same message: who has them, and how much this rank counts
    sums = combined(to_host(join([*weighted, xp.asarray([*used, count], dtype=kind)])))
    users, total = sums[-1 - len(parameters):-1], float(sums[-1])
    if total == 0:
        raise ValueError("no rank has a target to learn from: count is 0 on all of them")
    sums /= total
    for x, mean, user in zip(parameters, split(to_device(sums), parameters), users):
        if user == 0:
            x.grad = None
        elif x.grad is None:
            x.grad = Tensor.wrap(mean.astype(dtype))  # a copy
        else:
            x.grad.array[...] = mean
            x.grad.mark_written()


class DistributedDataParallel(Module):
    """A model whose ``backward()`` ends by averaging the gradients over all ranks.

    Making one gives every rank the weights of rank 0. It is called as the model is; ``model.module`` is the model.
    The optimizer, clipping and everything else then do on every rank what they do in one process::

        model = DistributedDataParallel(GPT(config))
        optimizer = optim.AdamW(model.parameters())
        for x, y in loader:                          # the same whole batches on every rank
            x, y = shard((x, y))                     # this rank's part
            loss = F.cross_entropy(model(x), y)
            model.count = len(y)
            optimizer.zero_grad()
            loss.backward()                          # and averaged over the ranks
            optimizer.step()

    Every rank must call ``backward()`` equally often, since each call waits for all the others. Gradients that are
    asked for by ``autograd.grad`` stay this rank's own, though that waits for the others, too.

    Differs from PyTorch: ranks may count differently, by the attribute `count`. A parameter that took no part in the
    loss needs no ``find_unused_parameters``; its gradient stays None if it took part on no rank.

    Parameters
    ----------
    module : Module
    device_ids, output_device, dim, find_unused_parameters, gradient_as_bucket_view, static_graph : ignored
    broadcast_buffers : bool
        Before each pass in training mode, take over the buffers (such as running means) of rank 0.

    Attributes
    ----------
    count : number
        How many targets this rank's loss is the mean of; 1 until you set it, so that all ranks count alike, as they
        do in PyTorch. Set it between forward and backward wherever the ranks' numbers may differ; a rank whose part
        of the batch is empty sets 0.

    Raises
    ------
    ValueError
        If a rank's module has other parameters or buffers than that of rank 0.
    RuntimeError
        If forward, in training mode, returns no Tensor that requires grad, alone or in tuples, lists and dicts, so
        that nothing could tell when backward has ended.
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True,
                 find_unused_parameters=False, gradient_as_bucket_view=False, static_graph=False):
        super().__init__()
        self.module, self.broadcast_buffers, self.count = module, broadcast_buffers, 1
        self.averaging = True
        broadcast_state(module)

    def forward(self, *inputs, **options):
        """``self.module(*inputs, **options)``."""
        if get_world_size() == 1 or not (self.averaging and grad_mode.enabled):
            return self.module(*inputs, **options)
        if self.broadcast_buffers and self.training:
            names = self.module.state_dict()  # without what is not persistent, which a rank makes as it needs it
            broadcast_all([x for name, x in self.module.named_buffers() if name in names])
        end, tied = self._end_of_backward(), []
        results = _depend(self.module(*inputs, **options), end, tied)
        if self.training and not tied:
            raise RuntimeError("DistributedDataParallel: forward() returned no Tensor that requires grad, alone or in "
                               "tuples, lists and dicts, so it cannot tell when to average; call eval() or use "
                               "no_grad() if this pass is not for training")
        return results

    def _end_of_backward(self):
        """A number whose node the walk back reaches last, when all gradients are written; its backward averages.

            end <---- model's result <---- loss          nodes are numbered as they are made, and the walk takes the
                           |                             largest number first; a parameter gets its node when it is
                      parameters                         first used, perhaps long ago. So `end`, made later than
                                                         some, is given a number before all of them.
        """
        def backward(g):
            average_gradients(self.module.parameters(), self.count)
            return ()

        end = Tensor.wrap(xp.zeros(()))
        end.requires_grad = True
        end.node = Node("average_gradients", (), backward, end.array, ())
        end.node.number -= EARLIER  # keeps the order among several, which must be the same on all ranks
        return end

    @contextlib.contextmanager
    def no_sync(self):
        """Within the block, forward passes leave the gradients to this rank alone.

        To gather those of several small batches: all but the last in this block. What has gathered is averaged with
        the last.
        """
        before, self.averaging = self.averaging, False
        try:
            yield
        finally:
            self.averaging = before


def _depend(value, end, tied):
    """`value` with every Tensor in it that requires grad depending on `end`, too; those are noted in `tied`."""
    if isinstance(value, Tensor) and value.requires_grad:
        def backward(g):
            return g, xp.zeros(())

        tied.append(value)
        return Tensor.from_op("tie", value.array, (value, end), backward, view=True)
    if isinstance(value, dict):
        return {key: _depend(v, end, tied) for key, v in value.items()}
    if isinstance(value, (tuple, list)):
        entries = [_depend(v, end, tied) for v in value]
        return type(value)(*entries) if hasattr(value, "_fields") else type(value)(entries)
    return value
