"""Write docs/parity.md from the code: what of PyTorch is covered, and where behaviour differs on purpose.

    python docs/make_parity.py            write it
    python docs/make_parity.py --check    exit with status 1 if the file is not what would be written

A difference is stated where it is made: as a docstring paragraph that begins with "Differs from PyTorch:".
"""
import ast
import inspect
import pathlib
import re
import sys

import minitorch_attn as mt
from minitorch_attn import data, nn, optim

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = pathlib.Path(mt.__file__).resolve().parent
MARK = "Differs from PyTorch:"

# Names that programs use and this library leaves out, and why.
LEFT_OUT = {
    "torch.bfloat16": "NumPy has no such type; use float32",
    "torch.cuda.amp.GradScaler": "mixed precision on a GPU; train in float32",
    "nn.GRU._flat_weights_names": "private to PyTorch",
    "backends.cuda.cuBLASModule.allow_tf32 (set)": "device setting",
    "cuda.amp.grad_scaler.GradScaler.scale": "mixed precision on a GPU",
    "cuda.amp.grad_scaler.GradScaler.step": "mixed precision on a GPU",
    "cuda.amp.grad_scaler.GradScaler.unscale_": "mixed precision on a GPU",
    "cuda.amp.grad_scaler.GradScaler.update": "mixed precision on a GPU",
}

X = mt.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
N = mt.tensor([1, 0])


def write_in_place(index, value):
    x = X.clone()
    x[index] = value
    return x


# Uses that are not names: each is carried out.
USES = {
    "Tensor +": lambda: X + X, "Tensor *": lambda: X * X, "Tensor /": lambda: X / X, "Tensor ==": lambda: X == X,
    "Tensor @": lambda: X @ X.T, "Tensor -": lambda: X - X,
    "Tensor * (from the right)": lambda: 2 * X,
    "Tensor +=": lambda: X.clone().__iadd__(X), "Tensor <": lambda: X < X, "Tensor + (from the right)": lambda: 2 + X,
    "Tensor -x": lambda: -X, "Tensor &": lambda: (X > 2) & (X < 5), "Tensor / (from the right)": lambda: 2 / X,
    "Tensor !=": lambda: X != X, "Tensor ** (from the right)": lambda: 2 ** X,
    "Tensor *=": lambda: X.clone().__imul__(X), "Tensor - (from the right)": lambda: 2 - X,
    "Tensor **": lambda: X ** X,
    "Tensor >": lambda: X > X, "Tensor ~": lambda: ~(X > 2), "Tensor %": lambda: X % 2,
    "Tensor -=": lambda: X.clone().__isub__(X), "Tensor /=": lambda: X.clone().__itruediv__(X),
    "Tensor >=": lambda: X >= X, "Tensor //": lambda: X // 2, "Tensor <=": lambda: X <= X,
    "Tensor not": lambda: not mt.tensor(0.0),
    "Tensor[int]": lambda: X[1], "Tensor[slice]": lambda: X[:1],
    "Tensor[...] = (in place)": lambda: write_in_place(0, 1),
    "Tensor[int Tensor]": lambda: X[N], "Tensor[slice with step]": lambda: X[:, ::2],
    "Tensor[bool Tensor]": lambda: X[X > 2], "Tensor[None]": lambda: X[None], "Tensor[list]": lambda: X[[1, 0]],
    "Tensor[...]": lambda: X[..., 0],
    "Tensor as an index (__index__) or key": lambda: ([7, 8][N[0]], {N: 1}), "Tensor[range]": lambda: X[range(2)],
    "iteration over a Tensor": lambda: list(X), "format of a Tensor": lambda: f"{X.sum():.2f}",
    "len(Tensor)": lambda: len(X),
    "bool(Tensor)": lambda: bool(X.sum()), "max() .values": lambda: X.max(dim=1).values,
    "max() .indices": lambda: X.max(dim=1).indices, "int(Tensor)": lambda: int(N[0]), "min(Tensor)": lambda: min(N),
    "Tensor.an attribute of one's own (set)": lambda: setattr(X.clone(), "note", 1),
    "nn.Linear.NANOGPT_SCALE_INIT": lambda: setattr(nn.Linear(2, 3), "NANOGPT_SCALE_INIT", 1),
}
USES["nn.Linear.NANOGPT_SCALE_INIT (set)"] = USES["nn.Linear.NANOGPT_SCALE_INIT"]


def instances():
    """One object of each class whose attributes programs read."""
    linear = nn.Linear(2, 3)
    adam, sgd = optim.Adam(linear.parameters()), optim.SGD(linear.parameters(), lr=0.1)
    adamw = optim.AdamW(linear.parameters())
    schedule = optim.lr_scheduler.LambdaLR(sgd, lambda step: 1.0)
    return {
        "Module": nn.Module(), "Tensor": X, "nn.Linear": linear, "nn.Embedding": nn.Embedding(2, 3),
        "nn.LayerNorm": nn.LayerNorm(3), "nn.Conv2d": nn.Conv2d(1, 1, 1), "nn.GRU": nn.GRU(2, 3),
        "nn.Transformer": nn.Transformer(4, 2, 1, 1, 4), "optim.Adam": adam, "optim.AdamW": adamw,
        "optim.Optimizer": sgd,
        "optim.lr_scheduler.LambdaLR": schedule, "optim.lr_scheduler.LRScheduler": schedule,
        "optim.lr_scheduler._LRScheduler": schedule, "torch.Generator": mt.Generator(),
    }


ROOTS = {"torch": mt, "nn": nn, "F": nn.functional, "optim": optim, "utils": mt.utils}


def covered(name, objects):
    """Whether the library has what a line of pytorch_names.txt names."""
    if name in USES:
        USES[name]()
        return True
    name = name.removesuffix(" (set)")
    for owner in sorted(objects, key=len, reverse=True):
        if name.startswith(owner + "."):
            return hasattr(objects[owner], name[len(owner) + 1:])
    root, *parts = name.split(".")
    found = ROOTS.get(root)
    for part in parts:
        found = getattr(found, part, None)
    return found is not None


def names_table():
    """The table of names that programs use, one section after the other."""
    objects, lines, counts = instances(), [], {"covered": 0, "left out": 0}
    for line in (HERE / "pytorch_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            lines += ["", f"### {line[1:-1]}", "", "| name | programs | here |", "|---|---|---|"]
        elif line and not line.startswith("#"):
            name, count = line.rsplit(" ", 1)
            if name in LEFT_OUT:
                answer, kind = LEFT_OUT[name], "left out"
            elif covered(name, objects):
                answer, kind = "covered", "covered"
            else:
                raise SystemExit(f"{name} is neither covered nor explained in LEFT_OUT")
            counts[kind] += 1
            lines.append(f"| `{name}` | {count} | {answer} |")
    return [f"{counts['covered']} names are covered, {counts['left out']} are left out for the reason given.", *lines]


def public(module, kind):
    """The public names of a module or class that satisfy `kind`, sorted."""
    return sorted(n for n, v in inspect.getmembers(module) if not n.startswith("_") and kind(v))


def is_operation(value):
    return callable(value) and not inspect.ismodule(value) and not inspect.isclass(value)


def cover_lists():
    """Everything public, by PyTorch's module."""
    tensor = [n for n in dir(mt.Tensor) if not n.startswith("_")]
    sections = {
        "torch": public(mt, lambda v: is_operation(v) or inspect.isclass(v)),
        "torch.Tensor": tensor,
        "torch.nn": public(nn, inspect.isclass),
        "torch.nn.functional": public(nn.functional, is_operation),
        "torch.nn.init": public(nn.init, is_operation),
        "torch.nn.utils": public(nn.utils, is_operation),
        "torch.optim": public(optim, inspect.isclass),
        "torch.optim.lr_scheduler": public(optim.lr_scheduler, lambda v: inspect.isclass(v) or is_operation(v)),
        "torch.utils.data": sorted(data.__all__),
    }
    for title, names in sections.items():
        yield from ["", f"### {title} ({len(names)})", "", ", ".join(f"`{n}`" for n in names)]


def differences():
    """Every docstring paragraph that begins with MARK, with the place where it stands."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        module = path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        stack = [(module, tree)]
        while stack:
            name, node = stack.pop()
            for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or ""):
                if paragraph.startswith(MARK):
                    found.append((name, " ".join(paragraph[len(MARK):].split())))
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                    stack.append((f"{module}:{child.name}" if node is tree else f"{name}.{child.name}", child))
    return [f"| `{name}` | {text[0].upper() + text[1:]} |" for name, text in sorted(found)]


def page():
    return "\n".join([
        "# What of PyTorch is covered", "",
        "Written by `python docs/make_parity.py`; do not edit it by hand.", "",
        "A program runs here after its import lines are changed (`import minitorch_attn as torch`), or unchanged",
        "under `minitorch-attn run`, as long as it keeps to the names below. Any other name raises an error that",
        "says so.", "",
        "## Where behaviour differs on purpose", "",
        "| where | how |", "|---|---|", *differences(), "",
        "## Names that real programs use", "",
        "Counted over 41 public PyTorch programs about attention, recurrent and vision models. " + names_table()[0],
        *names_table()[1:], "",
        "## Everything that is there", *cover_lists(), ""])


def main():
    target, text = HERE / "parity.md", page()
    if "--check" in sys.argv[1:]:
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            raise SystemExit("docs/parity.md is out of date: run python docs/make_parity.py")
    else:
        target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
