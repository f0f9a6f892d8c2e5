"""What is checked: a function or Module together with its inputs, as arrays that can be set and a call to repeat."""
import contextlib
import inspect
import re

import numpy

from ..autograd import Tensor
from ..backend import to_device, to_host
from ..grad_mode import enable_grad, no_grad
from .graph import Graph, flat

FLOAT64 = numpy.dtype("float64")


class Argument:
    """An input or parameter whose gradient is checked.

    name : str
    array : float64 array, the values at which it is checked
    slots : which inputs of the function it is (more than one if a tensor is passed several times); () for a parameter
    parameter : the Module's own tensor, or None
    dtype : the dtype it came with
    axes : names of its axes
    """

    def __init__(self, name, tensor, slots=(), parameter=None, axes=None):
        self.name, self.slots, self.parameter, self.dtype = name, slots, parameter, tensor.dtype
        self.array = to_host(tensor.array).astype(FLOAT64, order="K")  # keeps a transposed input transposed in memory
        named = tuple(axes) if axes and len(axes) == self.array.ndim else ()
        self.axes = named or tuple(f"axis {i}" for i in range(self.array.ndim))


def names_in_docstring(fn):
    """Axis names from lines like ``q : Tensor (B, H, T, D)`` of a numpydoc docstring: {"q": ("B", "H", "T", "D")}."""
    found = {}
    for names, shape in re.findall(r"^ *([\w, ]+) : Tensor \(([\w, .]*)\)", getattr(fn, "__doc__", None) or "", re.M):
        axes = tuple(a.strip() for a in shape.split(",") if a.strip())
        found.update({name.strip(): axes for name in names.split(",")})
    return found


def fit_axes(axes, ndim):
    """The names for `ndim` axes; an ellipsis among them stands for as many as are missing. None if they do not fit."""
    axes = tuple(axes or ())
    if "..." in axes:
        at, extra = axes.index("..."), ndim - len(axes) + 1
        axes = (*axes[:at], *(f"axis {at + i}" for i in range(extra)), *axes[at + 1:]) if extra >= 0 else ()
    return axes if len(axes) == ndim else None


def tensors_in(value):
    """The tensors in a result, in order: of a tensor, or of tuples, lists and dicts of them."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors_in(v)] if isinstance(value, (tuple, list)) else []


class Subject:
    """A function with its inputs.

    arguments : list of Argument, what is checked
    masks : {name: array} of the boolean inputs
    graph(arrays), values(arrays) : run it on other values of the arguments
    """

    def __init__(self, fn, inputs, axes=None, names=None):
        self.fn, self.inputs = fn, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        self.module = fn if hasattr(fn, "named_parameters") else None
        self.title = getattr(fn, "__name__", type(fn).__name__)
        self.kept = None  # which results count; set by the first run
        given = dict(axes) if isinstance(axes, dict) else dict(enumerate(axes or ()))
        known = names_in_docstring(self.module.forward if self.module else fn)
        self.names = list(names or self.input_names())

        def axes_of(key, name, tensor):
            return fit_axes(given.get(key) or given.get(name) or known.get(name), tensor.ndim)

        tensors = [(i, x) for i, x in enumerate(self.inputs) if isinstance(x, Tensor)]
        wanted = any(x.requires_grad for _, x in tensors)
        self.arguments, self.masks, self.integers = [], {}, []
        for i, x in tensors:
            name = self.names[i]
            if x.dtype.kind == "b":
                self.masks[name] = to_host(x.array)
            if x.dtype.kind != "f":
                self.integers.append(name)
                continue
            same = next((a for a in self.arguments if self.inputs[a.slots[0]] is x), None)
            if same:
                same.slots, same.name = (*same.slots, i), f"{same.name} = {name}"
            elif x.requires_grad or not wanted:
                self.arguments.append(Argument(name, x, (i,), axes=axes_of(i, name, x)))
        if self.module:
            with no_grad(), self.state_kept():
                fn(*self.inputs)  # lazy layers make their parameters now
            self.arguments += [Argument(name, p, (), p, axes_of(name, name, p))
                               for name, p in self.module.named_parameters() if p.requires_grad]

    def input_names(self):
        """The names of the function's parameters where it tells them, else input 0, input 1, ..."""
        try:
            told = inspect.signature(self.module.forward if self.module else self.fn).parameters.values()
        except (TypeError, ValueError):
            told = ()
        usual = [p.name for p in told if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return [usual[i] if i < len(usual) else f"input {i}" for i in range(len(self.inputs))]

    @property
    def arrays(self):
        """The values of the arguments, in order."""
        return [a.array for a in self.arguments]

    @contextlib.contextmanager
    def state_kept(self):
        """In the block a Module computes in float64; after it, it is as before, running statistics included."""
        if self.module is None:
            yield
            return
        tensors = [t for _, t in [*self.module.named_parameters(), *self.module.named_buffers()]]
        before = [(t, t.array, t.grad, t.node) for t in tensors]
        for t in tensors:
            if hasattr(t, "array") and t.dtype.kind == "f":
                t.array = to_device(t.array).astype(FLOAT64)
            elif hasattr(t, "array"):
                t.array = t.array.copy()
        promoted, self.inputs = self.inputs, tuple(self.promoted(x) for x in self.inputs)
        try:
            yield
        finally:
            self.inputs = promoted
            for t, array, grad, node in before:
                t.array, t.grad, t.node = array, grad, node

    def promoted(self, x):
        """A float64 copy of a floating-point tensor; anything else as it is."""
        if isinstance(x, Tensor) and x.dtype.kind == "f":
            return Tensor.wrap(x.array.astype(FLOAT64))
        return x

    def leaves(self, arrays):
        """The tensors to differentiate by: new ones on `arrays`, or the Module's own parameters with these values."""
        found = []
        for argument, array in zip(self.arguments, arrays):
            leaf = argument.parameter
            if leaf is None:
                leaf = Tensor.wrap(to_device(array))
                leaf.requires_grad = True
            else:
                leaf.array, leaf.node, leaf.grad = to_device(array), None, None
            found.append(leaf)
        return found

    def run(self, leaves, replace=None):
        """The result of the function for `leaves`; `replace` gives other tensors for some inputs, by number."""
        inputs = [self.promoted(x) for x in self.inputs]
        for argument, leaf in zip(self.arguments, leaves):
            for slot in argument.slots:
                inputs[slot] = leaf
        for slot, tensor in (replace or {}).items():
            inputs[slot] = tensor
        return self.fn(*inputs)

    def graph(self, arrays, inspected=False):
        """Run it so that gradients can be asked for."""
        with enable_grad():
            leaves = self.leaves(arrays)
            result = self.run(leaves)
        results = tensors_in(result)
        if self.kept is None:
            self.kept = [i for i, r in enumerate(results) if r.dtype.kind == "f" and r.requires_grad]
        return Graph(leaves, [results[i] for i in self.kept], inspected)

    def values(self, arrays, replace=None):
        """All results that count, as one flat float64 array."""
        with no_grad():
            results = tensors_in(self.run(self.leaves(arrays), replace))
        return flat([results[i].array for i in self.kept])

    def results(self, arrays):
        """All results that count, as arrays."""
        with no_grad():
            results = tensors_in(self.run(self.leaves(arrays)))
        return [to_host(results[i].array) for i in self.kept]

    def flat_results(self, result):
        """The results that count among those in `result`, as one flat array."""
        results = tensors_in(result)
        return flat([results[i].array for i in self.kept])

    def integer_array(self, name):
        """The values of the integer input called `name`."""
        return to_host(self.inputs[self.names.index(name)].array)

    def mask_slots(self):
        """(number, name, array) of the boolean inputs."""
        return [(self.names.index(name), name, mask) for name, mask in self.masks.items()]

    def input_array(self, slot, arrays):
        """The array of input number `slot` when the arguments have the values `arrays`; None if it is no tensor."""
        for argument, array in zip(self.arguments, arrays):
            if slot in argument.slots:
                return array
        x = self.inputs[slot]
        return to_host(self.promoted(x).array) if isinstance(x, Tensor) else None
