"""What holds on every rank, claim by claim; rank 0 prints the names of those that held, and a false one ends all."""
import contextlib
import pathlib
import sys

import numpy as np

import minitorch_attn as mt
import minitorch_attn.distributed as dist
from minitorch_attn import checkpoint, nn, optim

RANK = SIZE = None


def everywhere(value):
    """`value` of each rank, in a list."""
    return dist.world.communicator.allgather(value)


def linear(seed=1):
    mt.manual_seed(seed)
    return nn.Linear(3, 2)


def claim_messages():
    x = mt.tensor([1.0, 2.0]) * (RANK + 1)
    total = SIZE * (SIZE + 1) / 2
    for op, wanted in [("SUM", [total, 2 * total]), ("AVG", [total / SIZE, 2 * total / SIZE]), ("MIN", [1, 2]),
                       ("MAX", [SIZE, 2 * SIZE]), ("PRODUCT", [np.prod(np.arange(1, SIZE + 1) * k) for k in (1, 2)])]:
        y = x.clone()
        dist.all_reduce(y, getattr(dist.ReduceOp, op))
        assert y.tolist() == wanted, (op, y)
    column = mt.zeros(3, 2)
    column[:, 1] = RANK + 1
    dist.all_reduce(column[:, 1])  # a view that is not contiguous
    assert column.tolist() == [[0, total]] * 3
    for dtype in (mt.float16, mt.float32, mt.float64, mt.int64, mt.bool):
        y = mt.tensor([[RANK, 0, 1]]).to(dtype)
        dist.broadcast(y, src=SIZE - 1)
        assert y.dtype == dtype and y.tolist() == mt.tensor([[SIZE - 1, 0, 1]]).to(dtype).tolist()
    half = mt.tensor([RANK + 0.5]).half()
    dist.all_reduce(half)
    assert half.dtype == mt.float16 and half.item() == sum(r + 0.5 for r in range(SIZE))


def claim_average():
    counts = [r for r in range(SIZE)]
    wanted = sum(r * 10.0 * r for r in counts) / sum(counts)
    assert dist.average(10.0 * RANK if RANK else float("nan"), count=RANK) == wanted  # rank 0 counts for nothing
    got = dist.average(mt.tensor([[10.0 * RANK, 1.0]]), count=RANK)
    assert got.dtype == mt.float32 and got.shape == (1, 2) and np.allclose(got.numpy(), [[wanted, 1.0]])
    for call in (dist.average, lambda x, count: dist.average_gradients([linear().weight.requires_grad_()], count)):
        with fails(ValueError, "on all of them"):
            call(1.0, count=0)
        with fails(ValueError, "negative"):
            call(1.0, count=-1)


def claim_one_message_a_dtype():
    model = nn.Sequential(linear(), linear().double(), linear(), linear().half())
    for x in model.parameters():
        x.grad = mt.ones_like(x) * (RANK + 1)
    sent, world = [], dist.world.communicator

    class Counting:
        def __getattr__(self, name):
            return getattr(world, name)

        def Allreduce(self, *arguments, **options):
            sent.append(arguments[1].dtype)
            return world.Allreduce(*arguments, **options)

    dist.world.communicator = Counting()
    try:
        dist.average_gradients(model.parameters())
    finally:
        dist.world.communicator = world
    assert sorted(map(str, sent)) == ["float32", "float32", "float64"]  # float16 travels as float32
    for x in model.parameters():
        assert x.grad.dtype == x.dtype and (x.grad == (SIZE + 1) / 2).all()
    dist.average_gradients(model.parameters(), count=100_000)  # more than a float16 can hold
    for x in model.parameters():
        assert x.grad.dtype == x.dtype and np.allclose(x.grad.numpy(), (SIZE + 1) / 2)


def claim_gradients_that_some_or_none_have():
    # as many targets everywhere, and the others lack the gradient; or targets on rank 0 only, and the others have NaN
    for count, others, wanted in [(1, None, 8.0 / SIZE), (0 if RANK else 4, float("nan"), 8.0)]:
        model, value = linear(), others if RANK else 8.0
        model.weight.grad = None if value is None else mt.full((2, 3), value)
        model.bias.grad = mt.ones(2) if count == 0 else None  # counts for nothing, and no one else has it
        dist.average_gradients(model.parameters(), count)
        assert (model.weight.grad == wanted).all() and model.bias.grad is None
    model = linear()
    model.weight.requires_grad_(False)
    model.weight.grad, model.bias.grad = mt.full((2, 3), float(RANK)), mt.full((2,), float(RANK))
    dist.average_gradients(model.parameters())
    assert (model.weight.grad == RANK).all() and (model.bias.grad == (SIZE - 1) / 2).all()


def claim_backward_averages():
    x = mt.randn(5, 3, generator=mt.Generator().manual_seed(RANK))
    alone = linear()
    alone(x).square().mean().backward()
    mean = dist.average(alone.weight.grad)
    model = dist.DistributedDataParallel(linear())
    for _ in range(2):  # the second time the parameters have been used before
        model.zero_grad()
        model(x).square().mean().backward()
        assert np.allclose(model.module.weight.grad.numpy(), mean.numpy(), rtol=1e-6)
    # two passes before one backward, and two walks back over one graph
    model.zero_grad()
    loss = model(x).square().mean() + 2 * model(x).square().mean()
    loss.backward(retain_graph=True)
    assert np.allclose(model.module.weight.grad.numpy(), 3 * mean.numpy(), rtol=1e-5)
    loss.backward()
    assert np.allclose(model.module.weight.grad.numpy(), 6 * mean.numpy(), rtol=1e-5)


def claim_backward_averages_what_was_used_before_the_forward_pass():
    """A parameter gets its node when it is first used, here by a pass of which the wrapper knows nothing."""
    x = mt.randn(2, 5, 3, generator=mt.Generator().manual_seed(RANK))
    alone = linear()
    (alone(x[0]).square().mean() + alone(x[1]).square().mean()).backward()
    mean = dist.average(alone.weight.grad).numpy()
    assert not np.allclose(alone.weight.grad.numpy(), mean)
    model = dist.DistributedDataParallel(linear())
    with model.no_sync():
        first = model(x[0])
    for before in (first, model.module(x[0])):
        model.zero_grad()
        (before.square().mean() + model(x[1]).square().mean()).backward()
        assert np.allclose(model.module.weight.grad.numpy(), mean, rtol=1e-5)


def claim_two_models_in_one_backward():
    x = mt.randn(5, 3, generator=mt.Generator().manual_seed(RANK))
    models = [dist.DistributedDataParallel(nn.Linear(3, n)) for n in (2, 5)]
    for turn in range(5):  # whatever ids their nodes have
        ends = models if turn % 2 else models[::-1]
        sum([model(x).square().mean() for model in ends]).backward()
    for model in models:
        g = model.module.weight.grad.tolist()
        assert all(other == g for other in everywhere(g))


def claim_a_backward_that_needs_the_old_gradient_notices():
    model = linear()
    w = mt.ones(2, 3, requires_grad=True)
    model.weight.grad, model.bias.grad = mt.full((2, 3), float(RANK)), mt.zeros(2)
    y = (w * model.weight.grad).sum()
    dist.average_gradients(model.parameters())
    with fails(RuntimeError, "modified in place"):
        y.backward()


def claim_ranks_that_do_not_fit_together_are_told():
    odd = RANK == SIZE - 1
    mixed = mt.ones(3, dtype=mt.float64 if odd else mt.float32)
    longer = mt.ones(4 if odd else 3)
    model = linear()
    for x in model.parameters():
        x.grad = mt.ones_like(x)
    model.bias.requires_grad_(not odd)
    for call, words in [
            (lambda: dist.all_reduce(mixed), "rank 0: all_reduce SUM of float32(3,)"),
            (lambda: dist.all_reduce(longer), f"rank {SIZE - 1}: all_reduce SUM of float32(4,)"),
            (lambda: dist.all_reduce(mt.ones(2), "MAX" if odd else "MIN"), "all_reduce MAX of float32(2,)"),
            (lambda: dist.broadcast(mixed), f"rank {SIZE - 1}: broadcast from rank 0 of float64(3,)"),
            (lambda: dist.broadcast(longer, src=SIZE - 1), "float32(4,)"),
            (lambda: dist.average(longer), "average of shape (4,)"),
            (lambda: dist.average(1.0) if odd else dist.all_reduce(longer), "average of shape ()"),
            (lambda: dist.average_gradients(model.parameters()), "1 float32 parameters with 6 entries")]:
        with fails(RuntimeError, words):
            call()
    assert (model.weight.grad == 1).all() and (longer == 1).all()


def claim_no_sync_gathers():
    x = mt.randn(2, 5, 3, generator=mt.Generator().manual_seed(RANK))
    alone = linear()
    alone(x[0]).square().mean().backward()
    own = alone.weight.grad.clone()
    alone(x[1]).square().mean().backward()
    model = dist.DistributedDataParallel(linear())
    with model.no_sync():
        model(x[0]).square().mean().backward()
    assert (model.module.weight.grad == own).all() and len({str(g) for g in everywhere(own.tolist())}) == SIZE
    model(x[1]).square().mean().backward()
    assert np.allclose(model.module.weight.grad.numpy(), dist.average(alone.weight.grad).numpy(), rtol=1e-5)


class Branches(nn.Module):
    """Returns a dict of what a training may return; one layer is never used, one on rank 0 only."""

    def __init__(self):
        super().__init__()
        self.common, self.sometimes, self.never = linear(), linear(2), linear(3)

    def forward(self, x):
        y = self.common(x)
        if RANK == 0:
            y = y + self.sometimes(x)
        return {"outputs": (y, [y.argmax(1)]), "note": "text"}


def claim_unused_parameters_and_nested_results():
    model = dist.DistributedDataParallel(Branches())
    results = model(mt.ones(5, 3))
    assert results["note"] == "text" and results["outputs"][1][0].shape == (5,)
    results["outputs"][0].square().mean().backward()
    common, sometimes, never = (layer.weight.grad for layer in model.module.children())
    assert never is None and sometimes is not None
    for g in (common, sometimes):
        assert all(other == g.tolist() for other in everywhere(g.tolist()))
    model.eval()
    with mt.no_grad():
        assert not model(mt.ones(5, 3))["outputs"][0].requires_grad


class NoTensor(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = linear()

    def forward(self, x):
        return {self.layer(x): 1}  # a key is no place for it


def claim_results_without_a_tensor_are_refused():
    model = dist.DistributedDataParallel(NoTensor())
    with fails(RuntimeError, "no Tensor that requires grad"):
        model(mt.ones(1, 3))
    model.eval()(mt.ones(1, 3))


def claim_state_is_that_of_rank_0():
    model = nn.Sequential(linear(seed=RANK), nn.BatchNorm1d(2))
    model[1].running_mean += RANK
    model = dist.DistributedDataParallel(model)
    assert (model.module[0].weight == linear(seed=0).weight).all() and (model.module[1].running_mean == 0).all()
    model(mt.randn(5, 3, generator=mt.Generator().manual_seed(RANK)))
    means = everywhere(model.module[1].running_mean.tolist())
    assert len({str(m) for m in means}) == SIZE
    model(mt.zeros(5, 3))  # brings those of rank 0, then each moves on by the same
    assert len({str(m) for m in everywhere(model.module[1].running_mean.tolist())}) == 1


def claim_seeds():
    mt.manual_seed(11)
    model = nn.Dropout(0.5)
    first = mt.rand(4).tolist()
    assert all(other == first for other in everywhere(first))
    dist.seed_rank(11)
    masks = everywhere(model(mt.ones(64)).tolist())
    assert len({str(m) for m in masks}) == SIZE
    if RANK == 0:
        mt.manual_seed(11)
        assert model(mt.ones(64)).tolist() == masks[0]


def claim_parts_make_up_the_batch():
    for n in (0, 1, SIZE, 2 * SIZE + 1):
        x = mt.arange(2 * n).reshape(n, 2)
        part = dist.shard({"x": [x, (x[:, 0], "name")]})["x"]
        assert part[1][1] == "name" and part[0][:, 0].tolist() == part[1][0].tolist()
        rows = [row for rows in everywhere(part[0].tolist()) for row in rows]
        assert sorted(rows) == x.tolist()
    sampler = dist.DistributedSampler(range(3 * SIZE), seed=2)
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        assert sorted(i for share in everywhere(list(sampler)) for i in share) == list(range(3 * SIZE))


def claim_checkpoints():
    path = pathlib.Path(sys.argv[1]) / f"state_{SIZE}.npz"
    model = dist.DistributedDataParallel(linear(seed=2))
    optimizer = optim.AdamW(model.parameters())
    dist.seed_rank(3)
    dist.save(path, model, optimizer=optimizer, step=4)
    assert path.exists() and not list(path.parent.glob("*.tmp"))
    after = mt.rand(3).tolist()
    with mt.no_grad():
        model.module.weight += 1.0
    found = dist.load(path, model, optimizer=optimizer)
    draws = everywhere(mt.rand(3).tolist())
    assert len({str(d) for d in draws}) == SIZE and draws[0] == everywhere(after)[0]  # rank 0 goes on to the bit
    assert found["step"] == 4 and (model.module.weight == linear(seed=2).weight).all()
    plain = linear(seed=9)
    checkpoint.load(path, plain)
    assert (plain.weight == model.module.weight).all()
    with fails(FileNotFoundError, "no_such_folder"):
        dist.save(path.parent / "no_such_folder" / "state.npz", model)


@contextlib.contextmanager
def fails(kind, words):
    try:
        yield
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"no {kind.__name__}")


if __name__ == "__main__":
    dist.init_process_group()
    RANK, SIZE = dist.get_rank(), dist.get_world_size()
    for name, function in list(globals().items()):
        if name.startswith("claim_"):
            function()
            dist.barrier()
            if RANK == 0:
                print(name, flush=True)
