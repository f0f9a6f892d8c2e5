"""Containers: positions, names, slices, and what they make findable."""
from collections import OrderedDict

import pytest

import minitorch_attn as mt
from minitorch_attn import nn


def layers(n):
    return [nn.Linear(2, 2) for _ in range(n)]


def keys(container):
    return list(dict(container.named_children()))


class TestSequential:
    def test_applies_in_order(self):
        class Add(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.n = n

            def forward(self, x):
                return x + self.n

        class Double(nn.Module):
            def forward(self, x):
                return x * 2

        assert nn.Sequential(Add(1), Double())(mt.tensor([3.0])).item() == 8.0
        assert nn.Sequential(Double(), Add(1))(mt.tensor([3.0])).item() == 7.0
        x = mt.ones(2)
        assert nn.Sequential()(x) is x

    def test_by_position(self):
        a, b, c = layers(3)
        s = nn.Sequential(a, b, c)
        assert s[0] is a and s[-1] is c and len(s) == 3 and list(s) == [a, b, c]
        for index in (3, -4):
            with pytest.raises(IndexError, match=f"index {index} is out of range for a Sequential of 3"):
                s[index]
        part = s[1:]
        assert type(part) is nn.Sequential and list(part) == [b, c]
        d = nn.ReLU()
        s[1] = d
        assert list(s) == [a, d, c] and keys(s) == ["0", "1", "2"]
        del s[0]
        assert list(s) == [d, c] and keys(s) == ["0", "1"]
        assert s.append(a) is s and list(s) == [d, c, a] and s.pop() is a and len(s) == 2

    def test_by_name(self):
        a, b = layers(2)
        s = nn.Sequential(OrderedDict(first=a, second=b))
        assert s.first is a and s[1] is b and keys(s) == ["first", "second"] and keys(s[1:]) == ["second"]
        with pytest.raises(TypeError, match="must be a Module or None, got int"):
            nn.Sequential(3)


class TestModuleList:
    def test_is_a_list(self):
        a, b, c, d = layers(4)
        m = nn.ModuleList([a, b])
        m.append(c)
        m.extend([d])
        assert list(m) == [a, b, c, d] and len(m) == 4 and m[-1] is d and c in m and nn.ReLU() not in m
        assert list(m[1:3]) == [b, c] and type(m[1:3]) is nn.ModuleList and list(m[::-1]) == [d, c, b, a]
        m.insert(1, d)
        assert list(m) == [a, d, b, c, d] and list(m._modules) == list("01234")
        del m[1]
        del m[2:]
        assert list(m) == [a, b]
        assert list(m.__add__([c])) == [a, b, c] and list(m) == [a, b]
        m += [c]
        assert list(m) == [a, b, c] and m.pop(0) is a and keys(m) == ["0", "1"]
        assert len(list(m.parameters())) == 4
        m.extend(m)
        assert list(m) == [b, c, b, c]

    def test_refusals(self):
        with pytest.raises(TypeError, match="Module or None"):
            nn.ModuleList([3])
        with pytest.raises(IndexError):
            nn.ModuleList()[0]
        with pytest.raises(NotImplementedError, match=r"forward\(\)"):
            nn.ModuleList()(mt.ones(1))

    def test_repr_folds_equal_entries(self):
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")

        def made(n):
            lists = n.ModuleList([*[n.Linear(2, 3) for _ in range(3)], n.ReLU(), n.Linear(2, 3), n.Tanh(), n.Tanh()])
            return n.Sequential(lists, n.ModuleList(), n.ModuleDict({"a": n.ReLU()}))
        assert repr(made(nn)) == repr(made(torch.nn))


class TestModuleDict:
    def test_is_a_dict(self):
        a, b, c = layers(3)
        m = nn.ModuleDict({"a": a})
        m["b"] = b
        m.update([("c", c)])
        assert list(m) == list(m.keys()) == ["a", "b", "c"] and list(m.values()) == [a, b, c] and len(m) == 3
        assert dict(m.items()) == {"a": a, "b": b, "c": c} and "b" in m and m.b is b and m.get("z") is None
        assert m.pop("b") is b and "b" not in m
        del m["a"]
        assert list(m) == ["c"] and len(list(m.parameters())) == 2
        m.clear()
        assert len(m) == 0
        with pytest.raises(KeyError):
            m["c"]
        with pytest.raises(TypeError, match="Module or None"):
            m["x"] = 3


class TestParameters:
    def test_list(self):
        p = nn.ParameterList([mt.ones(2), nn.Parameter(mt.zeros(3))])
        assert all(isinstance(x, nn.Parameter) and x.requires_grad for x in p) and len(p) == 2
        p.append(mt.ones(1))
        p.extend([mt.ones(4)])
        p[0] = mt.ones(5)
        assert [x.shape for x in p] == [(5,), (3,), (1,), (4,)] and p[-1].shape == (4,)
        assert list(p.state_dict()) == ["0", "1", "2", "3"] and len(list(p.parameters())) == 4
        part = p[1:3]
        assert type(part) is nn.ParameterList and part[0] is p[1]
        assert repr(nn.ParameterList([mt.ones(2, 3)])) == (
            "ParameterList(\n  (0): Parameter of float32, shape (2, 3)\n)")
        with pytest.raises(TypeError, match="Parameter or None"):
            p.append(3)

    def test_dict(self):
        p = nn.ParameterDict({"a": mt.ones(2)})
        p["b"] = nn.Parameter(mt.zeros(3))
        assert isinstance(p.a, nn.Parameter) and p["b"].shape == (3,) and list(p) == ["a", "b"] and "a" in p
        assert list(p.state_dict()) == ["a", "b"] and len(list(p.parameters())) == 2
        assert "(b): Parameter of float32, shape (3,)" in repr(p)
        del p["a"]
        assert list(p.keys()) == ["b"]
