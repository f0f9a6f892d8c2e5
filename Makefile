# Each target does its own set-up, in a virtual environment of its own: a fresh machine needs Python 3.10 and make.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: demo test lint bench clean

demo: $(VENV)/demo-ready
	$(BIN)/minitorch-attn demo

test: $(VENV)/test-ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

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

clean:
	rm -rf $(VENV) build dist out *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
