"""Linear and its relatives."""
import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from tests.harness import draw
from tests.nn.twin import assert_float32_stays, assert_twins_agree, twins


@pytest.mark.parametrize("lead", [(), (5,), (2, 5), (0,), (1, 1)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_linear_is_pytorchs(lead, bias):
    ours, theirs = twins("Linear", 3, 7, bias=bias)
    assert_twins_agree(ours, theirs, draw(*lead, 3))


def test_linear_by_hand():
    m = nn.Linear(2, 3, dtype=mt.float64)
    x = draw(5, 2)
    wanted = [[sum(w * v for w, v in zip(row, xs)) + b for row, b in zip(m.weight.tolist(), m.bias.tolist())]
              for xs in x.tolist()]
    np.testing.assert_allclose(m(mt.tensor(x)).detach().numpy(), wanted)


def test_linear_parameters():
    m = nn.Linear(3, 7, device="cpu", dtype=mt.float64)
    assert m.weight.shape == (7, 3) and m.weight.dtype == mt.float64 and (m.in_features, m.out_features) == (3, 7)
    assert nn.Linear(3, 7, bias=False).bias is None
    assert_float32_stays(nn.Linear(3, 7), draw(5, 3))
    with pytest.raises(RuntimeError, match="cuda"):
        nn.Linear(3, 7, device="cuda")


def test_a_program_draws_pytorchs_numbers_layer_after_layer():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

    def drawn(lib):
        lib.manual_seed(0)
        m = lib.nn.Sequential(lib.nn.Embedding(11, 5), lib.nn.Linear(5, 3), lib.nn.LayerNorm(3), lib.nn.Linear(3, 17),
                              lib.nn.Conv1d(3, 5, 2), lib.nn.Conv2d(2, 6, (3, 2), groups=2), lib.nn.Linear(2, 2))
        return np.concatenate([v.numpy().ravel() for v in m.state_dict().values()])
    np.testing.assert_allclose(drawn(mt), drawn(torch), rtol=3e-7, atol=1e-7)


def test_identity():
    x = mt.ones(2)
    assert nn.Identity(54, anything=True)(x) is x and repr(nn.Identity()) == "Identity()"


class TestLazyLinear:
    @pytest.mark.parametrize("bias", [True, False])
    def test_becomes_the_linear_that_pytorch_makes(self, bias):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        ours, theirs = nn.LazyLinear(5, bias=bias), torch.nn.LazyLinear(5, bias=bias)
        assert repr(ours) == repr(theirs)
        parameters = list(ours.parameters())
        x = draw(2, 3).astype("f4")
        mt.manual_seed(0)
        torch.manual_seed(0)
        y, wanted = ours(mt.tensor(x)), theirs(torch.from_numpy(x))
        assert type(ours) is nn.Linear and repr(ours) == repr(theirs) and ours.in_features == 3
        np.testing.assert_allclose(y.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
        assert all(a is b for a, b in zip(parameters, ours.parameters(), strict=True))

    def test_loading_decides_the_width(self):
        m, source = nn.LazyLinear(5), nn.Linear(3, 5)
        m.load_state_dict(source.state_dict())
        assert m.weight.tolist() == source.weight.tolist()
        x = mt.ones(2, 3)
        assert m(x).tolist() == source(x).tolist() and type(m) is nn.Linear and m.in_features == 3

    def test_types_before_the_first_input(self):
        m = nn.LazyLinear(5).double()
        assert m(mt.ones(2, 3, dtype=mt.float64)).dtype == mt.float64


def test_bilinear():
    ours, theirs = twins("Bilinear", 3, 2, 5)
    assert_twins_agree(ours, theirs, draw(7, 3), draw(7, 2, seed=1))
    ours, theirs = twins("Bilinear", 3, 2, 5, bias=False)
    assert_twins_agree(ours, theirs, draw(3), draw(2, seed=1))


def test_flatten_and_unflatten():
    x = mt.tensor(np.arange(30.0).reshape(5, 2, 3))
    assert nn.Flatten()(x).shape == (5, 6) and nn.Flatten(0, 1)(x).shape == (10, 3)
    back = nn.Unflatten(1, (2, 3))(nn.Flatten()(x))
    assert back.tolist() == x.tolist()
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
    assert repr(nn.Unflatten(1, (2, 3))) == "Unflatten(dim=1, unflattened_size=(2, 3))"
