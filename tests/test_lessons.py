"""Every lesson runs alone, from start to end, in a fresh interpreter."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

TRAININGS = {"08_blocks", "09_positions", "10_seq2seq", "11_transformer_dates", "12_bert_poems", "13_vit", "14_llama",
             "15_sequence_layers"}
LESSONS = sorted((pathlib.Path(__file__).resolve().parents[1] / "lessons").glob("[0-9]*.py"))


def test_there_are_lessons():
    assert LESSONS


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_begins_with_its_title(path):
    source = path.read_text(encoding="utf-8")
    assert source.startswith("# %% [markdown]\n# # ")
    compile(source, str(path), "exec")


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_lesson_runs_alone_and_draws_what_it_says(path, tmp_path, request):
    if path.stem in TRAININGS and not request.config.option.trainings:
        pytest.skip("trains for minutes: pytest --trainings runs it")
    source = path.read_text(encoding="utf-8")
    got = subprocess.run([sys.executable, "-W", "error", str(path)], cwd=tmp_path, capture_output=True, text=True,
                         env={**os.environ, "MPLBACKEND": "Agg"}, timeout=600)
    assert got.returncode == 0, got.stderr
    assert got.stderr == "" and got.stdout
    figures = re.findall(r'"(out/[^"{]+\.png)"', source)
    assert figures and all((tmp_path / name).stat().st_size > 5000 for name in figures)


def test_lessons_by_number(tmp_path):
    command = [sys.executable, str(LESSONS[0].parent)]
    got = subprocess.run([*command, "00", "--backend", "numpy"], cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == 0 and got.stdout.startswith("00_autograd.py\n"), got.stderr
    got = subprocess.run([*command, "99"], cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == 2 and "no lesson '99'" in got.stderr
    got = subprocess.run([*command, "00", "--backend", "jax"], cwd=tmp_path, capture_output=True, text=True)
    assert got.returncode == 2 and "jax" in got.stderr
