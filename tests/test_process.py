"""Settings of the whole process."""
import os
import platform
import subprocess
import sys

import pytest

SHOW = "import os, minitorch_attn; print(os.environ.get('OPENBLAS_THREAD_TIMEOUT'))"


@pytest.mark.parametrize("given, wanted", [(None, "20"), ("26", "26")])
def test_idle_threads_sleep_unless_told_otherwise(given, wanted):
    variables = {key: value for key, value in os.environ.items() if key != "OPENBLAS_THREAD_TIMEOUT"}
    if given:
        variables["OPENBLAS_THREAD_TIMEOUT"] = given
    got = subprocess.run([sys.executable, "-c", SHOW], env=variables, capture_output=True, text=True)
    assert got.stdout == f"{wanted}\n", got.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator is set")
@pytest.mark.parametrize("value, returned", [("0", "True\n"), ("", "False\n")])
def test_freed_memory_is_kept_unless_told_otherwise(value, returned):
    # after 64 MB are freed the resident set falls by as much, or stays
    code = ("import minitorch_attn, numpy\n"
            "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
            "a = numpy.ones(1 << 23); before = resident(); del a; print(before - resident() > 1 << 25)")
    got = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MINITORCH_MALLOC": value},
                         capture_output=True, text=True)
    assert got.stdout == returned, got.stderr
