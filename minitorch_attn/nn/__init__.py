"""Layers: they hold parameters and call `functional`; no derivative is written here."""
from . import functional, init
from .activation import *
from .attention import *
from .block import *
from .cache import *
from .container import *
from .conv import *
from .dropout import *
from .embedding import *
from .feedforward import *
from .grouped_attention import *
from .joint_attention import *
from .linear import *
from .loss import *
from .module import *
from .moe import *
from .norm import *
from .parameter import *
from .position import *
from .recurrent import *
from .transformer import *
