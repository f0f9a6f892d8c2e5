"""Recurrent layers: the cells, one step at a time, and whole networks of several layers and both directions."""
import math
import warnings

from ..autograd import Tensor
from ..ops import cat, empty, stack, zeros
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]


class _Recurrent(Module):
    """What the cells and the networks share: weights and biases of `gates` blocks of `hidden_size` rows each."""

    gates = 1

    def __init__(self, input_size, hidden_size, bias):
        super().__init__()
        if not isinstance(hidden_size, int):
            raise TypeError(f"hidden_size must be an int, got {type(hidden_size).__name__}")
        if hidden_size <= 0:
            raise ValueError(f"hidden_size must be greater than 0, got {hidden_size}")
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias

    def _add_parameters(self, width, suffix, device, dtype):
        """Register the parameters of a step with inputs of `width`; returns their names in the kernels' order."""
        rows = self.gates * self.hidden_size
        shapes = {"weight_ih": (rows, width), "weight_hh": (rows, self.hidden_size)}
        if self.bias:
            shapes.update(bias_ih=(rows,), bias_hh=(rows,))
        for name, shape in shapes.items():
            self.register_parameter(name + suffix, Parameter(empty(shape, device=device, dtype=dtype)))
        return [name + suffix for name in shapes]

    def reset_parameters(self):
        """Draw all parameters uniformly from [-b, b) with b = 1 / sqrt(hidden_size)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _check_input(self, x, batched_ndim):
        """Raise unless `x` is a tensor of the right width with `batched_ndim` axes, or one fewer (no batch)."""
        name = type(self).__name__
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} needs a Tensor, got {type(x).__name__}; packed sequences are not covered, pass "
                            "the padded tensor and mask the results")
        if x.ndim not in (batched_ndim - 1, batched_ndim):
            raise ValueError(f"{name} needs an input of {batched_ndim - 1} or {batched_ndim} dims, got {x.shape}")
        if x.shape[-1] != self.input_size:
            raise RuntimeError(f"{name} was made for inputs of width {self.input_size}, got shape {x.shape}")


class _Cell(_Recurrent):
    """One step of a recurrent network; a subclass says which."""

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias)
        names = self._add_parameters(input_size, "", device, dtype)
        for name in ("bias_ih", "bias_hh"):
            if name not in names:
                self.register_parameter(name, None)
        self.reset_parameters()

    def _step(self, function, x, *states):
        """``function(x, *states, parameters)`` for one sample or a batch; a missing state is zeros."""
        self._check_input(x, 2)
        unbatched, shape = x.ndim == 1, (*x.shape[:-1], self.hidden_size)
        states = [zeros(shape, dtype=x.dtype) if h is None else h for h in states]
        for h in states:
            if h.shape != shape:
                raise RuntimeError(f"{type(self).__name__} needs a state of shape {shape} for an input of shape "
                                   f"{x.shape}, got {h.shape}")
        if unbatched:
            x, *states = (v.unsqueeze(0) for v in (x, *states))
        results = function(x, *states, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return tuple(h.squeeze(0) if unbatched else h for h in results)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    """One step of an Elman network: ``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``.

    Parameters
    ----------
    input_size, hidden_size : int
        Widths I and H.
    bias : bool
    nonlinearity : "tanh" or "relu"
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight_ih : Parameter (H, I)
    weight_hh : Parameter (H, H)
    bias_ih, bias_hh : Parameter (H,), or None
    """

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input, hx=None):
        """x (B, I) or (I,), state (B, H) or (H,), zeros by default -> the next state."""
        cell = F.rnn_tanh_cell if self.nonlinearity == "tanh" else F.rnn_relu_cell
        return self._step(lambda *args: (cell(*args),), input, hx)[0]

    def extra_repr(self):
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class GRUCell(_Cell):
    """One step of gated recurrent units; formula in `functional.gru`.

    Parameters
    ----------
    input_size, hidden_size : int
        Widths I and H.
    bias : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight_ih : Parameter (3H, I), rows of the gates r, z, n
    weight_hh : Parameter (3H, H)
    bias_ih, bias_hh : Parameter (3H,), or None
    """

    gates = 3

    def forward(self, input, hx=None):
        """x (B, I) or (I,), state (B, H) or (H,), zeros by default -> the next state."""
        return self._step(lambda *args: (F.gru_cell(*args),), input, hx)[0]


class LSTMCell(_Cell):
    """One step of long short-term memory; formula in `functional.lstm`.

    Parameters
    ----------
    input_size, hidden_size : int
        Widths I and H.
    bias : bool
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight_ih : Parameter (4H, I), rows of the gates i, f, g, o
    weight_hh : Parameter (4H, H)
    bias_ih, bias_hh : Parameter (4H,), or None
    """

    gates = 4

    def forward(self, input, hx=None):
        """x (B, I) or (I,), state (h, c), each (B, H) or (H,), zeros by default -> the next (h, c)."""
        h, c = (None, None) if hx is None else hx
        return self._step(lambda x, h, c, *parameters: F.lstm_cell(x, (h, c), *parameters), input, h, c)


class _Network(_Recurrent):
    """Layers of a recurrent network, each run over time in one direction or both; a subclass says which kind.

    A layer in one direction is called a run below; there are num_layers, or twice as many if bidirectional.
    """

    states = 1  # how many tensors make up a run's state

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias)
        if proj_size:
            raise NotImplementedError("proj_size is not covered; put a Linear on the output instead")
        if num_layers <= 0:
            raise ValueError(f"num_layers must be greater than 0, got {num_layers}")
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a probability in [0, 1], got {dropout!r}")
        if dropout and num_layers == 1:
            warnings.warn(f"dropout={dropout} acts between layers, and there is only one", stacklevel=3)
        self.num_layers, self.batch_first, self.dropout = num_layers, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, 0
        self._all_weights = []  # for each run the names of its parameters
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * (2 if bidirectional else 1)
            for suffix in ("", "_reverse")[:2 if bidirectional else 1]:
                self._all_weights.append(self._add_parameters(width, f"_l{layer}{suffix}", device, dtype))
        self._flat_weights_names = [name for names in self._all_weights for name in names]
        self.reset_parameters()

    @property
    def all_weights(self):
        """For each run the list of its parameters."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self):
        """Does nothing: it lays weights out for a library that is not used here."""

    def _run(self, x, states, weights, reverse):
        """One run: x (T, B, I), its initial states -> y (T, B, H) and the tuple of its last states."""
        y = self._kernel(x, *states, *weights, reverse=reverse)
        return y, (y[0 if reverse else -1],)

    def _forward(self, x, initial):
        """All layers: x and a state for each run, (runs, B, H), or None for zeros -> y and the list of last states."""
        self._check_input(x, 3)
        unbatched = x.ndim == 2
        batch_dim = 0 if self.batch_first else 1
        if unbatched:
            x = x.unsqueeze(batch_dim)
        if self.batch_first:
            x = x.transpose(0, 1)  # (B, T, I) -> (T, B, I)
        directions = (False, True) if self.bidirectional else (False,)
        shape = (self.num_layers * len(directions), *(() if unbatched else x.shape[1:2]), self.hidden_size)
        for state in initial or ():
            if state.shape != shape:
                raise RuntimeError(f"{type(self).__name__} needs a state of shape {shape}, got {state.shape}")
        if initial is None:
            initial = [zeros(shape, dtype=x.dtype)] * self.states
        initial = [h.unsqueeze(1) if unbatched else h for h in initial]
        last, weights = [], self.all_weights
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = F.dropout(x, self.dropout, self.training)
            outputs = []
            for reverse in directions:
                run = len(last)
                y, states = self._run(x, [h[run] for h in initial], weights[run], reverse)
                outputs.append(y)
                last.append(states)
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)  # (T, B, H), (T, B, H) -> (T, B, 2H)
        last = [stack(states) for states in zip(*last)]  # (B, H) for each run -> (runs, B, H)
        if self.batch_first:
            # a copy, not a view: attention reads it at each step of a decoder, and is slower on a transposed view
            x = x.transpose(0, 1).contiguous()  # (T, B, H) -> (B, T, H)
        return (x.squeeze(batch_dim), [h.squeeze(1) for h in last]) if unbatched else (x, last)

    def forward(self, input, hx=None):
        """Run over a sequence.

        Parameters
        ----------
        input : Tensor (T, B, I), or (B, T, I) with `batch_first`, or (T, I) without a batch
        hx : Tensor (runs, B, H), or (runs, H) without a batch, optional
            The initial state of each layer and direction: runs is num_layers, twice that if bidirectional. Zeros by
            default.

        Returns
        -------
        output : Tensor like the input, of width H or 2H: the last layer's state after each step, both directions' side
            by side
        h_n : Tensor like hx: the last state of each run

        Raises
        ------
        TypeError, ValueError or RuntimeError
            If `input` is no tensor, has the wrong number of dims, or a size does not fit.
        """
        y, (h_n,) = self._forward(input, None if hx is None else [hx])
        return y, h_n

    def extra_repr(self):
        defaults = dict(num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False)
        changed = [f"{name}={getattr(self, name)}" for name, usual in defaults.items() if getattr(self, name) != usual]
        return ", ".join([str(self.input_size), str(self.hidden_size), *changed])


class RNN(_Network):
    """An Elman network over time; formula in `functional.rnn`.

    Parameters
    ----------
    input_size, hidden_size : int
        Widths I and H.
    num_layers : int
        Each layer above the first reads the output of the one below.
    nonlinearity : "tanh" or "relu"
    bias : bool
    batch_first : bool
        Inputs and outputs are (B, T, ...) instead of (T, B, ...); states are not affected.
    dropout : float in [0, 1]
        While training, applied to the output of every layer except the last.
    bidirectional : bool
        Each layer also runs from the last step to the first, with parameters of its own.
    device, dtype : "cpu" and the parameters' dtype; optional

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 : Parameter (H, I), (H, H), (H,), (H,)
        Of the first layer; l1, l2, ... of the next ones, whose weight_ih are (H, H) or (H, 2H), and with
        "_reverse" at the end those of the other direction. The biases only with `bias`.

    Raises
    ------
    ValueError
        If a size is not positive, `dropout` is outside [0, 1], or `nonlinearity` is another word.
    """

    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False,
                 dropout=0.0, bidirectional=False, proj_size=0, device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size,
                         device, dtype)
        self.nonlinearity = nonlinearity

    def _kernel(self, *args, reverse):
        return F.rnn(*args, nonlinearity=self.nonlinearity, reverse=reverse)


class GRU(_Network):
    """A network of gated recurrent units over time; formula in `functional.gru`.

    Differs from PyTorch: packed sequences and `proj_size` are refused; this holds for RNN and LSTM too.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        As in `RNN`.

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, ...
        As in `RNN`, with 3H rows: the gates r, z, n.

    Raises
    ------
    ValueError
        If a size is not positive or `dropout` is outside [0, 1].
    """

    gates = 3

    def _kernel(self, *args, reverse):
        return F.gru(*args, reverse=reverse)


class LSTM(_Network):
    """A network of long short-term memory over time; formula in `functional.lstm`.

    Parameters
    ----------
    input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, device, dtype
        As in `RNN`.

    Attributes
    ----------
    weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, ...
        As in `RNN`, with 4H rows: the gates i, f, g, o.

    Raises
    ------
    ValueError
        If a size is not positive or `dropout` is outside [0, 1].
    """

    gates, states = 4, 2

    def _run(self, x, states, weights, reverse):
        y = F.lstm(x, *states, *weights, reverse=reverse)  # (T + 1, B, H), the last row being c
        y, c = y[:-1], y[-1]
        return y, (y[0 if reverse else -1], c)

    def forward(self, input, hx=None):
        """As `RNN.forward`, with two states: hx and the second result are tuples (h, c)."""
        y, last = self._forward(input, hx)
        return y, tuple(last)
