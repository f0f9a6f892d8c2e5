"""The engine's switches nest, put back what was before, and decorate functions and generators."""
import pytest

import minitorch_attn as mt
from minitorch_attn.grad_mode import detect_anomaly, record_lines


def test_no_grad_block_records_nothing():
    x = mt.tensor([2.0], requires_grad=True)
    with mt.no_grad():
        y = x * x
    assert not y.requires_grad and (x * x).requires_grad


def test_decorator_inside_block_does_not_turn_gradients_on_again():
    @mt.no_grad()
    def inner():
        return mt.is_grad_enabled()

    with mt.no_grad():
        assert not inner()
        assert not mt.is_grad_enabled()
    assert mt.is_grad_enabled()


def test_bare_decorator_and_recursion():
    @mt.no_grad
    def countdown(n):
        assert not mt.is_grad_enabled()
        return countdown(n - 1) if n else n

    assert countdown(3) == 0
    assert mt.is_grad_enabled()


def test_enable_grad_inside_no_grad():
    with mt.no_grad():
        with mt.enable_grad():
            assert mt.is_grad_enabled()
        assert not mt.is_grad_enabled()


def test_block_is_left_on_error():
    with pytest.raises(KeyError):
        with mt.inference_mode():
            raise KeyError
    assert mt.is_grad_enabled()


def test_generator_is_off_inside_its_body_only():
    inside = []

    @mt.no_grad()
    def steps():
        inside.append(mt.is_grad_enabled())
        got = yield 1
        inside.append((got, mt.is_grad_enabled()))
        yield 2
        return 3

    run = steps()
    assert next(run) == 1 and mt.is_grad_enabled()
    assert run.send("x") == 2 and mt.is_grad_enabled()
    with pytest.raises(StopIteration) as end:
        next(run)
    assert end.value.value == 3
    assert inside == [False, ("x", False)]


def test_generator_sees_errors_thrown_in_and_closing():
    seen = []

    @mt.no_grad()
    def steps():
        try:
            yield 1
        except ValueError:
            seen.append(mt.is_grad_enabled())
            yield 2
        finally:
            seen.append("closed")

    run = steps()
    next(run)
    assert run.throw(ValueError) == 2
    run.close()
    assert seen == [False, "closed"]


def test_set_grad_enabled_works_at_once_and_in_a_block():
    with mt.set_grad_enabled(False):
        assert not mt.is_grad_enabled()
    assert mt.is_grad_enabled()
    mt.set_grad_enabled(False)
    assert not mt.is_grad_enabled()
    mt.set_grad_enabled(True)
    assert mt.is_grad_enabled()


@pytest.mark.parametrize("mode", [False, True])
def test_set_grad_enabled_as_decorator_sets_only_inside_the_function(mode):
    @mt.set_grad_enabled(mode)
    def inner():
        return mt.is_grad_enabled()

    assert mt.is_grad_enabled()
    assert inner() is mode and mt.is_grad_enabled()
    with mt.no_grad():
        assert inner() is mode and not mt.is_grad_enabled()


def test_inference_mode_by_argument():
    for off in (mt.inference_mode(), mt.inference_mode(True), mt.inference_mode(mode=True)):
        with off:
            assert not mt.is_grad_enabled()
        assert mt.is_grad_enabled()
    with mt.inference_mode(False):
        assert mt.is_grad_enabled()
    with mt.no_grad(), mt.inference_mode(mode=False):
        assert mt.is_grad_enabled()
    assert mt.is_grad_enabled()

    @mt.inference_mode
    def bare():
        return mt.is_grad_enabled()

    @mt.inference_mode(mode=True)
    def called():
        return mt.is_grad_enabled()

    @mt.inference_mode(False)
    def without():
        return mt.is_grad_enabled()

    assert (bare(), called(), without()) == (False, False, True)


def test_record_lines_names_the_calling_line():
    x = mt.tensor([2.0], requires_grad=True)
    assert (x * x).node.line is None
    with record_lines():
        y, z = x * x, x.log()  # the second runs inside NumPy's errstate
    assert y.node.line == z.node.line and y.node.line.rpartition(":")[0] == __file__


def test_detect_anomaly_names_the_operation_and_the_line():
    x = mt.tensor([0.0], requires_grad=True)
    with detect_anomaly():
        y = (x * float("inf")) * 0.0  # the gradient is 0 * inf
        with pytest.raises(RuntimeError, match=r"backward of mul returned NaN.*test_grad_mode.py:\d+"):
            y.backward(mt.tensor([1.0]))


def test_program_in_a_directory_whose_name_starts_like_the_package():
    from minitorch_attn import grad_mode
    source = "def where(calling_line):\n    return calling_line()\n"
    path = grad_mode.__file__.replace("grad_mode.py", "").rstrip("/\\") + "_lessons/program.py"
    names = {}
    exec(compile(source, path, "exec"), names)
    assert names["where"](grad_mode.calling_line) == f"{path}:2"
