"""Array operations with their derivatives, one family a file."""
from .broadcast import *
from .create import *
from .elementwise import *
from .index import *
from .inplace import *
from .linalg import *
from .reduce import *
from .shape import *
from .sort import *

__all__ = [name for name, value in list(vars().items()) if callable(value)]  # the operations, not the files
