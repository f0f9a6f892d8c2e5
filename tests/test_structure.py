"""The package's layers: a file imports only from lines above it, and each module can be imported alone."""
import ast
import pathlib
import subprocess
import sys

import pytest

import minitorch_attn

PACKAGE = pathlib.Path(minitorch_attn.__file__).parent

# From the ground up. A name ending in "/" is a folder whose files may also import each other, without a circle.
LAYERS = """
process differences backend threads dtypes grad_mode random memory autograd switching ops/ methods nn/functional/
gradient_check/ nn/ optim/ data models/ text/ datasets/ generate checkpoint distributed/ torch_bridge plot torch_names
run profile_report profile __init__ info demo __main__
""".split()

FILES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.rglob("*.py"))


def layer_of(path):
    """The position in LAYERS of a file given relative to the package."""
    name = path.with_suffix("").as_posix()
    fits = [layer for layer in LAYERS if name == layer or (layer.endswith("/") and name.startswith(layer))]
    assert fits, f"{path} belongs to no layer: add it to LAYERS and to the design"
    return LAYERS.index(max(fits, key=len))


def file_of(parts):
    """The file that a dotted module path (a list of names below the package) stands for, or None."""
    for candidate in (pathlib.Path(*parts, "__init__.py"), pathlib.Path(*parts).with_suffix(".py") if parts else None):
        if candidate and (PACKAGE / candidate).exists():
            return candidate
    return None


def imports_of(path):
    """The package's files that `path` imports when it is imported itself (not those inside its functions)."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    inside = {n for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.Lambda)) for n in ast.walk(f)}
    found = set()
    for node in ast.walk(tree):
        if node in inside:
            continue
        if isinstance(node, ast.ImportFrom):
            base = list(path.parent.parts)[:len(path.parent.parts) - node.level + 1] if node.level else None
            if node.level == 0:
                if (node.module or "").split(".")[0] != "minitorch_attn":
                    continue
                base = node.module.split(".")[1:]
            elif node.module:
                base += node.module.split(".")
            for alias in node.names:
                found.add(file_of([*base, alias.name]) or file_of(base))
        elif isinstance(node, ast.Import):
            found |= {file_of(a.name.split(".")[1:]) for a in node.names if a.name.split(".")[0] == "minitorch_attn"}
    return found - {None}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_point_upwards(path):
    for imported in imports_of(path):
        assert layer_of(imported) <= layer_of(path), f"{path} imports {imported}, which stands below it"


def test_no_import_circle():
    edges = {path: {i for i in imports_of(path) if i != path} for path in FILES}
    done, open_ = set(), []

    def visit(path):
        assert path not in open_, f"import circle: {' -> '.join(map(str, [*open_[open_.index(path):], path]))}"
        if path not in done:
            open_.append(path)
            for imported in edges[path]:
                # a package's __init__ gathers its files; a file in it naming the package is no circle of files
                if imported.name != "__init__.py":
                    visit(imported)
            done.add(open_.pop())

    for path in FILES:
        visit(path)


def test_models_do_not_import_each_other():
    for path in FILES:
        if path.parts[0] == "models" and path.name != "__init__.py":
            shared = {path.name, "checks.py", "beam.py"}  # the last two are no models
            assert not [i for i in imports_of(path) if i.parts[0] == "models" and i.name not in shared]


def test_every_module_imports_alone():
    names = [".".join(["minitorch_attn", *p.with_suffix("").parts]).removesuffix(".__init__") for p in FILES]
    code = ("import importlib, sys\n"
            "for name in sys.argv[1:]:\n"
            "    for loaded in [m for m in sys.modules if m.startswith('minitorch_attn')]: del sys.modules[loaded]\n"
            "    importlib.import_module(name)\n")
    got = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr


def test_import_loads_numpy_and_nothing_else():
    code = ("import sys, numpy.random; before = set(sys.modules); import minitorch_attn\n"
            "print(*{m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names))")
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(got.stdout.split()) <= {"minitorch_attn", "numpy"}


def test_engine_stays_short():
    assert len((PACKAGE / "autograd.py").read_text(encoding="utf-8").splitlines()) <= 350


@pytest.mark.parametrize("path", FILES, ids=str)
def test_functions_fit_a_screen(path):
    for node in ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            doc = ast.get_docstring(node, clean=False)
            lines = node.end_lineno - node.lineno + 1 - (len(doc.splitlines()) if doc else 0)
            assert lines <= 60, f"{path}:{node.lineno} {node.name} has {lines} lines besides its docstring"
