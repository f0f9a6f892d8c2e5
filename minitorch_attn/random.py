"""Seeded random numbers: the same seed gives the numbers that PyTorch gives on the CPU.

The words come from the Mersenne twister MT19937, and each kind of number is made of them in PyTorch's way: a float32
of the low 24 bits of one word, a float64 of 53 bits of two, a normal number by the method of Box and Muller. Words
are always drawn on the host and results then moved to the array library in use, so that every device sees the same
numbers. Dropout masks come from a second, faster generator with the same seed; those are not PyTorch's.

References
----------
Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998.
Box and Muller, "A note on the generation of random normal deviates", Ann. Math. Statist. 29(2), 1958.
"""
import math
import secrets

import numpy

from .backend import device as named_device
from .backend import to_device

__all__ = ["Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

FIRST_SEED = 67280421310721  # what a new generator is seeded with, in PyTorch too
WORDS = 624                  # the size of the twister's state, in words of 32 bits
LEVELS = 1 << 16             # a mask compares 16-bit numbers


class Generator:
    """A stream of random numbers that a seed determines.

    Parameters
    ----------
    device : str or device
        Accepted if it names the one there is; the numbers are the same everywhere.
    """

    def __init__(self, device="cpu"):
        self.device = named_device(device)
        self.twister = numpy.random.MT19937()
        self.manual_seed(FIRST_SEED)

    def manual_seed(self, seed):
        """Start the stream that belongs to `seed`, an int from -2**63 to 2**64 - 1, and return this generator.

        The twister uses the low 32 bits only, so seeds that differ by a multiple of 2**32 draw alike.
        """
        if not isinstance(seed, (int, numpy.integer)):
            raise TypeError(f"a seed must be an int, got {type(seed).__name__}")
        if not -2**63 <= seed < 2**64:
            raise ValueError(f"a seed must lie in [-2**63, 2**64), got {seed}")
        self.chosen = int(seed) % 2**64
        start = numpy.random.RandomState(self.chosen % 2**32).get_state(legacy=False)
        self.twister.state = {"bit_generator": "MT19937", "state": start["state"]}
        self.fast = numpy.random.SFC64(self.chosen)
        self.spare = None  # the second number of the last Box-Muller pair
        return self

    def seed(self):
        """Start a stream that no one can foresee, and return the seed it got."""
        self.manual_seed(secrets.randbits(64))
        return self.chosen

    def initial_seed(self):
        """The seed that the stream started from."""
        return self.chosen

    def get_state(self):
        """Where in the stream this generator is: a dict of plain numbers and lists, which JSON can hold."""
        twister = self.twister.state["state"]
        return {"seed": self.chosen, "words": twister["key"].tolist(), "position": int(twister["pos"]),
                "spare": self.spare, "fast": self.fast.state["state"]["state"].tolist()}

    def set_state(self, state):
        """Continue from a state that `get_state` returned.

        Raises
        ------
        ValueError
            If `state` is not such a state. Each entry is checked, for the state may come out of a file.
        """
        try:
            words = numpy.array(state["words"], dtype=numpy.uint32)
            fast = numpy.array(state["fast"], dtype=numpy.uint64)
            position, seed, spare = int(state["position"]), int(state["seed"]), state["spare"]
            if words.shape != (WORDS,) or fast.shape != (4,) or not 0 <= position <= WORDS or not 0 <= seed < 2**64:
                raise ValueError("an entry has the wrong size")
            spare = None if spare is None else float(spare)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"this is not the state of a random generator: {error!r}") from error
        self.twister.state = {"bit_generator": "MT19937", "state": {"key": words, "pos": position}}
        self.fast.state = {"bit_generator": "SFC64", "state": {"state": fast}, "has_uint32": 0, "uinteger": 0}
        self.chosen, self.spare = seed, spare

    def words(self, count):
        """`count` random words of 32 bits, each in a uint64."""
        return self.twister.random_raw(count)

    def long_words(self, count):
        """`count` random words of 64 bits, each of two of the twister's, high half first."""
        words = self.words(2 * count)
        return (words[0::2] << numpy.uint64(32)) | words[1::2]

    def unit(self, count, dtype):
        """`count` host numbers in [0, 1): multiples of 2**-53 in float64, else of 2**-24 in float32."""
        if dtype == numpy.float64:
            return (self.long_words(count) & numpy.uint64(2**53 - 1)) * 2.0**-53
        low = self.words(count) & numpy.uint64(2**24 - 1)
        return low.astype(numpy.float32) * numpy.float32(2.0**-24)

    def uniform(self, shape, dtype, low=0.0, high=1.0):
        """An array of numbers uniform in [low, high)."""
        u = self.unit(math.prod(shape), dtype).reshape(shape)
        if (low, high) != (0, 1):
            # a float32 is scaled and moved in float64 and rounded once, as a fused multiply-add rounds it
            kind = u.dtype.type
            u = u.astype(numpy.float64) * float(kind(high) - kind(low)) + float(kind(low))
            u = u.astype(kind)
        u = u.astype(dtype, copy=False)
        if dtype == numpy.float16:
            u[u == dtype.type(high)] = low  # so coarse that numbers just below `high` round to it
        return to_device(u)

    def normal(self, shape, dtype, mean=0.0, std=1.0):
        """An array of normally distributed numbers.

        Sixteen or more are made by the block, fewer by the pair, as PyTorch does, which also decides their values.
        """
        count = math.prod(shape)
        if count < 16:
            z = numpy.array([self.normal_number() for _ in range(count)])
        else:
            u = self.unit(count, dtype)
            z = numpy.empty_like(u)
            whole = count - count % 16
            z[:whole] = box_muller(u[:whole])
            if whole < count:  # the last block overlaps the one before it, and draws afresh
                z[-16:] = box_muller(self.unit(16, dtype))
        if (mean, std) != (0, 1):
            z = z * float(std) + float(mean)
        return to_device(z.reshape(shape).astype(dtype, copy=False))

    def normal_number(self):
        """One normal number; they are made in pairs, of which the second waits for the next call."""
        if self.spare is not None:
            z, self.spare = self.spare, None
            return z
        turn, u = self.unit(2, numpy.float64).tolist()
        radius, angle = math.sqrt(-2.0 * math.log1p(-u)), 2.0 * math.pi * turn
        self.spare = radius * math.sin(angle)
        return radius * math.cos(angle)

    def integers(self, shape, low, high, long=None):
        """An int64 array of integers in [low, high): the remainder of a word, of 64 bits if `long`.

        By default long words serve spans from 2**28 on, where the remainders of shorter ones would show their bias.
        """
        span, count = high - low, math.prod(shape)
        long = span >= 2**28 if long is None else long
        words = self.long_words(count) if long else self.words(count)
        if span < 2**64:
            words %= numpy.uint64(span)
        words += numpy.uint64(low % 2**64)  # wraps around, so that the same bits read as signed are right
        return to_device(words.view(numpy.int64).reshape(shape))

    def permutation(self, n):
        """The numbers 0 to n - 1 shuffled: each place in turn trades with itself or a later one (Fisher-Yates)."""
        order = list(range(n))
        later = self.words(max(n - 1, 0)) % numpy.arange(n, 1, -1, dtype=numpy.uint64)
        for i, step in enumerate(later.tolist()):
            order[i], order[i + step] = order[i + step], order[i]
        return to_device(numpy.array(order, dtype=numpy.int64))

    def exponential(self, shape, dtype, rate=1.0):
        """An array of exponentially distributed numbers with mean 1 / rate: -log(1 - u) / rate."""
        u = self.unit(math.prod(shape), numpy.float64).reshape(shape)
        return to_device((-1.0 / rate * numpy.log1p(-u)).astype(dtype))


def box_muller(u):
    """Normal numbers of as many uniform ones: in each sixteen, eight radii and eight angles make eight pairs."""
    u = u.reshape(-1, 2, 8)
    radius = numpy.sqrt(-2.0 * numpy.log(1.0 - u[:, 0]))
    angle = (2.0 * math.pi) * u[:, 1]
    z = numpy.empty_like(u)
    numpy.multiply(radius, numpy.cos(angle), out=z[:, 0])
    numpy.multiply(radius, numpy.sin(angle), out=z[:, 1])
    return z.reshape(-1)


def keep_mask(shape, p, generator=None):
    """A boolean array that is False with probability `p`, place by place: what dropout keeps.

    Made of 16-bit numbers of a fast generator of its own, so `p` counts as the nearest multiple of 1/65536; a
    million places take 1 ms, where uniform numbers of the twister would take 8. Above 7/8, where that would show in
    1 - p, the numbers have 64 bits.
    """
    count = math.prod(shape)
    if 0.875 < p < 1:
        return to_device(source(generator).fast.random_raw(count) >= numpy.uint64(p * 2.0**64)).reshape(shape)
    bits = source(generator).fast.random_raw((count + 3) // 4).view(numpy.uint16)[:count]
    return to_device(bits >= round(p * LEVELS)).reshape(shape)


default_generator = Generator()
default_generator.seed()


def source(generator=None):
    """`generator`, or the default one for None."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise TypeError(f"generator must be a Generator or None, got {type(generator).__name__}")
    return generator


def manual_seed(seed):
    """Seed the default generator, and return it."""
    return default_generator.manual_seed(int(seed))


def seed():
    """Seed the default generator unpredictably, and return the seed."""
    return default_generator.seed()


def initial_seed():
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state():
    """`Generator.get_state` of the default generator."""
    return default_generator.get_state()


def set_rng_state(state):
    """`Generator.set_state` of the default generator."""
    default_generator.set_state(state)
