import subprocess
import sys

import pytest

from minitorch_attn.__main__ import main


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "minitorch_attn", *arguments], capture_output=True, text=True)


def test_info_prints():
    got = command("info")
    assert got.returncode == 0 and got.stdout.startswith("minitorch_attn") and got.stderr == ""


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["run", "--help"], ["profile", "--help"],
                                       ["gradcheck", "--help"], ["info", "--help"]])
def test_help_names_the_command_that_was_called(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 0 and capsys.readouterr().out.startswith("usage: minitorch-attn")


@pytest.mark.parametrize("arguments, named", [
    ([], "COMMAND"), (["dance"], "dance"), (["demo", "--steps", "0"], "from 1 on, got '0'"),
    (["demo", "--steps", "many"], "many"), (["demo", "--seed", "-1"], "-1"),
    (["demo", "--seed", str(2**64)], str(2**64)), (["demo", "--colour"], "--colour"),
    (["demo", "--backend", "jax"], "jax"),
    (["run"], "SCRIPT.py"), (["profile"], "SCRIPT.py"), (["profile", "--sort", "colour", "x.py"], "colour"),
    (["profile", "--top", "0", "x.py"], "from 1 on, got '0'"),
    (["gradcheck", "--against", "jax"], "jax"), (["info", "more"], "more")])
def test_wrong_input_is_named_and_ends_with_status_2(arguments, named, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    error = capsys.readouterr().err
    assert end.value.code == 2 and named in error.splitlines()[-1] and "Traceback" not in error


def test_both_ways_to_call_it_are_the_same_program():
    from importlib.metadata import entry_points
    script, = entry_points(group="console_scripts", name="minitorch-attn")
    assert script.load() is main


@pytest.mark.parametrize("command", ["run", "profile"])
@pytest.mark.parametrize("rest", [[], ["--"], ["--", "a"], ["a", "--", "b"], ["--", "--"], ["--sort", "name"]])
def test_a_script_gets_its_arguments_as_they_are(command, rest, tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys\nprint(sys.argv[1:])\n")
    assert main([command, str(script), *rest]) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"{rest}"
