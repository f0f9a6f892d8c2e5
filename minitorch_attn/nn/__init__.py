"""Layers: they hold parameters and call `functional`; no derivative is written here."""
from . import functional, init
from .activation import *
from .attention import *
from .container import *
from .conv import *
from .dropout import *
from .embedding import *
from .linear import *
from .loss import *
from .module import *
from .norm import *
from .parameter import *
from .recurrent import *
from .transformer import *
