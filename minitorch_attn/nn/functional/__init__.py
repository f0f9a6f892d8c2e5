"""Fused kernels: each a forward with its derivative by hand, one family a file; no parameters live here."""
from .activation import *
from .attention import *
from .conv import *
from .dropout import *
from .embedding import *
from .linear import *
from .loss import *
from .normalization import *
from .recurrent import *
