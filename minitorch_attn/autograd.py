"""Reverse-mode automatic differentiation: the tensor, the graph behind it, and the walk back through it.

An operation computes an array and hands ``Tensor.from_op`` that array together with a function ``backward(g)``
that turns the gradient of the result into the gradients of the inputs. ``Tensor.backward`` calls these functions
in reverse order of creation. No operation lives here: they are in ``ops`` and ``nn.functional``.

Two rules keep memory right. A node links to the nodes of its inputs only, never to a tensor and never forward,
so a graph has no reference cycle and an array that no backward needs is freed at once. And a gradient is written
to in place only where no one else holds its memory (`owned`, below).
"""
import operator
import weakref

from . import dtypes, grad_mode
from .backend import is_view, quiet, to_device, xp
from .memory import Storage, clock


class Partial:
    """A gradient that is zero except at ``index`` (ints, slices, None, ...: no repeats), where it is `array`.

    What slices return from backward, so that reading a tensor piece by piece costs one buffer, not one a piece.
    """
    __slots__ = ("index", "array")

    def __init__(self, index, array):
        self.index, self.array = index, array


class Node:
    """One operation that took part in a graph, or (with no parents) one leaf.

    op : str, the operation's name.
    number : int, larger than those of all its parents.
    parents : a Node per input, None for an input that needs no gradient.
    backward : function from the result's gradient to one array, Partial or None per input; the arrays that it captured
        are looked for in its ``__closure__``, which an object that is called instead has to have, too.
    shape, dtype : of the result, hence of its gradient.
    storages : the memory of inputs and result, to notice a later write.
    is_view : bool, whether the result lies in the memory of the first input.
    owner : weak reference to the tensor whose ``.grad`` is to be written, or None.
    line : "file:line" of the program that made it, while recording.
    """
    __slots__ = ("op", "number", "parents", "backward", "shape", "dtype", "storages", "is_view", "owner", "line")

    def __init__(self, op, parents, backward, array, storages, is_view=False):
        self.op, self.number = op, next(clock)
        self.parents, self.backward, self.storages = parents, backward, storages
        self.shape, self.dtype, self.is_view = array.shape, array.dtype, is_view
        self.owner, self.line = None, grad_mode.calling_line() if grad_mode.recording else None

    def check_not_overwritten(self):
        """Raise if an array that backward captured has been written to since."""
        for storage in self.storages:
            if storage.written > self.number:
                cells = [c.cell_contents for c in self.backward.__closure__ or ()]
                arrays = [a for c in cells for a in (c if isinstance(c, (tuple, list)) else (c,))]
                if storage.overwrote(arrays):
                    raise RuntimeError(f"a tensor that the backward of {self.op} needs was modified in place after "
                                       "it was used; write to a clone() of it, or use the out-of-place operation")

    def free(self):
        """Let go of everything that backward needed; only a view keeps its base, which `check_writable` asks for."""
        self.parents, self.storages, self.backward = self.parents[:1] if self.is_view else (), (), _freed


def _freed(g):
    raise RuntimeError("this graph was freed by an earlier backward(); call that one with retain_graph=True")


def _reverse_order(roots):
    """All nodes that `roots` depend on, themselves included, each before its parents; and which occur repeatedly."""
    found, repeated, stack = set(roots), set(), [*roots]
    while stack:
        for parent in stack.pop().parents:
            if parent in found:
                repeated.add(parent)
            elif parent is not None:
                found.add(parent)
                stack.append(parent)
    return sorted(found, key=operator.attrgetter("number"), reverse=True), repeated


def _is_fresh(gx, g, results):
    """Not the incoming gradient, not a view, not given to two parents: no one else holds its memory."""
    return gx is not g and getattr(gx, "base", gx) is None and sum([gx is other for other in results]) == 1


def _accumulate(gradients, owned, parent, gx):
    """Add `gx` to the running sum of `parent`; in place if it is `owned`, that is, if no one else holds its memory.

    A Partial may be the first to arrive; an array finds one there.
    """
    known = gradients.get(parent)
    if type(gx) is Partial:
        if parent not in owned:
            gradients[parent] = xp.zeros(parent.shape, parent.dtype) if known is None else known.copy()
            owned.add(parent)
        gradients[parent][gx.index] += gx.array
    elif parent in owned:
        known += gx
    else:
        gradients[parent] = to_device(known + gx)  # NumPy returns 0-d results as scalars
        owned.add(parent)


@quiet
def _propagate(gradients, retain_graph, wanted=None):
    """Carry `gradients`, one for each root, back: to ``.grad``, or to the nodes that are the keys of `wanted`."""
    # on the way `gradients` holds, for each node reached, the sum of what has come back so far
    order, repeated = _reverse_order(gradients)
    owned = set()  # nodes whose sum lies in memory that no one else holds
    for node in order:
        g = gradients.pop(node, None)
        if g is None:
            continue
        if wanted is None:
            if node.owner is not None:
                _store(node, g, node in owned)
        elif node in wanted:
            wanted[node] = g
        if node.backward is None:  # a leaf
            continue
        if node.number < Storage.last_write:
            node.check_not_overwritten()
        parents, results = node.parents, node.backward(g)
        if len(results) != len(parents):  # zip(strict=True) finds this too, but takes twice as long as zip
            raise RuntimeError(f"{node.op} has {len(parents)} inputs, and its backward returned {len(results)}")
        for parent, gx in zip(parents, results):
            if parent is None or gx is None:
                continue
            partial = type(gx) is Partial
            assert partial or (gx.shape == parent.shape and gx.dtype == parent.dtype), (
                f"{node.op} returned a gradient {gx.dtype}{gx.shape} for an input {parent.dtype}{parent.shape}")
            if partial or parent in gradients:
                _accumulate(gradients, owned, parent, gx)
            else:
                gradients[parent] = gx if gx.ndim else to_device(gx)
                # whose memory it is matters where it is added to, or becomes a leaf's .grad
                if (parent in repeated or parent.backward is None) and _is_fresh(gx, g, results):
                    owned.add(parent)
            if grad_mode.anomaly and bool(xp.isnan(gradients[parent]).any()):
                raise RuntimeError(f"the backward of {node.op} returned NaN; it was called at {node.line}")
        if not retain_graph:
            node.free()


def _store(node, g, owned):
    """Add the gradient that arrived at a node to the ``.grad`` of the tensor that wants it, if it still lives."""
    tensor = node.owner()
    if tensor is None or not tensor._requires_grad:
        return
    if tensor.grad is None:
        tensor.grad = Tensor.wrap(g if owned else g.copy())
    elif (tensor.grad.shape, tensor.grad.dtype) != (g.shape, g.dtype):
        raise RuntimeError(f".grad was set to {tensor.grad.dtype}{tensor.grad.shape}, the gradient is "
                           f"{g.dtype}{g.shape}; set it to None, or to a tensor of that shape and dtype")
    else:
        tensor.grad.array += g
        tensor.grad.mark_written()


def _seed(output, gradient, create_graph):
    """The array that the walk starts from: `gradient`, or 1 for a single number."""
    if create_graph:
        raise NotImplementedError("create_graph=True: gradients stand outside every graph and have none themselves")
    if not output.requires_grad:
        raise RuntimeError("backward() needs a tensor that requires grad: nothing it is made of does, or no_grad()")
    if gradient is None:
        if output.array.size != 1:
            raise RuntimeError(f"backward() without gradient=... needs a single number, got shape {output.shape}")
        return xp.ones(output.shape, output.dtype)
    array = gradient.array if isinstance(gradient, Tensor) else to_device(gradient)
    if array.shape != output.shape:
        raise RuntimeError(f"gradient has shape {array.shape}, the tensor has {output.shape}")
    return array.astype(output.dtype)


def grad(outputs, inputs, grad_outputs=None, retain_graph=False, create_graph=False, allow_unused=False):
    """Gradients of the sum of `outputs` with respect to each of `inputs`: a tuple, instead of written to ``.grad``.

    Both are a Tensor or a sequence of them, and inputs may be inner results as well as leaves. An output that is not
    a single number needs its own gradient in `grad_outputs`. An input that no output depends on raises RuntimeError,
    or with `allow_unused` gives None.
    """
    outputs, inputs = ((x,) if isinstance(x, Tensor) else tuple(x) for x in (outputs, inputs))
    if grad_outputs is None or isinstance(grad_outputs, Tensor):
        grad_outputs = (grad_outputs,) * (len(outputs) if grad_outputs is None else 1)
    if not all(x.requires_grad for x in inputs):
        raise RuntimeError("grad() needs inputs that require grad")
    wanted, seeds = {x.graph_node(): None for x in inputs}, {}
    for y, g in zip(outputs, grad_outputs, strict=True):
        node, seed = y.graph_node(), _seed(y, g, create_graph)
        seeds[node] = to_device(seeds[node] + seed) if node in seeds else seed
    _propagate(seeds, retain_graph, wanted)
    results = [wanted[x.graph_node()] for x in inputs]
    if not allow_unused and any(g is None for g in results):
        raise RuntimeError("an input was not used to compute the output; allow_unused=True gives None for it")
    return tuple(g if g is None else Tensor.wrap(g.copy()) for g in results)


class Tensor:
    """An array that remembers how it was computed.

    ``Tensor(values)`` makes a float tensor of nested lists or an array, ``Tensor(2, 3)`` one of that shape whose
    values are arbitrary; to choose the dtype use `tensor`.

    array : the values, as an array of the library in use.
    grad : Tensor or None, filled in by `backward` for leaves that require grad.
    """
    __slots__ = ("array", "grad", "node", "storage", "_requires_grad", "__dict__", "__weakref__")
    __array_ufunc__ = None  # lets `ndarray * Tensor` reach Tensor.__rmul__

    def __new__(cls, *values, **_):
        x = object.__new__(cls)
        x.grad, x.node, x.storage, x._requires_grad = None, None, Storage(), False
        return x

    def __init__(self, *values):
        if len(values) == 1 and not isinstance(values[0], int):
            self.array = xp.array(getattr(values[0], "array", values[0]), dtype=dtypes.get_default_dtype())
        else:
            self.array = xp.empty(values or 0, dtype=dtypes.get_default_dtype())

    @staticmethod
    def wrap(array, storage=None):
        """A tensor on `array` itself, which takes part in no graph."""
        x = object.__new__(Tensor)
        x.array = array if isinstance(array, xp.ndarray) else xp.asarray(array)  # NumPy returns 0-d results as scalars
        x.grad, x.node = None, None
        x.storage, x._requires_grad = storage or Storage(), False
        return x

    @staticmethod
    def from_op(op, array, inputs, backward=None, view=False):
        """The result of an operation, recorded in the graph if any input requires grad.

        `backward` takes the result's gradient (an array, not to be written to) and returns a tuple with one array,
        Partial or None per input; each array is fresh, or the gradient itself, or a view of it. It captures arrays as
        plain variables, or in one tuple or list: an array hidden deeper is not protected against in-place writes.
        Without `backward` the operation is not differentiable. `view`: `array` may share memory with the first input.
        """
        tracked = False
        for x in inputs:  # a loop, as comprehensions cost a call each
            if x.storage.replaced:
                x.check_current()
            if x._requires_grad:
                tracked = True
        shared = view and is_view(array, inputs[0].array)
        result = Tensor.wrap(array, inputs[0].storage if shared else None)
        if tracked and backward is not None and grad_mode.enabled:
            parents, storages = [], [result.storage]
            for x in inputs:
                parents.append((x.node or x.graph_node()) if x._requires_grad else None)
                storages.append(x.storage)
            result._requires_grad = True
            result.node = Node(op, parents, backward, result.array, storages, shared)
        return result

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)
    ndim = property(lambda self: self.array.ndim)
    is_leaf = property(lambda self: self.node is None or self.node.backward is None)

    requires_grad = property(lambda self: self._requires_grad)

    @requires_grad.setter
    def requires_grad(self, value):
        if value and self.dtype.kind != "f":
            raise RuntimeError(f"only floating-point tensors can require grad, this one is {self.dtype}")
        if not value and not self.is_leaf:
            raise RuntimeError("only a leaf can stop requiring grad; use detach() for a computed tensor")
        self._requires_grad = bool(value)

    def detach(self):
        """The same memory as a tensor outside every graph."""
        self.check_current()
        return Tensor.wrap(self.array, self.storage)

    def graph_node(self):
        """The node that stands for this tensor; a leaf gets one when first asked."""
        if self.node is None:
            self.node = Node("leaf", (), None, self.array, ())
            self.node.owner = weakref.ref(self)
        return self.node

    def retain_grad(self):
        """Have `backward` fill in ``.grad`` although this tensor is not a leaf."""
        if not self.requires_grad:
            raise RuntimeError("retain_grad() needs a tensor that requires grad")
        self.graph_node().owner = weakref.ref(self)

    def backward(self, gradient=None, retain_graph=False, create_graph=False):
        """Add the gradient of this tensor with respect to every leaf that requires grad to that leaf's ``.grad``.

        gradient : Tensor of this shape, the gradient of the objective with respect to it; 1 for a single number.
        retain_graph : keep the graph for another walk; by default it is freed on the way.
        create_graph : only False is possible, for gradients take part in no graph.

        Raises RuntimeError if this tensor does not require grad, `gradient` is missing or mis-shaped, the graph was
        freed, an array it needs was overwritten, or a leaf's ``.grad`` was set to another shape or dtype.
        """
        _propagate({self.graph_node(): _seed(self, gradient, create_graph)}, retain_graph)

    def assign(self, result):
        """Make this tensor hold `result`: what every operation in place ends with.

        Outside a graph the values are written into this tensor's memory, and its views see them. In a graph the
        write is an operation like any other: this tensor takes `result`'s array and node, so that an earlier
        backward still finds the old values. Views keep the old memory, so using one afterwards raises.
        """
        self.check_writable()
        if result.shape != self.shape:
            raise RuntimeError(f"a result of shape {result.shape} cannot be written in place to shape {self.shape}")
        if dtypes.CATEGORY[result.dtype.kind] > dtypes.CATEGORY[self.dtype.kind]:
            raise RuntimeError(f"a result of {result.dtype} cannot be written in place to {self.dtype}")
        if grad_mode.enabled and (self._requires_grad or result._requires_grad):
            assert result.dtype == self.dtype
            self.storage.replaced = (*self.storage.replaced, (self.array, result.storage))
            self.array, self.node, self.storage = result.array, result.node, result.storage
            self._requires_grad = result._requires_grad
        else:
            self.array[...] = result.array
            self.mark_written()
        return self

    def mark_written(self):
        """Note that this tensor's memory has just been written to."""
        self.storage.mark_written(self.array)

    def check_writable(self):
        """Raise if a write would change a leaf behind the graph's back, or if entries share one memory cell."""
        self.check_current()
        node = self.node
        while node and node.is_view:
            node = node.parents[0]
        if grad_mode.enabled and self._requires_grad and (node is None or node.backward is None):
            raise RuntimeError("a leaf that requires grad, or a view of one, is written in place only under no_grad()")
        shared = any(step == 0 and n > 1 for step, n in zip(self.array.strides, self.array.shape))
        if shared or not getattr(self.array.flags, "writeable", True):
            raise RuntimeError("entries of this tensor, or of the one it views, share memory (expand), or the memory "
                               "is read-only: write to a clone() of it instead")

    def check_current(self):
        """Raise if a recorded write through another tensor has left these values behind."""
        if self.storage.replaced and self.storage.is_out_of_date(self.array):
            raise RuntimeError("this tensor shares memory with one that was written in place while in a graph, so "
                               "its values are out of date; write to it before taking views, or view a clone()")
