import re
import subprocess
import sys

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.datasets import tang_poems
from minitorch_attn.demo import beginnings, demo, gradient_check, make_batch
from minitorch_attn.models.gpt import GPT, MLP, GPTConfig


def command(*arguments, **settings):
    return subprocess.run([sys.executable, "-m", "minitorch_attn", "demo", *arguments], capture_output=True, text=True,
                          **settings)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The demonstration as a newcomer runs it."""
    folder = tmp_path_factory.mktemp("demo")
    return command(cwd=folder), folder


def test_demo_learns_the_poems(finished):
    got, _ = finished
    assert got.returncode == 0, got.stderr
    loss = float(re.search(r"final loss ([\d.]+)", got.stdout)[1])
    assert loss < 0.1
    assert re.search(r"[\d,]+ tokens a second", got.stdout)
    lines = re.findall(r"^  (greedy|temperature 0.8|top-k 5|top-p 0.9) +(\*?) (\S+)$", got.stdout, flags=re.M)
    assert len(lines) == 12 and [line[2][0] for line in lines] == [c for c in "白春红" for _ in range(4)]
    for rule in ("greedy", "temperature 0.8", "top-k 5", "top-p 0.9"):
        continued = [text for name, _, text in lines if name == rule]
        assert sum(text in tang_poems() and len(text) == 12 for text in continued) >= 2, rule
    for _, star, text in lines:
        assert bool(star) == (text in tang_poems())


def test_demo_checks_gradients_layer_by_layer(finished):
    rows = re.findall(r"^  (\S+) +([\d,]+) +(\S+) +(\S+) +(\S+)$", finished[0].stdout, flags=re.M)
    names = [row[0] for row in rows]
    assert {"tok_emb", "pos_emb", "blocks.0.attn", "blocks.1.mlp", "ln_f"} <= set(names)
    assert all(float(row[4]) < 1e-5 for row in rows), rows


def test_demo_names_the_figures_it_drew(finished):
    got, folder = finished
    from matplotlib.image import imread
    for name in ("out/loss.png", "out/attention.png"):
        assert name in got.stdout
        assert imread(folder / name).size > 10_000
    assert "training: 100%" in got.stderr and "Warning" not in got.stderr and "Traceback" not in got.stderr


def test_same_seed_same_run(tmp_path):
    def printed(seed):
        return command("--steps", "5", "--seed", seed, "--out", str(tmp_path)).stdout

    runs = [re.sub(r"[\d,]+ tokens a second", "", printed(seed)) for seed in ("3", "3", "4")]
    assert runs[0] == runs[1] != runs[2]


def test_another_text(tmp_path, capsys):
    path = tmp_path / "text.txt"
    text = "the cat sat on a\nmat and the dog lay in the fog.\n"  # a third of the way there is a line end
    path.write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    assert demo(steps=3, text=str(path), out=str(tmp_path / "new" / "folder")) == 0
    out = capsys.readouterr().out
    assert f"{len(text)} characters, {len(set(text))} different" in out
    assert len(re.findall(r"^  greedy .*the |^  greedy .*\\nmat", out, flags=re.M)) == 2
    assert (tmp_path / "new" / "folder" / "attention.png").exists()


@pytest.mark.parametrize("content, sentence", [
    (None, "No such file"), (b"", "is empty"), (b"too short", "too short: it has 9 characters"),
    (b"\xff\xfe\x00" * 20, "not UTF-8: byte 0"),
    ("folder", "Is a directory")])
def test_a_text_that_will_not_do_is_one_sentence_and_status_2(tmp_path, content, sentence):
    path = tmp_path / "text"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    got = command("--text", str(path), cwd=tmp_path)
    assert got.returncode == 2 and got.stdout == ""
    assert got.stderr.count("\n") == 1 and sentence in got.stderr and got.stderr.startswith("minitorch-attn demo: ")


@pytest.mark.parametrize("name", ["a_file", "a_file/below"])
def test_a_folder_that_cannot_be_written_is_one_sentence_and_status_2(tmp_path, name):
    (tmp_path / "a_file").write_text("")
    got = command("--out", str(tmp_path / name))
    assert got.returncode == 2 and got.stdout == "" and got.stderr.count("\n") == 1
    assert got.stderr.startswith("minitorch-attn demo: cannot write to the folder")


def test_shortest_text_that_will_do(tmp_path):
    (tmp_path / "text").write_text("abcdefghijklmnopq")  # one window of 16 and its next character
    assert command("--steps", "2", "--text", "text", cwd=tmp_path).returncode == 0


def test_batches_are_windows_and_what_comes_next():
    mt.manual_seed(0)
    x, y = make_batch(mt.arange(100, 140))
    assert x.shape == y.shape == (32, 16)
    assert np.array_equal(y.numpy(), x.numpy() + 1)
    assert np.array_equal(x.numpy(), x.numpy()[:, :1] + np.arange(16))
    starts = {int(row[0]) for _ in range(40) for row in make_batch(mt.arange(100, 140))[0].numpy()}
    assert starts == set(range(100, 124))  # every window that has a next character, and no other


class HalfGradient(MLP):
    """The right value, half the gradient."""

    def forward(self, x):
        y = super().forward(x)
        return y + 0.5 * (y.detach() - y)


def test_gradient_check_finds_a_planted_mistake():
    mt.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=11, block_size=16, n_embd=12, n_head=3))
    x, y = mt.randint(0, 11, (2, 7)), mt.randint(0, 11, (2, 7))

    def worst():
        return max(abs(a - b) / max(abs(a), abs(b)) for _, _, a, b in gradient_check(model, x, y))

    before = [w.detach().numpy().copy() for w in model.parameters()]
    assert worst() < 1e-6
    assert all(np.array_equal(w.detach().numpy(), b) for w, b in zip(model.parameters(), before))
    model.blocks[1].mlp.__class__ = HalfGradient
    assert worst() > 1e-2


def test_beginnings_of_another_text_come_from_it():
    text = "abcdefghijklmnopqrstuvwxyz"
    assert beginnings(text) == ["abcd", "ijkl", "rstu"]
