import inspect
import json
import pathlib
import re
import subprocess
import sys
import textwrap
import threading
import time

import numpy
import pytest

import minitorch_attn as mt
from minitorch_attn import nn, threads
from minitorch_attn.nn import functional as F
from minitorch_attn.profile import body_of, operations, profile_script
from minitorch_attn.profile_report import SORTS


def by_name(report):
    return {row.name: row for row in report.rows()}


def line_of(text):
    """Where in this file the line with `text` stands, as the report words it."""
    lines = open(__file__, encoding="utf-8").read().splitlines()
    number, = [i for i, line in enumerate(lines, 1) if text in line and "line_of" not in line]
    return f"test_profile.py:{number}"


@pytest.fixture
def script(tmp_path):
    """A function that writes a script and returns its path."""
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)
    return write


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "minitorch_attn", "profile", *arguments], capture_output=True,
                          text=True)


def test_calls_and_memory_are_counted_exactly():
    x = mt.ones(3, 5, requires_grad=True)
    with mt.profile() as report:
        for _ in range(7):
            y = (x * x).exp()  # a line of its own
            z = x.reshape(5, 3)
        (y.sum() + z.sum()).backward()
    rows = by_name(report)
    assert {name: row.calls for name, row in rows.items()} == {
        "mul": 7, "exp": 7, "reshape": 7, "sum": 2, "add": 1, "backward()": 1}
    assert rows["mul"].forward_bytes == rows["exp"].forward_bytes == 7 * 3 * 5 * 4
    assert rows["reshape"].forward_bytes == 0  # a view
    assert rows["sum"].forward_bytes == 2 * 4
    assert rows["mul"].backward_bytes == 2 * 60  # both factors are x: two gradients, of the one call that was reached
    assert rows["exp"].backward_bytes == 60
    assert rows["add"].backward_bytes == 0  # hands on the gradient that came
    assert rows["backward()"].forward == 0 < rows["backward()"].backward
    assert [place.where for place in rows["exp"].places] == [f"tests/{line_of('a line of its own')}"]


def test_rows_add_up_to_the_time_that_went_by():
    x = mt.randn(31, 37, requires_grad=True)
    with mt.profile() as report:
        began = time.perf_counter()
        for _ in range(20):
            F.softmax(x @ x.T, -1).square().mean().backward()
        took = time.perf_counter() - began
    total = sum(row.total for row in report.rows()) + report.outside + report.overhead
    assert total == pytest.approx(report.seconds, rel=1e-9) and took <= report.seconds < took + 0.1
    for row in report.rows():
        assert row.total == pytest.approx(sum(place.total for place in row.places))
        assert row.calls == sum(place.calls for place in row.places)


def test_an_operation_of_the_programs_own_shows_from_its_result_on(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    def slow(x):
        clock[0] += 2

        def backward(g):
            clock[0] += 5
            return (g,)

        return mt.Tensor.from_op("slow", x.array.copy(), (x,), backward)

    x = mt.ones(2, requires_grad=True)
    with mt.profile() as report:
        clock[0] += 100
        y = slow(slow(x))
        y.backward(mt.ones(2))
    row = by_name(report)["slow"]  # its forward lies before anything of the library is called
    assert (row.calls, row.forward, row.backward, report.outside, report.seconds) == (2, 0, 10, 104, 114)


CLOCK = [0.0]


def inner(x):
    CLOCK[0] += 3
    return mt.Tensor.from_op("inner", x.array.copy(), (x,), inner_backward)


def inner_backward(g):
    CLOCK[0] += 11
    return (g.copy(),)


def outer(x):
    CLOCK[0] += 7
    y = inner(x)
    CLOCK[0] += 1
    return mt.Tensor.from_op("under another name", y.array.copy(), (y,), inner_backward)


def test_an_operation_within_another_does_not_count_twice(monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: CLOCK[0])
    for function in (inner, outer):
        monkeypatch.setattr(F, function.__name__, function, raising=False)
    x = mt.ones(2, requires_grad=True)
    with mt.profile() as report:
        outer(x).backward(mt.ones(2))
        inner(x)
    rows = by_name(report)
    assert [(rows[n].calls, rows[n].forward, rows[n].backward) for n in ("inner", "outer")] == [(2, 6, 11), (1, 8, 11)]
    assert rows["backward()"].total == 0 == report.outside and report.seconds == 36


def test_layer_lines_stand_behind_the_programs():
    layer, x = nn.Linear(3, 5), mt.ones(2, 3)
    with mt.profile() as report:
        layer(x)  # through a layer
    where, = [place.where for place in by_name(report)["linear"].places]
    program, layer = where.split(" in ")
    assert program == f"tests/{line_of('through a layer')}" and layer.startswith("nn/linear.py:")


def test_a_decorated_operation_shows_the_programs_line():
    with mt.profile() as report:
        mt.log(mt.ones(3)).sum()  # under errstate
    assert by_name(report)["log"].places[0].where == f"tests/{line_of('under errstate')}"


def test_optimizers_have_rows_of_their_own():
    x = nn.Parameter(mt.ones(3))
    sgd, adam = mt.optim.SGD([x], lr=0.1), mt.optim.AdamW([x])
    with mt.profile() as report:
        for _ in range(3):
            x.square().sum().backward()
            nn.utils.clip_grad_norm_([x], 1.0)
            sgd.step()
        adam.step()
    calls = {name: row.calls for name, row in by_name(report).items()}
    assert calls["SGD.step"] == calls["clip_grad_norm_"] == 3 and calls["AdamW.step"] == 1


def test_every_name_of_an_operation_is_seen():
    x, relu = mt.ones(3), F.relu  # bound before the profile
    with mt.profile() as report:
        relu(x), F.relu(x), mt.relu(x), x.relu(), nn.ReLU()(x)
        x + x, 1 + x, mt.add(x, x), x.add(x), x.add_(x)
        mt.true_divide(x, x)
    calls = {name: row.calls for name, row in by_name(report).items()}
    assert (calls["relu"], calls["add"], calls["div"], calls["assign"]) == (5, 5, 1, 1)


def test_results_and_gradients_are_the_same():
    def train():
        mt.manual_seed(0)
        model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1)
        optimizer = mt.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(mt.randn(5, 3, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach().numpy() for p in model.parameters()]

    plain = train()
    with mt.profile():
        measured = train()
    assert all(numpy.array_equal(a, b) for a, b in zip(plain, measured))


def test_overwritten_arrays_are_still_noticed():
    with mt.profile():
        x = mt.ones(3, requires_grad=True) * 1
        y = x.exp()
        with mt.no_grad():
            y.mul_(2)
        with pytest.raises(RuntimeError, match="exp needs was modified in place"):
            y.sum().backward()


def everything():
    functions = [*operations(), mt.Tensor.backward, mt.Tensor.assign, mt.autograd.grad, mt.optim.Optimizer.step]
    return [body_of(f) for f in functions] + [mt.Tensor.from_op, mt.Tensor.wrap]


@pytest.mark.parametrize("error", [None, ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_everything_is_put_back(error):
    before, signature = everything(), inspect.signature(mt.softmax)
    assert len(before) > 250
    if error is None:
        with mt.profile():
            assert everything() != before
    else:
        with pytest.raises(error), mt.profile():
            raise error
    assert everything() == before and inspect.signature(mt.softmax) == signature


def test_an_exception_in_an_operation_gives_the_clock_back():
    with mt.profile() as report:
        with pytest.raises(RuntimeError):
            mt.ones(2) @ mt.ones(3)
        assert report.meter.cell is report.meter.outside
    assert by_name(report)["matmul"].calls == 1


def test_a_graph_outlives_the_profile():
    x = mt.ones(3, requires_grad=True)
    with mt.profile() as report:
        y = (x * 2).sum()
    seconds = report.seconds
    y.backward()
    assert x.grad.tolist() == [2, 2, 2] and report.seconds == seconds and by_name(report)["mul"].backward == 0


def test_one_profile_at_a_time():
    with mt.profile() as report:
        with pytest.raises(RuntimeError, match="running already"), mt.profile():
            pass
        mt.ones(2).exp()
    assert by_name(report)["exp"].calls == 1
    with mt.profile() as second:
        pass
    assert second.rows() == []


def test_other_threads_compute_unmeasured():
    got = []
    with mt.profile() as report:
        thread = threading.Thread(target=lambda: got.append(mt.ones(2, requires_grad=True).exp().sum().item()))
        thread.start()
        thread.join()
    assert len(got) == 1 and report.rows() == []


@pytest.fixture
def report():
    x = mt.ones(64, 64, requires_grad=True)
    with mt.profile() as report:
        y = x.exp()
        for _ in range(3):
            y = y + x
        y = y + y
        y.sum().backward()
    return report


def test_table_has_every_operation_and_adds_up(report):
    lines = str(report).splitlines()
    assert lines[0].split() == "operation calls forward ms backward ms share forward MiB backward MiB where".split()
    assert {line.split()[0] for line in lines[1:] if line[0] != " "} == {
        "exp", "add", "sum", "backward()", "outside", "the", "all"}
    add = next(i for i, line in enumerate(lines) if line.startswith("add "))
    assert [line.split()[0] for line in lines[add + 1:add + 3]] in (["3", "1"], ["1", "3"])  # its two lines of code
    assert lines[-1].endswith("100.0%") and repr(report) == str(report)


@pytest.mark.parametrize("sort", SORTS)
def test_rows_are_sorted(report, sort):
    value = {"total": lambda r: -r.total, "memory": lambda r: -r.forward_bytes - r.backward_bytes,
             "name": lambda r: r.name}.get(sort, lambda r: -getattr(r, sort))
    rows = [value(row) for row in report.rows(sort)]
    assert rows == sorted(rows)


def test_top_puts_the_others_into_one_row(report):
    lines = report.table("calls", top=1, lines=0).splitlines()
    assert [line.split()[:2] for line in lines[1:-3]] == [["add", "4"], ["3", "more"]]
    assert lines[2].split()[2] == "3"  # exp, sum and backward(), once each


def test_unknown_order_is_named(report):
    with pytest.raises(ValueError, match="total, forward, backward, calls, memory, name; got 'colour'"):
        report.rows("colour")


SCRIPT = """
    import sys
    import torch
    x = torch.ones(3, requires_grad=True)
    for _ in range(int(sys.argv[1])):
        x.exp().sum().backward()
    print("done")
"""


def test_command_runs_the_script_and_prints_the_table(script, tmp_path):
    file = tmp_path / "profile.json"
    got = command("--sort", "calls", "--top", "2", "--json", str(file), script(SCRIPT), "5")
    assert got.returncode == 0 and got.stderr == ""
    lines = got.stdout.splitlines()
    assert lines[:2] == ["done", ""] and lines[2].startswith("operation ") and lines[5].startswith("2 more ")
    measured = json.loads(file.read_text())
    assert {row["name"]: row["calls"] for row in measured["operations"]} == {
        "ones": 1, "exp": 5, "sum": 5, "backward()": 5}
    total = sum(row["forward"] + row["backward"] for row in measured["operations"])
    assert total + measured["outside"] + measured["overhead"] == pytest.approx(measured["seconds"])
    exp, = [row for row in measured["operations"] if row["name"] == "exp"]
    assert [place["where"] for place in exp["places"]] == [f"{tmp_path / 'script.py'}:6"]


@pytest.mark.parametrize("line, status, error", [
    ("raise SystemExit(7)", 7, ""), ("sys.exit('stopped here')", 1, "stopped here\n"),
    ("x @ torch.ones(2)", 1, "RuntimeError"), ("raise ValueError('no')", 1, "ValueError: no\n")])
def test_a_script_that_ends_early_keeps_its_status_and_gets_its_table(script, line, status, error):
    got = command(script(SCRIPT + "    " + line), "1")
    assert got.returncode == status and error in got.stderr and (error or not got.stderr)
    assert "\nexp " in got.stdout and "\nall " in got.stdout


def test_a_script_that_cannot_be_read_is_one_sentence_and_status_2(tmp_path, capsys):
    assert profile_script(str(tmp_path / "nowhere.py")) == 2
    out, error = capsys.readouterr()
    assert out == "" and error == (f"minitorch-attn profile: cannot read the script {tmp_path / 'nowhere.py'}: "
                                   "No such file or directory\n")


def test_a_file_that_cannot_be_written_is_named_before_the_script_runs(script, tmp_path, capsys):
    assert profile_script(script("print('ran')"), json=str(tmp_path / "no" / "x.json")) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.startswith("minitorch-attn profile: cannot write to") and error.count("\n") == 1


def test_the_report_is_written_where_it_was_asked_for(script, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    assert profile_script(script("import os; os.chdir('elsewhere')"), json="report.json") == 0
    assert "seconds" in json.loads((tmp_path / "report.json").read_text())


def test_without_a_profile_nothing_is_in_the_way():
    """The functions of a fresh interpreter are the ones that the files define."""
    code = ("import minitorch_attn as mt, inspect\n"
            "from minitorch_attn.profile import operations, stand_in\n"
            "assert all(f.__code__ is not stand_in.__code__ for f in operations())\n"
            "assert mt.Tensor.from_op.__module__ == 'minitorch_attn.autograd'\n")
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch):
    page = (pathlib.Path(__file__).parents[1] / "docs" / "profile.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(import torch\n.*?)```", page, flags=re.S)[1]
    (tmp_path / "train.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    got = command("train.py").stdout.splitlines()
    shown = re.search(r"```\n(loss .*?)```", page, flags=re.S)[1].splitlines()
    assert got[:3] == shown[:3]

    def without_times(lines):
        """Name, calls and place of each operation; the lines of the library's own files move."""
        return {(line.split()[0], line.split()[1], re.sub(r"(nn/.*):\d+$", r"\1", line.rpartition("  ")[2]))
                for line in lines if re.match(r"\S.*train\.py", line)}

    assert len(without_times(shown)) > 5 and without_times(shown) <= without_times(got)


@pytest.mark.skipif(threads._get is None, reason="this NumPy's BLAS is not OpenBLAS")
def test_a_kernel_in_parts_counts_as_a_whole(monkeypatch, set_num_threads):
    def no_helper():
        raise RuntimeError("so that this thread, whose clock it is, computes all parts")

    monkeypatch.setattr(threads, "LARGE", 1)
    monkeypatch.setattr(threads, "_pool", no_helper)
    found = []
    for n in (1, 3):
        set_num_threads(n)
        q, k, v = (mt.randn(7, 2, 11, 5, requires_grad=True) for _ in range(3))
        with mt.profile() as report:
            F.scaled_dot_product_attention(q, k, v).backward(mt.ones(7, 2, 11, 5))
        found.append({row.name: (row.calls, row.forward_bytes, row.backward_bytes) for row in report.rows()})
    assert found[0] == found[1]
    assert found[0]["scaled_dot_product_attention"][0] == 1
