"""The array library that the tests run on: ``pytest --backend dpnp``."""
import pytest

import minitorch_attn as mt


def pytest_addoption(parser):
    parser.addoption("--backend", choices=("numpy", "dpnp", "cupy"), help="the array library that computes "
                     "(default: what MINITORCH_BACKEND says, or numpy)")


def pytest_configure(config):
    if config.option.backend:
        mt.backend.xp.use(config.option.backend)
