"""Fused kernels: each a forward with its derivative by hand, one family a file; no parameters live here.

Axis letters, the same in most files:

    B  batch              T  time of queries, or of a target      C  channels, width of a model
    H  heads              S  time of keys, or of a source         D  width of one head, of a query and of a key
    K  heads of keys      E  width of a value                     A  hidden width of additive attention
       and values

`routing` alone is about experts: there E is their number, A how many read each token, N the number of tokens.
"""
from .activation import *
from .attention import *
from .conv import *
from .dropout import *
from .embedding import *
from .gating import *
from .hopfield import *
from .joint_attention import *
from .linear import *
from .linear_attention import *
from .loss import *
from .masks import *
from .normalization import *
from .pooling import *
from .position import *
from .recurrent import *
from .rotary import *
from .routing import *
from .tiled_attention import *
