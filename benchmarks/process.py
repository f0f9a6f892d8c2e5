"""Whole processes: how long a program takes that only imports, and one that also prints a first figure.

Python compiles a module when it first meets it and keeps the bytecode; that first run is left out, and writing it is
allowed even where PYTHONDONTWRITEBYTECODE is set, which would make every run the first.
"""
import subprocess
import sys
import time

from .worker import environment

__all__ = ["PROGRAMS", "player"]

FIRST_FIGURE = """
torch.manual_seed(0)
attention = torch.nn.MultiheadAttention(64, 4, batch_first=True)
x = torch.randn(2, 10, 64)
attention(x, x, x)[0].square().mean().backward()
print(attention.in_proj_weight.grad.norm().item())
"""

PROGRAMS = {  # name: (ours, PyTorch's)
    "import": ("import minitorch_attn as torch", "import torch"),
    "first_figure": ("import minitorch_attn as torch" + FIRST_FIGURE, "import torch" + FIRST_FIGURE),
}
BESIDE = {"python": "pass", "numpy": "import numpy"}  # for comparison


def player(program, threads):
    """A function that runs the program in so many fresh processes: the seconds they took, and None."""
    variables = environment(threads)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)

    def play(units):
        began = time.perf_counter()
        for _ in range(units):
            subprocess.run([sys.executable, "-c", program], env=variables, check=True, stdout=subprocess.DEVNULL,
                           start_new_session=True)
        return time.perf_counter() - began, None

    play(1)
    return play
