import argparse
import importlib
import importlib.util
import json
import subprocess
import sys

import numpy
import pytest

from benchmarks import (
    attention,
    generation,
    kernels,
    memory,
    overhead,
    parts,
    peers,
    process,
    report,
    trainings,
    turns,
)
from benchmarks.__main__ import chosen, main

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
LIBRARIES = ("minitorch_attn", "torch")
ASKED = argparse.Namespace(threads=1, turns=2, seconds=0.0, growth_steps=1, patience=60)


# Both libraries do the same work

@pytest.mark.parametrize("name", ["mini_gpt", "seq2seq"])  # the dropout masks of vit are not PyTorch's
def test_both_libraries_do_the_same_training(name):
    losses = []
    for library in LIBRARIES:
        step = trainings.make(name, library)
        losses.append([step() for _ in range(5)])
    assert losses[0] == pytest.approx(losses[1], rel=2e-5) and losses[0][0] != losses[0][-1]


@pytest.mark.parametrize("name", [name for name in kernels.KERNELS if "dropout" not in name and name != "adamw"])
def test_both_libraries_run_the_same_kernel(name):
    kernel, sizes = kernels.KERNELS[name]
    results = []
    for library in map(importlib.import_module, LIBRARIES):
        library.manual_seed(0)
        function, leaves = kernel(library, sizes[0])
        y = function()
        y.backward(library.randn(y.shape))
        results.append([y.detach().numpy(), *(x.grad.numpy() for x in leaves)])
    for ours, theirs in zip(*results, strict=True):
        assert ours.dtype == numpy.float32
        numpy.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["attention_dropout", "dropout", "adamw"])
def test_the_other_kernels_run(name):
    for library in LIBRARIES:
        kernels.make(f"{name}/0", library)()


def test_both_libraries_generate_the_same_tokens():
    ours, theirs = (generation.make("20", library)() for library in LIBRARIES)
    assert ours == theirs and len(ours) == 20 and len(set(ours)) > 1


@pytest.mark.parametrize("peer", ["torch", *(p for p in peers.PEERS if p != "tinygrad")])  # that compiles for minutes
def test_peers_do_the_same_training(peer):
    if importlib.util.find_spec(peer) is None:
        pytest.skip(f"{peer} is not installed")
    ours, theirs = (peers.make("mini_gpt", library) for library in ("minitorch_attn", peer))
    assert [ours() for _ in range(4)] == pytest.approx([theirs() for _ in range(4)], rel=1e-4)


def test_the_chain_in_numpy_is_that_of_the_engine():
    for library in (*LIBRARIES, "numpy"):
        overhead.make("chain", library)()
    assert overhead.NODES == 3 * overhead.LINKS


def test_operations_that_compute_nothing_hand_the_gradient_on():
    assert overhead.make("nothing", "minitorch_attn")() == 4  # the sum of four ones


def test_matrix_products_are_those_of_a_gpt():
    """2 m k n operations each: twelve widths squared a layer and token, the head, and two products of attention."""
    size = trainings.LARGE
    C, tokens = size.width, size.batch * size.tokens
    counted = sum(2 * numpy.prod(a) * b[-1] for a, b in overhead.product_shapes())
    attention_part = size.layers * 2 * 2 * tokens * size.tokens * C
    assert counted == 2 * tokens * C * (12 * C * size.layers + size.vocabulary) + attention_part


# Taking turns

def test_players_take_turns_and_each_follows_each():
    calls = []

    def player(name, seconds):
        def play(units):
            calls.append((name, units))
            return units * seconds, None
        return play

    rows = turns.take_turns([player("a", 0.01), player("b", 0.04)], 4, 0.2)
    assert rows == [pytest.approx([0.01, 0.04])] * 4
    assert calls[-8:] == [("a", 20), ("b", 5), ("b", 5), ("a", 20)] * 2
    assert turns.ratio(rows)["ratio"] == 0.25 and not turns.ratio(rows)["noisy"]
    assert turns.ratio(rows, 1, 0)["ratio"] == 4


def test_quartiles_lie_within_the_ratios():
    assert turns.ratio([[1, 1], [2, 1]])["quartiles"] == [1.25, 1.75]


def test_a_peer_that_fails_is_left_out_but_not_pytorch():
    class Failing:
        def play(self, *_):
            raise SystemExit("it failed")

    assert parts.first_losses(Failing(), "mini_gpt", 90) is None
    with pytest.raises(SystemExit, match="it failed"):
        parts.first_losses(Failing(), "mini_gpt", None)


def test_wide_ratios_are_called_noisy():
    assert turns.ratio([[1, 1], [1, 1], [2, 1], [2, 1]])["noisy"]
    assert turns.enough(lambda units: (0.5, None), 0.1) == 1


# What is measured, with a worker that takes no time

class InstantWorker:
    def __init__(self, library, threads):
        self.seconds = 0.001 if library == "torch" else 0.002

    def play(self, part, case, units, patience=None):
        assert callable(importlib.import_module(f"benchmarks.{part}").make)
        return self.seconds * units, 4.5

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


@pytest.fixture
def rows(monkeypatch):
    """What every part yields."""
    monkeypatch.setattr(parts, "Worker", InstantWorker)
    monkeypatch.setattr(turns, "PAUSE", 0)
    monkeypatch.setattr(process, "player", lambda program, threads: lambda units: (0.5 * units, None))
    monkeypatch.setattr(memory, "measure", lambda *asked: {"rest": 100.0, "peak": 12.0, "growth": 0.5})
    return {part: list(measure(ASKED, cases)) for part, (measure, cases, _) in parts.PARTS.items()}


def test_trainings_take_their_turns_in_several_pairs_of_processes(monkeypatch):
    started = []

    class CountedWorker(InstantWorker):
        def __init__(self, library, threads):
            super().__init__(library, threads)
            started.append(library)

    monkeypatch.setattr(parts, "Worker", CountedWorker)
    monkeypatch.setattr(turns, "PAUSE", 0)
    asked = argparse.Namespace(threads=1, turns=2 * parts.TURNS_A_PROCESS + 1, seconds=0.001)
    found = parts.training_turns(asked, ("minitorch_attn", "torch"), "vit")
    assert len(found) == asked.turns and started == ["minitorch_attn", "torch"] * 3


def test_every_part_yields_rows(rows):
    assert len(rows["kernels"]) == len(kernels.CASES) and len(rows["trainings"]) == 4
    assert [row["ratio"] for row in rows["trainings"]] == [2.0] * 4 and rows["trainings"][0]["ours"] == 2.0
    assert rows["generation"][0]["theirs"] == 500 / 0.001 and rows["process"][0]["others"]["numpy"] == 500
    assert [row["name"] for row in rows["memory"] if "growth" in row["name"]] == ["mini_gpt, growth in 1 steps"]
    share, node = rows["overhead"]
    assert share["ours"] == 1 and node["others"]["ours beyond NumPy"] == 0
    assert "a node that computes nothing" in node["others"]
    names = [row["name"] for row in rows["peers"]]
    assert all(f"{size}, {peer}" in names for size in peers.SIZES for peer in ("minitorch_attn", *peers.PEERS))


def test_rows_are_printed_drawn_and_written(rows, tmp_path):
    for part, of_part in rows.items():
        lines = [report.table_head(part), *map(report.table_line, of_part)]
        assert all(row["name"] in line for row, line in zip(of_part, lines[1:]))
    report.draw(rows, tmp_path / "chart.png")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")
    figures = report.figures(rows, ASKED)
    report.save(figures, tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text())["geometric_mean"]["trainings"] == 2


def test_noise_is_named():
    quiet = {"name": "x", "unit": "ms", "ours": 1, "theirs": 1, "ratio": 1.0, "quartiles": [0.9, 1.1], "noisy": False}
    assert report.judge({"control": [quiet], "kernels": [quiet]}) == ["No row was too noisy to judge."]
    biased, = report.judge({"control": [{**quiet, "ratio": 1.2}]})
    assert "TOO NOISY" in biased and "1.20" in biased
    wide, = report.judge({"kernels": [quiet, {**quiet, "name": "wide", "noisy": True}]})
    assert "kernels: wide" in wide and ": x" not in wide


# The command line

def test_names_select_parts_and_cases():
    assert chosen(["vit", "kernels:softmax", "vit", "mini_gpt"]) == {
        "trainings": ["vit", "mini_gpt"], "kernels": ["softmax/0", "softmax/1"]}
    assert list(chosen([])) == list(parts.PARTS) and chosen([])["peers"] == ["mini_gpt"]
    assert chosen(["peers:large_gpt"]) == {"peers": ["large_gpt"]}


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "benchmarks", *arguments], capture_output=True, text=True)


def test_benchmarks_print_a_table_and_write_figures(tmp_path):
    got = run("mini_gpt", "memory:mini_gpt", "--turns", "2", "--seconds", "0", "--threads", "1", "--growth-steps", "1",
              "--json", str(tmp_path / "figures.json"))
    assert got.returncode == 0, got.stderr
    assert "geometric mean of the ratios" in got.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    row, = figures["parts"]["trainings"]
    assert row["name"] == "mini_gpt" and row["ours"] > 0 and row["theirs"] > 0
    assert figures["geometric_mean"]["trainings"] == pytest.approx(row["ratio"], abs=1e-3) and figures["threads"] == 1
    if memory.KNOWN:
        peak, growth = figures["parts"]["memory"]
        assert peak["ours"] > 0 and peak["theirs"] > 0 and "ratio" not in growth


@pytest.mark.parametrize("arguments, named", [(["dance"], "dance"), (["kernels:dance"], "kernels:dance"),
                                              (["--turns", "1"], "too small"),
                                              (["--json", "no/such/folder.json"], "no/such/folder.json"),
                                              (["--chart", "."], ". cannot be written")])
def test_wrong_input_is_named(arguments, named):
    got = run(*arguments)
    assert got.returncode == 2 and named in got.stderr.splitlines()[-1]


def test_an_interrupted_run_keeps_what_it_measured(monkeypatch, tmp_path, capsys):
    def rows(asked, cases):
        yield {"name": "first", "unit": "ms", "ours": 1.0, "theirs": 2.0, "ratio": 0.5, "quartiles": [0.5, 0.5]}
        raise KeyboardInterrupt

    monkeypatch.setitem(parts.PARTS, "kernels", (rows, *parts.PARTS["kernels"][1:]))
    path = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "kernels", "process", "--json", str(path)])
    assert main() == 130 and "Interrupted" in capsys.readouterr().out
    measured = json.loads(path.read_text())["parts"]
    assert [row["name"] for row in measured["kernels"]] == ["first"] and "process" not in measured


def test_first_figure_is_the_same():
    printed = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
               for program in process.PROGRAMS["first_figure"]]
    assert float(printed[0]) == pytest.approx(float(printed[1]), rel=1e-4)


def test_attention_is_measured_at_each_length(capsys):
    attention.main(["--lengths", "32", "64", "--longest-plain", "32"])
    rows = [line.rsplit(maxsplit=3) for line in capsys.readouterr().out.splitlines()[1:]]
    assert [(kind, int(T)) for kind, T, *_ in rows] == [
        ("plain", 32), *((kind, T) for kind in ("tiled", "window 256", "linear") for T in (32, 64))]
    assert all(float(figure) > 0 for row in rows for figure in row[2:])
