import importlib.metadata
import platform
import subprocess
import sys

import numpy

from minitorch_attn import info


def test_describe_tells_the_versions_in_use():
    rows = dict(line.split("  ", 1) for line in info.describe().splitlines())
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert rows["numpy"] == numpy.__version__ and rows["python"].startswith(platform.python_version())
    assert rows["minitorch_attn"] == importlib.metadata.version("minitorch_attn")
    assert rows["array library"] == "numpy" and rows["BLAS"] and rows["BLAS threads"] and int(rows["processors"]) >= 1


def test_optional_packages_are_listed_without_being_imported():
    code = ("import sys; from minitorch_attn.info import describe; print(describe())\n"
            "print({'torch', 'scipy', 'matplotlib', 'safetensors'} & set(sys.modules))")
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert got.endswith("set()\n")
    for name in ("torch", "safetensors"):
        version = info.version_of(name)
        assert (version is None) == (f"\n{name} " not in got)


def test_what_is_not_installed_has_no_version():
    assert info.version_of("a-distribution-that-nobody-made") is None
