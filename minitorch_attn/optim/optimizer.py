"""What every optimiser does: groups of parameters, their state, and steps; last, how steps are made fast."""
import collections
import copy

from ..autograd import Tensor
from ..backend import shares_memory, xp
from ..grad_mode import enable_grad
from ..switching import bring_over

__all__ = ["Optimizer"]

CHUNK = 1 << 17  # numbers updated at once: fewer cost more calls, more do not fit into the processor's cache


class Optimizer:
    """Changes parameters along their gradients; the base of `SGD`, `Adam` and `AdamW`.

    A subclass names the arrays it keeps for each parameter in `moments` and states its formula in `rule`. The
    formula is written for one flat array: `step` joins the parameters of a group into arrays of up to `CHUNK`
    numbers and cuts larger ones, so that thirty small tensors cost one pass and not thirty. A subclass may also
    override `step` and loop over ``self.param_groups`` itself.

    Differs from PyTorch: a parameter given twice raises ValueError, hyperparameters are plain numbers (no tensors),
    and `step` in the state is a Python int.

    Parameters
    ----------
    params : iterable of Tensors, of (name, Tensor) pairs, or of dicts
        What to change. A dict is a group with options of its own: ``{"params": [...], "lr": 0.1}``.
    defaults : dict
        The options of a group that does not give them.

    Attributes
    ----------
    param_groups : list of dicts, each with "params" and the options
    state : dict from parameter to its state, such as ``{"step": 3, "exp_avg": Tensor}``

    Raises
    ------
    TypeError
        If `params` is a Tensor, or an entry is neither a Tensor nor a dict.
    ValueError
        If `params` is empty, a parameter occurs twice (PyTorch only warns, and updates it twice), or one is not a
        leaf of the graph.
    """

    def __init__(self, params, defaults):
        if isinstance(params, Tensor):
            raise TypeError("params must be an iterable of Tensors or of dicts; for one tensor write [tensor]")
        self.defaults, self.state, self.param_groups = defaults, collections.defaultdict(dict), []
        self._reset_cache()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list; was the model's parameters() iterator used up?")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def __getstate__(self):
        return {name: self.__dict__[name] for name in ("defaults", "state", "param_groups")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._reset_cache()

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [f"Parameter Group {i}", *(f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params")]
        return "\n".join([*lines, ")"])

    def add_param_group(self, param_group):
        """Take in a further dict of "params" (a Tensor or an ordered collection) and options.

        Raises
        ------
        TypeError, ValueError
            As the class does; also for a set, whose order changes from run to run.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, got {type(param_group).__name__}")
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("parameters need an order that is the same in every run, and a set has none; use a list")
        params = [params] if isinstance(params, Tensor) else list(params)
        group = {**self.defaults, **param_group}
        if params and all(isinstance(p, tuple) for p in params):
            group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        group["params"] = params
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"an optimizer changes Tensors, got {type(p).__name__}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor: it is computed from others, which are to be given")
        known = [id(p) for other in [*self.param_groups, group] for p in other["params"]]
        if len(known) != len(set(known)):
            raise ValueError("some parameters appear more than once, in one group or in several; a tied weight is "
                             "given once (model.parameters() does so)")
        if any(("param_names" in other) != ("param_names" in group) for other in self.param_groups):
            raise ValueError("either all groups come with names, as from named_parameters(), or none does")
        self.param_groups.append(group)

    def zero_grad(self, set_to_none=True):
        """Forget all gradients, or with ``set_to_none=False`` fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none or p.grad is None:
                    p.grad = None
                else:
                    p.grad.array[...] = 0.0
                    p.grad.mark_written()

    def moments(self, group):
        """Names of the arrays, like the parameter and at first zero, that `rule` keeps from step to step."""
        raise NotImplementedError(f"{type(self).__name__} defines neither moments() and rule() nor step()")

    def rule(self, group, t, p, g, *moments):
        """Update flat arrays in place: `p` by its gradient `g` (not to be written to) in step `t` = 1, 2, ..."""
        raise NotImplementedError

    def step(self, closure=None):
        """Update every parameter that has a gradient; one whose ``.grad`` is None keeps its values and its state.

        Parameters
        ----------
        closure : function without arguments, optional
            Computes the gradients anew and returns the loss; called first, with gradients enabled.

        Returns
        -------
        what `closure` returned, or None
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            for batch in self._batches(group):
                self._update(group, batch)
        return loss

    def state_dict(self):
        """Everything that a training needs to go on, except the parameters themselves.

        Returns
        -------
        dict
            "state": {0: {...}, 1: {...}}, by the parameter's index when all groups are read in order, for those
            that have a state; "param_groups": list of dicts of the options, with indices as "params". Tensors are
            shared with the optimizer, not copied.
        """
        params = [p for group in self.param_groups for p in group["params"]]
        index = {p: i for i, p in enumerate(params)}
        return {"state": {i: self.state[p] for p, i in index.items() if self.state.get(p)},
                "param_groups": [{**group, "params": [index[p] for p in group["params"]]}
                                 for group in self.param_groups]}

    def load_state_dict(self, state_dict):
        """Take over a copy of what `state_dict` returned, for parameters given in the same order.

        Floating-point arrays take the parameter's dtype. Options such as the learning rate are replaced too; one
        that the loaded state lacks keeps its value.

        Raises
        ------
        ValueError
            If the number of groups, or of parameters in a group, differs, or a state has another shape than its
            parameter; nothing has been changed then.
        """
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(f"the loaded state has a different number of parameter groups: {len(saved)}, this "
                             f"optimizer has {len(self.param_groups)}")
        for i, (old, new) in enumerate(zip(self.param_groups, saved)):
            if len(old["params"]) != len(new["params"]):
                raise ValueError(f"group {i} of the loaded state has {len(new['params'])} parameters, this "
                                 f"optimizer's has {len(old['params'])}")
        params = [p for group in self.param_groups for p in group["params"]]
        keys = [key for group in saved for key in group["params"]]
        state = collections.defaultdict(dict)
        for key, p in zip(keys, params):
            if key in state_dict["state"]:
                state[p] = {name: _own(value, name, p, key) for name, value in state_dict["state"][key].items()}
        groups = [{**old, **copy.deepcopy(new), "params": old["params"]} for old, new in zip(self.param_groups, saved)]
        self.state, self.param_groups = state, groups
        self._reset_cache()

    # Speed only: many small tensors as one array

    def _reset_cache(self):
        self._flat_moments = {}  # first parameter of a batch -> (flat moments, the parts of them in the states)

    def _batches(self, group):
        """Cut the group's parameters that have a gradient into lists that `_update` can join.

        A batch has one dtype and one count of steps. Unless it is a single tensor it fits into CHUNK; and no two of
        its tensors share memory, for both would be read before either is written.
        """
        batches, kind, size, storages = [], None, 0, set()
        for p in group["params"]:
            if p.grad is None:
                continue
            if p.grad.shape != p.shape:
                raise RuntimeError(f"a parameter of shape {p.shape} has a gradient of shape {p.grad.shape}")
            this = p.dtype, steps_taken(self.state[p])
            size += p.array.size
            if this != kind or size > CHUNK or id(p.storage) in storages:
                batches.append([])
                kind, size, storages = this, p.array.size, set()
            batches[-1].append(p)
            storages.add(id(p.storage))
        return batches

    def _update(self, group, batch):
        """Apply `rule` to the parameters of one batch, joined end to end."""
        names = self.moments(group)
        t = steps_taken(self.state[batch[0]]) + 1
        flat = [join([x.array for x in batch]), join([x.grad.array for x in batch]),
                *self._joined_moments(batch, names)]
        for start in range(0, flat[0].size, CHUNK):
            self.rule(group, t, *[a[start:start + CHUNK] for a in flat])
        # a single tensor was not copied: `rule` has written into it
        in_place = len(batch) == 1 and shares_memory(flat[0], batch[0].array)
        for x, values in zip(batch, split(flat[0], batch)):
            if not in_place:
                x.array[...] = values
            x.mark_written()
            if names:
                self.state[x]["step"] = t

    def _joined_moments(self, batch, names):
        """The arrays `names` of the batch's states, each joined end to end and shared with the states.

        They are joined when the batch first occurs. If an array in a state is no longer the part that was put there
        (the state was loaded or replaced, or the parameter has since been in another batch), or the parameters have
        another dtype than then, they are joined anew.
        """
        if not names:
            return []
        for x in batch:
            for name in names:
                if self.state[x].get(name) is None:
                    self.state[x][name] = Tensor.wrap(xp.zeros_like(x.array))
        found = [self.state[x][name] for name in names for x in batch]
        flats, parts = self._flat_moments.get(batch[0], ((), ()))
        dtype = batch[0].dtype
        if (len(found) != len(parts) or any(s.array is not part for s, part in zip(found, parts))
                or flats[0].dtype != dtype):
            flats = [xp.concatenate([self.state[x][name].array.ravel() for x in batch]).astype(dtype)
                     for name in names]
            parts = [part for flat in flats for part in split(flat, batch)]
            for s, part in zip(found, parts):
                s.array = part
            self._flat_moments[batch[0]] = flats, parts
        return flats


def steps_taken(state):
    """How often the parameter with this state was updated; for an SGD state from PyTorch, which keeps no count, 1."""
    if "step" in state:
        return int(state["step"])
    return int(state.get("momentum_buffer") is not None)


def check_options(differentiable, **numbers):
    """Raise for a negative or non-numeric option, and for the one mode that cannot be ignored."""
    if differentiable:
        raise NotImplementedError("differentiable=True is not supported: a step records no graph")
    for name, value in numbers.items():
        if isinstance(value, Tensor):
            raise TypeError(f"{name} must be a number, not a Tensor: changing the Tensor later would have no effect")
        if not value >= 0.0:
            raise ValueError(f"Invalid {name}: {value}; it must not be negative")


def _own(value, name, p, key):
    """A copy of a loaded state entry, in the form in which the optimizer keeps it for parameter `p`."""
    if name == "step":
        try:
            return int(value)
        except (TypeError, ValueError):
            raise ValueError(f"state {key!r}: step must be a whole number, got {value!r}") from None
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    value = bring_over(value)  # of another array library after use_backend()
    if value.ndim and value.shape != p.shape:
        raise ValueError(f"state {key!r}: {name} has shape {value.shape}, the parameter has {p.shape}")
    return Tensor.wrap(value.array.astype(p.dtype if value.dtype.kind == "f" else value.dtype))


def join(arrays):
    """All entries of `arrays`, end to end; a single contiguous array is not copied."""
    return arrays[0].reshape(-1) if len(arrays) == 1 else xp.concatenate([a.reshape(-1) for a in arrays])


def split(flat, tensors):
    """Views of `flat`, one with the shape of each of `tensors`: the inverse of `join`."""
    parts, start = [], 0
    for x in tensors:
        end = start + x.array.size
        parts.append(flat[start:end].reshape(x.shape))
        start = end
    return parts
