"""Module: registration, names and order, modes, types, state dicts, copies, printing."""
import copy
from collections import OrderedDict

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import nn
from minitorch_attn.nn import Linear, Module, Parameter


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def build(lib):
    """A model with every kind of member, for either library: `lib` is minitorch_attn or torch."""
    class Block(lib.nn.Module):
        def __init__(self, width):
            super().__init__()
            self.register_buffer("mask", lib.ones(width, width))
            self.register_buffer("scratch", lib.zeros(2), persistent=False)
            self.register_buffer("nothing", None)
            self.inner = lib.nn.Linear(width, width, bias=False)
            self.scale = lib.nn.Parameter(lib.ones(width))
            self.register_parameter("offset", None)

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = lib.nn.Embedding(7, 3)
            self.blocks = lib.nn.ModuleList([Block(3), Block(3)])
            self.by_name = lib.nn.ModuleDict({"a": lib.nn.Linear(3, 2), "b": lib.nn.Sequential(lib.nn.ReLU())})
            self.head = lib.nn.Linear(3, 7, bias=False)
            self.head.weight = self.tokens.weight
            self.again = self.by_name["a"]
            self.absent = None
            self.bare = lib.nn.Parameter(lib.zeros(2), requires_grad=False)
    return Net()


def names(pairs):
    return [name for name, _ in pairs]


class Tied(Module):
    def __init__(self):
        super().__init__()
        self.x = self.y = Linear(1, 1, bias=False)
        self.z = Linear(1, 1, bias=False)
        self.z.weight = self.x.weight


class TestRegistration:
    def test_names_and_order_are_pytorchs(self, torch):
        ours, theirs = build(mt), build(torch)
        for method in ("named_parameters", "named_buffers", "named_modules", "named_children"):
            assert names(getattr(ours, method)()) == names(getattr(theirs, method)()), method
        for method in ("named_parameters", "named_buffers"):
            for options in ({"recurse": False}, {"prefix": "net"}, {"remove_duplicate": False}):
                assert names(getattr(ours, method)(**options)) == names(getattr(theirs, method)(**options)), options
        assert names(ours.named_modules(prefix="m", remove_duplicate=False)) == names(
            theirs.named_modules(prefix="m", remove_duplicate=False))
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert list(ours.state_dict(prefix="net.")) == list(theirs.state_dict(prefix="net."))

    def test_tied_weights_count_once(self):
        m = Tied()
        assert len(list(m.parameters())) == 1 and len(list(m.children())) == 2
        assert sorted(m.state_dict()) == ["x.weight", "y.weight", "z.weight"]
        with mt.no_grad():
            m.x.weight.fill_(1.0)
        m.x.weight.grad = mt.tensor([[2.0]])
        with mt.no_grad():
            for p in m.parameters():
                p -= 0.1 * p.grad
        assert m.y.weight.item() == pytest.approx(0.8)

    def test_assigning_before_init_raises(self):
        class Early(Module):
            def __init__(self, value):
                self.plain = 3
                self.part = value

        for value in (Parameter(mt.ones(1)), Linear(1, 1)):
            with pytest.raises(AttributeError, match=r"Early\.part was assigned before super\(\)\.__init__\(\)"):
                Early(value)
        with pytest.raises(AttributeError, match="has not been called"):
            Early(1).missing  # noqa: B018

    def test_one_name_has_one_home(self):
        m = Module()
        m.a = 3
        m.a = Parameter(mt.ones(1))
        assert "a" not in m.__dict__ and names(m.named_parameters()) == ["a"]
        m.a = Linear(1, 1)
        assert names(m.named_parameters()) == ["a.weight", "a.bias"] and names(m.named_children()) == ["a"]
        m.register_buffer("b", mt.ones(1), persistent=False)
        m.b = Parameter(mt.ones(1))
        assert list(m.state_dict()) == ["b", "a.weight", "a.bias"]
        m.register_buffer("c", mt.ones(1))
        m.c = mt.zeros(2)
        assert names(m.named_buffers()) == ["c"] and m.c.shape == (2,)

    def test_replacing_keeps_the_order(self):
        m = Linear(2, 3)
        m.weight = Parameter(mt.ones(3, 2))
        assert names(m.named_parameters()) == ["weight", "bias"]

    def test_what_cannot_be_assigned(self):
        m = Linear(2, 3)
        with pytest.raises(TypeError, match=r"Linear.weight is a registered Parameter.*not Tensor"):
            m.weight = mt.ones(3, 2)
        m.bias = None
        assert m.bias is None and names(m.named_parameters()) == ["weight"]
        holder = nn.Sequential(m)
        with pytest.raises(TypeError, match="registered Module"):
            setattr(holder, "0", 3)
        holder.register_buffer("t", mt.ones(1))
        with pytest.raises(TypeError, match="registered Tensor"):
            holder.t = 3

    @pytest.mark.parametrize("name, error", [("a.b", KeyError), ("", KeyError), (3, TypeError), ("forward", KeyError)])
    def test_names_refused(self, name, error):
        for register, value in (("register_buffer", mt.ones(1)), ("register_parameter", Parameter(mt.ones(1))),
                                ("add_module", Linear(1, 1)), ("register_module", Linear(1, 1))):
            with pytest.raises(error):
                getattr(Module(), register)(name, value)

    def test_kinds_refused(self):
        for register, needed in (("register_buffer", "Tensor"), ("register_parameter", "Parameter"),
                                 ("add_module", "Module")):
            with pytest.raises(TypeError, match=f"must be a {needed} or None, got int"):
                getattr(Module(), register)("x", 3)

    def test_persistence_can_be_changed(self):
        m = Module()
        m.register_buffer("b", mt.ones(1), persistent=False)
        assert list(m.state_dict()) == []
        m.register_buffer("b", mt.ones(1))
        assert list(m.state_dict()) == ["b"]

    def test_attributes(self):
        m = build(mt)
        assert "tokens" in dir(m) and "bare" in dir(m) and "0" not in dir(m.blocks)
        with pytest.raises(AttributeError, match="'Net' object has no attribute 'heed'"):
            m.heed  # noqa: B018
        del m.head, m.bare
        assert not hasattr(m, "head") and not hasattr(m, "bare")
        m.plain = 1
        del m.plain
        with pytest.raises(AttributeError):
            del m.plain
        m.bare = Parameter(mt.ones(1))
        assert m.bare.requires_grad

    def test_look_up_by_name(self):
        m = build(mt)
        assert m.get_submodule("blocks.1.inner") is m.blocks[1].inner and m.get_submodule("") is m
        assert m.get_parameter("by_name.a.weight") is m.again.weight and m.get_buffer("blocks.0.mask").shape == (3, 3)
        for get, name in ((m.get_submodule, "blocks.2"), (m.get_submodule, "bare"), (m.get_parameter, "blocks.0.mask"),
                          (m.get_parameter, "blocks.0.offset"), (m.get_buffer, "bare"), (m.get_parameter, "q.w")):
            with pytest.raises(AttributeError):
                get(name)


class TestModes:
    def test_train_and_eval(self):
        m = build(mt)
        assert m.eval() is m and not any(part.training for part in m.modules())
        assert m.train() is m and all(part.training for part in m.modules())
        with pytest.raises(ValueError, match="True or False"):
            m.train("no")

    def test_apply_goes_from_the_leaves_up(self, torch):
        def order(m):
            seen = []
            m.apply(lambda part: seen.append(type(part).__name__))
            return seen
        assert order(build(mt)) == order(build(torch))

    def test_requires_grad(self):
        m = build(mt)
        assert m.requires_grad_(False) is m and not any(p.requires_grad for p in m.parameters())
        m.requires_grad_()
        assert all(p.requires_grad for p in m.parameters())

    def test_zero_grad(self):
        m = Linear(2, 3)
        m.weight.grad = grad = mt.ones(3, 2)
        m.zero_grad(set_to_none=False)
        assert m.weight.grad is grad and grad.tolist() == [[0, 0]] * 3 and m.bias.grad is None
        m.zero_grad()
        assert m.weight.grad is None

    def test_types(self):
        m = build(mt)
        m.register_buffer("count", mt.tensor(3))
        weight = m.again.weight
        weight.grad = mt.ones(2, 3)
        assert m.double() is m and weight is m.again.weight and weight.dtype == weight.grad.dtype == mt.float64
        assert m.blocks[0].mask.dtype == m.blocks[0].scratch.dtype == mt.float64 and m.count.dtype == mt.int64
        assert m.head.weight is m.tokens.weight
        assert all(p.dtype == mt.float16 for p in m.half().parameters())
        assert all(p.dtype == mt.float32 for p in m.float().parameters())
        assert m.to("cpu", mt.float64).bare.dtype == mt.float64 and m.to(mt.ones(1)).bare.dtype == mt.float32
        assert m.to(dtype=mt.float64, device="cpu").bare.dtype == mt.float64 and m.cpu() is m
        assert m.type(mt.float32).count.dtype == mt.float32
        with pytest.raises(TypeError, match="floating-point"):
            m.to(mt.int64)
        with pytest.raises(TypeError, match="floating-point"):
            m.type(mt.int64)

    def test_converted_parameters_train(self):
        m = Linear(2, 3).double()
        m(mt.tensor(np.ones((5, 2)))).backward(mt.tensor(np.ones((5, 3))))
        assert m.weight.grad.tolist() == [[5.0, 5.0]] * 3 and m.weight.grad.dtype == mt.float64

    def test_no_such_device(self):
        for move in (lambda m: m.to("cuda"), lambda m: m.to(device="cuda:0"), lambda m: m.cuda()):
            with pytest.raises(RuntimeError, match="cuda"):
                move(Linear(2, 3))

    def test_forward_missing_and_hooks(self):
        with pytest.raises(NotImplementedError, match=r"Module does not define forward\(\)"):
            Module()(3)
        for hook in ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook"):
            with pytest.raises(NotImplementedError, match=r"docs/parity\.md"):
                getattr(Module(), hook)(print)


class TestStateDict:
    def test_shares_memory_outside_the_graph(self):
        m = Linear(2, 3)
        state = m.state_dict()
        assert isinstance(state, OrderedDict) and not state["weight"].requires_grad
        state["weight"].fill_(4.0)
        assert m.weight.tolist() == [[4.0, 4.0]] * 3
        assert m.state_dict(keep_vars=True)["weight"] is m.weight
        into = {}
        assert m.state_dict(destination=into, prefix="a.") is into and list(into) == ["a.weight", "a.bias"]

    def test_round_trip_copies(self):
        a, b = build(mt), build(mt)
        result = a.load_state_dict(b.state_dict())
        assert result == ([], []) and result.missing_keys == [] and result.unexpected_keys == []
        for key, value in b.state_dict().items():
            assert a.state_dict()[key].tolist() == value.tolist()
        with mt.no_grad():
            b.tokens.weight.fill_(9.0)
        assert a.tokens.weight.detach().numpy().max() < 9 and a.head.weight is a.tokens.weight

    def test_values_take_the_modules_dtype(self):
        m = Linear(2, 3)
        m.load_state_dict({"weight": mt.ones(3, 2, dtype=mt.float64), "bias": mt.ones(3, dtype=mt.int64)})
        assert m.weight.dtype == m.bias.dtype == mt.float32 and m.bias.tolist() == [1.0, 1.0, 1.0]

    def test_all_faults_in_one_message_and_nothing_changed(self):
        m = nn.Sequential(Linear(2, 3), Linear(3, 5), nn.ReLU(), Linear(5, 2))
        before = {key: value.tolist() for key, value in m.state_dict().items()}
        state = {"0.weight": mt.ones(3, 2), "0.bias": mt.ones(4), "1.weight": mt.ones(5, 3), "1.bias": [1.0],
                 "8.weight": mt.ones(1), "9.bias": mt.ones(1), "3.bias": mt.ones(2)}
        with pytest.raises(RuntimeError) as error:
            m.load_state_dict(state)
        assert str(error.value).split("\n\t") == [
            "Error(s) in loading state_dict for Sequential:",
            "Missing key(s) in state_dict: 3.weight",
            "Unexpected key(s) in state_dict: 8.weight, 9.bias",
            "size mismatch for 0.bias: shape (4,) given, (3,) needed",
            "1.bias: expected a Tensor, got list"]
        assert before == {key: value.tolist() for key, value in m.state_dict().items()}
        with pytest.raises(RuntimeError, match=r"size mismatch for 0\.bias"):
            m.load_state_dict({"0.bias": mt.ones(4), "0.weight": mt.ones(3, 2)}, strict=False)
        assert before == {key: value.tolist() for key, value in m.state_dict().items()}

    def test_not_strict(self):
        m = Linear(2, 3)
        result = m.load_state_dict({"weight": mt.ones(3, 2), "more": mt.ones(1)}, strict=False)
        assert result.missing_keys == ["bias"] and result.unexpected_keys == ["more"]
        assert m.weight.tolist() == [[1.0, 1.0]] * 3

    def test_not_a_dict(self):
        with pytest.raises(TypeError, match="takes a dict, got list"):
            Linear(2, 3).load_state_dict([])

    def test_a_pending_backward_notices_the_load(self):
        m = Linear(2, 3, bias=False)
        y = m(mt.ones(1, 2, requires_grad=True))
        m.load_state_dict({"weight": mt.zeros(3, 2)})
        with pytest.raises(RuntimeError, match="modified in place"):
            y.backward(mt.ones(1, 3))


class TestCopiesAndPrinting:
    def test_deepcopy_is_independent_and_keeps_ties(self):
        m = build(mt)
        c = copy.deepcopy(m)
        assert c.head.weight is c.tokens.weight and c.again is c.by_name["a"]
        assert list(c.state_dict()) == list(m.state_dict())
        mine = {id(p) for p in m.parameters()} | {id(b) for b in m.buffers()}
        assert not mine & ({id(p) for p in c.parameters()} | {id(b) for b in c.buffers()})
        with mt.no_grad():
            for x in [*c.parameters(), *c.buffers()]:
                x.fill_(77.0)
        assert not any((x == 77.0).any() for x in [*m.parameters(), *m.buffers()])

    def test_repr_is_pytorchs(self, torch):
        assert repr(build(mt)) == repr(build(torch))

    def test_repr_of_several_lines(self, torch):
        def made(lib):
            class Two(lib.nn.Module):
                def extra_repr(self):
                    return "first\nsecond"
            outer = Two()
            outer.inner, outer.none = Two(), None
            outer.add_module("empty", None)
            return outer
        assert repr(made(mt)) == repr(made(torch))


def test_a_name_that_is_no_text_is_reported():
    with pytest.raises(RuntimeError, match="Unexpected key\\(s\\) in state_dict: 3"):
        Linear(1, 2).load_state_dict({3: mt.ones(1)})
