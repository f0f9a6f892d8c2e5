import pathlib
import re
import subprocess
import sys

from tests.distributed.mpi import finished, needs_mpi, ranks

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(12, 3), torch.randn(12, 1))
loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))
model = DDP(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
weight = model.module.weight.detach()
total = weight.clone()
dist.all_reduce(total)
assert (total == dist.get_world_size() * weight).all()
if sys.argv[1:] == ["fail"] and dist.get_rank() == 1:
    raise ValueError("on purpose")
dist.barrier()
print("trained", weight.shape)
dist.destroy_process_group()
"""


@needs_mpi
def test_demo_in_two_processes_prints_once_what_one_prints(tmp_path):
    command = "-m", "minitorch_attn", "demo", "--steps", "5", "--out", tmp_path
    status, out, err = finished(ranks(2, *command, "--data-parallel"))
    assert status == 0 and err.count("training: 100%") == 1, err
    alone = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True).stdout
    words = re.compile(r"[^\W\d]+")
    assert words.findall(out) == words.findall(alone)
    losses = [re.search(r"final loss [\d.]+", text)[0] for text in (out, alone)]
    assert losses[0] == losses[1]


def test_demo_without_mpi4py_is_one_sentence_and_status_2():
    code = ("import sys; sys.modules['mpi4py'] = None; from minitorch_attn.__main__ import main; "
            "sys.exit(main(['demo', '--data-parallel']))")
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.returncode == 2 and got.stdout == "" and got.stderr.count("\n") == 1
    assert got.stderr.startswith("minitorch-attn demo: ") and "minitorch_attn[mpi]" in got.stderr


@needs_mpi
def test_a_pytorch_script_runs_as_it_is(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = "-m", "minitorch_attn", "run", tmp_path / "script.py"
    status, out, err = finished(ranks(2, *command))
    assert status == 0 and out.count("trained") == 2, err
    status, _, err = finished(ranks(2, *command, "fail"))
    assert status != 0 and "rank 1 of 2 failed" in err and "ValueError: on purpose" in err and "run.py" not in err


@needs_mpi
def test_the_training_in_the_docs_runs(tmp_path):
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
    code, = re.findall(r"```python\n(.*?)```", page, flags=re.S)
    (tmp_path / "program.py").write_text(code)
    status, out, err = finished(ranks(2, tmp_path / "program.py", cwd=tmp_path))
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss of the last batch ([\d.]+)$", out, flags=re.M)]
    assert status == 0 and len(losses) == 3 and (tmp_path / "state.npz").exists(), err
