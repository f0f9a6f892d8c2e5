"""The table over every operation and layer."""
import ast
import inspect
import pathlib
import types

import pytest

import minitorch_attn as mt
from minitorch_attn import nn, ops
from minitorch_attn.backend import shares_memory, xp
from minitorch_attn.gradient_check import checkup
from minitorch_attn.gradient_check.samples import LAYERS, NOT_DIFFERENTIABLE, OPERATIONS, Draw
from tests.gradient_check.false_alarms import alarms

PACKAGE = pathlib.Path(mt.__file__).parent
EXCUSED = {name for names in NOT_DIFFERENTIABLE.values() for name in names.split()}


def public(module):
    """The public names that a package gathers from its files."""
    return {name for name in vars(module) if not name.startswith("_") and not inspect.ismodule(getattr(module, name))
            and getattr(getattr(module, name), "__module__", "").startswith(module.__name__.split(".functional")[0])}


def test_every_public_function_and_layer_is_in_the_table_or_excused():
    functions = {n for n in public(ops) | public(nn.functional) if inspect.isfunction(
        getattr(ops, n, getattr(nn.functional, n, None)))}
    missing = sorted(functions - set(map(checkup.base, OPERATIONS)) - EXCUSED)
    assert not missing, f"add a sample call to gradient_check/samples.py for: {', '.join(missing)}"
    layers = sorted({n for n in public(nn) if inspect.isclass(getattr(nn, n))} - set(LAYERS) - EXCUSED)
    assert not layers, f"add a sample call to gradient_check/samples.py for: {', '.join(layers)}"


def operations_with_backward():
    """The names that the package's kernels give to nodes with a backward, where they are written out."""
    found = {}
    for folder in ("ops", "nn/functional"):
        for path in (PACKAGE / folder).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "attr",
                                                          "") == "from_op" and len(node.args) > 3 and \
                        isinstance(node.args[0], ast.Constant):
                    found[node.args[0].value] = path.name
    return found


def test_every_backward_in_the_package_runs_in_the_table(monkeypatch):
    seen, original = set(), mt.Tensor.from_op

    def from_op(op, array, inputs, backward=None, view=False):
        result = original(op, array, inputs, backward, view)
        if result.requires_grad:
            seen.add(op)
        return result

    monkeypatch.setattr(mt.Tensor, "from_op", staticmethod(from_op))
    monkeypatch.setattr(checkup, "explain_gradients", lambda fn, inputs, **_: run_once(fn, inputs))
    for name in [*OPERATIONS, *LAYERS]:
        checkup.check_up(name)
    flat = {"floor", "ceil", "trunc", "round", "sign", "floor_divide", "div_floor", "div_trunc"}
    missing = {op: where for op, where in operations_with_backward().items() if op not in seen | flat}
    assert not missing, f"no sample call reaches the backward of {missing}"


def run_once(fn, inputs):
    fn(*inputs)
    return mt.gradient_check.GradReport("once")


@pytest.mark.parametrize("name", [*OPERATIONS, *LAYERS])
def test_row(name):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    row = checkup.check_up(name, torch)
    assert row.ok, f"error {row.error}, against PyTorch {row.against}\n{row.report}"


def test_false_alarms_in_a_few_draws():
    assert not alarms(150, seed=3)


def test_random_sizes_are_drawn_and_fixed_ones_are_primes():
    assert Draw().shape("ABCD1") == (2, 3, 5, 7, 1)
    assert len({tuple(Draw(seed, random_sizes=True).sizes.values()) for seed in range(20)}) > 10


def test_table_prints_and_ends_with_the_right_status(capsys, monkeypatch):
    assert checkup.checkup(["softmax", "Linear"]) == 0
    printed = capsys.readouterr().out
    assert "softmax" in printed and "2 of 2 right" in printed
    assert checkup.checkup(["sofmax"]) == 2
    assert "perhaps softmax" in capsys.readouterr().err
    assert checkup.checkup(["softmax"], against="no_such_library") == 2

    def wrong(x, dim):
        return mt.Tensor.from_op("softmax", mt.softmax(x.detach(), dim).array, (x,), lambda g: (g,))
    monkeypatch.setattr(nn.functional, "softmax", wrong)
    assert checkup.checkup(["softmax"]) == 1
    assert "WRONG" in capsys.readouterr().out


def test_an_operation_that_raises_is_a_row(capsys, monkeypatch):
    def broken(x, dim):
        raise ZeroDivisionError("no softmax today")
    monkeypatch.setattr(nn.functional, "softmax", broken)
    assert checkup.checkup(["softmax", "Linear"]) == 1
    printed = capsys.readouterr().out
    assert "RAISES" in printed and "1 of 2 right" in printed
    assert "softmax raised ZeroDivisionError: no softmax today" in printed and "line " in printed


def test_what_differs_from_pytorch_alone_is_said(capsys, monkeypatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    right = mt.softmax
    monkeypatch.setattr(nn.functional, "softmax", lambda x, dim: 1.5 * right(x, dim))
    assert checkup.checkup(["softmax"], "torch") == 1
    assert "finite differences agree, but PyTorch's values or gradients differ by 5e-01" in capsys.readouterr().out


def arrays_in(value, seen):
    """All arrays to be reached from `value`: through containers, attributes of objects and what functions capture."""
    if id(value) in seen or isinstance(value, (type, types.ModuleType)):
        return []
    seen.add(id(value))
    if isinstance(value, xp.ndarray):
        return [value]
    inside = list(value) if isinstance(value, (tuple, list, set)) else list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        inside += value.values()
    if isinstance(value, types.FunctionType):
        inside += captured(value)
    inside += [getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)]
    return [array for part in inside for array in arrays_in(part, seen)]


def captured(function):
    """The values of a function's variables that belong to the function around it."""
    return [cell.cell_contents for cell in function.__closure__ or ()]


def test_a_backward_captures_arrays_where_writes_to_them_are_noticed(monkeypatch):
    original, calls, hidden = mt.Tensor.from_op, [], set()

    def from_op(op, array, inputs, backward=None, view=False):
        if backward is not None:
            calls.append((op, backward, [array, *(x.array for x in inputs)]))
        return original(op, array, inputs, backward, view)

    monkeypatch.setattr(mt.Tensor, "from_op", staticmethod(from_op))
    monkeypatch.setattr(checkup, "explain_gradients", lambda fn, inputs, **_: run_once(fn, inputs))
    for name in [*OPERATIONS, *LAYERS]:
        checkup.check_up(name)
        for op, backward, arrays in calls:
            plain = captured(backward)
            noticed = [a for v in plain for a in (v if isinstance(v, (tuple, list)) else (v,))]
            reached = arrays_in(plain, {id(a) for a in noticed if isinstance(a, xp.ndarray)})
            if any(shares_memory(a, b) for a in reached for b in arrays):
                hidden.add(op)
        calls.clear()
    assert not hidden, f"from_op says where backward may capture arrays; hidden deeper in the backward of {hidden}"


@pytest.mark.parametrize("hide", [lambda a: {"a": a}, lambda a: [[a]], lambda a: lambda: a],
                         ids=["dict", "list", "inner function"])
def test_an_array_hidden_deeper_is_found(hide):
    a = xp.ones(3)
    hiding = hide(a)
    (found,) = arrays_in(captured(lambda g: (g, hiding)), set())
    assert found is a
