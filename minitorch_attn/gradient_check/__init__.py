"""Checking gradients against finite differences, and explaining the wrong ones."""
from .causes import CAUSES
from .check import GradcheckError, explain_gradients, gradcheck
from .guards import GUARDS
from .report import ArgumentReport, GradReport, Guard

__all__ = ["CAUSES", "GUARDS", "ArgumentReport", "GradReport", "GradcheckError", "Guard", "explain_gradients",
           "gradcheck"]
