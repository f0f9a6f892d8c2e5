"""Onward to PyTorch, and back: the same model with the same values in the other library.

The layers here bear PyTorch's class names, arguments and parameter names. So a layer's twin is made by calling the
other library's class of the same name with the arguments that can be read off the layer, and then each parameter and
buffer is handed over under its name.
"""
import inspect
from collections import OrderedDict

from . import nn
from .backend import to_host
from .grad_mode import no_grad
from .ops import from_numpy

__all__ = ["from_torch", "to_torch"]

# arguments that a layer does not keep: they only say how to make it, and what it holds is handed over as it is
NOT_ASKED = {"self", "device", "dtype", "_weight", "_freeze", "size_average", "reduce"}
REFUSED_HERE = {"max_norm", "norm_type", "scale_grad_by_freq", "sparse"}  # by Embedding, so it does not keep them
HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"  # PyTorch's tables of them


def to_torch(model, into=None):
    """The model in PyTorch, on the CPU, with copies of the values.

    Parameters
    ----------
    model : Module
        A layer or container that PyTorch has too, with whatever such layers it holds: Linear ... Transformer,
        Sequential, ModuleList. Any other Module with `into`.
    into : torch.nn.Module, optional
        Filled with the values instead of a new module: for classes of your own, whose source is the same in both
        libraries but for its import lines. Its parameters stay the same objects, of their dtype and on their device,
        so that an optimizer made before goes on with them. Only where `model` uses one weight twice and `into` has
        two, the second is replaced by the first.

    Returns
    -------
    torch.nn.Module
        With the dtypes, `requires_grad`, tied weights and train or eval mode of `model`; or `into`, with all of these
        but the dtypes.

    Raises
    ------
    ModuleNotFoundError
        If PyTorch is not installed.
    TypeError
        If `model` is no Module of this library, or `into` none of PyTorch's; or if PyTorch has no layer of that name,
        or a layer's class is your own, and `into` is not given.
    ValueError
        If a layer has no values yet, or `into` has other names or shapes than `model`, or one parameter where `model`
        has two; it is left as it was.
    """
    import torch

    def value(x):
        return torch.from_numpy(to_host(x.detach().array).copy())

    _check("to_torch", nn, torch.nn, model, into)
    if into is not None:
        return _fill(model, into, value, torch.no_grad)
    return _hand_over(model, _Twins(nn, torch.nn, value).of(model), value, torch.nn.Parameter)


def from_torch(module, into=None):
    """A module of PyTorch's as one of this library's, with copies of the values: `to_torch` the other way round.

    Parameters
    ----------
    module : torch.nn.Module
        On any device; bfloat16, which NumPy lacks, becomes float32.
    into : Module, optional
        Filled with the values instead of a new module.

    Returns
    -------
    Module

    Raises
    ------
    TypeError, ValueError
        As `to_torch` does; TypeError also if a layer has hooks, which this library lacks.
    """
    import torch

    def value(x):
        x = x.detach().cpu()
        return from_numpy((x.float() if x.dtype == torch.bfloat16 else x).numpy().copy())

    _check("from_torch", torch.nn, nn, module, into)
    if into is not None:
        return _fill(module, into, value, no_grad)
    return _hand_over(module, _Twins(torch.nn, nn, value).of(module), value, nn.Parameter)


def _check(function, here, there, module, into):
    """Raise unless `module` is one of the library whose layers are `here`, and `into` of the other, with values."""
    source, target, other = "minitorch_attn", "PyTorch", "from_torch"
    if function == "from_torch":
        source, target, other = target, source, "to_torch"
    if not isinstance(module, here.Module):
        if isinstance(module, there.Module):
            hint = f"; that way round it is {other}()"
        elif hasattr(module, "keys"):
            hint = "; hand over the module itself, not its state_dict()"
        else:
            hint = "; hand over an object of the class" if isinstance(module, type) else ""
        raise TypeError(f"{function}() takes a Module of {source}, got {_named_kind(module)}{hint}")
    if into is not None and not isinstance(into, there.Module):
        raise TypeError(f"into= takes a Module of {target}, got {_named_kind(into)}")
    for name, x in [*_named(module).items(), *({} if into is None else _named(into)).items()]:
        if type(x).__name__.startswith("Uninitialized"):
            raise ValueError(f"{name} has no values yet, as in a lazy layer; call the module once before")


def _named_kind(value):
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    return f"{type(value).__module__}.{type(value).__qualname__}"


class _Twins:
    """Makes modules of the namespace `there` after those of `here`; `value` turns a tensor of one into the other's."""

    def __init__(self, here, there, value):
        self.here, self.there, self.value, self.made = here, there, value, {}

    def of(self, module):
        """A module of the same class and arguments, with values of its own; one that occurs twice has one twin."""
        if id(module) not in self.made:
            self.made[id(module)] = self._new(module)
        return self.made[id(module)]

    def _new(self, module):
        kind = type(module)
        name, own = kind.__name__, kind.__module__.partition(".")[0] not in ("minitorch_attn", "torch")
        if own:
            raise TypeError(f"{name} is a class of your own: make the other library's module from the same source, "
                            "with its import lines, and hand it over as into=")
        if kind is not getattr(self.here, name, None) or not hasattr(self.there, name) or not hasattr(nn, name):
            raise TypeError(f"the other library has no {name}; make a module there that has the same parameters, and "
                            "hand it over as into=")
        if any(getattr(module, table, None) for table in HOOKS):
            raise TypeError(f"a layer {name} has hooks, which do not move; remove them first, or make a module of "
                            "your own whose forward() does what they do")
        return getattr(self, name, self._layer)(module)

    def _layer(self, layer):
        """By the arguments of its class here: each is kept as an attribute of its name."""
        kind = type(layer).__name__
        given = {}
        for name, argument in inspect.signature(getattr(nn, kind).__init__).parameters.items():
            if name in NOT_ASKED or argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
                continue
            if name in REFUSED_HERE and not hasattr(layer, name):
                continue
            value = self._argument(name, getattr(layer, name))
            if value is not argument.default and value != argument.default:  # GRU refuses even the default proj_size
                given[name] = value
        return getattr(self.there, kind)(**given)

    def _argument(self, name, value):
        """What to pass for an argument that a layer keeps as `value`."""
        if name == "bias":
            return value is not None and value is not False
        return self.value(value) if hasattr(value, "detach") else value

    def Sequential(self, module):
        return self.there.Sequential(OrderedDict((name, self.of(m)) for name, m in module._modules.items()))

    def ModuleList(self, module):
        return self.there.ModuleList(map(self.of, module))

    def ModuleDict(self, module):
        return self.there.ModuleDict({name: self.of(child) for name, child in module.items()})

    def ParameterList(self, module):
        return self.there.ParameterList([self.there.Parameter(self.value(x)) for x in module])

    def ParameterDict(self, module):
        return self.there.ParameterDict({name: self.there.Parameter(self.value(x)) for name, x in module.items()})

    def MultiheadAttention(self, layer):
        return self.there.MultiheadAttention(
            layer.embed_dim, layer.num_heads, layer.dropout, layer.in_proj_bias is not None,
            layer.bias_k is not None, layer.add_zero_attn, layer.kdim, layer.vdim, layer.batch_first)

    def TransformerEncoderLayer(self, layer):
        attention = layer.self_attn
        twin = getattr(self.there, type(layer).__name__)(
            attention.embed_dim, attention.num_heads, layer.linear1.out_features, layer.dropout.p,
            self._activation(layer.activation), layer.norm1.eps, attention.batch_first, layer.norm_first,
            bias=layer.linear1.bias is not None)
        for name, child in layer.named_children():  # which may have been changed after the layer was made
            setattr(twin, name, self.of(child))
        return twin

    TransformerDecoderLayer = TransformerEncoderLayer

    def _activation(self, function):
        """The other library's function of the same name, or the twin of a layer."""
        if isinstance(function, self.here.Module):
            return self.of(function)
        name = getattr(function, "__name__", "")
        if not hasattr(self.here.functional, name) or not hasattr(self.there.functional, name):
            raise TypeError(f"the activation {name or function!r} is not one that both libraries have; make the "
                            "other library's module with a function of its own, and hand it over as into=")
        return getattr(self.there.functional, name)

    def TransformerEncoder(self, module):
        # nested tensors, a faster way of PyTorch's for padded inputs, would put zeros where padding stands
        return self._filled(module, enable_nested_tensor=False)

    def TransformerDecoder(self, module):
        return self._filled(module)

    def _filled(self, module, **options):
        """An encoder or decoder of the twins of `module`'s layers, which need not be alike."""
        layers = [self.of(layer) for layer in module.layers]
        norm = None if module.norm is None else self.of(module.norm)
        twin = getattr(self.there, type(module).__name__)(layers[0], len(layers), norm, **options)
        twin.layers = self.there.ModuleList(layers)
        return twin

    def Transformer(self, module):
        return self.there.Transformer(
            module.d_model, module.nhead, custom_encoder=self.of(module.encoder),
            custom_decoder=self.of(module.decoder), batch_first=module.batch_first)


def _named(module):
    """All parameters and buffers of a module of either library by full name; a tied one under each of its names."""
    return dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])


def _faults(given, taken):
    """What stands against handing over one module's parameters and buffers to another, as lines of text."""
    faults = [f"only in what is given: {name}" for name in given if name not in taken]
    faults += [f"only in what takes: {name}" for name in taken if name not in given]
    return faults + [f"{name}: shape {tuple(x.shape)} given, {tuple(taken[name].shape)} needed"
                     for name, x in given.items() if name in taken and tuple(x.shape) != tuple(taken[name].shape)]


def _raise(faults):
    if faults:
        raise ValueError("the two modules do not have the same parameters:\n\t" + "\n\t".join(faults))


def _hand_over(source, target, value, parameter):
    """Put copies of `source`'s parameters and buffers in the place of the new module `target`'s; returns `target`."""
    given = _named(source)
    _raise(_faults(given, _named(target)))
    trained = {name for name, _ in source.named_parameters(remove_duplicate=False)}
    copies = {}
    for name, x in given.items():
        if id(x) not in copies:
            copies[id(x)] = parameter(value(x), x.requires_grad) if name in trained else value(x)
        _put(target, name, copies[id(x)])
    return _same_modes(source, target)


def _fill(source, target, value, no_grad):
    """Copy `source`'s parameters and buffers into those that `target` has; returns `target`."""
    given, taken = _named(source), _named(target)
    faults, origins = _faults(given, taken), {}
    for name, x in taken.items():
        if getattr(x, "is_meta", False):
            faults.append(f"{name}: on PyTorch's meta device, which holds no values; call to_empty(device=...) first")
        if name in given and origins.setdefault(id(x), given[name]) is not given[name]:
            faults.append(f"{name}: one with another in what takes, but not in what is given")
    _raise(faults)
    filled = {}
    for name, x in given.items():
        if id(x) in filled:
            _put(target, name, filled[id(x)])  # the same weight under a second name
            continue
        filled[id(x)] = taken[name]
        with no_grad():
            taken[name].copy_(value(x))
        taken[name].requires_grad_(x.requires_grad)
    return _same_modes(source, target)


def _put(module, name, x):
    """Make `x` the parameter or buffer of that full name."""
    path, _, last = name.rpartition(".")
    setattr(module.get_submodule(path), last, x)


def _same_modes(source, target):
    """Give each module of `target` the train or eval mode of its namesake; returns `target`."""
    modes = dict(source.named_modules(remove_duplicate=False))
    for name, module in target.named_modules(remove_duplicate=False):
        module.training = modes[name].training if name in modes else source.training
    return target
