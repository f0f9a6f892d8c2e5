"""The list of what does not hold on another array library is held to be true: here by a suite of two tests."""
import pathlib
import subprocess
import sys
import textwrap

import pytest

CONFTEST = pathlib.Path(__file__).with_name("conftest.py").read_text(encoding="utf-8")
GAPS = '''
GAPS = {{"numpy": {gaps}}}
TOO_LONG = {{"numpy": {too_long}}}
'''
SUITE = '''
import pytest

@pytest.mark.parametrize("n", [1, 2])
def test_fails(n):
    assert n > 5

def test_passes():
    pass

def test_never_run():
    raise SystemExit(3)
'''


@pytest.mark.parametrize("gaps, status, said", [
    ({"test_it.py::test_fails": "why"}, 0, "1 passed, 1 skipped, 2 xfailed"),
    ({"test_it.py::test_fails[1]": "why"}, 1, "1 failed, 1 passed, 1 skipped, 1 xfailed"),
    ({"test_it.py::test_fails": "why", "test_it.py::test_passes": "why"}, 1, "[XPASS(strict)] why"),
    ({"test_it.py::test_fails": "why", "test_it.py::test_gone": "why"}, 4, "do not exist: test_it.py::test_gone"),
    ({"test_it.py::test_fails": "why", "test_other.py::test_not_asked_for": "why"}, 0, "2 xfailed"),
])
def test_the_list_has_to_be_true(tmp_path, gaps, status, said):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "backend_gaps.py").write_text(
        GAPS.format(gaps=gaps, too_long={"test_it.py::test_never_run": "long"}), encoding="utf-8")
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(textwrap.dedent(SUITE), encoding="utf-8")
    got = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "numpy"],
                         cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == status and said in got.stdout + got.stderr, got.stdout + got.stderr
