import subprocess
import sys
import textwrap

import pytest

import minitorch_attn as mt
from minitorch_attn.run import run_script, standing_in


@pytest.fixture
def script(tmp_path):
    """A function that writes a script and returns its path."""
    def write(text, name="script.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return str(path)
    return write


def run(*command):
    """The command line in a process of its own."""
    return subprocess.run([sys.executable, "-m", "minitorch_attn", "run", *command], capture_output=True, text=True)


IMPORTS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
import torch.optim.lr_scheduler as lr_scheduler
import torch.utils.data
import torch.cuda
import torch.backends.cudnn as cudnn
from torch import Tensor, nn as nn_again, tensor
from torch.nn import functional as F_again, Linear, Module
from torch.nn.functional import softmax
from torch.nn.init import xavier_uniform_
from torch.nn.parameter import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset
from torch.utils import data
"""


def test_every_form_of_import_reaches_the_same_objects(script):
    assert run_script(script(IMPORTS + """
        import minitorch_attn as mt
        assert torch is mt and nn is mt.nn is nn_again is torch.nn
        assert F is F_again is mt.nn.functional is torch.nn.functional
        assert init is mt.nn.init and optim is mt.optim and lr_scheduler is mt.optim.lr_scheduler
        assert Tensor is mt.Tensor and tensor is mt.tensor and Linear is nn.Linear and Module is nn.Module
        assert softmax is F.softmax and xavier_uniform_ is init.xavier_uniform_ and Parameter is nn.Parameter
        assert clip_grad_norm_ is nn.utils.clip_grad_norm_
        assert AdamW is optim.AdamW and LambdaLR is lr_scheduler.LambdaLR
        assert data is mt.data is torch.utils.data and DataLoader is data.DataLoader and Dataset is data.Dataset
        assert cudnn is torch.backends.cudnn is mt.backends.cudnn and torch.cuda is mt.cuda
    """.replace("\n        ", "\n"))) == 0


def test_device_questions_have_harmless_answers(script):
    assert run_script(script("""
        import torch
        assert torch.cuda.is_available() is False and torch.cuda.device_count() == 0
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        assert str(device) == "cpu" and torch.zeros(2, device=device).to(device).shape == (2,)
        torch.cuda.manual_seed_all(3)
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        torch.backends.cuda.matmul.allow_tf32 = True
        assert not torch.backends.mps.is_available()
    """)) == 0


def test_script_sees_itself_as_python_would_show_it(script, tmp_path, capsys):
    (tmp_path / "beside.py").write_text("value = 7\n")
    path = script("""
        import sys
        import beside
        print(__name__, __file__, sys.argv, sys.path[0], beside.value)
        print(sys.modules["__main__"].__file__)
    """)
    before = sys.argv, list(sys.path), sys.modules["__main__"]
    assert run_script(path, ["--steps", "3"]) == 0
    assert capsys.readouterr().out.splitlines() == [f"__main__ {path} {[path, '--steps', '3']} {tmp_path} 7", path]
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before
    del sys.modules["beside"]


def test_a_script_trains(script):
    got = run(script("""
        import torch
        from torch import nn
        torch.manual_seed(0)
        x = torch.randn(64, 3)
        y = x @ torch.tensor([[1.0], [-2.0], [0.5]])
        model = nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
        for _ in range(200):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(f"{loss.item():.3f}", type(loss).__module__)
    """))
    assert got.returncode == 0 and got.stdout == "0.000 minitorch_attn.autograd\n", got.stderr


@pytest.mark.parametrize("line, named", [
    ("import torch.fx", "torch.fx"), ("import torch.distributed as d; d.new_group", "torch.distributed.new_group"),
    ("from torch import hub", "hub"), ("from torch.nn import LPPool2d", "LPPool2d"),
    ("from torch.nn.init import sparse_", "sparse_"),
    ("from torch.amp import autocast", "torch.amp"), ("import torch; torch.fft", "torch.fft"),
    ("import torch.nn as nn; nn.LPPool2d", "torch.nn.LPPool2d"),
    ("import torch; torch.cuda.Stream()", "torch.cuda.Stream"),
    ("import torch.nn.functional as F; F.grid_sample", "torch.nn.functional.grid_sample"),
    ("import torch; torch.optim.Rprop", "torch.optim.Rprop"),
    ("import torch; torch.nn.utils.prune", "torch.nn.utils.prune"),
    ("import torch; torch.ones(2).sparse_mask(1)", "sparse_mask"), ("import torch.generate", "torch.generate")])
def test_a_name_outside_the_cover_is_named_with_the_place_to_look(script, capsys, line, named):
    assert run_script(script(line)) == 1
    last = capsys.readouterr().err.rstrip().splitlines()[-1]
    assert named in last and "docs/parity.md" in last and "minitorch_attn does not cover" in last


def test_a_script_can_ask_whether_a_module_is_there(script):
    assert run_script(script("""
        import torch
        try:
            import torch.compiler
        except ImportError:
            pass
        else:
            raise SystemExit(3)
        assert not hasattr(torch, "compile_nothing") and getattr(torch, "nowhere", 5) == 5
    """)) == 0


def test_traceback_shows_the_script_and_nothing_of_the_runner(script):
    path = script("""
        import torch
        def inner(x):
            return x.backward()   # the wrong line
        inner(torch.ones(3))
    """)
    got = run(path)
    assert got.returncode == 1
    lines = got.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and lines[1] == f'  File "{path}", line 5, in <module>'
    assert "    return x.backward()   # the wrong line" in lines and "run.py" not in got.stderr
    assert lines[-1].startswith("RuntimeError: backward() needs a tensor that requires grad")


def test_syntax_error_is_shown_as_python_shows_it(script):
    got = run(script("x = = 3\n"))
    assert got.returncode == 1 and "SyntaxError" in got.stderr and "x = = 3" in got.stderr
    assert "run.py" not in got.stderr


@pytest.mark.parametrize("line, status, error", [
    ("raise SystemExit(7)", 7, ""), ("import sys; sys.exit()", 0, ""),
    ("import sys; sys.exit('stopped here')", 1, "stopped here\n"),
    ("import torch", 0, "")])
def test_exit_status_is_the_scripts(script, line, status, error):
    got = run(script(line))
    assert (got.returncode, got.stderr) == (status, error)


def test_arguments_reach_the_script_as_they_are(script):
    path = script("import sys; print(sys.argv[1:])")
    assert run(path, "--help", "-x", "--out=3", "two words", "--seed", "1").stdout == \
        "['--help', '-x', '--out=3', 'two words', '--seed', '1']\n"


@pytest.mark.parametrize("name", ["nowhere.py", ""])
def test_a_script_that_cannot_be_read_is_one_sentence_and_status_2(tmp_path, name):
    got = run(str(tmp_path / name))
    assert got.returncode == 2 and got.stdout == ""
    assert got.stderr.count("\n") == 1 and got.stderr.startswith("minitorch-attn run: cannot read the script")


def test_afterwards_torch_is_what_it_was(script):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    got = subprocess.run([sys.executable, "-c", textwrap.dedent("""
        import sys, torch
        before = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "torch"}
        finders = list(sys.meta_path)
        from minitorch_attn.run import run_script
        assert run_script(sys.argv[1]) == 1
        after = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "torch"}
        assert before == after and sys.meta_path == finders
        import torch.fx
        assert torch.__version__.startswith("2") and torch.ones(2).sum().item() == 2
    """), script("import torch, torch.nn, minitorch_attn\nassert torch is minitorch_attn\nraise ValueError")],
        capture_output=True, text=True)
    assert got.returncode == 0, got.stderr


def test_an_installed_torch_is_not_imported(script):
    got = run(script("""
        import sys, torch
        torch.ones(2)
        print([name for name in sys.modules if name.startswith("torch._C")])
    """))
    assert got.stdout == "[]\n", got.stderr


def test_standing_in_ends_after_an_exception_too():
    before = {n for n in sys.modules if n.split(".")[0] == "torch"}
    with pytest.raises(ZeroDivisionError), standing_in():
        import torch
        assert torch is mt
        1 / 0  # noqa: B018
    assert {n for n in sys.modules if n.split(".")[0] == "torch"} == before
