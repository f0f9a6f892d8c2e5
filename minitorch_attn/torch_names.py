"""PyTorch's module names and what stands behind each here: the one table.

``import minitorch_attn as torch`` and ``minitorch-attn run`` reach the same objects through it. It also gives
every module of the table a ``__getattr__``, so that a name that is not covered says so and where to look.
"""
import sys
import types
from math import e, inf, nan, pi

from . import autograd, data, distributed, nn, optim
from .backend import device, synchronize, xp
from .nn import functional, init, parameter
from .optim import clipping, lr_scheduler
from .random import manual_seed

__all__ = ["backends", "cuda", "device", "e", "inf", "nan", "pi", "utils"]

NOT_COVERED = "minitorch_attn does not cover {}; docs/parity.md lists what it covers"


def namespace(name, **members):
    """A module that exists only as a name: PyTorch has it, and here its contents live elsewhere."""
    module = types.ModuleType(f"{__package__}.{name}", f"PyTorch's name torch.{name}.")
    vars(module).update(members)
    return module


def is_available():
    """Whether a GPU computes; only while CuPy is the array library."""
    return xp.name == "cupy"


def device_count():
    """How many GPUs compute: 0, or 1 while CuPy is the array library."""
    return int(is_available())


nn.utils = namespace("nn.utils", **{name: getattr(clipping, name) for name in clipping.__all__})
nn.parallel = namespace("nn.parallel", DistributedDataParallel=distributed.DistributedDataParallel)
data.distributed = namespace("utils.data.distributed", DistributedSampler=distributed.DistributedSampler)
utils = namespace("utils", data=data)

cuda = namespace("cuda", is_available=is_available, device_count=device_count, manual_seed=manual_seed,
                 manual_seed_all=manual_seed, empty_cache=lambda: None, synchronize=synchronize)

# settings of devices that are not here: they can be set, as portable programs do, and change nothing
backends = namespace(
    "backends",
    cudnn=namespace("backends.cudnn", allow_tf32=False, benchmark=False, deterministic=True, enabled=False),
    cuda=namespace("backends.cuda", matmul=types.SimpleNamespace(allow_tf32=False)),
    mps=namespace("backends.mps", is_available=lambda: False, is_built=lambda: False),
)

MODULES = {
    "torch": sys.modules[__package__],
    "torch.autograd": autograd,
    "torch.backends": backends,
    "torch.backends.cuda": backends.cuda,
    "torch.backends.cudnn": backends.cudnn,
    "torch.backends.mps": backends.mps,
    "torch.cuda": cuda,
    "torch.distributed": distributed,
    "torch.nn": nn,
    "torch.nn.functional": functional,
    "torch.nn.init": init,
    "torch.nn.parallel": nn.parallel,
    "torch.nn.parameter": parameter,
    "torch.nn.utils": nn.utils,
    "torch.optim": optim,
    "torch.optim.lr_scheduler": lr_scheduler,
    "torch.utils": utils,
    "torch.utils.data": data,
    "torch.utils.data.distributed": data.distributed,
}


def refusal(name):
    """The ``__getattr__`` of the module that PyTorch calls `name`: it names what is missing."""
    def __getattr__(attribute):
        raise AttributeError(NOT_COVERED.format(f"{name}.{attribute}"))
    return __getattr__


for name, module in MODULES.items():
    module.__getattr__ = refusal(name)
    # so that `from minitorch_attn.utils.data import DataLoader` works as well
    sys.modules.setdefault(name.replace("torch", __package__, 1), module)
