# Everything a developer does here. `make help` lists it.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# The first interpreter that is new enough; `make PYTHON=...` chooses another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$name" -c '$(NEW_ENOUGH)' >/dev/null 2>&1 && { echo "$$name"; break; }; done)

BIN := .venv/bin
READY := .venv/.ready
SOURCES := belay_core belay_drivers belay_testing tests

# Processes that run the tests side by side: `make test WORKERS=0` runs them in one.
WORKERS ?= auto
TEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: help setup demo test check lint types floors lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv with everything the other targets need

demo: $(READY) ## watch a run survive its worker (DEMO_ARGS="...")
	$(BIN)/belay demo $(DEMO_ARGS)

test: $(READY) ## run the tests on SQLite and PostgreSQL (JSON=file, WORKERS=n, TEST_ARGS="...")
	$(BIN)/pytest --numprocesses=$(WORKERS) $(if $(JSON),--counts='$(JSON)') $(TEST_ARGS)

check: lint types floors ## all of the next three (`make -k check` goes on after a failure)

lint: $(READY) ## rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## mypy and pyright, both strict
	$(BIN)/mypy
	$(BIN)/pyright

floors: $(READY) ## who may import whom, and which dependencies are declared
	$(BIN)/lint-imports
	$(BIN)/deptry .

lock: $(READY) ## resolve the dependencies anew into requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --all-extras --custom-compile-command 'make lock' \
		pyproject.toml requirements/dev.in --output-file requirements/dev.txt

clean: ## remove .venv, caches and build results
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage build dist
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements/dev.txt pyproject.toml
	@test -n '$(PYTHON)' || { echo 'belay needs Python 3.11 or newer; none was found on PATH.' >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo '$(PYTHON) is older than Python 3.11.' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo \
		'$(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: model
model: $(READY) ## explore every state of the ownership protocol (JSON=file, MODEL_ARGS=--deep)
	$(BIN)/python -m tests.model.check $(if $(JSON),--json '$(JSON)') $(MODEL_ARGS)
