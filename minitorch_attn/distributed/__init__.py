"""Training in several processes by MPI: PyTorch's ``torch.distributed``, as far as data-parallel training needs it.

Every process runs the same program on a copy of the model and on its own part of each batch; the gradients are
averaged, so that all copies take the same step. Without MPI, or before `init_process_group`, there is one process,
rank 0, and everything here does what it should for that one.
"""
from .world import *
from .checkpoint import *
from .data_parallel import *
from .sharding import *
