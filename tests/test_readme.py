"""What the README says holds."""
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, flags=re.S))
def test_code_runs(code):
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 0 and got.stdout, got.stderr


def test_there_is_code_to_run():
    assert "```python\n" in README


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)]+)\)", README))
def test_links_lead_somewhere(target):
    assert (ROOT / target).exists()


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.M))
    assert set(re.findall(r"^    make (\w+)", README, flags=re.M)) <= targets


def test_demo_output_is_that_of_todays_program():
    """The words, not the numbers: those differ between machines."""
    from minitorch_attn.__main__ import parser
    source = (ROOT / "minitorch_attn" / "demo.py").read_text(encoding="utf-8")
    shown = re.search(r"```\n(text .*?)```", README, flags=re.S)[1]
    for words in ("marks what stands in the text just so", "tokens a second", "against finite differences", "Figures"):
        assert words in shown and words in source
    assert "demo" in parser().format_help()
