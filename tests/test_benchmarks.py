import importlib
import json
import subprocess
import sys

import pytest

from benchmarks import attention
from benchmarks.__main__ import TRAININGS

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("name", ["mini_gpt", "seq2seq"])  # the dropout masks of the third are not PyTorch's
def test_both_libraries_do_the_same_training(name):
    losses = []
    for library in ("minitorch_attn", "torch"):
        module = importlib.import_module(library)
        module.manual_seed(0)
        optimizer, loss_of = TRAININGS[name](module)
        losses.append([])
        for _ in range(5):
            loss = loss_of()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=2e-5) and losses[0][0] != losses[0][-1]


def test_benchmarks_print_a_table_and_write_figures(tmp_path):
    got = subprocess.run([sys.executable, "-m", "benchmarks", "vit", "--turns", "2", "--steps", "1", "--threads", "1",
                          "--json", str(tmp_path / "figures.json")], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    assert "geometric mean of the ratios" in got.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    row, = figures["trainings"]
    assert row["training"] == "vit" and row["ms"] > 0 and row["torch_ms"] > 0
    assert figures["geometric_mean"] == pytest.approx(row["ratio"], abs=1e-3) and figures["threads"] == 1


@pytest.mark.parametrize("arguments, named", [(["dance"], "dance"), (["--turns", "1"], "too small")])
def test_wrong_input_is_named(arguments, named):
    got = subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True)
    assert got.returncode == 2 and named in got.stderr.splitlines()[-1]


def test_attention_is_measured_at_each_length(capsys):
    attention.main(["--lengths", "32", "64", "--longest-plain", "32"])
    rows = [line.rsplit(maxsplit=3) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(kind, int(T)) for kind, T, *_ in rows] == [
        ("plain", 32), *((kind, T) for kind in ("tiled", "window 256", "linear") for T in (32, 64))]
    assert all(float(figure) > 0 for row in rows for figure in row[2:])
