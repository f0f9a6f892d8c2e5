"""Training states in one file, as .safetensors or .npz, and weights that other programs wrote.

A file holds arrays by name and one text: JSON that says which arrays are whose, and carries everything that is not
an array (step counts, learning rates, the configuration, the random state). Weights stand under their plain names,
so that other programs can read them too. Nothing is pickled, and reading a file never runs anything in it.
"""
import dataclasses
import io
import json
import math
import os
import zipfile

import numpy

from . import dtypes
from .autograd import Tensor
from .backend import to_device, to_host
from .nn.parameter import UninitializedParameter
from .random import Generator, get_rng_state, set_rng_state

__all__ = ["load", "load_weights", "save"]

TEXT = "minitorch_attn"  # the name under which a .safetensors file keeps the text
MEMBER = "minitorch_attn.json"  # and a .npz file
VERSION = 1
SAFETENSORS_DTYPES = {"BOOL": dtypes.bool, "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16,
                      "I32": dtypes.int32, "I64": dtypes.int64, "F16": dtypes.float16, "F32": dtypes.float32,
                      "F64": dtypes.float64}


def save(path, model=None, optimizer=None, scheduler=None, config=None, step=None, rng=True):
    """Write a training state to one file, from which `load` continues to the bit.

    The file is written under another name first and then renamed, so that a crash on the way leaves the last good
    checkpoint as it was.

    Parameters
    ----------
    path : str or path ending in .safetensors or .npz
    model : Module, or dict from names to Tensors
        Each tensor is written by value, also where it is a view of a larger one; one that stands under several
        names, a tied weight, is written once.
    optimizer, scheduler : anything with ``state_dict()``
    config : dict of what JSON can hold, or dataclass
        What is needed to build the model again. JSON turns tuples into lists.
    step : int
    rng : bool
        Include the state of the default random generator.

    Raises
    ------
    ValueError
        If `path` has another ending, a name cannot be written, or a lazy layer has not been called yet.
    TypeError
        If something to be saved is neither a Tensor, number, text, list, tuple nor dict.
    ImportError
        If a .safetensors file is asked for and the package is not installed.
    """
    weights = model.state_dict(keep_vars=True) if hasattr(model, "state_dict") else model
    for name, x in (weights or {}).items():
        if isinstance(x, UninitializedParameter):
            raise ValueError(f"model: {name} has no shape yet; call the model once on an input before saving it")
        if not isinstance(x, Tensor):
            raise TypeError(f"model: {name} is a {type(x).__name__}, not a Tensor; settings belong into config")
    if dataclasses.is_dataclass(config):
        config = dataclasses.asdict(config)
    arrays, names = {}, {}
    parts = {"model": _encode(weights, "", arrays, names),
             "optimizer": _encode(optimizer and optimizer.state_dict(), "optimizer", arrays, names),
             "scheduler": _encode(scheduler and scheduler.state_dict(), "scheduler", arrays, names)}
    text = json.dumps({"version": VERSION, **parts, "config": config, "step": step,
                       "rng": get_rng_state() if rng else None})
    write = {".npz": _write_npz, ".safetensors": _write_safetensors}[_ending(path)]
    path = os.path.realpath(path)
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(draft, "wb") as file:
            write(file, arrays, text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.remove(draft)


def load(path, model=None, optimizer=None, scheduler=None, strict=True, rng=None):
    """Read what `save` wrote, and put it into the objects that are given.

    Parameters
    ----------
    path : str or path ending in .safetensors or .npz
    model, optimizer, scheduler : optional
        Built as they were when saved; their ``load_state_dict`` is called.
    strict : bool
        For ``model.load_state_dict``: names must match.
    rng : bool, optional
        Set the default random generator to the saved state; by default if an optimizer is given, that is, if the
        training goes on.

    Returns
    -------
    dict
        "model" (dict from names to Tensors; a tied weight is one Tensor under several names), "optimizer",
        "scheduler", "config", "step", "rng"; None for what was not saved.

    Raises
    ------
    ValueError
        If the file is broken, was not written by `save`, or lacks what is asked for.
    RuntimeError, ValueError
        From the optimizer's, the scheduler's and then the model's ``load_state_dict``, if groups, entries, names or
        shapes do not match. Whatever was raised, nothing has been changed.
    """
    arrays, text = _read(path)
    if text is None:
        raise ValueError(f"{path} holds weights but no training state; load_weights() reads it")
    found = _parse(path, text, arrays)
    wanted = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    for name, target in wanted.items():
        if target is not None and found[name] is None:
            raise ValueError(f"{path} was saved without {name}")
    rng = optimizer is not None and found["rng"] is not None if rng is None else rng
    if rng and found["rng"] is None:
        raise ValueError(f"{path} was saved without the random state")
    before = [(target, target.state_dict()) for target in (optimizer, scheduler) if target is not None]
    try:  # each either takes all of its part or raises; the model, whose old values are not kept, comes last
        if optimizer is not None:
            optimizer.load_state_dict(found["optimizer"])
        if scheduler is not None:
            scheduler.load_state_dict(found["scheduler"])
        if model is not None:
            model.load_state_dict(found["model"], strict=strict)
    except Exception:
        for target, state in before:
            target.load_state_dict(state)
        raise
    if rng:
        set_rng_state(found["rng"])
    return found


def load_weights(path, model=None, strict=True):
    """Read the weights alone, from a file of `save` or of another program that uses PyTorch's names.

    Other programs write a tied weight under one of its names only; a `model` that ties the same names gets it under
    all of them. bfloat16 becomes float32, which holds every such number.

    Parameters
    ----------
    path : str or path ending in .safetensors or .npz
    model : Module, optional
        Its ``load_state_dict`` is called with the weights.
    strict : bool
        For ``load_state_dict``.

    Returns
    -------
    dict from names to Tensors

    Raises
    ------
    ValueError
        If the file is broken.
    RuntimeError
        From ``load_state_dict``, if names or shapes do not match.
    """
    arrays, text = _read(path)
    if text is None:
        weights = {name: Tensor.wrap(to_device(array)) for name, array in arrays.items()}
    else:
        weights = _parse(path, text, arrays)["model"] or {}
    if model is not None:
        own = model.state_dict(keep_vars=True)
        for name, tensor in own.items():
            given = [other for other, same in own.items() if same is tensor and other in weights]
            if given:
                weights.setdefault(name, weights[given[0]])
        model.load_state_dict(weights, strict=strict)
    return weights


# between Python's values and JSON ----------------------------------------------------------------------------------
# In what _encode returns, an object {"tensor": name} stands for an array, {"tuple": [...]} for a tuple, and
# {"items": [[key, value], ...]} for a dict, whose keys JSON alone would turn into texts.

def _encode(value, name, arrays, names):
    """`value` as JSON can hold it; its tensors go into `arrays`, and `names` remembers under which name each went."""
    if isinstance(value, Tensor):
        if id(value.array) not in names:
            while name in arrays:
                name += "_"
            arrays[name] = numpy.array(to_host(value.array), order="C")  # a copy: of a view only what it shows
            names[id(value.array)] = name, value.array  # kept alive, or its id could become that of another
        return {"tensor": names[id(value.array)][0]}
    if isinstance(value, dict):
        prefix = f"{name}/" if name else ""
        return {"items": [[key, _encode(v, f"{prefix}{key}", arrays, names)] for key, v in value.items()]}
    if isinstance(value, (list, tuple)):
        entries = [_encode(v, f"{name}/{i}", arrays, names) for i, v in enumerate(value)]
        return entries if isinstance(value, list) else {"tuple": entries}
    if isinstance(value, numpy.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{name}: a {type(value).__name__} cannot be saved, only tensors, numbers, texts, lists, tuples "
                    "and dicts")


def _decode(value, tensors):
    """The inverse of `_encode`."""
    if isinstance(value, list):
        return [_decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    [(kind, content)] = value.items()  # ValueError unless it has exactly one entry
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_decode(v, tensors) for v in content)
    if kind == "items":
        return {key: _decode(v, tensors) for key, v in content}
    raise ValueError(f"unknown kind of entry {kind!r}")


def _parse(path, text, arrays):
    """The dict that `load` returns, from a file's text and arrays."""
    try:
        found = json.loads(text)
        if found["version"] != VERSION:
            raise ValueError(f"it has format version {found['version']}, this program reads {VERSION}")
        tensors = {name: Tensor.wrap(to_device(array)) for name, array in arrays.items()}
        for part in ("model", "optimizer", "scheduler"):
            found[part] = _decode(found[part], tensors)
            if not isinstance(found[part], (dict, type(None))):
                raise ValueError(f"its {part} is no dict")
        if not all(isinstance(name, str) and isinstance(x, Tensor) for name, x in (found["model"] or {}).items()):
            raise ValueError("a weight is no tensor, or its name no text")
        if found["optimizer"] is not None:
            _check_optimizer(**found["optimizer"])
        if found["rng"] is not None:
            Generator().set_state(found["rng"])  # raises if it is no such state
        return {name: found[name] for name in ("model", "optimizer", "scheduler", "config", "step", "rng")}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: the description of its contents is broken: {error!r}") from error


def _check_optimizer(state, param_groups):
    """Raise unless these two have the form that ``Optimizer.state_dict`` gives them."""
    positions = [i for group in param_groups for i in group["params"]]
    if not (all(isinstance(i, int) for i in [*positions, *state])
            and all(isinstance(entries, dict) for entries in state.values())):
        raise ValueError("its optimizer state has another form")


# files --------------------------------------------------------------------------------------------------------------

def _ending(path):
    ending = os.path.splitext(os.fspath(path))[1]
    if ending not in (".npz", ".safetensors"):
        raise ValueError(f"a checkpoint's name ends in .safetensors or .npz, got {os.fspath(path)!r}")
    return ending


def _safetensors():
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("files in .safetensors form need the package: pip install minitorch_attn[checkpoint]; or "
                          "use the ending .npz") from error
    return safetensors


def _read(path):
    """All arrays of a file by name, on the host, and its text (None if it has none)."""
    read = {".npz": _read_npz, ".safetensors": _read_safetensors}[_ending(path)]
    try:
        return read(path)
    except (OSError, ImportError, MemoryError):
        raise
    except Exception as error:  # whatever it is that a parser stumbles over, the file is what is broken
        raise ValueError(f"{path} is not a readable {_ending(path)} file: {error}") from error


def _write_safetensors(file, arrays, text):
    if "__metadata__" in arrays:
        raise ValueError("a tensor cannot have the name '__metadata__' in a .safetensors file")
    # "pt" says that names and shapes follow PyTorch; some readers insist on it
    file.write(_safetensors().numpy.save(arrays, {"format": "pt", TEXT: text}))


def _read_safetensors(path):
    with open(path, "rb") as file:
        content = file.read()
    try:
        entries = _safetensors().deserialize(content)
    except _safetensors().SafetensorError as error:
        raise ValueError(str(error)) from error
    header = json.loads(content[8:8 + int.from_bytes(content[:8], "little")])
    arrays = {}
    for name, entry in entries:
        if entry["dtype"] == "BF16":  # the upper half of a float32
            bits = numpy.frombuffer(entry["data"], numpy.uint16).astype(numpy.uint32) << 16
            array = bits.view(numpy.float32)
        elif entry["dtype"] in SAFETENSORS_DTYPES:
            array = numpy.frombuffer(entry["data"], SAFETENSORS_DTYPES[entry["dtype"]])
        else:
            raise ValueError(f"{name} has dtype {entry['dtype']}, which has no counterpart here")
        arrays[name] = array.reshape(entry["shape"])
    return arrays, header.get("__metadata__", {}).get(TEXT)


def _write_npz(file, arrays, text):
    with zipfile.ZipFile(file, "w") as archive:  # which stores without compressing
        archive.writestr(MEMBER, text)
        for name, array in arrays.items():
            info = zipfile.ZipInfo(name + ".npy")
            if info.filename != name + ".npy":
                raise ValueError(f"the name {name!r} cannot be written to a .npz file")
            with archive.open(info, "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, array, allow_pickle=False)


def _read_npz(path):
    """As `_read`; each claim that the file makes about a size is checked before memory is taken for it."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        if any(info.compress_type != zipfile.ZIP_STORED for info in members):
            raise ValueError("its entries are compressed, which save() never does; they could be of any size")
        if sum(info.file_size for info in members) > os.path.getsize(path):
            raise ValueError("its entries are larger than the file")
        arrays, text = {}, None
        for info in members:
            content = archive.read(info)  # checks the entry's checksum
            name, is_array = info.filename.removesuffix(".npy"), info.filename.endswith(".npy")
            if is_array and name not in arrays:
                arrays[name] = _parse_npy(name, content)
            elif info.filename == MEMBER:
                text = content.decode("utf-8")
            else:
                raise ValueError(f"it has an unexpected entry {info.filename!r}")
    return arrays, text


def _parse_npy(name, content):
    """The array in the bytes of a .npy file."""
    file = io.BytesIO(content)
    version = numpy.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has .npy version {version}")
    npy = numpy.lib.format
    shape, fortran_order, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if dtype not in SAFETENSORS_DTYPES.values():
        raise ValueError(f"{name} has dtype {dtype}, which has no counterpart here")
    if math.prod(shape) * dtype.itemsize != len(content) - file.tell() or min(shape, default=0) < 0:
        raise ValueError(f"{name} claims shape {shape} and {dtype}, but holds {len(content) - file.tell()} bytes")
    order = "F" if fortran_order else "C"
    return numpy.frombuffer(content, dtype, offset=file.tell()).reshape(shape, order=order).copy()
