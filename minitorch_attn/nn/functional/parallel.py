"""One kernel computed in parts, by several threads at once."""
import functools
import inspect

from ... import grad_mode
from ...autograd import Tensor
from ...backend import xp
from ...threads import at_once, parts

__all__ = ["over_batch"]


def over_batch(*cut):
    """Decorate a kernel whose first axis is a batch, so that large inputs are cut there, a part for each thread.

    The kernel knows nothing of it: it computes each part as if that were all, and so does its backward. What is cut
    is put together again; the gradients of what every part had as a whole are added up.

    Parameters
    ----------
    cut : str
        The arguments, tensors or arrays, that have the batch as first axis: those of as many dims as the first
        argument and of the same first size. Others of this name serve the whole batch, as all other arguments do.
        The kernel may use nothing random, or the parts would draw in any order.
    """
    def decorate(kernel):
        words = inspect.signature(kernel)

        @functools.wraps(kernel)
        def wrapper(*args, **kwargs):
            x = args[0].array
            pieces = parts(len(x), x.size) if x.ndim > 2 and not grad_mode.recording else ()
            if len(pieces) < 2:
                return kernel(*args, **kwargs)
            return _in_parts(kernel, cut, words.bind(*args, **kwargs).arguments, pieces)

        return wrapper

    return decorate


def _in_parts(kernel, cut, given, pieces):
    """``kernel(**given)``, computed for each of the slices `pieces` of the batch."""
    first = next(iter(given.values()))
    batched = {name for name in cut if given.get(name) is not None and given[name].ndim == first.ndim
               and given[name].shape[0] == first.shape[0]}
    tensors = {name: x for name, x in given.items() if isinstance(x, Tensor)}

    def compute(rows):
        part = {}
        for name, x in given.items():
            part[name] = x[rows] if name in batched and not isinstance(x, Tensor) else x
        for name, x in tensors.items():
            part[name] = Tensor.wrap(x.array[rows] if name in batched else x.array)
            part[name]._requires_grad = x._requires_grad
        y = kernel(**part)
        return y, [part[name].node for name in tensors]

    results = at_once([functools.partial(compute, rows) for rows in pieces])
    y = xp.concatenate([y.array for y, _ in results])
    backward = None
    if results[0][0].node is not None:
        backward = BackwardInParts([name in batched for name in tensors], pieces,
                                   [(y.node, leaves) for y, leaves in results])
    return Tensor.from_op(kernel.__name__.lstrip("_"), y, tuple(tensors.values()), backward)


class BackwardInParts:
    """The backward of a kernel that was computed in parts.

    batched : bool for each input, whether it was cut
    pieces : the slices of the batch
    nodes : for each of them, the node of the kernel's result, and the nodes of its inputs, None for one without
    """

    def __init__(self, batched, pieces, nodes):
        self.batched, self.pieces, self.nodes = batched, pieces, nodes
        # in which the engine looks for arrays that were overwritten
        self.__closure__ = [cell for node, _ in nodes for cell in node.backward.__closure__ or ()]

    def __call__(self, g):
        def compute(rows, node, leaves):
            gradients = dict(zip(node.parents, node.backward(g[rows])))
            return [gradients.get(leaf) if leaf else None for leaf in leaves]

        results = at_once([functools.partial(compute, rows, *nodes) for rows, nodes in zip(self.pieces, self.nodes)])
        return tuple([None if found[0] is None else xp.concatenate(found) if cut else sum(found)
                      for cut, found in zip(self.batched, zip(*results))])
