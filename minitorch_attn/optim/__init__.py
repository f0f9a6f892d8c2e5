"""Optimisers, learning-rate schedules and gradient clipping."""
from . import lr_scheduler
from .adam import *
from .optimizer import *
from .sgd import *
