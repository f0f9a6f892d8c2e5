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


def captured_by(fn):
    """What a function finds outside itself: its object, the variables around it, and the globals that it names."""
    function = getattr(fn, "__func__", fn)
    cells = [c.cell_contents for c in getattr(function, "__closure__", None) or () if holds_something(c)]
    code, known = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    named = [known[name] for name in (code.co_names if code else ()) if name in known]
    return [getattr(fn, "__self__", None), *cells, *named, *(getattr(function, "__defaults__", None) or ())]


def holds_something(cell):
    """Whether the variable of a closure has been given a value."""
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def tensors_of(thing):
    """A tensor itself, the parameters and buffers of a Module, and nothing of anything else."""
    if isinstance(thing, Tensor):
        return [thing]
    if not isinstance(thing, type) and hasattr(thing, "named_parameters"):
        return [t for _, t in [*thing.named_parameters(), *thing.named_buffers()]]
    return []


class Subject:
    """A function with its inputs.

    arguments : list of Argument, what is checked
    given, inputs : the inputs as they came, and as the function gets them
    constants : {number: array}, the floating-point inputs that are not checked
    masks : {name: array} of the boolean inputs
    graph, values, results : run it on other values of the arguments
    """

    def __init__(self, fn, inputs, axes=None, names=None):
        self.fn, self.inputs = fn, tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        self.given = self.inputs
        self.module = fn if hasattr(fn, "named_parameters") else None
        self.title = getattr(fn, "__name__", type(fn).__name__)
        self.kept = None  # which results count; set by the first run
        usual = self.input_names()
        self.names = [*(names or ()), *usual[len(names or ()):]]
        self.axes, self.known = self.given_axes(axes), names_in_docstring(self.module.forward if self.module else fn)
        self.arguments, self.constants, self.masks, self.integers = [], {}, {}, []
        tensors = [(i, x) for i, x in enumerate(self.inputs) if isinstance(x, Tensor)]
        wanted = any(x.requires_grad for _, x in tensors)
        for i, x in tensors:
            self.take_in(i, x, x.requires_grad or not wanted)
        if self.module:
            self.materialize()
            for name, p in self.module.named_parameters():
                if p.requires_grad:
                    shown = name if name not in self.names else f"parameter {name}"
                    self.arguments.append(Argument(shown, p, (), p, self.axes_of(name, name, p.ndim)))

    def given_axes(self, axes):
        """The names of axes asked for, by number or name of an input; ValueError for an input that does not exist."""
        given = dict(axes) if isinstance(axes, dict) else dict(enumerate(axes or ()))
        if any(isinstance(value, str) for value in given.values()):
            raise ValueError(f"axes needs a tuple of names for each input, as {{'x': ('B', 'T', 'C')}}, got {axes}")
        inputs = {*range(len(self.inputs)), *self.names}
        parameters = {name for name, _ in self.module.named_parameters()} if self.module else set()
        for key in given:
            if key not in inputs | parameters:
                raise ValueError(f"axes are given for {key!r}, but the inputs are {', '.join(self.names)}")
        return given

    def axes_of(self, key, name, ndim):
        """The names of the axes of input `key`, called `name`; None for the usual ones."""
        given = self.axes.get(key) or self.axes.get(name)
        if given and fit_axes(given, ndim) is None:
            raise ValueError(f"axes of {name} names {len(given)} axes, {tuple(given)}, and it has {ndim}")
        return fit_axes(given or self.known.get(name), ndim)

    def take_in(self, i, x, checked):
        """Sort input number i, the tensor x, in."""
        name = self.names[i]
        if x.dtype.kind == "b":
            self.masks[name] = to_host(x.array)
        if x.dtype.kind != "f":
            self.integers.append(name)
            return
        same = next((a for a in self.arguments if self.inputs[a.slots[0]] is x), None)
        if same:
            same.slots, same.name = (*same.slots, i), f"{same.name} = {name}"
        elif checked:
            self.arguments.append(Argument(name, x, (i,), axes=self.axes_of(i, name, x.ndim)))
        else:
            self.constants[i] = to_host(x.array).astype(FLOAT64)

    def materialize(self):
        """Let lazy layers make their parameters, which stay."""
        lazy = [p for _, p in self.module.named_parameters() if type(p).__name__ == "UninitializedParameter"]
        if lazy:
            with no_grad():
                self.fn(*[Tensor.wrap(x.array.astype(lazy[0].dtype)) if isinstance(x, Tensor) and x.dtype.kind == "f"
                          else x for x in self.inputs])

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
        """In the block all computes in float64: the Module, and what a function uses without getting it as an input.

        After it, everything is as before, running statistics included.
        """
        inside = tensors_of(self.module) if self.module else [t for x in captured_by(self.fn) for t in tensors_of(x)]
        tensors = {id(t): t for t in inside if hasattr(t, "array")}.values()
        before = [(t, t.array, t.grad, t.node) for t in tensors if self.module or t.is_leaf]
        for t, array, _, _ in before:
            if self.module or (array.dtype.kind == "f" and array.dtype.itemsize < 8):
                t.array = to_device(array).astype(FLOAT64) if array.dtype.kind == "f" else array.copy()
                t.node = None
        own, self.inputs = self.inputs, tuple(self.promoted(x) for x in self.inputs)
        try:
            yield
        finally:
            self.inputs = own
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
        """The result of the function for `leaves`; `replace` gives other arrays for some inputs, by number."""
        inputs = [self.promoted(x) for x in self.inputs]
        for argument, leaf in zip(self.arguments, leaves):
            for slot in argument.slots:
                inputs[slot] = leaf
        for slot, array in (replace or {}).items():
            inputs[slot] = Tensor.wrap(to_device(array.copy()))
        return self.fn(*inputs)

    def graph(self, arrays, inspected=False, replace=None):
        """Run it so that gradients can be asked for."""
        with enable_grad():
            leaves = self.leaves(arrays)
            result = self.run(leaves, replace)
        results = tensors_in(result)
        if self.kept is None:
            self.kept = [i for i, r in enumerate(results) if r.dtype.kind == "f" and r.requires_grad]
        return Graph(leaves, [results[i] for i in self.kept], inspected)

    def results(self, arrays, replace=None):
        """All results that count, as arrays."""
        with no_grad():
            return self.counted(self.run(self.leaves(arrays), replace))

    def values(self, arrays, replace=None):
        """All results that count, as one flat float64 array."""
        return flat(self.results(arrays, replace))

    def counted(self, result):
        """The arrays of the results that count among those in `result`."""
        results = tensors_in(result)
        return [to_host(results[i].array) for i in self.kept]

    def integer_array(self, name):
        """The values of the integer input called `name`."""
        return to_host(self.inputs[self.names.index(name)].array)

    def mask_slots(self):
        """(number, name, array) of the boolean inputs."""
        return [(self.names.index(name), name, mask) for name, mask in self.masks.items()]

    def input_array(self, slot, point):
        """The array of input number `slot` at a Point; None if it is no tensor."""
        for argument, array in zip(self.arguments, point.arrays):
            if slot in argument.slots:
                return array
        if slot in point.constants:
            return point.constants[slot]
        x = self.inputs[slot]
        return to_host(x.array) if isinstance(x, Tensor) else None
