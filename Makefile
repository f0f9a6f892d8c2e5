# Each target does its own set-up, in a virtual environment of its own: a fresh machine needs Python 3.10 and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# BLAS, and the OpenCL below dpnp, in one thread for each of two processes that run tests. That OpenCL at times waits
# forever for a copy to end (https://github.com/IntelPython/dpctl/issues/1954): a test that takes five minutes is ended
# together with its process, and only such a one is run again.
ON_DPNP = OMP_NUM_THREADS=1 DPCPP_CPU_NUM_CUS=1 $(BIN)/python -m pytest -n 2 --backend dpnp \
	--timeout 300 --timeout-method thread --reruns 1 --only-rerun crashed

.PHONY: demo test test-trainings test-dpnp test-dpnp-quick lint bench clean

demo: $(VENV)/demo-ready
	$(BIN)/minitorch-attn demo

test: $(VENV)/test-ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# the same tests on another array library; what makes no arrays is left out
test-dpnp: $(VENV)/dpnp-ready
	$(ON_DPNP) tests/test_autograd.py tests/test_backend.py \
		tests/test_checkpoint.py tests/test_data.py tests/test_dtypes.py tests/test_generate.py tests/test_grad_mode.py \
		tests/test_methods.py tests/test_random.py tests/test_switching.py tests/test_torch_bridge.py tests/models \
		tests/nn tests/ops tests/optim

test-dpnp-quick: $(VENV)/dpnp-ready
	$(ON_DPNP) @tests/dpnp_quick.txt

# what takes minutes or a quiet machine: the lessons that train, and the tests that compare times
test-trainings: $(VENV)/test-ready
	$(BIN)/python -m pytest --trainings tests/test_lessons.py tests/models tests/text \
		-k "lesson or time_per_token or fast_enough"

lint: $(VENV)/test-ready
	$(BIN)/python -m ruff check .

bench: $(VENV)/test-ready
	$(BIN)/python -m benchmarks

# installed anew when the list of what is needed changes
$(VENV)/demo-ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/test-ready: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	touch $@ $(VENV)/demo-ready

$(VENV)/dpnp-ready: $(VENV)/test-ready
	$(BIN)/python -m pip install --quiet --editable '.[dpnp]'
	touch $@

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
