"""Losses as layers: the function of the same name with the arguments given to the constructor."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import assert_like_torch, draw

CLASSES = np.array([1, 4, 0, 1, 2])
SCORES, OTHER = draw(5, 7), draw(5, 7, seed=1)
SHARES = np.exp(OTHER) / np.exp(OTHER).sum(1, keepdims=True)
UNIT, TRUTH = draw(5, 7, low=0.05, high=0.95), draw(5, 7, seed=2, low=0.0, high=1.0)
PER_CLASS = draw(7, seed=3, low=0.5, high=2.0)
PER_SAMPLE = draw(5, 1, seed=4, low=0.5, high=2.0)

LOSSES = [
    ("CrossEntropyLoss", {}, (SCORES, CLASSES)), ("CrossEntropyLoss", {"ignore_index": 1}, (SCORES, CLASSES)),
    ("CrossEntropyLoss", {"label_smoothing": 0.2, "weight": PER_CLASS}, (SCORES, CLASSES)),
    ("CrossEntropyLoss", {}, (SCORES, SHARES)),
    ("NLLLoss", {}, (SCORES, CLASSES)), ("NLLLoss", {"ignore_index": 0, "weight": PER_CLASS}, (SCORES, CLASSES)),
    ("MSELoss", {}, (SCORES, OTHER)), ("L1Loss", {}, (SCORES, OTHER)),
    ("SmoothL1Loss", {}, (SCORES, OTHER)), ("SmoothL1Loss", {"beta": 0.3}, (SCORES, OTHER)),
    ("HuberLoss", {}, (SCORES, OTHER)), ("HuberLoss", {"delta": 0.3}, (SCORES, OTHER)),
    ("BCELoss", {}, (UNIT, TRUTH)), ("BCELoss", {"weight": PER_SAMPLE}, (UNIT, TRUTH)),
    ("BCEWithLogitsLoss", {}, (SCORES, TRUTH)),
    ("BCEWithLogitsLoss", {"weight": PER_SAMPLE, "pos_weight": PER_CLASS}, (SCORES, TRUTH)),
    ("KLDivLoss", {}, (SCORES, SHARES)), ("KLDivLoss", {"log_target": True}, (SCORES, OTHER)),
]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, options, arrays", LOSSES, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.filterwarnings("ignore:reduction")
def test_is_pytorchs(name, options, arrays, reduction):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensors = {key for key, value in options.items() if isinstance(value, np.ndarray)}
    mine = {key: mt.tensor(value) if key in tensors else value for key, value in options.items()}
    other = {key: torch.from_numpy(value) if key in tensors else value for key, value in options.items()}
    ours = getattr(nn, name)(reduction=reduction, **mine)
    theirs = getattr(torch.nn, name)(reduction=reduction, **other)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    assert_like_torch(ours, theirs, *arrays)


def test_batchmean():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert_like_torch(nn.KLDivLoss(reduction="batchmean"), torch.nn.KLDivLoss(reduction="batchmean"), SCORES, SHARES)


def test_weights_follow_the_dtype():
    loss = nn.CrossEntropyLoss(weight=mt.tensor(PER_CLASS)).float()
    assert loss.weight.dtype == mt.float32
    assert loss(mt.tensor(SCORES.astype("f4")), mt.tensor(CLASSES)).dtype == mt.float32


@pytest.mark.parametrize("options", [{}, {"dim": 0}, {"dim": -1}], ids=str)
def test_cosine_similarity(options):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    assert_like_torch(nn.CosineSimilarity(**options), torch.nn.CosineSimilarity(**options), SCORES, OTHER)


def test_cosine_similarity_divides_by_eps_at_least():
    got = nn.CosineSimilarity(dim=0, eps=10.0)(mt.tensor([3.0, 4.0]), mt.tensor([0.0, 20.0]))
    assert got.item() == pytest.approx(80 / (10 * 20))


def test_refusals():
    for old in ({"size_average": True}, {"reduce": False}):
        with pytest.raises(TypeError, match="use reduction"):
            nn.MSELoss(**old)
    with pytest.raises(ValueError, match="reduction"):
        nn.MSELoss(reduction="average")(mt.ones(2), mt.ones(2))
