import re

import numpy as np
import pytest

import minitorch_attn as mt
import minitorch_attn.distributed as dist
from minitorch_attn import nn
from tests.distributed.mpi import PROGRAMS, finished, needs_mpi, ranks
from tests.distributed.programs.training import OPTIMIZERS, train

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


@pytest.fixture(scope="module", params=[2, 4])
def trained(request, tmp_path_factory):
    """What every rank found, of 2 and of 4: losses and final weights, by optimizer and dtype."""
    folder, n = tmp_path_factory.mktemp("trained"), request.param
    status, _, err = finished(ranks(n, PROGRAMS / "training.py", folder), timeout=120)
    assert status == 0, err
    return [np.load(folder / f"{rank}_of_{n}.npz") for rank in range(n)]


@needs_mpi
@pytest.mark.parametrize("dtype", [mt.float64, mt.float32], ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_same_losses_as_one_process_with_the_whole_batch(trained, optimizer, dtype):
    losses, weights = train(optimizer, dtype)  # here, in one process
    assert len(losses) == 6 and losses[3] != losses[0]
    for found in trained:
        got = found[f"{optimizer} {dtype} losses"]
        np.testing.assert_allclose(got, losses, rtol=0, atol=TOLERANCE[str(dtype)])
        np.testing.assert_allclose(found[f"{optimizer} {dtype} weights"], weights, rtol=0,
                                   atol=10 * TOLERANCE[str(dtype)])


@needs_mpi
def test_parameters_are_equal_to_the_bit_on_all_ranks(trained):
    for found in trained[1:]:
        for name in found:
            assert np.array_equal(found[name], trained[0][name]), name


@needs_mpi
@pytest.mark.parametrize("n", [2, 4])
def test_claims_hold_on_every_rank(n, tmp_path):
    names = re.findall(r"^def (claim_\w+)", (PROGRAMS / "claims.py").read_text(encoding="utf-8"), flags=re.M)
    status, out, err = finished(ranks(n, PROGRAMS / "claims.py", tmp_path))
    assert status == 0 and out.split() == names and len(names) > 10, err


def test_one_process_alone_is_the_model_itself():
    model = nn.Linear(3, 2)
    parallel = dist.DistributedDataParallel(model)
    x = mt.ones(5, 3)
    parallel(x).square().mean().backward()
    g, model.weight.grad = model.weight.grad, None
    model(x).square().mean().backward()
    assert np.array_equal(g.numpy(), model.weight.grad.numpy())
    dist.average_gradients(model.parameters(), count=7)
    assert np.array_equal(g.numpy(), model.weight.grad.numpy())
    assert list(parallel.state_dict()) == ["module.weight", "module.bias"]
    with parallel.no_sync():
        parallel(x)
    with pytest.raises(ValueError, match="count must not be negative, got -1"):
        dist.average_gradients(model.parameters(), count=-1)
