import importlib
import subprocess
import sys

import pytest

import minitorch_attn as mt
from minitorch_attn.torch_names import MODULES


def test_namespaces_hang_where_pytorch_has_them():
    assert mt.utils.data is mt.data and mt.nn.utils.clip_grad_norm_ and mt.cuda.is_available() is False
    assert mt.device("cpu").type == "cpu"


@pytest.mark.parametrize("name", MODULES)
def test_every_module_imports_under_this_packages_name(name):
    assert importlib.import_module(name.replace("torch", "minitorch_attn", 1)) is MODULES[name]
    code = f"import {name.replace('torch', 'minitorch_attn', 1)}"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", MODULES)
def test_every_module_names_what_it_lacks(name):
    with pytest.raises(AttributeError, match=rf"does not cover {name}.no_such_name; docs/parity.md"):
        MODULES[name].no_such_name  # noqa: B018


def test_from_import_names_what_is_missing():
    with pytest.raises(ImportError, match="no_such_name"):
        from minitorch_attn.nn import no_such_name  # noqa: F401


def test_settings_of_absent_devices_can_be_set():
    mt.backends.cudnn.allow_tf32 = mt.backends.cuda.matmul.allow_tf32 = True
    mt.cuda.empty_cache()
    mt.cuda.manual_seed_all(5)
    a = mt.rand(3).tolist()
    mt.manual_seed(5)
    assert mt.rand(3).tolist() == a
