"""One kernel computed in parts, by several threads at once."""
import functools
import inspect

from ... import grad_mode
from ...autograd import Tensor
from ...backend import xp
from ...threads import at_once, parts

__all__ = ["over_batch"]


def over_batch(*cut, fewer=0):
    """Decorate a kernel whose first axis is a batch, so that large inputs are cut there, a part for each thread.

    The kernel is called once for each part, and its backward likewise. Results are put together again. So of
    ``kernel(query, key, mask)`` with query and key (B, H, T, D) and a mask (T, T), each part gets some of the B
    samples of query and key, and the whole mask, whose gradient is the sum of what the parts find.

    Parameters
    ----------
    cut : str
        The names of the arguments, tensors or arrays, that may have the batch as first axis. The first argument is
        cut. Another is cut if it has as many dims, less `fewer`, and the same first size. Nothing is cut if one has
        more, for then the result's first axis is another.
    fewer : int
        How many dims fewer than the first argument the others have when their first axis is the batch: 1 for packed
        heads (B, T, 3, H, D) and a mask (B, H, T, T).

    Notes
    -----
    The kernel may draw nothing at random, for the parts would draw in any order.
    """
    def decorate(kernel):
        signature = inspect.signature(kernel)

        @functools.wraps(kernel)
        def wrapper(*args, **kwargs):
            x = args[0].array
            # two dims are one sequence, whose first axis is time; and of a thread no program's line can be recorded
            slices = parts(len(x), x.size) if x.ndim > 2 and not grad_mode.recording else ()
            if len(slices) < 2:
                return kernel(*args, **kwargs)
            arguments = signature.bind(*args, **kwargs).arguments
            first, *others = [name for name in cut if arguments.get(name) is not None]
            if any(arguments[name].ndim > x.ndim - fewer for name in others):
                return kernel(*args, **kwargs)
            batched = [first] + [name for name in others if arguments[name].ndim == x.ndim - fewer
                                 and arguments[name].shape[0] == x.shape[0]]
            return _in_parts(kernel, arguments, batched, slices)

        return wrapper

    return decorate


def _in_parts(kernel, arguments, batched, slices):
    """``kernel(**arguments)``, with the arguments named in `batched` cut into `slices`.

    Each part gets leaf tensors of its own, so that the kernel makes a graph of one node of them. The program's graph
    gets one node for all, whose backward calls those of the parts.
    """
    tensors = {name: x for name, x in arguments.items() if isinstance(x, Tensor)}

    def compute(rows):
        part = {}
        for name, x in arguments.items():
            values = x.array if name in tensors else x
            part[name] = values[rows] if name in batched else values
            if name in tensors:
                part[name] = Tensor.wrap(part[name], x.storage)
                part[name]._requires_grad = x._requires_grad
        y = kernel(**part)
        return y, [part[name].node for name in tensors]

    results = at_once([functools.partial(compute, rows) for rows in slices])
    y = xp.concatenate([part.array for part, _ in results])
    backward = None
    if results[0][0].node is not None:
        for rows, (part, _) in zip(slices, results):
            for cell in part.node.backward.__closure__ or ():
                if cell.cell_contents is part.array:  # this backward needs the result: as a view of the whole, for
                    cell.cell_contents = y[rows]      # else the graph would keep it twice
        backward = BackwardInParts([name in batched for name in tensors], slices,
                                   [(part.node, leaves) for part, leaves in results])
    return Tensor.from_op(kernel.__name__.lstrip("_"), y, tuple(tensors.values()), backward)


class BackwardInParts:
    """The backward of a kernel that was computed in parts.

    batched : bool for each input, whether it was cut
    slices : of the batch, one for each part
    nodes : for each part, the node of the kernel's result, and the nodes of its inputs, None for one without gradient
    """

    def __init__(self, batched, slices, nodes):
        self.batched, self.slices, self.nodes = batched, slices, nodes
        # the engine looks here for arrays that were overwritten, as in the closure of any backward
        self.__closure__ = [cell for node, _ in nodes for cell in node.backward.__closure__ or ()]

    def __call__(self, g):
        def compute(rows, node, leaves):
            gradients = dict(zip(node.parents, node.backward(g[rows])))
            return [gradients.get(leaf) if leaf is not None else None for leaf in leaves]

        tasks = [functools.partial(compute, rows, *nodes) for rows, nodes in zip(self.slices, self.nodes)]
        results = []
        for cut, found in zip(self.batched, zip(*at_once(tasks))):
            if found[0] is None:
                results.append(None)
            else:
                results.append(xp.concatenate(found) if cut else sum(found))
        return tuple(results)
