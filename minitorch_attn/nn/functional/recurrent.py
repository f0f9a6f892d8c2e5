"""Recurrent networks: a state that is updated from the input, step by step; each kernel runs over a whole sequence.

What does not wait for the state is done for all steps at once: the product of the inputs with their weights before
the steps, the gradients of the weights after them. A cell is a sequence of one step.

Axis letters: T time, B batch, I width of the input, H width of the state. Gates lie one after the other in the rows
of the weights, in PyTorch's order: GRU r, z, n; LSTM i, f, g, o. `present` says which inputs are given.
"""
from itertools import compress

from ...autograd import Tensor
from ...backend import quiet, xp
from ...ops.broadcast import unbroadcast
from ...ops.shape import squeeze, unbind, unsqueeze

__all__ = ["gru", "gru_cell", "lstm", "lstm_cell", "rnn", "rnn_relu_cell", "rnn_tanh_cell"]


def rnn(x, h0, w_ih, w_hh, b_ih=None, b_hh=None, nonlinearity="tanh", reverse=False):
    r"""An Elman network over time.

    .. math:: h_t = \phi(W_{ih} x_t + b_{ih} + W_{hh} h_{t-1} + b_{hh})

    Parameters
    ----------
    x : Tensor (T, B, I)
    h0 : Tensor (B, H)
    w_ih : Tensor (H, I)
    w_hh : Tensor (H, H)
    b_ih, b_hh : Tensor (H,), optional
    nonlinearity : "tanh" or "relu"
    reverse : bool
        Run from the last step to the first.

    Returns
    -------
    Tensor (T, B, H), the state after each step, in the order of `x`.

    Raises
    ------
    RuntimeError
        If shapes or dtypes do not fit, or T is 0.
    ValueError
        If `nonlinearity` is another word.

    References
    ----------
    Elman 1990, "Finding structure in time".
    """
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f'nonlinearity must be "tanh" or "relu", got {nonlinearity!r}')
    inputs = _checked(1, x, (h0,), w_ih, w_hh, b_ih, b_hh)
    x, h0, w_ih, w_hh, *b = [v.array for v in inputs]
    if reverse:
        x = x[::-1]
    a = _project(x, w_ih, *b)  # (T, B, I) -> (T, B, H)
    hs, w = xp.empty((len(x) + 1, *h0.shape), h0.dtype), _transposed_for(len(x), w_hh)
    hs[0] = h0
    for t in range(len(x)):
        h = xp.matmul(hs[t], w, out=hs[t + 1])
        h += a[t]
        if nonlinearity == "tanh":
            xp.tanh(h, out=h)
        else:
            xp.maximum(h, 0, out=h)
    y = hs[1:]
    needs_gx, present = inputs[0].requires_grad, (*[True] * 4, b_ih is not None, b_hh is not None)

    def backward(g):
        # da_t = phi'(a_t) dh_t, where dh_t = g_t + W_hh^T da_{t+1}
        g = g[::-1] if reverse else g
        slope = 1 - y * y if nonlinearity == "tanh" else (y > 0).astype(y.dtype)
        ga, gh = xp.empty_like(slope), xp.zeros_like(h0)
        for t in reversed(range(len(x))):
            gh = xp.matmul(xp.multiply(g[t] + gh, slope[t], out=ga[t]), w_hh)
        gx, gw_ih, gb = _affine_gradients(ga, x, w_ih, needs_gx)
        _, gw_hh, _ = _affine_gradients(ga, hs[:-1], w_hh, False)
        return tuple(compress((gx[::-1] if reverse and needs_gx else gx, gh, gw_ih, gw_hh, gb, gb), present))

    return Tensor.from_op("rnn", y[::-1] if reverse else y, inputs, backward)


@quiet
def gru(x, h0, w_ih, w_hh, b_ih=None, b_hh=None, reverse=False):
    r"""A network of gated recurrent units over time.

    .. math::
        r_t &= \sigma(W_{ir} x_t + b_{ir} + W_{hr} h_{t-1} + b_{hr}) \\
        z_t &= \sigma(W_{iz} x_t + b_{iz} + W_{hz} h_{t-1} + b_{hz}) \\
        n_t &= \tanh(W_{in} x_t + b_{in} + r_t (W_{hn} h_{t-1} + b_{hn})) \\
        h_t &= (1 - z_t)\, n_t + z_t h_{t-1}

    Parameters
    ----------
    x : Tensor (T, B, I)
    h0 : Tensor (B, H)
    w_ih : Tensor (3H, I)
    w_hh : Tensor (3H, H)
    b_ih, b_hh : Tensor (3H,), optional
    reverse : bool
        Run from the last step to the first.

    Returns
    -------
    Tensor (T, B, H), the state after each step, in the order of `x`.

    Raises
    ------
    RuntimeError
        If shapes or dtypes do not fit, or T is 0.

    References
    ----------
    Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder"; with the reset gate after the
    matrix product, as in PyTorch and cuDNN, not before it as in the paper.
    """
    inputs = _checked(3, x, (h0,), w_ih, w_hh, b_ih, b_hh)
    x, h0, w_ih, w_hh, *b = [v.array for v in inputs]
    if reverse:
        x = x[::-1]
    gates, c_n, hs = _gru_steps(x, h0, w_ih, w_hh, *b)
    y = hs[1:]
    needs_gx, present = inputs[0].requires_grad, (*[True] * 4, b_ih is not None, b_hh is not None)

    def backward(g):
        # With s the sigmoid, r = s(a_r + c_r), z = s(a_z + c_z), n = tanh(a_n + r c_n), where a = W_i x + b_i and
        # c = W_h h_{t-1} + b_h. So h_t moves with these pre-activations by
        #   dh/da_n = (1 - z)(1 - n^2),  dh/da_z = (h_{t-1} - n) z(1 - z),  dh/da_r = dh/da_n r c_n (1 - r),
        #   dh/dc_r = dh/da_r,  dh/dc_z = dh/da_z,  but  dh/dc_n = r dh/da_n.
        # All this is known before the walk back, which only has to carry
        #   dh_t = g_t + z_{t+1} dh_{t+1} + W_hh^T dc_{t+1}.
        g = g[::-1] if reverse else g
        (r, z, n), (rest_r, rest_z) = gates, 1 - gates[:2]
        dh_dan, dh_dc = (1 - n * n) * rest_z, xp.empty_like(gates)
        xp.multiply(dh_dan, r, out=dh_dc[2])
        xp.multiply(dh_dc[2], c_n * rest_r, out=dh_dc[0])
        xp.multiply(hs[:-1] - n, z * rest_z, out=dh_dc[1])
        gc, ghs, gh = xp.empty((*y.shape[:2], len(w_hh)), y.dtype), xp.empty_like(y), xp.zeros_like(h0)
        gc_gates = _gates_first(gc, 3)
        for t in reversed(range(len(x))):
            gh = xp.add(g[t], gh, out=ghs[t])
            xp.multiply(dh_dc[:, t], gh, out=gc_gates[:, t])
            gh = gh * z[t]
            gh += xp.matmul(gc[t], w_hh)  # (B, 3H) -> (B, H)
        _, gw_hh, gb_hh = _affine_gradients(gc, hs[:-1], w_hh, False)
        ga, ga_gates = gc, gc_gates  # gc is used up; ga differs in the part of n alone, which is written over it
        xp.multiply(ghs, dh_dan, out=ga_gates[2])
        gx, gw_ih, gb_ih = _affine_gradients(ga, x, w_ih, needs_gx)
        return tuple(compress((gx[::-1] if reverse and needs_gx else gx, gh, gw_ih, gw_hh, gb_ih, gb_hh), present))

    return Tensor.from_op("gru", y[::-1] if reverse else y, inputs, backward)


def _gru_steps(x, h0, w_ih, w_hh, b_ih=None, b_hh=None):
    """Run the steps of a GRU over x (T, B, I), with both biases or none.

    Returns
    -------
    gates : array (3, T, B, H), r, z and n of all steps. Each lies in one piece: of (64, 192) numbers with the gates
        side by side, a pass over one gate takes three times as long.
    c_n : array (T, B, H), what the reset gate scales in each step
    hs : array (T + 1, B, H), the states, h0 first
    """
    (steps, batch), width = x.shape[:2], w_hh.shape[1]
    a, b_n = _project(x, w_ih), 0.0
    if b_ih is not None:
        # in r and z both biases are just added; of n's, the reset gate scales the second one, which is added to c_n
        b, b_n = b_ih + b_hh, b_hh[2 * width:]
        b[2 * width:] = b_ih[2 * width:]
        a += b
    a = _gates_first(a, 3)  # (T, B, 3H) -> (3, T, B, H)
    w = _transposed_for(steps, w_hh)
    gates, c_n = xp.empty((3, steps, batch, width), h0.dtype), xp.empty((steps, batch, width), h0.dtype)
    hs = xp.empty((steps + 1, batch, width), h0.dtype)
    hs[0] = h0
    for t in range(steps):
        c = _gates_first(xp.matmul(hs[t], w), 3)  # (B, H) -> (3, B, H)
        rz, n = gates[:2, t], gates[2, t]
        _sigmoid_in_place(xp.add(a[:2, t], c[:2], out=rz))
        xp.multiply(rz[0], xp.add(c[2], b_n, out=c_n[t]), out=n)
        n += a[2, t]
        xp.tanh(n, out=n)
        h = xp.subtract(hs[t], n, out=hs[t + 1])
        h *= rz[1]
        h += n  # n + z (h_{t-1} - n)
    return gates, c_n, hs


@quiet
def lstm(x, h0, c0, w_ih, w_hh, b_ih=None, b_hh=None, reverse=False):
    r"""A network of long short-term memory cells over time.

    .. math::
        i_t &= \sigma(W_{ii} x_t + b_{ii} + W_{hi} h_{t-1} + b_{hi}) \\
        f_t &= \sigma(W_{if} x_t + b_{if} + W_{hf} h_{t-1} + b_{hf}) \\
        g_t &= \tanh(W_{ig} x_t + b_{ig} + W_{hg} h_{t-1} + b_{hg}) \\
        o_t &= \sigma(W_{io} x_t + b_{io} + W_{ho} h_{t-1} + b_{ho}) \\
        c_t &= f_t c_{t-1} + i_t g_t, \qquad h_t = o_t \tanh(c_t)

    Parameters
    ----------
    x : Tensor (T, B, I)
    h0, c0 : Tensor (B, H)
    w_ih : Tensor (4H, I)
    w_hh : Tensor (4H, H)
    b_ih, b_hh : Tensor (4H,), optional
    reverse : bool
        Run from the last step to the first.

    Returns
    -------
    Tensor (T + 1, B, H): h after each step, in the order of `x`, and as row T, as an operation has one result, c after
    the last step taken.

    Raises
    ------
    RuntimeError
        If shapes or dtypes do not fit, or T is 0.

    References
    ----------
    Hochreiter and Schmidhuber 1997, "Long short-term memory"; forget gate by Gers et al. 2000.
    """
    inputs = _checked(4, x, (h0, c0), w_ih, w_hh, b_ih, b_hh)
    x, h0, c0, w_ih, w_hh, *b = [v.array for v in inputs]
    if reverse:
        x = x[::-1]
    gates, tanh_c, hs, cs = _lstm_steps(x, h0, c0, w_ih, w_hh, *b)
    y = xp.concatenate([hs[:0:-1] if reverse else hs[1:], cs[-1:]])
    needs_gx, present = inputs[0].requires_grad, (*[True] * 5, b_ih is not None, b_hh is not None)

    def backward(g):
        # dc_t = o (1 - tanh^2 c_t) dh_t + f_{t+1} dc_{t+1}, and the pre-activations, with `candidate` for g_t, get
        #   da_i = dc g i(1 - i),  da_f = dc c_{t-1} f(1 - f),  da_g = dc i(1 - g^2),  da_o = dh tanh(c) o(1 - o).
        # What stands here beside dc and dh is known before the walk back.
        g_hs, gc = g[:-1], g[-1]
        g_hs = g_hs[::-1] if reverse else g_hs
        i, f, candidate, o = gates
        dc_dh, by_a = o * (1 - tanh_c * tanh_c), gates * (1 - gates)
        by_a[0] *= candidate
        by_a[1] *= cs[:-1]
        xp.multiply(i, 1 - candidate * candidate, out=by_a[2])
        by_a[3] *= tanh_c
        ga, gh = xp.empty((*tanh_c.shape[:2], len(w_hh)), h0.dtype), xp.zeros_like(h0)
        ga_gates = _gates_first(ga, 4)
        for t in reversed(range(len(x))):
            gh = g_hs[t] + gh
            gc = gc + gh * dc_dh[t]
            xp.multiply(by_a[:3, t], gc, out=ga_gates[:3, t])
            xp.multiply(by_a[3, t], gh, out=ga_gates[3, t])
            gc = gc * f[t]
            gh = xp.matmul(ga[t], w_hh)  # (B, 4H) -> (B, H)
        gx, gw_ih, gb = _affine_gradients(ga, x, w_ih, needs_gx)
        _, gw_hh, _ = _affine_gradients(ga, hs[:-1], w_hh, False)
        return tuple(compress((gx[::-1] if reverse and needs_gx else gx, gh, gc, gw_ih, gw_hh, gb, gb), present))

    return Tensor.from_op("lstm", y, inputs, backward)


def _lstm_steps(x, h0, c0, w_ih, w_hh, *biases):
    """Run the steps of an LSTM over x (T, B, I), with both biases or none.

    Returns
    -------
    gates : array (4, T, B, H), i, f, g and o of all steps, each in one piece, as in `_gru_steps`
    tanh_c : array (T, B, H)
    hs, cs : arrays (T + 1, B, H), the states, h0 and c0 first
    """
    steps, batch, width = len(x), *h0.shape
    a = _gates_first(_project(x, w_ih, *biases), 4)  # (T, B, 4H) -> (4, T, B, H)
    w = _transposed_for(steps, w_hh)
    gates, tanh_c = xp.empty((4, steps, batch, width), h0.dtype), xp.empty((steps, batch, width), h0.dtype)
    hs, cs = xp.empty((2, steps + 1, batch, width), h0.dtype)
    hs[0], cs[0] = h0, c0
    for t in range(steps):
        i, f, candidate, o = xp.add(a[:, t], _gates_first(xp.matmul(hs[t], w), 4), out=gates[:, t])
        _sigmoid_in_place(gates[:2, t])
        xp.tanh(candidate, out=candidate)
        _sigmoid_in_place(o)
        c = xp.multiply(f, cs[t], out=cs[t + 1])
        c += i * candidate
        xp.multiply(o, xp.tanh(c, out=tanh_c[t]), out=hs[t + 1])
    return gates, tanh_c, hs, cs


def rnn_tanh_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of `rnn` with tanh: x (B, I), h (B, H) -> (B, H)."""
    return squeeze(rnn(unsqueeze(x, 0), h, w_ih, w_hh, b_ih, b_hh, "tanh"), 0)


def rnn_relu_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of `rnn` with relu: x (B, I), h (B, H) -> (B, H)."""
    return squeeze(rnn(unsqueeze(x, 0), h, w_ih, w_hh, b_ih, b_hh, "relu"), 0)


def gru_cell(x, h, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of `gru`: x (B, I), h (B, H) -> (B, H)."""
    return squeeze(gru(unsqueeze(x, 0), h, w_ih, w_hh, b_ih, b_hh), 0)


def lstm_cell(x, state, w_ih, w_hh, b_ih=None, b_hh=None):
    """One step of `lstm`: x (B, I), state = (h, c), each (B, H) -> the next (h, c)."""
    return unbind(lstm(unsqueeze(x, 0), *state, w_ih, w_hh, b_ih, b_hh))


def _checked(gates, x, states, w_ih, w_hh, b_ih, b_hh):
    """All tensors among the arguments as one list; RuntimeError unless they fit together and there is a step."""
    if (b_ih is None) != (b_hh is None):
        raise RuntimeError("give both biases, b_ih and b_hh, or neither")
    biases = [] if b_ih is None else [b_ih, b_hh]
    width = w_hh.shape[-1] if w_hh.ndim else 0
    rows, batch = gates * width, x.shape[1:2]
    if (x.ndim != 3 or any(h.shape != (*batch, width) for h in states) or w_ih.shape != (rows, x.shape[2])
            or w_hh.shape != (rows, width) or any(b.shape != (rows,) for b in biases)):
        n = "H" if gates == 1 else f"{gates}H"
        shapes = ", ".join(str(v.shape) for v in (x, *states, w_ih, w_hh, *biases))
        raise RuntimeError(f"a step needs x (T, B, I), state (B, H), w_ih ({n}, I), w_hh ({n}, H) and biases ({n},), "
                           f"got {shapes}")
    if not x.shape[0]:
        raise RuntimeError(f"a recurrent network needs a sequence of at least one step, got x {x.shape}")
    inputs = [x, *states, w_ih, w_hh, *biases]
    if x.dtype.kind != "f" or any(v.dtype != x.dtype for v in inputs):
        raise RuntimeError("input, state and parameters must have one floating-point dtype, got "
                           + ", ".join(str(v.dtype) for v in inputs))
    return inputs


def _project(x, w, *biases):
    """``x @ w^T`` plus biases for all steps in one product: (T, B, I) -> (T, B, G)."""
    y = xp.matmul(x.reshape(-1, x.shape[-1]), w.T)
    for b in biases:
        y += b
    return y.reshape(*x.shape[:-1], len(w))


def _transposed_for(products, w):
    """`w` transposed for so many products: with a copy they mostly take half to two thirds of the time.

    A single one does not repay the copying.
    """
    return w.T if products == 1 else xp.ascontiguousarray(w.T)


def _gates_first(a, gates):
    """A view of the array `a`, whose last axis holds so many gates side by side: (..., GH) -> (G, ..., H).

    To cut the last axis copies nothing, so one can also write to it.
    """
    lead = a.ndim - 1
    return a.reshape(*a.shape[:-1], gates, a.shape[-1] // gates).transpose(lead, *range(lead), lead + 1)


def _affine_gradients(g, x, w, needs_gx):
    """Gradients of ``x @ w^T + b`` with respect to x, w and b, from that of the result, g (T, B, ...)."""
    g = g.reshape(-1, len(w))
    gx = xp.matmul(g, w).reshape(x.shape) if needs_gx else None
    return gx, xp.matmul(g.T, x.reshape(-1, x.shape[-1])), unbroadcast(g, (len(w),))


def _sigmoid_in_place(a):
    """1 / (1 + e^-a) written over `a`; far below 0 the exponential is inf, and 1 / inf = 0 is right."""
    xp.negative(a, out=a)
    xp.exp(a, out=a)
    a += 1
    xp.divide(1, a, out=a)
