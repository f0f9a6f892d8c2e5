"""Another array library while the program runs: `use_backend`, and what becomes of the tensors that are there.

One library computes for all tensors at once. After a change the tensors made before it still hold arrays of the
former library. They are not converted behind the program's back: the first use of one raises, and says how to bring
it over. Before the first change nothing is watched, so a program that stays with one library pays nothing.
"""
from . import grad_mode
from .autograd import Tensor
from .backend import DEVICE_KINDS, library_of, to_device, to_host, xp

__all__ = ["bring_over", "use_backend"]

SLOT = Tensor.__dict__["array"]  # where each tensor keeps its array


def use_backend(name):
    """Compute with the array library `name` from now on.

    The environment variable ``MINITORCH_BACKEND`` chooses it before the program starts. A tensor made before the
    change comes over by ``x.to(device)``, a module with all that it holds by ``model.to(device)``, where device is
    "cpu" (it stands for the place of the library in use) or that library's own word for it; an optimizer's state
    follows its parameters by ``optimizer.load_state_dict(optimizer.state_dict())``. Random numbers go on where they
    were: they are drawn on the host, and are the same with every library.

    Parameters
    ----------
    name : "numpy", "dpnp" or "cupy"

    Raises
    ------
    ValueError
        If it is another word.
    ModuleNotFoundError
        If the library is not installed.
    RuntimeError
        If it is installed but does not compute here.
    """
    if name == xp.name:
        return
    xp.use(name)
    Tensor.array = property(checked_array, SLOT.__set__, doc=SLOT.__doc__)


def checked_array(x):
    """The array of the tensor `x`, of the library in use; what ``x.array`` means once the library has changed."""
    array = SLOT.__get__(x)
    if not isinstance(array, xp.ndarray):
        former = library_of(array)
        kind = DEVICE_KINDS[xp.name]
        raise RuntimeError(f"this tensor, or one of this module or optimizer, was made while {former} computed, and "
                           f'now {xp.name} does; bring it over by x.to("{kind}"), its values alone by that under '
                           f'no_grad(), a whole module by model.to("{kind}"), an optimizer\'s state then by '
                           "optimizer.load_state_dict(optimizer.state_dict()); or go back by "
                           f'use_backend("{former}")')
    return array


def is_former(x):
    """Whether the tensor `x` holds an array of another library than the one in use."""
    return not isinstance(SLOT.__get__(x), xp.ndarray)


def bring_over(value):
    """`value` for the library in use: a tensor whose array belongs to another one as a new leaf with the same values.

    A list or tuple is brought over entry by entry; everything else is returned as it is.

    Raises
    ------
    RuntimeError
        If the tensor was computed in a graph, unless gradients are off: no graph crosses from one library to
        another, so its gradient would be lost unseen.
    """
    if type(value) in (list, tuple):
        brought = [bring_over(v) for v in value]
        return value if all(new is old for new, old in zip(brought, value)) else type(value)(brought)
    if not isinstance(value, Tensor) or not is_former(value):
        return value
    if grad_mode.enabled and not value.is_leaf:
        raise RuntimeError("this tensor was computed in a graph, which does not cross from one array library to "
                           "another: call backward() before use_backend(), or bring over its values under no_grad()")
    y = Tensor.wrap(to_device(to_host(SLOT.__get__(value))))
    y.requires_grad = value.requires_grad and value.is_leaf
    y.grad = bring_over(value.grad)
    return y
