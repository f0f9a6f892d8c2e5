"""Containers: modules that hold other modules, or parameters, by index or by name."""
from collections.abc import Mapping

from ..autograd import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _List(Module):
    """What the list-like containers share: a table of names to entries, in order, read by index."""

    def _table(self):
        return self._modules

    def _put(self, name, value):
        self.add_module(name, value)

    def _refill(self, values):
        """Hold exactly `values`, numbered from 0."""
        values = list(values)
        self._table().clear()
        for i, value in enumerate(values):
            self._put(str(i), value)

    def _name(self, index):
        """The name at an index, which may count from the end."""
        names = list(self._table())
        if not -len(names) <= index < len(names):
            raise IndexError(f"index {index} is out of range for a {type(self).__name__} of {len(names)}")
        return names[index]

    def __len__(self):
        return len(self._table())

    def __iter__(self):
        return iter(self._table().values())

    def __contains__(self, value):
        return any(value is entry for entry in self)

    def __getitem__(self, index):
        if not isinstance(index, slice):
            return self._table()[self._name(index)]
        part = type(self)()
        part._refill(list(self)[index])
        return part

    def __setitem__(self, index, value):
        self._put(self._name(index), value)

    def __delitem__(self, index):
        kept = list(self)
        del kept[index]
        self._refill(kept)

    def append(self, value):
        """Add one entry at the end; returns this container."""
        self._put(str(len(self)), value)
        return self

    def extend(self, values):
        """Add each of `values` at the end; returns this container."""
        for value in list(values):
            self.append(value)
        return self

    def insert(self, index, value):
        """Add one entry before `index`; returns this container."""
        entries = list(self)
        entries.insert(index, value)
        self._refill(entries)
        return self

    def pop(self, index=-1):
        """Remove the entry at an index and return it."""
        value = self[index]
        del self[index]
        return value

    def __iadd__(self, values):
        return self.extend(values)

    def __add__(self, values):
        """A new container with this one's entries and then `values`."""
        return self[:].extend(values)


class Sequential(_List):
    """Modules applied one after the other: ``y = f_n(... f_2(f_1(x)))``.

    Parameters
    ----------
    *modules : Module, or one mapping of names to modules
        Without names they are called "0", "1", ...
    """

    def __init__(self, *modules):
        super().__init__()
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        for name, module in named.items() if named is not None else enumerate(modules):
            self.add_module(str(name), module)

    def __getitem__(self, index):
        """The module at an index, or for a slice a Sequential that keeps the names."""
        if isinstance(index, slice):
            return type(self)(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def forward(self, x):
        """The result of the last module."""
        for module in self:
            x = module(x)
        return x


class ModuleList(_List):
    """A list of modules, so that they are found by `parameters`; what is done with them is up to the owner.

    Parameters
    ----------
    modules : iterable of Module, optional
    """

    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or ())

    def _child_lines(self):
        """A run of entries that print alike comes as one: "(0-5): 6 x Block(...)"."""
        runs = []  # [first index, last index, text]
        for i, text in enumerate(map(repr, self)):
            if runs and runs[-1][2] == text:
                runs[-1][1] = i
            else:
                runs.append([i, i, text])
        return [f"({a}): {text}" if a == b else f"({a}-{b}): {b - a + 1} x {text}" for a, b, text in runs]


class ParameterList(_List):
    """A list of parameters; a plain Tensor becomes a Parameter.

    Parameters
    ----------
    values : iterable of Tensor, optional
    """

    def __init__(self, values=None):
        super().__init__()
        self.extend(values if values is not None else ())

    def _table(self):
        return self._parameters

    def _put(self, name, value):
        self.register_parameter(name, as_parameter(value))

    def _child_lines(self):
        return [parameter_line(name, p) for name, p in self._parameters.items()]


class _Dict(Module):
    """What the dict-like containers share: a table of names to entries."""

    def __init__(self, entries=None):
        super().__init__()
        self.update(entries if entries is not None else {})

    def _table(self):
        return self._modules

    def __len__(self):
        return len(self._table())

    def __iter__(self):
        return iter(self._table())

    def __contains__(self, name):
        return name in self._table()

    def __getitem__(self, name):
        return self._table()[name]

    def __setitem__(self, name, module):
        self.add_module(name, module)

    def __delitem__(self, name):
        del self._table()[name]

    def keys(self):
        """The names, in order."""
        return self._table().keys()

    def values(self):
        """The entries, in order."""
        return self._table().values()

    def items(self):
        """The (name, entry) pairs, in order."""
        return self._table().items()

    def get(self, name, default=None):
        """The entry called `name`, or `default`."""
        return self._table().get(name, default)

    def update(self, entries):
        """Add or replace entries from a mapping or from (name, entry) pairs."""
        for name, entry in entries.items() if hasattr(entries, "items") else entries:
            self[name] = entry

    def pop(self, name):
        """Remove the entry called `name` and return it."""
        return self._table().pop(name)

    def clear(self):
        """Remove everything."""
        self._table().clear()


class ModuleDict(_Dict):
    """Modules by name, so that they are found by `parameters`.

    Parameters
    ----------
    entries : mapping of names to modules, or (name, module) pairs, optional
    """


class ParameterDict(_Dict):
    """Parameters by name; a plain Tensor becomes a Parameter.

    Parameters
    ----------
    entries : mapping of names to tensors, or (name, tensor) pairs, optional
    """

    def _table(self):
        return self._parameters

    def __setitem__(self, name, value):
        self.register_parameter(name, as_parameter(value))

    def _child_lines(self):
        return [parameter_line(name, p) for name, p in self.items()]


def as_parameter(value):
    """A plain Tensor as a Parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def parameter_line(name, parameter):
    """How a parameter shows among the children of a printed module."""
    return f"({name}): Parameter of {parameter.dtype}, shape {parameter.shape}"
