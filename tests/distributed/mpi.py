"""Running a program under mpiexec."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

PROGRAMS = pathlib.Path(__file__).parent / "programs"
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]))

needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
                               reason="mpi4py or mpiexec is not installed: pip install 'minitorch_attn[mpi]'")


def ranks(n, *command, **settings):
    """Start ``python COMMAND`` in `n` processes, each with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([MPIEXEC, "-n", str(n), sys.executable, *map(str, command)], env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings)


def finished(process, timeout=60):
    """Wait for it; its exit status, stdout and stderr. It is ended if it takes longer."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.terminate()  # mpiexec then ends its ranks
        out, err = process.communicate(timeout=10)
        pytest.fail(f"not finished after {timeout} seconds\n{out}\n{err}")
    return process.returncode, out, err
