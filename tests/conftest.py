"""The array library that the tests run on, ``pytest --backend dpnp``, and what is known not to hold there."""
import os

import pytest

from tests.backend_gaps import GAPS, TOO_LONG


@pytest.fixture
def set_num_threads():
    """`minitorch_attn.set_num_threads`; the number is put back after the test."""
    import minitorch_attn as mt  # only now, as the library is chosen before

    before = mt.get_num_threads()
    yield mt.set_num_threads
    mt.set_num_threads(before)


def pytest_addoption(parser):
    parser.addoption("--backend", choices=GAPS, help="the array library that computes (default: what "
                     "MINITORCH_BACKEND says, or numpy)")
    parser.addoption("--trainings", action="store_true", help="run what takes minutes or a quiet machine, too: "
                     "the lessons that train, and the tests that compare times")


def pytest_configure(config):
    config.addinivalue_line("markers", "timed: compares times, and so needs a quiet machine")
    if config.option.backend:  # before anything imports the package; programs that tests start see it too
        os.environ["MINITORCH_BACKEND"] = config.option.backend


def pytest_collection_modifyitems(config, items):
    library = (os.environ.get("MINITORCH_BACKEND") or "numpy").lower()
    marks = {name: pytest.mark.xfail(reason=reason, strict=True) for name, reason in GAPS[library].items()}
    marks.update({name: pytest.mark.skip(reason=reason) for name, reason in TOO_LONG[library].items()})
    found = set()
    for item in items:
        if item.get_closest_marker("timed") and not config.option.trainings:
            item.add_marker(pytest.mark.skip(reason="compares times: pytest --trainings runs it"))
        for name in (item.nodeid, item.nodeid.partition("[")[0]):
            if name in marks:
                found.add(name)
                item.add_marker(marks[name])
    parts = tuple(argument.partition("::")[0] for argument in config.args if "::" in argument)  # of these, not all
    whole_files = {item.nodeid.partition("::")[0] for item in items if not item.path.as_posix().endswith(parts)}
    gone = [name for name in marks if name.partition("::")[0] in whole_files and name not in found]
    if gone:
        raise pytest.UsageError("tests/backend_gaps.py lists tests that do not exist: " + ", ".join(gone))
