"""Optimisers and learning-rate schedules; gradient clipping, in clipping.py here, has its names in `nn.utils`."""
from . import lr_scheduler
from .adam import *
from .optimizer import *
from .sgd import *
