"""The array library that the tests run on, ``pytest --backend dpnp``, and what is known not to hold there."""
import os

import pytest

from tests.backend_gaps import GAPS


def pytest_addoption(parser):
    parser.addoption("--backend", choices=GAPS, help="the array library that computes (default: what "
                     "MINITORCH_BACKEND says, or numpy)")


def pytest_configure(config):
    if config.option.backend:  # before anything imports the package; programs that tests start see it too
        os.environ["MINITORCH_BACKEND"] = config.option.backend


def pytest_collection_modifyitems(config, items):
    gaps = GAPS[os.environ.get("MINITORCH_BACKEND") or "numpy"]
    found = set()
    for item in items:
        for name in (item.nodeid, item.nodeid.partition("[")[0]):
            if name in gaps:
                found.add(name)
                item.add_marker(pytest.mark.xfail(reason=gaps[name], strict=True))
    whole_files = {item.nodeid.partition("::")[0] for item in items} if "::" not in "".join(config.args) else ()
    gone = [name for name in gaps if name.partition("::")[0] in whole_files and name not in found]
    if gone:
        raise pytest.UsageError("tests/backend_gaps.py lists tests that do not exist: " + ", ".join(gone))
