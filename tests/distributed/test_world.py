import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import minitorch_attn as mt
import minitorch_attn.distributed as dist
from minitorch_attn import checkpoint, nn, optim
from tests.distributed.mpi import PROGRAMS, finished, needs_mpi, ranks


def python(code, **variables):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env={**os.environ, **variables})


def test_without_mpi_there_is_one_process():
    assert (dist.get_rank(), dist.get_world_size(), dist.is_initialized()) == (0, 1, False)
    x = mt.arange(3)
    dist.all_reduce(x)
    dist.broadcast(x)
    dist.barrier()
    assert x.tolist() == [0, 1, 2] and dist.average(2.5, count=3) == 2.5
    a, b = dist.seed_rank(4), mt.Generator().manual_seed(4)
    assert a.initial_seed() == b.initial_seed() == 4
    code = "import sys, minitorch_attn.distributed as d; d.get_rank(); sys.exit('mpi4py' in sys.modules)"
    assert python(code).returncode == 0


def test_no_two_ranks_of_any_two_seeds_draw_alike(monkeypatch):
    seeds = []
    for rank in range(5):
        monkeypatch.setattr(dist.world, "get_rank", lambda rank=rank: rank)
        seeds += [dist.seed_rank(seed).initial_seed() for seed in range(5)]
    assert len(set(seeds)) == 25 and seeds[:5] == list(range(5))


@pytest.mark.parametrize("op", ["sum", "PRODUCT", None])
def test_an_unknown_op_is_refused(op):
    with pytest.raises(ValueError, match=r"one of ReduceOp\.SUM, .*ReduceOp\.PRODUCT, .*got "):
        dist.all_reduce(mt.ones(2), op)


def test_a_missing_mpi4py_is_an_error_that_names_the_extra():
    code = "import sys; sys.modules['mpi4py'] = None; import minitorch_attn.distributed as d\n"
    got = python(code + "assert not d.is_available(); d.init_process_group()")
    assert "ImportError" in got.stderr and "pip install 'minitorch_attn[mpi]'" in got.stderr.splitlines()[-1]


@needs_mpi
def test_a_program_started_without_mpiexec_is_a_world_of_one():
    got = python("import minitorch_attn.distributed as d; d.init_process_group('nccl', world_size=1, rank=0)\n"
                 "print(d.get_rank(), d.get_world_size(), d.is_initialized(), d.is_available())\n"
                 "try: d.init_process_group()\n"
                 "except RuntimeError as error: print(error)")
    assert got.stdout.splitlines()[0] == "0 1 True True" and "called before" in got.stdout, got.stderr


@needs_mpi
def test_the_mpiexec_of_another_mpi_is_noticed():
    got = python("import minitorch_attn.distributed as d; d.init_process_group()", OMPI_COMM_WORLD_SIZE="2")
    assert "2 processes were started, but the MPI library of mpi4py sees one alone" in got.stderr
    got = python("import minitorch_attn.distributed as d; d.init_process_group()", OMPI_COMM_WORLD_SIZE="")
    assert got.returncode == 0, got.stderr


@needs_mpi
def test_a_world_of_another_size_than_asked_for_is_refused():
    got = python("import minitorch_attn.distributed as d; d.init_process_group(world_size=2)")
    assert "ValueError: this is rank 0 of 1, not -1 of 2" in got.stderr


@needs_mpi
@pytest.mark.parametrize("who", [0, 1])
def test_an_exception_in_one_rank_ends_all_with_its_message(who, tmp_path):
    status, _, err = finished(ranks(2, PROGRAMS / "ends.py", tmp_path, "raise", who))
    assert status != 0 and f"rank {who} of 2 failed, and all ranks end with it:\nTraceback" in err
    assert "ValueError: the data of this rank is broken" in err and err.count("Traceback") == 1


@needs_mpi
def test_a_rank_that_leaves_ends_the_others_when_patience_does(tmp_path):
    status, _, err = finished(ranks(3, PROGRAMS / "ends.py", tmp_path, "exit", 2))
    assert status != 0 and "rank 2 ended without destroy_process_group(), and 1 seconds later others still run" in err


@needs_mpi
def test_another_model_on_one_rank_is_named(tmp_path):
    status, _, err = finished(ranks(2, PROGRAMS / "ends.py", tmp_path, "different model", 1))
    assert status != 0 and "weight is float32(7, 5), trained on rank 1 and float32(3, 5), trained on rank 0" in err


@needs_mpi
@pytest.mark.parametrize("who", [0, 1])
def test_killing_a_rank_ends_the_others_and_the_last_checkpoint_loads(who, tmp_path):
    process = ranks(2, PROGRAMS / "ends.py", tmp_path, "killed", who)
    started = time.monotonic()
    while not (tmp_path / "state.npz").exists() and time.monotonic() - started < 60:
        time.sleep(0.05)
    pids = [int((tmp_path / f"pid_{rank}").read_text()) for rank in range(2)]
    time.sleep(0.2)
    os.kill(pids[who], signal.SIGKILL)
    killed = time.monotonic()
    status, out, err = finished(process, timeout=30)
    assert time.monotonic() - killed < 10
    assert status != 0 and f"PID {pids[who]}" in out + err and "Killed (signal 9)" in out + err  # mpiexec's words
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    model = nn.Linear(5, 3)
    optimizer = optim.AdamW(model.parameters())
    step = checkpoint.load(tmp_path / "state.npz", model, optimizer=optimizer)["step"]
    assert step >= 1 and {state["step"] for state in optimizer.state.values()} == {step}
    model(mt.ones(2, 5)).square().mean().backward()
    before = model.weight.detach().numpy().copy()
    optimizer.step()
    assert np.isfinite(model.weight.detach().numpy()).all() and (model.weight.detach().numpy() != before).any()


@needs_mpi
def test_after_the_common_work_a_rank_may_take_its_time(tmp_path):
    assert finished(ranks(2, PROGRAMS / "patience.py"))[:2] == (0, "done\n")
    status, out, err = finished(ranks(2, PROGRAMS / "patience.py", "raise"))
    assert status != 0 and out == "" and "rank 0 of 2 failed" in err and "ValueError: a mistake at the end" in err
