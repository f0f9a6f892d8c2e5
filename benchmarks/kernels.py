"""The fused kernels one by one, forward and backward, in the sizes of the trainings and in a larger one.

A kernel here is a function of `torch` (either library) and a size that returns what to call, without arguments, and
the tensors whose gradients are wanted. Its result's gradient is drawn once: a sum's would be all ones, and make
softmax and layer norm give zero.
"""
import functools
import importlib

from .trainings import LARGE, MINI, gpt_parts

__all__ = ["CASES", "KERNELS", "label", "make"]


def leaf(torch, *shape):
    """A random tensor that asks for its gradient."""
    return torch.randn(*shape, requires_grad=True)


def pointwise(torch, size, name, **options):
    """A function of one tensor, by its name in nn.functional."""
    x, function = leaf(torch, *size), getattr(torch.nn.functional, name)
    return lambda: function(x, **options), [x]


def layer_norm(torch, size):
    x, w, b = leaf(torch, *size), leaf(torch, size[-1]), leaf(torch, size[-1])
    return lambda: torch.nn.functional.layer_norm(x, size[-1:], w, b), [x, w, b]


def rms_norm(torch, size):
    x, w = leaf(torch, *size), leaf(torch, size[-1])
    return lambda: torch.nn.functional.rms_norm(x, size[-1:], w, eps=1e-6), [x, w]


def linear(torch, size):
    """size: (..., in, out)."""
    *batch, n_in, n_out = size
    x, w, b = leaf(torch, *batch, n_in), leaf(torch, n_out, n_in), leaf(torch, n_out)
    return lambda: torch.nn.functional.linear(x, w, b), [x, w, b]


def cross_entropy(torch, size):
    x, y = leaf(torch, *size), torch.randint(0, size[-1], size[:1])
    return lambda: torch.nn.functional.cross_entropy(x, y), [x]


def embedding(torch, size):
    """size: (batch, tokens, vocabulary, width)."""
    *batch, vocabulary, width = size
    ids, weight = torch.randint(0, vocabulary, batch), leaf(torch, vocabulary, width)
    return lambda: torch.nn.functional.embedding(ids, weight), [weight]


def attention(torch, size, **options):
    q, k, v = (leaf(torch, *size) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **options), [q, k, v]


def recurrent(torch, size, kind):
    """size: (batch, time, in, hidden)."""
    B, T, n_in, n_hidden = size
    x, net = leaf(torch, B, T, n_in), getattr(torch.nn, kind)(n_in, n_hidden, batch_first=True)
    return lambda: net(x)[0], [x, *net.parameters()]


def conv2d(torch, size):
    """size: (batch, channels in, height, width, channels out, kernel, stride, padding)."""
    B, C, height, width, out, kernel, stride, padding = size
    x, w, b = leaf(torch, B, C, height, width), leaf(torch, out, C, kernel, kernel), leaf(torch, out)
    return lambda: torch.nn.functional.conv2d(x, w, b, stride=stride, padding=padding), [x, w, b]


def adamw(torch, size):
    """The step alone, on the parameters of a GPT; nothing is differentiated."""
    parts, _ = gpt_parts(torch, size)
    for p in parts.parameters():
        p.grad = torch.randn(*p.shape)
    return torch.optim.AdamW(parts.parameters(), lr=1e-3).step, []


SCORES, TOKENS, HIDDEN = (64, 4, 65, 65), (64, 65, 64), (64, 65, 256)  # of the vision Transformer
WIDE = (4096, 1024)
of = functools.partial

KERNELS = {  # name: (kernel, sizes)
    "softmax": (of(pointwise, name="softmax", dim=-1), [(32, 4, 16, 16), SCORES]),
    "log_softmax": (of(pointwise, name="log_softmax", dim=-1), [(512, 73), WIDE]),
    "layer_norm": (layer_norm, [(32, 16, 64), TOKENS, (4096, 256)]),
    "rms_norm": (rms_norm, [TOKENS, (4096, 256)]),
    "gelu": (of(pointwise, name="gelu"), [HIDDEN, WIDE]),
    "gelu_tanh": (of(pointwise, name="gelu", approximate="tanh"), [HIDDEN, WIDE]),
    "silu": (of(pointwise, name="silu"), [HIDDEN, WIDE]),
    "relu": (of(pointwise, name="relu"), [(32, 16, 256), WIDE]),
    "linear": (linear, [(32, 16, 64, 256), (64, 65, 64, 256), (8, 128, 256, 1024)]),
    "cross_entropy": (cross_entropy, [(512, 73), (1024, 256), (1024, 8192)]),
    "dropout": (of(pointwise, name="dropout", p=0.1), [TOKENS, WIDE]),
    "embedding": (embedding, [(32, 16, 73, 64), (64, 128, 8192, 256)]),
    "attention": (attention, [(64, 4, 65, 16), (4, 8, 512, 64)]),
    "attention_causal": (of(attention, is_causal=True), [(32, 4, 16, 16), (8, 8, 128, 32), (4, 8, 512, 64)]),
    "attention_dropout": (of(attention, dropout_p=0.1), [(64, 4, 65, 16), (4, 8, 512, 64)]),
    "gru": (of(recurrent, kind="GRU"), [(64, 8, 32, 64), (64, 32, 256, 256)]),
    "lstm": (of(recurrent, kind="LSTM"), [(64, 8, 32, 64), (64, 32, 256, 256)]),
    "conv2d": (conv2d, [(64, 3, 32, 32, 64, 4, 4, 0), (16, 32, 32, 32, 64, 3, 1, 1)]),
    "adamw": (adamw, [MINI, LARGE]),
}

CASES = {f"{name}/{i}": (kernel, size) for name, (kernel, sizes) in KERNELS.items() for i, size in enumerate(sizes)}


def label(case):
    """How a case is called in the table: the kernel and its size."""
    name, size = case.partition("/")[0], CASES[case][1]
    return f"{name} {size if isinstance(size, tuple) else f'GPT of width {size.width}'}"


def make(case, library):
    """The function that runs a kernel forward and backward, in `library`."""
    torch = importlib.import_module(library)
    torch.manual_seed(0)
    kernel, size = CASES[case]
    function, leaves = kernel(torch, size)
    if not leaves:
        return function
    g = torch.randn(function().shape)

    def step():
        for x in leaves:
            x.grad = None
        function().backward(g)

    return step
