"""Attention and Transformers from scratch on NumPy, under PyTorch's names: ``import minitorch_attn as torch``.

Differs from PyTorch: the first argument of an operation is called `x`, not `input`; derivatives of derivatives
(create_graph) are not there; a write through ``.data`` counts as a write, so that a backward which needed the old
values raises; and when a tensor in a graph is written in place, views of it taken before (or the tensor that it is a
view of) raise when used instead of following.
"""
from . import process  # before NumPy is loaded
from . import autograd, nn, optim
from .autograd import Tensor
from .backend import device
from .dtypes import (
    bool,
    double,
    dtype,
    float,
    float16,
    float32,
    float64,
    get_default_dtype,
    half,
    int,
    int8,
    int16,
    int32,
    int64,
    long,
    promote_types,
    result_type,
    set_default_dtype,
    short,
    uint8,
)
from .gradient_check import explain_gradients, gradcheck
from .grad_mode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from .nn.functional import log_softmax, relu, softmax
from .ops import *
from .random import *
from .switching import use_backend
from .threads import get_num_threads, set_num_threads
from . import methods
from .torch_names import *
from .profile import profile

__version__ = "0.1.0"

for _function in (log_softmax, relu, softmax):  # methods too; they stand above methods.py
    methods.attach(_function.__name__, _function)
autograd.gradcheck = gradcheck  # PyTorch has it there, too; autograd.py itself stands above it
