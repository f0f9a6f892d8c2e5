"""Checkpoints: resuming to the bit, ties and views, and files that are broken or hostile."""
import dataclasses
import importlib.util
import io
import json
import os
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest

import minitorch_attn as mt
from minitorch_attn import checkpoint, nn
from minitorch_attn.optim import SGD, AdamW
from minitorch_attn.optim.lr_scheduler import LambdaLR, StepLR, warmup_lambda
from tests.harness import draw

needs_safetensors = pytest.mark.skipif(importlib.util.find_spec("safetensors") is None,
                                       reason="safetensors is not installed")
both_endings = pytest.mark.parametrize("ending", [".npz", pytest.param(".safetensors", marks=needs_safetensors)])


class Net(nn.Module):
    """Two layers with dropout; `out` is tied to `embed`."""

    def __init__(self, hidden=7):
        super().__init__()
        self.embed = nn.Linear(5, hidden, bias=False)
        self.drop = nn.Dropout(0.3)
        self.mix = nn.Linear(hidden, 5)
        self.out = nn.Linear(5, hidden, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("mean", mt.tensor(np.array([1.5, 2.5], "f4")))

    def forward(self, x):
        return self.out(self.mix(self.drop(self.embed(x))))


def make(seed, cls=AdamW):
    mt.manual_seed(seed)
    model = Net()
    optimizer = cls([{"params": [model.embed.weight]}, {"params": model.mix.parameters(), "lr": 0.02}], lr=0.01,
                    **(dict(momentum=0.9) if cls is SGD else {}))
    return model, optimizer, LambdaLR(optimizer, warmup_lambda(15))


def train(model, optimizer, scheduler, steps):
    """Steps whose data, and dropout masks, come from the default random generator."""
    for _ in range(steps):
        optimizer.zero_grad()
        error = model(mt.randn(11, 5)) - 1.0
        (error * error).mean().backward()
        optimizer.step()
        scheduler.step()


def values(model):
    return {name: x.numpy().copy() for name, x in model.state_dict().items()}


def assert_equal(found, wanted):
    assert list(found) == list(wanted)
    for name in wanted:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
        assert found[name].dtype == wanted[name].dtype


@both_endings
@pytest.mark.parametrize("cls", [AdamW, SGD])
def test_ten_steps_saved_and_ten_more_are_twenty(tmp_path, ending, cls):
    path = tmp_path / f"last{ending}"
    straight = make(3, cls)
    train(*straight, 20)
    first = make(3, cls)
    train(*first, 10)
    checkpoint.save(path, *first, config={"hidden": 7}, step=10)
    train(*first, 3)  # what happens after saving does not matter
    again = make(99, cls)
    found = checkpoint.load(path, *again)
    assert found["step"] == 10 and found["config"] == {"hidden": 7}
    train(*again, 10)
    assert_equal(values(again[0]), values(straight[0]))
    assert again[2].get_last_lr() == straight[2].get_last_lr()


@both_endings
def test_random_state_is_set_only_where_training_goes_on(tmp_path, ending):
    path = tmp_path / f"c{ending}"
    model, optimizer, _ = make(3)
    checkpoint.save(path, model, optimizer)
    wanted = mt.rand(3).tolist()
    for options, same in ((dict(), False), (dict(model=model), False), (dict(model=model, optimizer=optimizer), True),
                          (dict(rng=True), True), (dict(optimizer=optimizer, rng=False), False)):
        mt.manual_seed(77)
        checkpoint.load(path, **options)
        assert (mt.rand(3).tolist() == wanted) is same
    checkpoint.save(path, model, optimizer, rng=False)
    assert checkpoint.load(path, model, optimizer)["rng"] is None
    with pytest.raises(ValueError, match="without the random state"):
        checkpoint.load(path, rng=True)


@both_endings
def test_tied_weights(tmp_path, ending):
    """Written once; one tensor under both names when read; still tied in the model."""
    path = tmp_path / f"c{ending}"
    model = Net()
    checkpoint.save(path, model)
    arrays, _ = checkpoint._read(path)
    assert sorted(arrays) == ["embed.weight", "mean", "mix.bias", "mix.weight"]
    weights = checkpoint.load(path)["model"]
    assert list(weights) == list(model.state_dict()) and weights["out.weight"] is weights["embed.weight"]
    other = Net()
    checkpoint.load(path, other)
    assert_equal(values(other), values(model))
    assert other.out.weight is other.embed.weight


@both_endings
def test_views_are_saved_by_value(tmp_path, ending):
    path = tmp_path / f"c{ending}"
    x = mt.tensor(draw(200, 200).astype("f4"))
    kept = {"column": x[:, 0], "turned": x[:3, :5].T, "row": x[1], "one": x[0, 0], "step": x[::7, 3::5],
            "expanded": x[:1, :2].expand(3, 2)}
    checkpoint.save(path, kept)
    assert os.path.getsize(path) < 30_000  # all of x is 160,000 bytes
    found = checkpoint.load(path)["model"]
    for name, value in kept.items():
        assert found[name].shape == value.shape and found[name].dtype == mt.float32
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())
    found["column"].array[...] = 0
    assert found["turned"].numpy().any() and found["row"].numpy()[0] != 0


@both_endings
def test_names_dtypes_and_odd_shapes_survive(tmp_path, ending):
    path = tmp_path / f"c{ending}"
    names = ["/w", "a/b", "file", "x.npy", "ü ß 中", "", " ", "optimizer/state/0/exp_avg", "minitorch_attn.json",
             "../up", "a", "A"]
    kept = {name: mt.tensor(np.array([i])) for i, name in enumerate(names)}
    kept |= {d: mt.tensor(np.array([[0, 1], [2, 3]]).astype(d)) for d in
             ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")}
    kept |= {"empty": mt.tensor(np.zeros((0, 3), "f4")), "zero-d": mt.tensor(np.array(1.5)),
             "special": mt.tensor(np.array([np.nan, np.inf, -0.0, 5e-324]))}
    p = nn.Parameter(mt.tensor(np.ones(2)))
    p.grad = mt.tensor(np.ones(2))
    optimizer = AdamW([p])
    optimizer.step()
    checkpoint.save(path, kept, optimizer)
    found = checkpoint.load(path)
    assert_equal({k: v.numpy() for k, v in found["model"].items()}, {k: v.numpy() for k, v in kept.items()})
    assert np.signbit(found["model"]["special"].numpy()[2])
    state = found["optimizer"]["state"][0]
    np.testing.assert_array_equal(state["exp_avg"].numpy(), optimizer.state[p]["exp_avg"].numpy())
    assert state["step"] == 1 and found["optimizer"]["param_groups"][0]["betas"] == (0.9, 0.999)


def test_what_else_can_be_saved(tmp_path):
    path = str(tmp_path / "c.npz")

    @dataclasses.dataclass
    class Config:
        layers: int = 2
        rate: float = 0.1

    checkpoint.save(path, config=Config())
    found = checkpoint.load(path)
    assert found["config"] == {"layers": 2, "rate": 0.1} and found["model"] is None
    o = SGD([nn.Parameter(mt.tensor(np.ones(2)))])
    checkpoint.save(path, scheduler=StepLR(o, np.int64(3)), config={"text": "ü", "list": [1, None, True]})
    assert checkpoint.load(path)["scheduler"]["step_size"] == 3
    with pytest.raises(TypeError, match="model: x is a float"):
        checkpoint.save(path, {"x": 1.0})
    with pytest.raises(TypeError, match="JSON"):
        checkpoint.save(path, config={"x": object()})
    o.param_groups[0]["odd"] = object()
    with pytest.raises(TypeError, match="optimizer/param_groups/0/odd: a object"):
        checkpoint.save(path, optimizer=o)
    assert checkpoint.load(path)["scheduler"]["step_size"] == 3, "a failed save leaves the old file"


@both_endings
def test_a_crash_while_writing_leaves_the_old_file(tmp_path, ending, monkeypatch):
    path = tmp_path / f"c{ending}"
    checkpoint.save(path, {"w": mt.tensor([1.0])})
    before = path.read_bytes()

    def fail(fd):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(path, {"w": mt.tensor([2.0])})
    assert path.read_bytes() == before and os.listdir(tmp_path) == [path.name]


@both_endings
def test_wrong_model(tmp_path, ending):
    """Errors of load_state_dict come through with the names in them, and nothing is changed."""
    path = tmp_path / f"c{ending}"
    model, optimizer, _ = make(1)
    checkpoint.save(path, model, optimizer)
    other = Net(hidden=11)
    before = values(other)
    with pytest.raises(RuntimeError, match=r"size mismatch for embed\.weight"):
        checkpoint.load(path, other)
    assert_equal(values(other), before)
    with pytest.raises(RuntimeError, match=r"(?i)unexpected.*embed\.weight"):
        checkpoint.load(path, nn.Linear(2, 3))
    checkpoint.load(path, nn.Linear(2, 3), strict=False)
    with pytest.raises(ValueError, match="number of parameter groups"):
        checkpoint.load(path, optimizer=AdamW(other.parameters()))
    checkpoint.save(path, model)
    with pytest.raises(ValueError, match="without optimizer"):
        checkpoint.load(path, Net(), optimizer)


# weights of other programs -----------------------------------------------------------------------------------------

def test_weights_written_by_torch(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    files = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.LayerNorm(5))
    files.save_file(theirs.state_dict(), tmp_path / "w.safetensors")
    ours = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5))
    weights = checkpoint.load_weights(tmp_path / "w.safetensors", ours)
    assert set(weights) == set(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[name].numpy(), value.numpy())
    half = {"w": torch.tensor([[1.0, -2.5], [3e38, 1e-40]], dtype=torch.bfloat16)}
    files.save_file(half, tmp_path / "w.safetensors")
    found = checkpoint.load_weights(tmp_path / "w.safetensors")["w"]
    assert found.dtype == mt.float32
    np.testing.assert_array_equal(found.numpy(), half["w"].float().numpy())
    files.save_file({"w": torch.zeros(2, dtype=torch.float8_e4m3fn)}, tmp_path / "w.safetensors")
    with pytest.raises(ValueError, match="w has dtype F8_E4M3"):
        checkpoint.load_weights(tmp_path / "w.safetensors")


def test_weights_read_by_torch(tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    files = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    model, optimizer, _ = make(1)
    checkpoint.save(tmp_path / "w.safetensors", model, optimizer)
    found = files.load_file(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(found["mix.weight"].numpy(), values(model)["mix.weight"])


@both_endings
def test_weights_tied_in_the_model_but_not_in_the_file(tmp_path, ending):
    model, path = Net(), tmp_path / f"w{ending}"
    arrays = {k: v for k, v in values(model).items() if k != "embed.weight"}
    if ending == ".npz":
        np.savez(path, **arrays)
    else:
        importlib.import_module("safetensors.numpy").save_file(arrays, path)
    other = Net()
    weights = checkpoint.load_weights(path, other)
    assert_equal(values(other), values(model))
    assert weights["embed.weight"] is weights["out.weight"]
    del arrays["mix.bias"]
    np.savez(tmp_path / "w.npz", **arrays)
    with pytest.raises(RuntimeError, match=r"mix\.bias"):
        checkpoint.load_weights(tmp_path / "w.npz", Net())
    with pytest.raises(ValueError, match="load_weights"):
        checkpoint.load(tmp_path / "w.npz")


@both_endings
def test_weights_of_a_checkpoint(tmp_path, ending):
    model, optimizer, _ = make(1)
    checkpoint.save(tmp_path / f"c{ending}", model, optimizer)
    other = Net()
    assert list(checkpoint.load_weights(tmp_path / f"c{ending}", other)) == list(model.state_dict())
    assert_equal(values(other), values(model))


def test_without_the_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"minitorch_attn\[checkpoint\]"):
        checkpoint.save(tmp_path / "c.safetensors", {"w": mt.tensor([1.0])})
    (tmp_path / "c.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ImportError, match=r"minitorch_attn\[checkpoint\]"):
        checkpoint.load(tmp_path / "c.safetensors")
    assert os.listdir(tmp_path) == ["c.safetensors"]
    checkpoint.save(tmp_path / "c.npz", {"w": mt.tensor([1.0])})


def test_other_endings(tmp_path):
    for call in (checkpoint.load, checkpoint.load_weights, checkpoint.save):
        with pytest.raises(ValueError, match=r"\.safetensors or \.npz"):
            call(tmp_path / "c.pt")
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "none.npz")


# broken and hostile files ------------------------------------------------------------------------------------------

class Boom:
    """Its pickle would run code."""

    def __reduce__(self):
        return exec, ("raise SystemExit('pickle was run')",)


def good(tmp_path, ending):
    path = tmp_path / f"good{ending}"
    model, optimizer, scheduler = make(1)
    train(model, optimizer, scheduler, 1)
    checkpoint.save(path, model, optimizer, scheduler)
    return path, path.read_bytes()


@both_endings
def test_truncated_at_any_place(tmp_path, ending):
    path, content = good(tmp_path, ending)
    for end in [0, 1, 7, 8, 20, *range(100, len(content), 997), len(content) - 1]:
        path.write_bytes(content[:end])
        for read in (checkpoint.load, checkpoint.load_weights):
            with pytest.raises(ValueError, match="good"):
                read(path)


@both_endings
def test_any_byte_changed(tmp_path, ending):
    """It reads, or it raises a ValueError that names the file: never anything else, never a hang."""
    path, content = good(tmp_path, ending)
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        broken = bytearray(content)
        broken[rng.integers(len(content))] = rng.integers(256)
        path.write_bytes(broken)
        try:
            checkpoint.load(path)
        except ValueError as error:
            failed += 1
            assert "good" in str(error)
    assert failed > 20 if ending == ".npz" else failed > 0


@both_endings
@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"hello" * 100, b"PK\x03\x04" + bytes(40),
                                     pickle.dumps(Boom()), b"\xff" * 64, struct.pack("<Q", 2**60) + b"{}",
                                     struct.pack("<Q", 2) + b"[]", b"PK\x05\x06" + b"\xff" * 18])
def test_foreign(tmp_path, ending, content):
    path = tmp_path / f"c{ending}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"c{ending}"):
        checkpoint.load(path)


def npz(path, members, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(header, content=b"", version=b"\x01\x00"):
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


def saved(array, allow_pickle=False):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=allow_pickle)
    return file.getvalue()


@pytest.mark.parametrize("content, words", [
    (saved(np.array([Boom()], dtype=object), allow_pickle=True), "w has dtype object"),
    (npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", pickle.dumps(Boom())), "object"),
    (saved(np.zeros(3, "c16")), "complex128"),
    (saved(np.zeros(3, "M8[s]")), "datetime64"),
    (saved(np.zeros(3, ">f4")), ">f4"),
    (saved(np.zeros(3, [("a", "f4"), ("b", "i4")])), "dtype"),
    (saved(np.array(["text"])), "<U4"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }", bytes(16)), "claims shape"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, -1), }", bytes(16)), "w"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2), }", bytes(16)), "claims shape"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", bytes(16)), "claims shape"),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 10000000000000000000000), }"), ""),
    (npy("__import__('os').abort()"), ""),
    (npy("{'descr': '<f8', 'shape': (1,), }"), "descr"),
    (npy("(" * 5000), ""),
    (npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", bytes(8), version=b"\x09\x00"), "version"),
    (b"no array", ""),
])
def test_hostile_npy(tmp_path, content, words):
    path = npz(tmp_path / "c.npz", {"w.npy": content})
    with pytest.raises(ValueError, match=rf"c\.npz is not a readable \.npz file: .*{words}"):
        checkpoint.load_weights(path)


def test_fortran_order_is_read_right(tmp_path):
    a = draw(3, 5)
    np.savez(tmp_path / "c.npz", w=np.asfortranarray(a))
    np.testing.assert_array_equal(checkpoint.load_weights(tmp_path / "c.npz")["w"].numpy(), a)


def test_zip_bombs(tmp_path):
    zeros = saved(np.zeros(10**6))
    path = npz(tmp_path / "c.npz", {"w.npy": zeros}, compression=zipfile.ZIP_DEFLATED)
    assert os.path.getsize(path) < 20_000
    with pytest.raises(ValueError, match="compressed"):
        checkpoint.load_weights(path)
    # an entry whose size is made up: the directory says 8 TB, the file has 200 bytes
    content = bytearray(npz(path, {"w.npy": saved(np.zeros(3))}).read_bytes())
    at = content.index(b"PK\x01\x02")
    content[at + 20:at + 28] = struct.pack("<II", 2**32 - 2, 2**32 - 2)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="larger than the file"):
        checkpoint.load_weights(path)
    # many entries that all point to the same bytes
    content = bytearray(npz(path, {"w.npy": saved(np.zeros(300))}).read_bytes())
    at, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entry, tail = bytes(content[at:end]), bytearray(content[end:])
    tail[8:12] = struct.pack("<HH", 50, 50)
    tail[12:16] = struct.pack("<I", 50 * len(entry))
    path.write_bytes(bytes(content[:at]) + entry * 50 + tail)
    with pytest.raises(ValueError, match="larger than the file"):
        checkpoint.load_weights(path)
    with pytest.raises(ValueError, match="unexpected entry"):
        checkpoint.load_weights(npz(path, {"run.py": "print()"}))


def described(path, text):
    """A checkpoint whose text is `text`."""
    if path.suffix == ".npz":
        return npz(path, {"w.npy": saved(np.zeros(3)), checkpoint.MEMBER: text})
    numpy_files = pytest.importorskip("safetensors.numpy")
    path.write_bytes(numpy_files.save({"w": np.zeros(3)}, {checkpoint.TEXT: text}))
    return path


EMPTY = {"version": 1, "model": None, "optimizer": None, "scheduler": None, "config": None, "step": None, "rng": None}


@both_endings
@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", "[" * 100_000, "{}", '{"version": ' + "9" * 5000 + "}",
    *[json.dumps({**EMPTY, **change}) for change in (
        {"version": 2}, {"model": {"items": [["w", {"tensor": "gone"}]]}}, {"model": {"items": [["w", 1.0]]}},
        {"model": {"tensor": "w"}}, {"model": [1]}, {"model": {"items": [1]}}, {"model": {"pickle": "gASVL"}},
        {"model": {}}, {"model": {"items": [[{"tuple": []}, 1]]}}, {"optimizer": {"items": []}},
        {"optimizer": {"items": [["state", 1], ["param_groups", []]]}}, {"model": {"tensor": {}}},
        {"optimizer": {"items": [["state", {"items": []}], ["param_groups", [1]]]}},
        {"optimizer": {"items": [["state", {"items": [[0, 5]]}], ["param_groups", []]]}},
        {"optimizer": {"items": [["state", {"items": []}], ["param_groups", [{"items": [["params", [[1]]]]}]]]}},
        {"rng": {"words": "x"}}, {"rng": 5},
        {"rng": {"seed": 1, "words": [1], "position": 0, "spare": None, "fast": []}})],
    json.dumps({k: v for k, v in EMPTY.items() if k != "step"}),
], ids=lambda text: text[:40])
def test_hostile_description(tmp_path, ending, text):
    path = described(tmp_path / f"c{ending}", text)
    with pytest.raises(ValueError, match="description of its contents is broken"):
        checkpoint.load(path)


@both_endings
def test_the_smallest_description(tmp_path, ending):
    assert checkpoint.load(described(tmp_path / f"c{ending}", json.dumps(EMPTY)))["model"] is None


class MakesNewTensors:
    """Something whose state is made afresh whenever it is asked for."""

    def state_dict(self):
        return {i: mt.full((3,), float(i)) for i in range(50)}


def test_parts_saved_one_after_another_keep_their_values_apart(tmp_path):
    path = tmp_path / "a.npz"
    for _ in range(20):
        optimizer = MakesNewTensors()
        optimizer.state_dict = lambda: {"state": MakesNewTensors.state_dict(None) and {0: {"a": mt.zeros(3)}},
                                        "param_groups": []}
        checkpoint.save(path, optimizer=optimizer, scheduler=MakesNewTensors())
        found = checkpoint.load(path)
        assert not found["optimizer"]["state"][0]["a"].numpy().any()
        assert [float(v[0]) for v in found["scheduler"].values()] == list(range(50))


def test_nothing_is_changed_when_a_part_does_not_fit(tmp_path):
    path = tmp_path / "a.npz"
    model = nn.Linear(2, 3)
    optimizer = SGD(model.parameters(), lr=0.5)
    checkpoint.save(path, model, optimizer, StepLR(optimizer, 1))
    other = nn.Linear(2, 3)
    before, their = other.weight.detach().numpy().copy(), SGD(other.parameters(), lr=0.125)
    with pytest.raises(ValueError, match="LambdaLR: lr_lambdas"):
        checkpoint.load(path, other, their, LambdaLR(their, lambda k: 1.0))
    assert (other.weight.detach().numpy() == before).all() and their.param_groups[0]["lr"] == 0.125


def test_a_step_that_is_no_number_is_named(tmp_path):
    path = tmp_path / "a.npz"
    model = nn.Linear(2, 3)
    optimizer = AdamW(model.parameters())
    model(mt.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.state[model.weight]["step"] = "abc"
    checkpoint.save(path, model, optimizer)
    other = nn.Linear(2, 3)
    before = other.weight.detach().numpy().copy()
    with pytest.raises(ValueError, match="step must be a whole number, got 'abc'"):
        checkpoint.load(path, other, AdamW(other.parameters()))
    assert (other.weight.detach().numpy() == before).all()


def test_a_lazy_layer_is_saved_only_after_its_first_call(tmp_path):
    model = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="weight has no shape yet"):
        checkpoint.save(tmp_path / "a.npz", model)
    model(mt.ones(1, 2))
    checkpoint.save(tmp_path / "a.npz", model)


def test_names_that_are_no_texts_are_refused(tmp_path):
    checkpoint.save(tmp_path / "a.npz", {3: mt.ones(1)})
    with pytest.raises(ValueError, match="no text"):
        checkpoint.load(tmp_path / "a.npz")


def test_tensors_that_are_freed_while_saving_keep_their_values_apart(tmp_path):
    path = tmp_path / "a.npz"
    checkpoint.save(path, scheduler=MakesNewTensors())
    found = checkpoint.load(path)["scheduler"]
    assert [float(found[i][0]) for i in range(50)] == list(range(50))
