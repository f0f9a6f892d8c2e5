"""The generator: its words against a plain Mersenne twister, its numbers against PyTorch's, its states and masks."""
import json
import math

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import random
from minitorch_attn.backend import to_host
from minitorch_attn.random import Generator, box_muller


def keep_mask(*args):
    return to_host(random.keep_mask(*args))


SIZES = (0, 1, 2, 7, 15, 16, 17, 31, 32, 100, 1000)
SEEDS = (0, 1, 1337, 2**31, 2**32 - 1, 2**32 + 5, 2**64 - 1, -1)


def plain_twister(seed, count):
    """`count` words of MT19937 by the published recurrence, one at a time."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ state[-1] >> 30) + i) % 2**32)
    for i in range(count):
        upper = state[i] & 0x80000000 | state[i + 1] & 0x7FFFFFFF
        state.append(state[i + 397] ^ upper >> 1 ^ (0x9908B0DF if upper & 1 else 0))
    words = []
    for y in state[624:]:
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        words.append(y ^ y >> 18)
    return words


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.parametrize("seed", [0, 1, 42, 2**32 - 1])
def test_words_are_those_of_the_published_twister(seed):
    assert Generator().manual_seed(seed).words(1500).tolist() == plain_twister(seed, 1500)


def test_numbers_are_made_of_the_words_as_documented():
    words = plain_twister(7, 8)
    assert mt.rand(4, generator=Generator().manual_seed(7)).tolist() == [w % 2**24 / 2**24 for w in words[:4]]
    long = [words[2 * i] << 32 | words[2 * i + 1] for i in range(4)]
    double = mt.rand(4, dtype=mt.float64, generator=Generator().manual_seed(7))
    assert double.tolist() == [w % 2**53 / 2**53 for w in long]
    small = mt.randint(-3, 10, (4,), generator=Generator().manual_seed(7))
    assert small.tolist() == [w % 13 - 3 for w in words[:4]]
    large = mt.randint(0, 2**28, (4,), generator=Generator().manual_seed(7))
    assert large.tolist() == [w % 2**28 for w in long]


def test_seed_zero_gives_these_numbers():
    """Recorded from PyTorch, so that this holds where PyTorch is not installed."""
    mt.manual_seed(0)
    np.testing.assert_array_equal(mt.rand(3).numpy(), np.array([0.49625658988952637, 0.7682217955589294,
                                                                0.08847743272781372], dtype=np.float32))
    assert mt.randperm(5).tolist() == [0, 4, 2, 1, 3]
    mt.manual_seed(0)
    np.testing.assert_array_equal(mt.randn(3).numpy(), np.array([1.5409960746765137, -0.293428897857666,
                                                                 -2.1787893772125244], dtype=np.float32))


@pytest.mark.parametrize("seed", SEEDS)
def test_like_torch_for_every_size_in_one_sequence(torch, seed):
    """All kinds of draws, mixed in one stream: each must take exactly as many words as PyTorch's."""
    mt.manual_seed(seed)
    torch.manual_seed(seed)

    def same(ours, theirs):
        assert str(theirs.dtype) == f"torch.{ours.dtype}"
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())

    for n in SIZES:
        same(mt.rand(n), torch.rand(n))
        same(mt.rand(n, dtype=mt.float64), torch.rand(n, dtype=torch.float64))
        same(mt.randint(0, 10, (n,)), torch.randint(0, 10, (n,)))
        np.testing.assert_allclose(mt.randn(n).numpy(), torch.randn(n).numpy(), rtol=1e-6, atol=1e-6)
        same(mt.randperm(n), torch.randperm(n))
        np.testing.assert_allclose(mt.randn(n, dtype=mt.float64).numpy(), torch.randn(n, dtype=torch.float64).numpy(),
                                   rtol=1e-14, atol=1e-14)
        same(mt.randint(-5, 2**40, (n,)), torch.randint(-5, 2**40, (n,)))
        same(mt.empty(n).exponential_(2.0), torch.empty(n).exponential_(2.0))
        same(mt.bernoulli(mt.full((n,), 0.3)), torch.bernoulli(torch.full((n,), 0.3)))
    same(mt.rand(3), torch.rand(3))


@pytest.mark.parametrize("span", [1, 2, 2**24, 2**28 - 1, 2**28, 2**28 + 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**62,
                                  2**63 - 1])
def test_randint_spans_like_torch(torch, span):
    for low in (0, -1, -span // 2):
        mt.manual_seed(3)
        torch.manual_seed(3)
        high = low + span
        np.testing.assert_array_equal(mt.randint(low, high, (101,)).numpy(), torch.randint(low, high, (101,)).numpy())
    assert mt.rand(1).item() == torch.rand(1).item()


def test_randint_over_all_of_int64():
    draws = Generator().integers((1000,), -2**63, 2**63)
    assert draws.dtype == np.int64 and draws.min() < -2**62 and draws.max() > 2**62


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("low, high", [(-0.3, 0.7), (2, 5), (0, 0.1), (-0.125, 0.125), (-1e3, 1e-3)])
def test_uniform_like_torch(torch, n, low, high):
    for ours, theirs in ((mt.float32, torch.float32), (mt.float64, torch.float64), (mt.float16, torch.float16)):
        mt.manual_seed(11)
        torch.manual_seed(11)
        x = mt.empty(n, dtype=ours).uniform_(low, high).numpy()
        y = torch.empty(n, dtype=theirs).uniform_(low, high).numpy()
        if ours == mt.float64:  # there is no wider type in which to imitate a fused multiply-add
            np.testing.assert_allclose(x, y, rtol=1e-15, atol=1e-15 * max(abs(low), abs(high)))
        else:
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("n", SIZES)
def test_normal_like_torch(torch, n):
    for ours, theirs, tolerance in ((mt.float32, torch.float32, 1e-6), (mt.float64, torch.float64, 1e-14)):
        mt.manual_seed(11)
        torch.manual_seed(11)
        x, y = mt.empty(n, dtype=ours).normal_(0.3, 0.02), torch.empty(n, dtype=theirs).normal_(0.3, 0.02)
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=tolerance, atol=tolerance)
        assert mt.rand(1).item() == torch.rand(1).item()


def test_new_generators_agree_with_torch(torch):
    assert mt.Generator().initial_seed() == torch.Generator().initial_seed()
    ours, theirs = mt.Generator(), torch.Generator()
    np.testing.assert_array_equal(mt.rand(5, generator=ours).numpy(), torch.rand(5, generator=theirs).numpy())
    ours, theirs = mt.Generator().manual_seed(9), torch.Generator().manual_seed(9)
    for x, y in ((mt.randperm(50, generator=ours), torch.randperm(50, generator=theirs)),
                 (mt.randint(7, (50,), generator=ours), torch.randint(7, (50,), generator=theirs))):
        np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_the_second_of_a_pair_waits_for_the_next_call():
    pair = mt.randn(2, generator=Generator().manual_seed(5)).tolist()
    g = Generator().manual_seed(5)
    first = mt.randn(1, generator=g).item()
    mt.randn(16, generator=g)  # a block draws from the words alone and leaves the waiting number
    assert [first, mt.randn(1, generator=g).item()] == pair
    mt.randn(1, generator=g)
    assert g.spare is not None and g.manual_seed(5).spare is None


def test_box_muller_one_pair_at_a_time():
    u = np.random.default_rng(0).random(48)
    expected = []
    for block in u.reshape(3, 16):
        pairs = [(math.sqrt(-2 * math.log(1 - a)), 2 * math.pi * b) for a, b in zip(block[:8], block[8:])]
        expected += [r * math.cos(t) for r, t in pairs] + [r * math.sin(t) for r, t in pairs]
    np.testing.assert_allclose(box_muller(u), expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", [mt.float16, mt.float32, mt.float64])
def test_distributions(dtype):
    mt.manual_seed(2)
    u = mt.empty(20001, dtype=dtype).uniform_(-1, 3)
    z = mt.empty(20001, dtype=dtype).normal_(2.0, 3.0)
    e = mt.empty(20001, dtype=dtype).exponential_(4.0)
    for x, mean, std in ((u, 1, 4 / 12**0.5), (z, 2, 3), (e, 0.25, 0.25)):
        assert x.dtype == dtype
        values = x.numpy().astype("f8")
        assert abs(values.mean() - mean) < 5 * std / 20001**0.5
        assert abs(values.std() / std - 1) < 0.03
    assert u.numpy().min() >= -1 and u.numpy().max() <= 3
    assert abs(np.mean(np.abs(z.numpy() - 2) < 3) - 0.6827) < 0.02  # one standard deviation


def test_permutations_are_all_equally_likely():
    mt.manual_seed(4)
    found = [tuple(mt.randperm(3).tolist()) for _ in range(3000)]
    counts = [found.count(p) for p in sorted(set(found))]
    assert len(counts) == 6 and min(counts) > 400 and max(counts) < 600


def test_module_functions_drive_the_default_generator():
    assert mt.manual_seed(17) is mt.default_generator and mt.initial_seed() == 17
    first = mt.rand(3).tolist()
    state = mt.get_rng_state()
    second = mt.rand(3).tolist()
    mt.set_rng_state(state)
    assert mt.rand(3).tolist() == second != first
    mt.default_generator.manual_seed(17)
    assert mt.rand(3).tolist() == first
    chosen = mt.seed()
    assert chosen == mt.initial_seed() and mt.seed() != chosen
    mt.manual_seed(3.0)
    assert mt.initial_seed() == 3


# Masks

@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_keep_mask_keeps_with_probability_one_minus_p(p):
    mask = keep_mask((211, 307), p, Generator().manual_seed(8))
    assert mask.shape == (211, 307) and mask.dtype == np.bool_
    assert abs(mask.mean() - (1 - p)) <= 4 * math.sqrt(p * (1 - p) / mask.size)
    for axis in (0, 1):  # no row or column stands out
        assert np.abs(mask.mean(axis=axis) - (1 - p)).max() < 6 * math.sqrt(p * (1 - p) / 200) + 1e-9


def test_keep_mask_shapes():
    assert keep_mask((), 0.5).shape == () and keep_mask((0, 3), 0.5).shape == (0, 3)
    for n in range(1, 10):
        assert keep_mask((n,), 1.0).sum() == 0 and keep_mask((n,), 0.0).sum() == n


def test_masks_have_a_stream_of_their_own():
    g, h = Generator().manual_seed(8), Generator().manual_seed(8)
    first = keep_mask((1000,), 0.5, g)
    assert mt.rand(3, generator=g).tolist() == mt.rand(3, generator=h).tolist()
    np.testing.assert_array_equal(first, keep_mask((1000,), 0.5, h))
    assert (keep_mask((1000,), 0.5, g) != first).any()
    assert (keep_mask((1000,), 0.5, g.manual_seed(9)) != first).any()
    mt.manual_seed(8)
    np.testing.assert_array_equal(first, keep_mask((1000,), 0.5))


# States

def test_a_state_continues_every_stream_and_json_holds_it():
    g = Generator().manual_seed(123)
    mt.randn(3, generator=g)  # leaves one normal number waiting
    mt.rand(1001, generator=g)
    keep_mask((5,), 0.5, g)
    state = json.loads(json.dumps(g.get_state()))

    def draws():
        return (mt.randn(3, generator=g).tolist(), mt.rand(700, generator=g).tolist(),
                mt.randperm(9, generator=g).tolist(), keep_mask((999,), 0.5, g).tolist())

    expected = draws()
    assert draws() != expected
    g.set_state(state)
    assert draws() == expected and g.initial_seed() == 123
    other = Generator()
    other.set_state(state)
    g = other
    assert draws() == expected


@pytest.mark.parametrize("change", [
    {"words": [1, 2, 3]}, {"words": None}, {"words": [-1] * 624}, {"words": ["a"] * 624}, {"position": 625},
    {"position": -1}, {"position": None}, {"fast": [1, 2, 3]}, {"fast": [2**64] * 4}, {"seed": -1}, {"seed": "x"},
    {"spare": "x"},
])
def test_a_broken_state_is_refused_and_changes_nothing(change):
    g = Generator().manual_seed(1)
    before = g.get_state()
    with pytest.raises(ValueError, match="not the state"):
        g.set_state({**before, **change})
    assert g.get_state() == before


@pytest.mark.parametrize("state", [None, 5, [], {}, b"abc"])
def test_something_else_is_no_state(state):
    with pytest.raises(ValueError, match="not the state"):
        Generator().set_state(state)


def test_errors():
    with pytest.raises(TypeError, match="seed must be an int, got float"):
        Generator().manual_seed(2.5)
    for seed in (2**64, -2**63 - 1):
        with pytest.raises(ValueError, match="seed must lie"):
            Generator().manual_seed(seed)
    with pytest.raises(TypeError, match="generator must be a Generator"):
        mt.rand(3, generator=5)
    with pytest.raises(RuntimeError, match="no device 'cuda'"):
        Generator(device="cuda")
    assert str(Generator(device="cpu").device) == "cpu"


@pytest.mark.parametrize("low, high", [(0.0, 1.0), (-2.0, 3.0)])
def test_float16_never_rounds_to_the_upper_bound(low, high):
    draws = to_host(Generator().manual_seed(3).uniform((100_000,), mt.float16, low, high))
    wide = to_host(Generator().manual_seed(3).uniform((100_000,), mt.float32, low, high))
    assert draws.dtype == np.float16
    assert draws.max() < high
    rounded = wide.astype(np.float16)
    np.testing.assert_array_equal(draws, np.where(rounded == high, low, rounded))
    assert (rounded == high).any()
