"""Beam search over a table of probabilities, against the best of all sequences."""
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn.models.beam import beam_search

PAD, START, END, A, B = range(5)
CONFIG = SimpleNamespace(target_vocab=5, pad_id=PAD, start_id=START, end_id=END)
STEPS = 3
ALL = [t for n in range(1, STEPS + 1) for t in itertools.product([END, A, B], repeat=n)
       if END not in t[:-1] and (n == STEPS or t[-1] == END)]


class Decoder:
    """Logits that depend on all that was written, and on the sample; it notes what `reorder` says."""

    def __init__(self, seed, samples=2, width=27):
        self.table = np.random.default_rng(seed).normal(0, 2, (samples, *[5] * STEPS, 5))
        self.width, self.held = width, None

    def logits(self, sample, written):
        return self.table[(sample, *written, *[0] * (STEPS - len(written)))]

    def step(self, ids):
        ids = ids.tolist()
        # a cache that follows the beams holds what was read before
        assert self.held is None or [row[:-1] for row in ids] == self.held
        self.held = ids
        return mt.tensor(np.array([self.logits(i // self.width, row[1:]) for i, row in enumerate(ids)]))

    def reorder(self, rows):
        self.held = [self.held[row] for row in rows.tolist()]

    def likelihood(self, sample, target):
        total = 0.0
        for n, token in enumerate(target):
            z = self.logits(sample, target[:n])
            total += z[token] - math.log(np.exp(z).sum())  # padding and start have their share of the probability
        return total


def search(decoder, alpha, width=27, samples=2):
    decoder.width, decoder.held = width, None
    ids, scores = beam_search(decoder.step, decoder.reorder, samples, width, STEPS, CONFIG, alpha)
    return [[t for t in row if t != PAD] for row in ids.tolist()], scores.tolist()


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_a_wide_beam_finds_the_best_of_all(alpha):
    changed = 0
    for seed in range(20):
        decoder = Decoder(seed)
        found, scores = search(decoder, alpha)
        for sample in range(2):
            plain = {t: decoder.likelihood(sample, t) for t in ALL}
            best = max(ALL, key=lambda t: plain[t] / ((5 + len(t)) / 6) ** alpha)
            assert found[sample] == list(best)
            np.testing.assert_allclose(scores[sample], plain[best], rtol=1e-6)
            changed += best != max(ALL, key=plain.get)
    assert (changed > 0) == (alpha > 1)  # a strong penalty chooses others


def test_a_beam_of_one_is_greedy():
    for seed in range(20):
        decoder = Decoder(seed)
        found, _ = search(decoder, 0.0, width=1)
        for sample in range(2):
            written = []
            while len(written) < STEPS and END not in written:
                z = decoder.logits(sample, written)
                written.append(max((END, A, B), key=lambda t: z[t]))
            assert found[sample] == written


def test_mistakes():
    for width, steps in ((0, 3), (2, -1)):
        with pytest.raises(ValueError, match="width must be at least 1"):
            beam_search(None, None, 1, width, steps, CONFIG)
