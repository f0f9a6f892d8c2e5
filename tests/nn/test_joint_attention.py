"""Joint attention: shared weights are one sequence, own ones are not; one-way reading; shares; equivariance."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import functional as F
from tests.harness import assert_gradients, draw, leaf


def made(dims, heads, **options):
    mt.manual_seed(0)
    return nn.JointAttention(dims, heads, **options).double()


def test_shared_projections_are_attention_over_one_sequence():
    layer, x = made((16, 16), 4, shared=True), [mt.tensor(draw(2, 5, 16)), mt.tensor(draw(2, 3, 16, seed=1))]
    whole = nn.MultiheadAttention(16, 4, batch_first=True).double()
    whole.load_state_dict({"in_proj_weight": layer.qkv[0].weight, "in_proj_bias": layer.qkv[0].bias,
                           "out_proj.weight": layer.out[0].weight, "out_proj.bias": layer.out[0].bias})
    both = mt.cat(x, 1)
    wanted, weights = whole(both, both, both, average_attn_weights=False)
    ys, shares = layer(x, need_shares=True)
    np.testing.assert_allclose(mt.cat(list(ys), 1).detach().numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-12)
    p = weights.detach().numpy()
    np.testing.assert_allclose(shares.detach().numpy()[:, :, 0, 1], p[:, :, :5, 5:].sum(-1).mean(-1), rtol=1e-10)
    np.testing.assert_allclose(shares.detach().numpy().sum(-1), 1, rtol=1e-10)


@pytest.mark.parametrize("options", [{}, {"qk_norm": True}, {"shared": True}, {"head_dim": 3}])
def test_stream_by_stream(options):
    """Each query against all keys, one stream at a time."""
    dims = (8, 8) if options.get("shared") else (8, 6)
    layer, x = made(dims, 2, **options), [mt.tensor(draw(2, n, d, seed=d)) for n, d in zip((5, 3), dims)]
    mask = F.block_causal_mask([5, 3])
    q, k, v = zip(*[layer._project(i, x[i]) for i in range(2)])
    for i, y in enumerate(layer(x, mask)):
        scores = [q[i] @ k[j].transpose(-1, -2) / layer.head_dim ** 0.5 for j in range(i + 1)]
        p = mt.cat(scores, -1).softmax(-1)
        read = (p @ mt.cat(list(v[:i + 1]), -2)).transpose(1, 2).flatten(2)
        wanted = layer.out[0 if layer.shared else i](read)
        np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", [{}, {"qk_norm": True}])
def test_gradients(options):
    layer = made((4, 6), 2, **options)
    assert_gradients(lambda a, b: layer((a, b), F.block_causal_mask([3, 2])), draw(1, 3, 4), draw(1, 2, 6, seed=1))


def test_one_stream_reads_and_is_not_read():
    """What is observed is read the same whatever the actions; what actions read changes with it."""
    layer = made((8, 6, 4), 2)
    x = [draw(1, n, d, seed=d) for n, d in zip((5, 1, 3), (8, 6, 4))]
    mask = F.block_causal_mask([5, 1, 3])

    def results(changed):
        y = [a + (i == changed) for i, a in enumerate(x)]
        return [a.detach().numpy() for a in layer([mt.tensor(a) for a in y], mask)]

    before = results(None)
    for changed in range(3):
        same = [np.array_equal(a, b) for a, b in zip(before, results(changed))]
        assert same == [i < changed for i in range(3)]


def test_what_is_observed_gets_no_gradient_from_the_actions():
    layer = made((8, 6), 2)
    observed, actions = leaf(draw(1, 5, 8)), leaf(draw(1, 3, 6))
    layer((observed, actions), F.block_causal_mask([5, 3]))[0].backward(mt.tensor(draw(1, 5, 8, seed=1)))
    assert observed.grad.numpy().all()
    assert actions.grad is None or not actions.grad.numpy().any()


@pytest.mark.parametrize("few", [4, 16, 64])
def test_untrained_the_share_is_that_of_the_number(few):
    """16 actions, 196 tokens of vision and few of touch, drawn alike: touch gets few / all, whatever the weights."""
    shares = []
    for seed in range(8):
        mt.manual_seed(seed)
        layer = nn.JointAttention((32, 32, 32), 4, shared=True)
        _, share = layer([mt.randn(1, n, 32) for n in (196, few, 16)], need_shares=True)
        shares.append(share.detach().numpy()[0, :, 2, 1].mean())
    assert np.mean(shares) == pytest.approx(few / (212 + few), rel=0.1)


def test_cross_attention_is_joint_attention_with_one_block_of_the_mask():
    q, k, v = (draw(2, 8, 7, seed=i) for i in range(3))
    mask = F.block_mask([5, 3], [[False, False], [True, False]])
    got = F.joint_attention(*([mt.tensor(x[:, :5]), mt.tensor(x[:, 5:])] for x in (q, k, v)), mask)
    wanted = F.scaled_dot_product_attention(*map(mt.tensor, (q[:, 5:], k[:, :5], v[:, :5])))
    assert not got[0].numpy().any()
    np.testing.assert_allclose(got[1].numpy(), wanted.numpy(), rtol=1e-12)


def test_order_within_a_stream_does_not_matter_without_positions():
    layer, x = made((8, 6), 2), [draw(1, 5, 8), draw(1, 3, 6)]
    before = layer([mt.tensor(a) for a in x])[0].detach().numpy()
    order = np.array([3, 0, 4, 2, 1])
    after = layer([mt.tensor(x[0][:, order]), mt.tensor(x[1][:, ::-1].copy())])[0].detach().numpy()
    np.testing.assert_allclose(after, before[:, order], rtol=1e-10)


def test_block():
    mt.manual_seed(0)
    block = nn.JointBlock((8, 6), 2, qk_norm=True).double()
    x = [mt.tensor(draw(2, n, d)) for n, d in zip((5, 3), (8, 6))]
    ys = block(x, F.block_causal_mask([5, 3]))
    assert [y.shape for y in ys] == [(2, 5, 8), (2, 3, 6)]
    h = [x[i] + y for i, y in enumerate(block.attention([n(a) for n, a in zip(block.norm1, x)],
                                                        F.block_causal_mask([5, 3])))]
    wanted = [h[i] + block.feed_forward[i](block.norm2[i](h[i])) for i in range(2)]
    for y, w in zip(ys, wanted):
        np.testing.assert_allclose(y.detach().numpy(), w.detach().numpy(), rtol=1e-12)


def test_mistakes():
    with pytest.raises(ValueError, match="cannot share"):
        nn.JointAttention((8, 6), 2, shared=True)
    with pytest.raises(ValueError, match="must divide"):
        nn.JointAttention((8, 6), 3)
    with pytest.raises(ValueError, match="2 streams"):
        nn.JointAttention((8, 6), 2)([mt.zeros(1, 5, 8)])


@pytest.mark.parametrize("dims, heads", [([8], 0), ([8, 0], 2), ([], 2), ([8], -2)])
def test_sizes_that_make_no_heads(dims, heads):
    with pytest.raises(ValueError, match="at least 1"):
        nn.JointAttention(dims, heads)
