"""The table over every operation and layer: against finite differences, and against PyTorch where it is installed."""
import difflib
import importlib
import math
import sys
import time
import traceback
from typing import NamedTuple

import numpy

from ..backend import to_host
from ..ops.create import tensor
from ..random import manual_seed
from .check import explain_gradients
from .samples import LAYERS, OPERATIONS, Draw
from .subject import tensors_in

__all__ = ["Row", "check_up", "checkup", "names"]

MANY = 150   # a call with more entries than this is checked along random directions
SAME = 1e-9  # how near PyTorch's gradient has to be, as a part of its largest entry

RANDOM = {"dropout", "dropout1d", "dropout2d", "Dropout", "Dropout1d", "Dropout2d"}
NOT_IN_TORCH = set("""
    attention_weights packed_attention tiled_attention linear_attention linear_attention_step joint_attention
    stream_shares additive_attention additive_scores kernel_pooling kernel_weights masked_softmax hopfield_update
    hopfield_energy apply_rotary rotary resize_grid additive_mask route_top balance_loss swiglu rnn gru lstm
    rnn_tanh_cell rnn_relu_cell gru_cell lstm_cell TransformerBlock FeedForward SwiGLU AdditiveAttention
    GroupedQueryAttention JointAttention JointBlock MixtureOfExperts LearnedPositions GridPositions SinusoidalPositions
    RotaryEmbedding""".split())
ZERO = {"zero_"}  # right, but zero everywhere


class Row(NamedTuple):
    """One line of the table.

    error : the largest difference to finite differences, as a part of the largest slope
    against : the largest difference to PyTorch's gradient, likewise; None if not compared
    """
    name: str
    ok: bool
    error: float
    against: float | None
    seconds: float
    report: object

    @property
    def verdict(self):
        """What the table says."""
        return "ok" if self.ok else "WRONG" if hasattr(self.report, "ok") else "RAISES"

    def told(self):
        """What is wrong, below the table."""
        if getattr(self.report, "ok", False):
            return (f"{self.name}: finite differences agree, but PyTorch's values or gradients differ by "
                    f"{self.against:.0e} of the largest entry")
        return str(self.report)


def row_of(name, against):
    """`check_up`, and if that raises a row that says so."""
    began = time.perf_counter()
    try:
        return check_up(name, against)
    except Exception as error:  # whatever a broken operation may raise; the other rows are of use all the same
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Row(name, False, math.nan, None, time.perf_counter() - began,
                   f"{name} raised {type(error).__name__}: {error} ({place.filename}, line {place.lineno})")


def base(name):
    """The name of the operation itself, without what tells samples apart."""
    return name.split(":")[0]


def names():
    """All names that can be asked for."""
    return [*OPERATIONS, *LAYERS]


def flattened(arguments):
    """The arrays among a call's arguments, lists of arrays opened, and how to put others in their place."""
    arrays = [b for a in arguments for b in (a if isinstance(a, list) else [a]) if isinstance(b, numpy.ndarray)]

    def put(values):
        values = iter(values)
        return [[next(values) for _ in a] if isinstance(a, list) else
                next(values) if isinstance(a, numpy.ndarray) else a for a in arguments]

    return arrays, put


def operation(library, name, put, kwargs):
    """The sample call of operation `name` of `library` (this package or torch) as a function of its tensors."""
    name = base(name)
    functional = library.nn.functional
    kwargs = {k: v for k, v in kwargs.items() if k != "_fixed"}
    special = {
        "T": lambda x: x.T, "contiguous": lambda x: x.T.contiguous(), "mT": lambda x: x.mT,
        "getitem": lambda x, index: x[index],
        "gelu_tanh": lambda x, **k: functional.gelu(x, **k), "unfold_windows": lambda x, k: functional.unfold(x, k),
        "unfold": lambda x, *a: x.unfold(*a), "setitem": written, "rsub": library.rsub,
        "einsum": lambda *x, equation: library.einsum(equation, *x), "stack": lambda x: library.stack(x, 1),
        "meshgrid": lambda x, indexing: library.meshgrid(*x, indexing=indexing),
        "expand": lambda x, size: x.expand(*size), "norm": lambda x, p, dim: library.norm(x, p, dim),
        "cumsum": lambda x, dim: library.cumsum(x, dim),
        "lstm_cell": lambda x, state, *w: functional.lstm_cell(x, tuple(state), *w),
    }
    if name in special:
        function = special[name]
    elif name.endswith("_") or name in ("view", "view_as", "reshape_as", "repeat", "expand_as", "contiguous", "T",
                                        "mT"):
        def function(x, *rest, **k):
            return getattr(x.clone() if name.endswith("_") else x, name)(*rest, **k)
    else:
        function = getattr(functional, name, None) or getattr(library, name)

    def sample(*tensors):
        return function(*put(tensors), **kwargs)

    sample.__name__ = name
    return sample


def written(x, value, index):
    """``x[index] = value`` on a clone."""
    x = x.clone()
    x[index] = value
    return x


class Nested:
    """A layer that takes tuples of tensors among its inputs, as one that takes the tensors one after the other."""

    def __init__(self, layer, put):
        self.layer, self.put = layer, put
        self.named_parameters, self.named_buffers = layer.named_parameters, layer.named_buffers
        self.__name__ = type(layer).__name__

    def __call__(self, *tensors):
        return self.layer(*[tuple(a) if isinstance(a, list) else a for a in self.put(tensors)])

    forward = __call__


def seeded(fn):
    """`fn` with the same random numbers at every call."""
    class Seeded(Nested):
        def __init__(self):
            self.__name__ = getattr(fn, "__name__", type(fn).__name__)
            if hasattr(fn, "named_parameters"):
                self.named_parameters, self.named_buffers = fn.named_parameters, fn.named_buffers

        def __call__(self, *tensors):
            manual_seed(0)
            return fn(*tensors)

        forward = __call__

    return Seeded()


def shake(layer, s):
    """Make every parameter float64 and move it at random: at weights of exactly 1 some mistakes do not show."""
    for p in layer.parameters():
        p.data = tensor(to_host(p.array) + 0.3 * s.rng.standard_normal(p.shape))
    layer.double()


def check_up(name, against=None, draw=None):
    """Check one operation or layer.

    Parameters
    ----------
    name : str
        One of `names()`.
    against : module torch, optional
    draw : Draw, optional
        Of sizes and numbers.

    Returns
    -------
    Row
    """
    import minitorch_attn as library
    began, s = time.perf_counter(), draw or Draw()
    layer = None
    if name in LAYERS:
        manual_seed(0)
        layer = LAYERS[name][0](library.nn, s)
        arguments, kwargs = LAYERS[name][1](s)
    else:
        arguments, kwargs = OPERATIONS[name](s)
    arrays, put = flattened(arguments)
    fixed = kwargs.get("_fixed", ())
    tensors = [tensor(a) for a in arrays]
    for i, t in enumerate(tensors):
        t.requires_grad = t.dtype.kind == "f" and i not in fixed
    if layer is not None:
        fn = Nested(layer, put)
        if name.startswith("Lazy"):
            layer(*[t.float() for t in tensors])
        shake(layer, s)
    else:
        fn = operation(library, name, put, kwargs)
    fn = seeded(fn) if name in RANDOM else fn
    size = sum(t.array.size for t in tensors) + (0 if layer is None else sum(p.numel() for p in layer.parameters()))
    report = explain_gradients(fn, tuple(tensors), fast_mode=size > MANY)
    ok = report.ok or (name in ZERO and all(a.ok for a in report.arguments))
    error = max([relative(a.analytic, a.numeric) for a in report.arguments if a.analytic is not None], default=0.0)
    compared = None
    if against is not None and base(name) not in NOT_IN_TORCH | RANDOM:
        theirs = operation(against, name, put, kwargs) if layer is None else torch_twin(against, name, layer, put, s)
        compared = difference(against, fn, theirs, arrays, fixed, layer)
        ok = ok and compared < SAME
    return Row(name, ok, error, compared, time.perf_counter() - began, report)


def relative(a, b):
    """The largest difference between two arrays as a part of the largest entry."""
    return float(numpy.abs(a - b).max(initial=0) / max(numpy.abs(b).max(initial=0), 1e-3))


def torch_twin(torch, name, layer, put, s):
    """PyTorch's layer of that name with the same parameters."""
    theirs = LAYERS[name][0](torch.nn, s).double()
    if name.startswith("Lazy"):
        theirs(*[torch.zeros(2, layer.weight.shape[1], dtype=torch.float64)])
    theirs.load_state_dict({k: torch.from_numpy(numpy.array(to_host(v.array))) for k, v in layer.state_dict().items()})
    return Nested(theirs, put)


def difference(torch, ours, theirs, arrays, fixed, layer):
    """The largest relative difference of values and gradients, of the objective <result, u> with random u."""
    mine = [tensor(a) for a in arrays]
    other = [torch.from_numpy(numpy.array(a)) for a in arrays]
    for i, (x, t) in enumerate(zip(mine, other)):
        x.requires_grad = wanted = x.dtype.kind == "f" and i not in fixed
        t.requires_grad_(wanted)
    results = [r for r in tensors_in(ours(*mine)) if r.requires_grad]
    expected = [r for r in torch_tensors(theirs(*other)) if r.requires_grad]
    assert len(results) == len(expected), f"{len(results)} results, PyTorch has {len(expected)}"
    rng = numpy.random.default_rng(1)
    worst = 0.0
    for r, e in zip(results, expected):
        worst = max(worst, relative(to_host(r.array), e.detach().numpy()))
        u = rng.standard_normal(r.shape)
        r.backward(tensor(u), retain_graph=True)
        e.backward(torch.from_numpy(numpy.array(u)), retain_graph=True)
    pairs = list(zip(mine, other))
    if layer is not None:
        twins = dict(theirs.named_parameters())
        pairs += [(p, twins[name]) for name, p in layer.named_parameters()]
    for x, t in pairs:
        if t.grad is not None:
            worst = max(worst, relative(numpy.zeros(x.shape) if x.grad is None else to_host(x.grad.array),
                                        t.grad.numpy()))
    return worst


def torch_tensors(value):
    """`tensors_in` for PyTorch's results."""
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in torch_tensors(v)]
    return [value] if hasattr(value, "backward") else []


def checkup(chosen=(), against=None):
    """Check operations and layers by name (all if none is named) and print the table.

    Parameters
    ----------
    chosen : sequence of str
    against : "torch", optional

    Returns
    -------
    int
        The exit status: 0 if all are right, 1 if any is not, 2 for a name that does not exist or a library that is
        missing.
    """
    known = {base(name) for name in names()}
    unknown = [name for name in chosen if name not in known]
    if unknown:
        near = [n for u in unknown for n in difflib.get_close_matches(u, known, 3)]
        hint = f"; perhaps {', '.join(near)}" if near else ""
        print(f"minitorch-attn gradcheck: there is no {', '.join(unknown)}{hint}", file=sys.stderr)
        return 2
    torch = None
    if against is not None:
        try:
            torch = importlib.import_module(against)
        except ImportError:
            print(f"minitorch-attn gradcheck: {against} is not installed", file=sys.stderr)
            return 2
    began, wrong = time.perf_counter(), []
    print(f"{'':44} {'differences':>12} {'PyTorch':>9} {'seconds':>8}")
    asked = [name for name in names() if not chosen or base(name) in chosen]
    for name in asked:
        row = row_of(name, torch)
        compared = "-" if row.against is None else f"{row.against:.0e}"
        print(f"{row.name:37} {row.verdict:6} {row.error:12.0e} {compared:>9} {row.seconds:8.2f}", flush=True)
        wrong += [] if row.ok else [row]
    for row in wrong:
        print(f"\n{row.told()}")
    count = len(asked)
    print(f"\n{count - len(wrong)} of {count} right, {time.perf_counter() - began:.0f} s")
    return 1 if wrong else 0
