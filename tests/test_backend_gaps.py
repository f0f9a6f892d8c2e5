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


def run(folder, gaps, *arguments):
    (folder / "tests").mkdir()
    (folder / "tests" / "backend_gaps.py").write_text(
        GAPS.format(gaps=gaps, too_long={"test_it.py::test_never_run": "long"}), encoding="utf-8")
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n", encoding="utf-8")
    (folder / "test_it.py").write_text(textwrap.dedent(SUITE), encoding="utf-8")
    (folder / "test_more.py").write_text("def test_a():\n    pass\n", encoding="utf-8")
    got = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--backend", "numpy",
                          *(arguments or ["test_it.py"])], cwd=folder, capture_output=True, text=True)
    return got.returncode, got.stdout + got.stderr


def test_a_file_asked_for_as_a_whole_is_held_to_the_list_beside_single_tests(tmp_path):
    gaps = {"test_it.py::test_fails": "why", "test_it.py::test_gone": "why", "test_more.py::test_not_asked_for": "why"}
    status, said = run(tmp_path, gaps, "test_more.py::test_a", "test_it.py")
    assert status == 4 and "do not exist: test_it.py::test_gone\n" in said, said


@pytest.mark.parametrize("gaps, status, said", [
    ({"test_it.py::test_fails": "why"}, 0, "1 passed, 1 skipped, 2 xfailed"),
    ({"test_it.py::test_fails[1]": "why"}, 1, "1 failed, 1 passed, 1 skipped, 1 xfailed"),
    ({"test_it.py::test_fails": "why", "test_it.py::test_passes": "why"}, 1, "[XPASS(strict)] why"),
    ({"test_it.py::test_fails": "why", "test_it.py::test_gone": "why"}, 4, "do not exist: test_it.py::test_gone"),
    ({"test_it.py::test_fails": "why", "test_other.py::test_not_asked_for": "why"}, 0, "2 xfailed"),
])
def test_the_list_has_to_be_true(tmp_path, gaps, status, said):
    got, printed = run(tmp_path, gaps)
    assert got == status and said in printed, printed
