"""The page on PyTorch's names is what the code says today."""
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_parity_page_is_current():
    got = subprocess.run([sys.executable, ROOT / "docs" / "make_parity.py", "--check"], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr


def test_parity_page_names_differences_and_counts():
    text = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    assert text.count("\n| `") > 300 and "Where behaviour differs on purpose" in text
