# Every target sets up what it needs. PYTHON is the interpreter the environment is made with (3.10 or newer).
PYTHON ?= $(shell for name in python3.11 python3; do command -v $$name >/dev/null && $$name -c '' 2>/dev/null && echo $$name && break; done)
TORCH ?= torch==2.13.0
WORKERS ?= 2

ENVIRONMENT := .venv
READY := $(ENVIRONMENT)/.ready
BIN := $(ENVIRONMENT)/bin
ARGUMENTS ?=

.PHONY: help setup demo test check format unit bench test-matrix clean

help:  ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## Make the environment in .venv (torch, the project, the tools)

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "no python3.11 or python3 found; give one with: make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(ENVIRONMENT)
	$(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	@touch $@

demo: $(READY)  ## Run a program from fixtures/ under the debugger and show the session
	@$(BIN)/python tests/demo/demo.py

test: check unit  ## Lint, types, every test

check: $(READY)  ## Lint, format, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)  ## Format the sources and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

unit: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGUMENTS)

bench: $(READY)  ## Measure what the debugger costs, as ratios to the plain program
	@$(BIN)/python tests/benchmarks/compile_time.py

test-matrix:  ## Run the tests of the debuggee on every other Python that is installed
	$(PYTHON) tests/matrix/run.py $(ARGUMENTS)

clean:  ## Remove everything that was made
	rm -rf $(ENVIRONMENT) .matrix build dist .pytest_cache .mypy_cache .ruff_cache tests/output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
