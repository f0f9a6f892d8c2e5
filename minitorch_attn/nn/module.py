"""Module: the base of every layer and model, which keeps track of what it holds."""
import itertools
from collections import OrderedDict, namedtuple

from .. import dtypes
from ..autograd import Tensor
from ..backend import device as device_named
from ..backend import to_device
from ..switching import bring_over
from .parameter import Parameter, UninitializedParameter

__all__ = ["Module"]

IncompatibleKeys = namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])
# A module has a table of each kind: name -> the thing of that name, or None. The code reads and writes them through
# `self.__dict__`, which avoids `__setattr__` and `__getattr__`, for these read the tables.
TABLES = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}
NO_HOOKS = "hooks are left out on purpose (see docs/parity.md): change forward(), or wrap the module in another"


def dotted(path, name):
    """The full name of what is called `name` below `path`: "weight" below "layers.0" is "layers.0.weight"."""
    return f"{path}.{name}" if path else name


class Module:
    """A part of a model: its parameters, buffers and submodules, and the function `forward` of its input.

    A subclass calls ``super().__init__()``, assigns parameters and other modules as attributes, and defines
    `forward`; calling the module calls `forward`. What was assigned is found again, by the same names, in
    `parameters`, `state_dict` and all the methods below.

    Differs from PyTorch: there are no hooks, and loading a state that does not fit changes nothing at all before it
    raises.

    Attributes
    ----------
    training : bool
        What `train` and `eval` switch; layers such as Dropout read it.
    """

    def __init__(self):
        self.__dict__.update({table: {} for table in TABLES})
        self.__dict__["_non_persistent_buffers_set"] = set()
        self.training = True

    def forward(self, *args, **kwargs):
        """What the module computes; every subclass defines its own."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward()")

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)

    def __setattr__(self, name, value):
        """Register a Parameter or Module; replace a registered entry; anything else is an ordinary attribute."""
        if isinstance(value, (Parameter, Module)):
            table = "_parameters" if isinstance(value, Parameter) else "_modules"
            if table not in self.__dict__:
                raise AttributeError(f"{type(self).__name__}.{name} was assigned before super().__init__() was called")
            self._forget(name, keep=table)
            self.__dict__[table][name] = value
            return
        for table, kind in (("_parameters", Parameter), ("_modules", Module), ("_buffers", Tensor)):
            if name in self.__dict__.get(table, ()):
                if value is not None and not isinstance(value, kind):
                    raise TypeError(f"{type(self).__name__}.{name} is a registered {kind.__name__}, so only another "
                                    f"one or None can be assigned to it, not {type(value).__name__}")
                self.__dict__[table][name] = value
                return
        object.__setattr__(self, name, value)

    def __getattr__(self, name):
        # Python calls this only for what is not an ordinary attribute
        own = self.__dict__
        for table in TABLES:
            if name in own.get(table, ()):
                return own[table][name]
        hint = "" if "_modules" in own else "; super().__init__() has not been called"
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}", name=name, obj=self)

    def __delattr__(self, name):
        if any(name in self.__dict__[table] for table in TABLES):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self):
        names = {*super().__dir__(), *self._parameters, *self._buffers, *self._modules}
        return sorted(name for name in names if name.isidentifier())

    def _forget(self, name, keep=None):
        """Remove `name` wherever it stands, except in the table called `keep`."""
        for table in TABLES:
            if table != keep:
                self.__dict__[table].pop(name, None)
        self._non_persistent_buffers_set.discard(name)
        self.__dict__.pop(name, None)

    def _register(self, table, kind, name, value):
        """Put `value` (of that kind, or None) under a new name into that table."""
        if not isinstance(name, str):
            raise TypeError(f"a name must be a string, got {type(name).__name__}")
        if not name or "." in name:
            raise KeyError(f"a name must not be empty or contain a dot, got {name!r}")
        if name not in self.__dict__[table] and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}")
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name!r} must be a {kind.__name__} or None, got {type(value).__name__}")
        self.__dict__[table][name] = value

    def register_parameter(self, name, param):
        """The same as assigning `param`, which may be None to hold a place, as attribute `name`."""
        self._register("_parameters", Parameter, name, param)

    def register_buffer(self, name, tensor, persistent=True):
        """Keep a tensor that is part of the module's state but is not trained, such as a mask or a running mean.

        It becomes attribute `name`, follows `to`, and with `persistent` it is part of `state_dict`.
        """
        self._register("_buffers", Tensor, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name, module):
        """The same as assigning `module` as attribute `name`."""
        self._register("_modules", Module, name, module)

    register_module = add_module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        """Yield ("encoder.layers.0", module) for this module and all below it, each before its own parts.

        A module reached by two names comes once, under the first. `memo`, a set of modules, holds those to leave
        out.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, dotted(prefix, name), remove_duplicate)

    def modules(self):
        """Yield this module and all below it, each once."""
        for _, module in self.named_modules():
            yield module

    def named_children(self):
        """Yield (name, module) for the modules directly below this one, each once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        """Yield the modules directly below this one, each once."""
        for _, module in self.named_children():
            yield module

    def _named_tensors(self, table, prefix, recurse, remove_duplicate):
        """Yield (full name, tensor) from that table of this module and, with `recurse`, of all below it."""
        seen = set()  # ids, for == on tensors compares their values
        modules = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in module.__dict__[table].items():
                if tensor is None or id(tensor) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(tensor))
                yield dotted(path, name), tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield ("layers.0.weight", parameter), in order of assignment; a tied weight once, under its first name."""
        return self._named_tensors("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        """Yield each parameter once; what an optimizer takes."""
        for _, parameter in self.named_parameters("", recurse):
            yield parameter

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        """Yield (name, buffer) as `named_parameters` does for parameters."""
        return self._named_tensors("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        """Yield each buffer once."""
        for _, buffer in self.named_buffers("", recurse):
            yield buffer

    def get_submodule(self, target):
        """The module called `target`, such as "layers.0.attention"; this one for "".

        Raises
        ------
        AttributeError
            If there is no such module.
        """
        module = self
        for name in target.split(".") if target else ():
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"{name!r} in {target!r} is not a Module but a {type(module).__name__}")
        return module

    def get_parameter(self, target):
        """The parameter called `target`, such as "layers.0.weight"; AttributeError if there is none."""
        return self._get_tensor("_parameters", target)

    def get_buffer(self, target):
        """The buffer called `target`, such as "layers.0.mask"; AttributeError if there is none."""
        return self._get_tensor("_buffers", target)

    def _get_tensor(self, table, target):
        path, _, name = target.rpartition(".")
        tensor = self.get_submodule(path).__dict__[table].get(name)
        if tensor is None:
            raise AttributeError(f"{type(self).__name__} has no {TABLES[table]} {target!r}")
        return tensor

    def train(self, mode=True):
        """Set `training` to `mode` here and in all modules below; returns this module."""
        if not isinstance(mode, bool):
            raise ValueError(f"train() takes True or False, got {type(mode).__name__}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self):
        """The same as ``train(False)``: dropout off, batch norm by its running statistics."""
        return self.train(False)

    def apply(self, fn):
        """Call ``fn(module)`` on every module below and last on this one; returns this module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def requires_grad_(self, requires_grad=True):
        """Train all parameters, or with False freeze them; returns this module."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none=True):
        """Forget the parameters' gradients, or with ``set_to_none=False`` fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad.zero_()

    def _convert(self, dtype, wanted):
        """Turn every parameter and buffer for which ``wanted(tensor)`` to `dtype`, keeping the parameter objects."""
        for parameter in self.parameters():
            if wanted(parameter):
                if parameter.dtype != dtype:
                    parameter.data = Tensor.wrap(parameter.array.astype(dtype))
                if parameter.grad is not None and parameter.grad.dtype != dtype:
                    parameter.grad = Tensor.wrap(parameter.grad.array.astype(dtype))
        for module in self.modules():
            for name, buffer in module._buffers.items():
                if buffer is not None and wanted(buffer) and buffer.dtype != dtype:
                    module._buffers[name] = Tensor.wrap(buffer.array.astype(dtype))
        return self

    def to(self, *args, device=None, dtype=None, non_blocking=False):
        """Turn the floating-point parameters and buffers to another dtype, in place; returns this module.

        ``to(dtype)``, ``to(device)``, ``to(device, dtype)`` or ``to(tensor)``, which means the tensor's dtype. There
        is one device, so naming it changes nothing, except after `use_backend`: then everything that the module
        holds is brought over to the array library now in use. `non_blocking` changes nothing.

        Raises
        ------
        TypeError
            If the dtype is not floating point.
        RuntimeError
            If another device is named.
        """
        for arg in args:
            if isinstance(arg, dtypes.dtype):
                dtype = arg
            elif isinstance(arg, Tensor):
                dtype = arg.dtype
            elif not isinstance(arg, bool):  # a third argument, non_blocking
                device = arg
        if device is not None:
            device_named(device)  # raises for a place that is not there
            self._bring_over()
        if dtype is None:
            return self
        if dtype.kind != "f":
            raise TypeError(f"Module.to() takes floating-point dtypes only, got {dtype}")
        return self._convert(dtype, lambda tensor: tensor.dtype.kind == "f")

    def type(self, dst_type):
        """Turn all parameters and all buffers, integers too, to a floating-point dtype; returns this module."""
        if dst_type.kind != "f":
            raise TypeError(f"parameters need a floating-point dtype, got {dst_type}")
        return self._convert(dst_type, lambda tensor: True)

    def float(self):
        """``to(float32)``."""
        return self.to(dtypes.float32)

    def double(self):
        """``to(float64)``."""
        return self.to(dtypes.float64)

    def half(self):
        """``to(float16)``."""
        return self.to(dtypes.float16)

    def _bring_over(self):
        """Turn arrays of another library than the one in use into its own: parameters, buffers, other tensors."""
        for parameter in self.parameters():
            brought = bring_over(parameter)
            if brought is not parameter:
                parameter.data = brought
            parameter.grad = bring_over(parameter.grad)
        for module in self.modules():
            for entries in (module._buffers, vars(module)):
                entries.update({name: bring_over(value) for name, value in entries.items()
                                if isinstance(value, (Tensor, list, tuple))})

    def cpu(self):
        """``to("cpu")``; returns this module."""
        return self.to("cpu")

    def cuda(self, device=None):
        """The same as ``to("cuda")``, which is refused unless the array library in use computes there."""
        return self.to("cuda")

    def state_dict(self, *, destination=None, prefix="", keep_vars=False):
        """All parameters and persistent buffers by full name, in an ordered dict; a tied weight under each name.

        The tensors share memory with the module but take part in no graph; with `keep_vars` they are the
        parameters themselves. Names are put into `destination` where one is given.
        """
        state = OrderedDict() if destination is None else destination
        for path, module in self.named_modules(remove_duplicate=False):
            for name, tensor in itertools.chain(module._parameters.items(), module._buffers.items()):
                if tensor is not None and name not in module._non_persistent_buffers_set:
                    as_it_is = keep_vars or isinstance(tensor, UninitializedParameter)
                    state[prefix + dotted(path, name)] = tensor if as_it_is else tensor.detach()
        return state

    def load_state_dict(self, state_dict, strict=True):
        """Copy values from a dict as `state_dict` returns it into this module's parameters and buffers.

        Parameters
        ----------
        state_dict : mapping from full names to Tensors
        strict : bool
            Whether the names must be exactly this module's; otherwise those that match are loaded.

        Returns
        -------
        named tuple (missing_keys, unexpected_keys)

        Raises
        ------
        RuntimeError
            If names are missing or unexpected (with `strict`), or a value is no tensor or has another shape. The
            message lists all such names, and nothing has been copied.
        """
        if not hasattr(state_dict, "keys"):
            raise TypeError(f"load_state_dict() takes a dict, got {type(state_dict).__name__}")
        own = self.state_dict(keep_vars=True)
        missing = [key for key in own if key not in state_dict]
        unexpected = [key for key in state_dict if key not in own]
        faults = []
        if strict and missing:
            faults.append(f"Missing key(s) in state_dict: {', '.join(map(str, missing))}")
        if strict and unexpected:
            faults.append(f"Unexpected key(s) in state_dict: {', '.join(map(str, unexpected))}")
        both = [(key, tensor, state_dict[key]) for key, tensor in own.items() if key in state_dict]
        for key, tensor, value in both:
            if not isinstance(value, Tensor):
                faults.append(f"{key}: expected a Tensor, got {type(value).__name__}")
            elif not isinstance(tensor, UninitializedParameter) and value.shape != tensor.shape:
                faults.append(f"size mismatch for {key}: shape {value.shape} given, {tensor.shape} needed")
        if faults:
            raise RuntimeError("\n\t".join([f"Error(s) in loading state_dict for {type(self).__name__}:", *faults]))
        for _, tensor, value in both:
            if isinstance(tensor, UninitializedParameter):
                tensor.materialize(value.shape)
            tensor.array[...] = to_device(value.array)
            tensor.mark_written()
        return IncompatibleKeys(missing, unexpected)

    def extra_repr(self):
        """What stands between the brackets when the module is printed, such as its sizes."""
        return ""

    def _child_lines(self):
        """One entry per child for `repr`, such as "(0): ReLU()"."""
        return [f"({name}): {module!r}" for name, module in self._modules.items()]

    def __repr__(self):
        extra, children = self.extra_repr(), self._child_lines()
        if not children and "\n" not in extra:
            return f"{type(self).__name__}({extra})"
        lines = [*extra.split("\n"), *children] if extra else children
        return f"{type(self).__name__}(\n  " + "\n".join(lines).replace("\n", "\n  ") + "\n)"

    def register_forward_hook(self, *args, **kwargs):
        """Refused: there are no hooks."""
        raise NotImplementedError(NO_HOOKS)

    register_forward_pre_hook = register_full_backward_hook = register_forward_hook
