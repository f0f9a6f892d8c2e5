"""Learning-rate schedules: how the step size of an optimizer changes while it trains.

A schedule sets the first rate when it is made and the next one at each `step`, called after ``optimizer.step()``,
once an epoch or once a batch as its numbers are meant. k is the number of calls so far, ``last_epoch``. Where the
rule is "multiply the rate by", several schedules may act on one optimizer at once, and their factors multiply. So
where a formula gives the factor of the initial rate, the code multiplies the present rate by the ratio of the formula
at k and at k - 1, and other schedules' factors survive.
"""
import math
import types
from bisect import bisect_right

from .optimizer import Optimizer

__all__ = ["ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "ExponentialLR", "LRScheduler",
           "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR", "SequentialLR", "StepLR", "warmup_cosine_lambda",
           "warmup_lambda"]


class LRScheduler:
    """Base of all schedules; a subclass defines `get_lr`.

    Parameters
    ----------
    optimizer : Optimizer
        Whose groups' "lr" is set. The rate that a group has now is kept in it as "initial_lr".
    last_epoch : int
        -1 to begin; k to go on after k steps, where the groups must hold "initial_lr" from before.

    Attributes
    ----------
    base_lrs : list of the initial rates, one a group
    last_epoch : int, the number of steps so far

    Raises
    ------
    TypeError
        If `optimizer` is not an Optimizer.
    KeyError
        If `last_epoch` is not -1 and a group has no "initial_lr".
    """
    _is_initial = False  # whether get_lr is asked for the rate before the first step

    def __init__(self, optimizer, last_epoch=-1):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"a schedule needs an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(f"param_groups[{i}] has no 'initial_lr', which is needed to go on from last_epoch="
                               f"{last_epoch}; load the optimizer's state first, or begin with last_epoch=-1")
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self):
        """Set the rate for the first training step."""
        self._step_count = 0
        self._is_initial = True
        self.step()
        self._is_initial = False

    def _lrs(self):
        """The rates that the groups have now."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def get_lr(self):
        """The rates for the new ``last_epoch``, one a group; the old ones still stand in the groups."""
        raise NotImplementedError(f"{type(self).__name__} does not define get_lr()")

    def get_last_lr(self):
        """The rates set last, one a group."""
        return self._last_lr

    def step(self):
        """Go on to the next rate."""
        self._step_count += 1
        self.last_epoch += 1
        for group, lr in zip(self.optimizer.param_groups, self.get_lr(), strict=True):
            group["lr"] = lr
        self._last_lr = self._lrs()

    def state_dict(self):
        """All that the schedule has counted, as a dict; its optimizer's rates are in the optimizer's own."""
        return {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "_is_initial")}

    def load_state_dict(self, state_dict):
        """Take over what `state_dict` returned. Load the optimizer's state too, after the schedule was made.

        Raises
        ------
        ValueError
            If entries that `state_dict` has are missing, as in the state of a schedule of another kind; nothing has
            been changed then. Entries that it does not have are left out.
        """
        self._check_state(state_dict)
        self.__dict__.update({name: state_dict[name] for name in LRScheduler.state_dict(self)})

    def _check_state(self, state_dict):
        """ValueError unless `state_dict` has all the entries that this schedule needs."""
        missing = [name for name in LRScheduler.state_dict(self) if name not in state_dict]
        if missing:
            raise ValueError(f"this is not the state of a {type(self).__name__}: {', '.join(missing)} missing")


class _LRScheduler(LRScheduler):
    """The old name of `LRScheduler`."""


class LambdaLR(LRScheduler):
    """lr = initial_lr * lr_lambda(k).

    Parameters
    ----------
    optimizer, last_epoch : see `LRScheduler`
    lr_lambda : function of the int k, or a list of one function a group

    Raises
    ------
    ValueError
        If the list's length is not the number of groups.
    """

    def __init__(self, optimizer, lr_lambda, last_epoch=-1):
        groups = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, (list, tuple)) else [lr_lambda] * groups
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"expected {groups} functions, one a group, got {len(self.lr_lambdas)}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [base * factor(self.last_epoch) for base, factor in zip(self.base_lrs, self.lr_lambdas)]

    def state_dict(self):
        """As `LRScheduler.state_dict`; of callable objects their attributes, of functions None."""
        plain = types.FunctionType, types.BuiltinFunctionType
        kept = [None if isinstance(f, plain) else dict(f.__dict__) for f in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": kept}

    def load_state_dict(self, state_dict):
        """Take over what `state_dict` returned; functions stay those given to this schedule."""
        self._check_state(state_dict)
        for f, attributes in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if attributes is not None:
                f.__dict__.update(attributes)
        super().load_state_dict({**state_dict, "lr_lambdas": self.lr_lambdas})


class StepLR(LRScheduler):
    """Multiply the rate by `gamma` at every `step_size`-th step."""

    def __init__(self, optimizer, step_size, gamma=0.1, last_epoch=-1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        falls = self.last_epoch > 0 and self.last_epoch % self.step_size == 0
        return [lr * self.gamma if falls else lr for lr in self._lrs()]


class MultiStepLR(LRScheduler):
    """Multiply the rate by `gamma` when k reaches each of `milestones` (ints; one given twice counts twice)."""

    def __init__(self, optimizer, milestones, gamma=0.1, last_epoch=-1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        times = self.milestones.count(self.last_epoch)
        return [lr * self.gamma**times if times else lr for lr in self._lrs()]


class ExponentialLR(LRScheduler):
    """Multiply the rate by `gamma` at every step: lr = initial_lr * gamma^k."""

    def __init__(self, optimizer, gamma, last_epoch=-1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        return [lr if self._is_initial else lr * self.gamma for lr in self._lrs()]


class ConstantLR(LRScheduler):
    """Multiply the rate by `factor`, in [0, 1], until k reaches `total_iters`.

    Differs from PyTorch: after a factor of 0 the initial rate is set; PyTorch divides by 0.

    Raises
    ------
    ValueError
        If `factor` lies outside [0, 1].
    """

    def __init__(self, optimizer, factor=1.0 / 3, total_iters=5, last_epoch=-1):
        if not 0 <= factor <= 1:
            raise ValueError(f"factor must lie in [0, 1], got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._lrs()]
        if self.last_epoch == self.total_iters:
            return [lr * (1 / self.factor) for lr in self._lrs()] if self.factor else list(self.base_lrs)
        return self._lrs()


class LinearLR(LRScheduler):
    """Multiply the initial rate by a factor that goes from `start_factor` to `end_factor` in `total_iters` steps.

    factor(k) = start + (end - start) min(k, total_iters) / total_iters

    Raises
    ------
    ValueError
        If `start_factor` lies outside (0, 1] or `end_factor` outside [0, 1].
    """

    def __init__(self, optimizer, start_factor=1.0 / 3, end_factor=1.0, total_iters=5, last_epoch=-1):
        if not 0 < start_factor <= 1:
            raise ValueError(f"start_factor must lie in (0, 1], got {start_factor}")
        if not 0 <= end_factor <= 1:
            raise ValueError(f"end_factor must lie in [0, 1], got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, k):
        return self.start_factor + (self.end_factor - self.start_factor) * k / self.total_iters

    def get_lr(self):
        k = self.last_epoch
        if k == 0:
            return [lr * self.start_factor for lr in self._lrs()]
        if self._is_initial or k > self.total_iters:
            return self._lrs()
        return [lr * (self._factor(k) / self._factor(k - 1)) for lr in self._lrs()]  # keeps other schedules' factors


class CosineAnnealingLR(LRScheduler):
    """Let the rate fall from the initial one to `eta_min` along half a cosine in `T_max` steps, then rise again.

    lr(k) = eta_min + (initial_lr - eta_min) (1 + cos(pi k / T_max)) / 2

    References
    ----------
    Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017, equation 5, without
    restarts.
    """

    def __init__(self, optimizer, T_max, eta_min=0.0, last_epoch=-1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def _height(self, k):
        return (1 + math.cos(math.pi * k / self.T_max)) / 2

    def get_lr(self):
        k = self.last_epoch
        if self._is_initial:
            return self._lrs()
        if (k - 1) % (2 * self.T_max) == self.T_max:  # the step before was at the bottom: no ratio to go by
            return [lr + (base - self.eta_min) * self._height(k) for lr, base in zip(self._lrs(), self.base_lrs)]
        return [self.eta_min + (lr - self.eta_min) * (self._height(k) / self._height(k - 1)) for lr in self._lrs()]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Let the rate fall along half a cosine, again and again from the initial rate, each fall `T_mult` times longer.

    lr = eta_min + (initial_lr - eta_min) (1 + cos(pi T_cur / T_i)) / 2,   T_i = T_0 T_mult^i

    Parameters
    ----------
    optimizer, last_epoch : see `LRScheduler`
    T_0 : int
        Length of the first fall in epochs.
    T_mult : int
        How much longer each fall is than the one before.
    eta_min : float
        What the rate falls to.

    Raises
    ------
    ValueError
        If `T_0` or `T_mult` is not a positive int, or a negative epoch is given to `step`.

    References
    ----------
    Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, ICLR 2017, equation 5.
    """

    def __init__(self, optimizer, T_0, T_mult=1, eta_min=0.0, last_epoch=-1):
        if not isinstance(T_0, int) or not isinstance(T_mult, int) or T_0 < 1 or T_mult < 1:
            raise ValueError(f"T_0 and T_mult must be positive ints, got {T_0} and {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i, self.T_cur = T_0, last_epoch
        super().__init__(optimizer, last_epoch)

    def step(self, epoch=None):
        """Go on by one, or to `epoch`, which may have a fraction: epoch + batch / batches."""
        epoch = self.last_epoch + 1 if epoch is None else epoch
        if epoch < 0:
            raise ValueError(f"epoch must not be negative, got {epoch}")
        self.T_cur, self.T_i = epoch, self.T_0
        while self.T_cur >= self.T_i:
            self.T_cur -= self.T_i
            self.T_i *= self.T_mult
        self.last_epoch = math.floor(epoch) - 1  # the base class counts it up
        super().step()

    def get_lr(self):
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (base - self.eta_min) * height for base in self.base_lrs]


class OneCycleLR(LRScheduler):
    """Let the rate rise to `max_lr` and fall far below where it began, in `total_steps` steps; momentum the reverse.

    It begins at max_lr / div_factor, peaks after the share `pct_start` of the steps, and ends at
    max_lr / div_factor / final_div_factor. As the first rate is set when the schedule is made, `total_steps` - 1 calls
    of `step` reach that end. The call after the last training step goes past it, as in PyTorch: "cos" a little up
    again, "linear" below 0.

    Parameters
    ----------
    optimizer, last_epoch : see `LRScheduler`
    max_lr : float, or list of one a group
    total_steps : int
        Or give `epochs` and `steps_per_epoch`, whose product it is.
    pct_start : float in [0, 1]
    anneal_strategy : "cos" or "linear"
        Shape of both ways.
    cycle_momentum : bool
        Let momentum (for Adam beta1) go from `max_momentum` to `base_momentum` and back.
    base_momentum, max_momentum : float
        The momentum at the peak of the rate, and at the beginning and end.
    div_factor, final_div_factor : float
        How many times smaller than `max_lr` the first rate is, and than the first rate the last.
    three_phase : False
        PyTorch's variant that first falls back to the first rate is not supported.

    Raises
    ------
    ValueError
        If an argument is out of its range, the optimizer has no momentum to cycle, or `step` is called more than
        `total_steps` times.
    NotImplementedError
        If `three_phase` is True.

    References
    ----------
    Smith and Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2018.
    """

    def __init__(self, optimizer, max_lr, total_steps=None, epochs=None, steps_per_epoch=None, pct_start=0.3,
                 anneal_strategy="cos", cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, last_epoch=-1):
        if three_phase:
            raise NotImplementedError("three_phase=True is not supported")
        if total_steps is None and epochs is not None and steps_per_epoch is not None:
            total_steps = epochs * steps_per_epoch
        if not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError("give a positive int total_steps, or epochs and steps_per_epoch")
        if not 0 <= pct_start <= 1 or anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"pct_start must lie in [0, 1] and anneal_strategy be 'cos' or 'linear', got {pct_start} "
                             f"and {anneal_strategy!r}")
        groups = optimizer.param_groups
        if cycle_momentum and any("momentum" not in group and "betas" not in group for group in groups):
            raise ValueError("cycle_momentum=True needs an optimizer with momentum or betas")
        max_lrs = list(max_lr) if isinstance(max_lr, (list, tuple)) else [max_lr] * len(groups)
        if len(max_lrs) != len(groups):
            raise ValueError(f"max_lr has {len(max_lrs)} values for {len(groups)} parameter groups")
        self.total_steps, self.peak = total_steps, pct_start * total_steps - 1
        self.anneal_strategy, self.cycle_momentum = anneal_strategy, cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        if last_epoch == -1:
            for group, top in zip(groups, max_lrs):
                group.update(initial_lr=top / div_factor, max_lr=top, min_lr=top / div_factor / final_div_factor)
        super().__init__(optimizer, last_epoch)

    def _between(self, start, end, share):
        """What stands `share` of the way, in [0, 1], from `start` to `end`."""
        cosine = self.anneal_strategy == "cos"
        return end + (start - end) * ((1 + math.cos(math.pi * share)) / 2 if cosine else 1 - share)

    def get_lr(self):
        k = self.last_epoch
        if k > self.total_steps:
            raise ValueError(f"step {k} of a cycle of total_steps={self.total_steps}")
        rising = 0 < self.peak >= k
        share = k / self.peak if rising else (k - self.peak) / (self.total_steps - 1 - self.peak)
        lrs = []
        for group in self.optimizer.param_groups:
            if rising:
                lr = self._between(group["initial_lr"], group["max_lr"], share)
                momentum = self._between(self.max_momentum, self.base_momentum, share)
            else:
                lr = self._between(group["max_lr"], group["min_lr"], share)
                momentum = self._between(self.base_momentum, self.max_momentum, share)
            lrs.append(lr)
            if self.cycle_momentum:
                group.update({"betas": (momentum, group["betas"][1])} if "betas" in group else {"momentum": momentum})
        return lrs


class SequentialLR(LRScheduler):
    """One schedule after another: the next takes over, from its own beginning, when k reaches the next milestone.

    Differs from PyTorch: a SequentialLR inside another one keeps its milestones, and no warning is given when a
    schedule is stepped before its optimiser.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : list of schedules of that optimizer, as just made
    milestones : list of ints, one fewer than `schedulers`, rising

    Raises
    ------
    ValueError
        If the numbers do not match, or a schedule belongs to another optimizer.
    """

    def __init__(self, optimizer, schedulers, milestones, last_epoch=-1):
        if len(schedulers) < 1 or len(milestones) != len(schedulers) - 1:
            raise ValueError(f"needs at least one schedule and one milestone fewer, got {len(schedulers)} schedules "
                             f"and {len(milestones)} milestones")
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("all schedules must have been made for this optimizer")
        if last_epoch != -1:
            raise NotImplementedError("to go on with a SequentialLR make it anew and call load_state_dict()")
        self.optimizer, self._schedulers, self._milestones = optimizer, list(schedulers), list(milestones)
        self._initial_step()

    def _initial_step(self):
        self.last_epoch = 0
        self._begin(self._schedulers[bisect_right(self._milestones, 0)])

    def _begin(self, scheduler):
        """Let `scheduler` set the rate as if it had just been made, whatever was set since."""
        for group in self.optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        scheduler.last_epoch = -1
        scheduler._initial_step()
        self._last_lr = scheduler.get_last_lr()

    def step(self):
        """Go on to the next rate."""
        self.last_epoch += 1
        turn = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[turn]
        if turn > 0 and self._milestones[turn - 1] == self.last_epoch:
            self._begin(scheduler)
        else:
            scheduler.step()
            self._last_lr = scheduler.get_last_lr()

    def state_dict(self):
        """As `LRScheduler.state_dict`, with those of the schedules in a list."""
        return {**super().state_dict(), "_schedulers": [scheduler.state_dict() for scheduler in self._schedulers]}

    def load_state_dict(self, state_dict):
        """Take over what `state_dict` returned."""
        self._check_state(state_dict)
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(state)
        super().load_state_dict({**state_dict, "_schedulers": self._schedulers})

    def _check_state(self, state_dict):
        super()._check_state(state_dict)
        states = state_dict["_schedulers"]
        if states is self._schedulers:  # these have taken over their parts
            return
        if len(states) != len(self._schedulers):
            raise ValueError(f"the loaded state has {len(states)} schedules, this one {len(self._schedulers)}")
        for scheduler, state in zip(self._schedulers, states):
            scheduler._check_state(state)


def warmup_lambda(warmup_steps):
    """A factor for `LambdaLR` that rises in a straight line to 1 and stays there.

    factor(k) = min(1, (k + 1) / (warmup_steps + 1))

    The first step is already trained with a rate above zero, and the full rate is reached after `warmup_steps`
    smaller ones: with lr=1e-3 and 4 of them the rates are 2e-4, 4e-4, 6e-4, 8e-4, 1e-3, 1e-3, ...

    Parameters
    ----------
    warmup_steps : int >= 0

    Returns
    -------
    function from k = 0, 1, ... to the factor
    """
    return lambda k: min(1.0, (k + 1) / (warmup_steps + 1))


def warmup_cosine_lambda(warmup_steps, total_steps, final_factor=0.0):
    """A factor for `LambdaLR`: `warmup_lambda`, then half a cosine from 1 down to `final_factor`.

    For k >= warmup_steps, with s = min(1, (k - warmup_steps) / (total_steps - warmup_steps)):
    factor(k) = final_factor + (1 - final_factor) (1 + cos(pi s)) / 2

    Parameters
    ----------
    warmup_steps : int >= 0
    total_steps : int > warmup_steps
        When the lowest rate is reached; it stays.
    final_factor : float in [0, 1]

    Returns
    -------
    function from k = 0, 1, ... to the factor

    Raises
    ------
    ValueError
        If `total_steps` is not above `warmup_steps`.
    """
    if total_steps <= warmup_steps:
        raise ValueError(f"total_steps ({total_steps}) must be above warmup_steps ({warmup_steps})")

    def factor(k):
        if k < warmup_steps:
            return (k + 1) / (warmup_steps + 1)
        share = min(1.0, (k - warmup_steps) / (total_steps - warmup_steps))
        return final_factor + (1 - final_factor) * (1 + math.cos(math.pi * share)) / 2

    return factor
