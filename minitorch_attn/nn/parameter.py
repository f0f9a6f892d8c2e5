"""Parameters: the tensors that a model learns."""
import copy

from ..autograd import Tensor
from ..backend import xp
from ..ops import empty

__all__ = ["Parameter", "UninitializedParameter"]


class Parameter(Tensor):
    """A tensor that a Module lists among its parameters when it becomes an attribute of the module.

    Parameters
    ----------
    data : Tensor
        The values; memory is shared with it, its graph is left behind.
    requires_grad : bool
        False for a parameter that is stored and loaded but not trained.

    Raises
    ------
    TypeError
        If `data` is not a Tensor.
    RuntimeError
        If `requires_grad` and `data` is not floating point.
    """

    def __init__(self, data=None, requires_grad=True):
        if data is None:
            data = Tensor(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter needs a Tensor, got {type(data).__name__}; wrap the values in tensor(...)")
        data.check_current()
        self.array, self.storage = data.array, data.storage
        self.requires_grad = requires_grad

    def __deepcopy__(self, memo):
        """A parameter with memory of its own, with `requires_grad` and own attributes as here, without ``.grad``."""
        result = type(self).__new__(type(self))
        memo[id(self)] = result  # now, for an own attribute may lead back here
        result.array, result.requires_grad = self.array.copy(), self.requires_grad
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return result

    def __repr__(self):
        return "Parameter containing:\n" + super().__repr__()


class UninitializedParameter(Parameter):
    """A Parameter whose shape is not known before the first input arrives; `materialize` makes it an ordinary one."""

    def __init__(self, requires_grad=True, device=None, dtype=None):
        super().__init__(empty(0, device=device, dtype=dtype), requires_grad)

    @property
    def shape(self):
        """Raises: there is none yet."""
        raise RuntimeError("this parameter has no shape yet; call its module once on an input, which decides it")

    def materialize(self, shape):
        """Become an ordinary Parameter of this shape, with arbitrary values; the object stays the same."""
        self.array = xp.empty(shape, dtype=self.dtype)
        self.__class__ = Parameter

    def __repr__(self):
        return "<UninitializedParameter>"
