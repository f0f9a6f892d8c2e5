import pytest

import minitorch_attn as mt
import minitorch_attn.distributed as dist


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("size, ranks", [(12, 3), (13, 3), (14, 3), (2, 5), (1, 4), (7, 1)])
def test_shares_are_those_of_pytorch(size, ranks, shuffle, drop_last):
    theirs = pytest.importorskip("torch.utils.data.distributed", reason="PyTorch is not installed")
    for rank in range(ranks):
        options = dict(num_replicas=ranks, rank=rank, shuffle=shuffle, seed=5, drop_last=drop_last)
        ours = dist.DistributedSampler(range(size), **options)
        wanted = theirs.DistributedSampler(range(size), **options)
        for epoch in (0, 2):
            ours.set_epoch(epoch)
            wanted.set_epoch(epoch)
            assert list(ours) == list(wanted) and len(ours) == len(wanted)


def test_shares_are_all_of_it_when_the_ranks_divide_it():
    shares = [list(dist.DistributedSampler(range(12), 3, rank)) for rank in range(3)]
    assert sorted(i for share in shares for i in share) == list(range(12))
    assert shares[0] != sorted(shares[0])


def test_a_loader_takes_it():
    data = mt.data.TensorDataset(mt.arange(12))
    loader = mt.data.DataLoader(data, batch_size=2, sampler=dist.DistributedSampler(data, 3, 1, shuffle=False))
    assert [batch[0].tolist() for batch in loader] == [[1, 4], [7, 10]]


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_not_there_is_named(rank):
    with pytest.raises(ValueError, match=rf"rank must lie in \[0, 3\), got {rank}"):
        dist.DistributedSampler(range(5), 3, rank)


def test_one_process_alone_has_the_whole_batch():
    x = mt.arange(5)
    assert dist.shard(x).tolist() == x.tolist()
    assert list(dist.DistributedSampler(range(5), shuffle=False)) == list(range(5))
