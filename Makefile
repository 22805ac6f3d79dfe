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
SOURCES := belay_core belay_drivers belay_integrations belay_testing examples tests

# Processes that run the tests side by side: `make test WORKERS=0` runs them in one.
WORKERS ?= auto
TEST_ARGS ?=
DEMO_ARGS ?=

.PHONY: help setup demo test check lint types floors docs lock clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv with everything the other targets need

demo: $(READY) ## watch a run survive its worker (DEMO_ARGS="...")
	$(BIN)/belay demo $(DEMO_ARGS)

test: $(READY) ## run the tests on SQLite and PostgreSQL (JSON=file, WORKERS=n, TEST_ARGS="...")
	$(BIN)/pytest --numprocesses=$(WORKERS) -m 'not thorough' $(if $(JSON),--counts='$(JSON)') $(TEST_ARGS)

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

docs: $(READY) ## build the documentation into build/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lock: $(READY) ## resolve the dependencies anew into requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --all-extras --custom-compile-command 'make lock' \
		pyproject.toml requirements/dev.in --output-file requirements/dev.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
		--extra sqlite pyproject.toml requirements/viewer.in --output-file requirements/viewer.txt
	$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
		requirements/peers.in --output-file requirements/peers.txt

clean: ## remove .venv, caches and build results
	rm -rf .venv .venv-peers .venv-viewer .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage .cache build dist
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

VIEWER := .venv-viewer/bin
VIEWER_READY := .venv-viewer/.ready

.PHONY: viewer
viewer: $(VIEWER_READY) ## send traces to a real viewer, and read them back from it (JSON=file)
	$(VIEWER)/python -m tests.viewer.check $(if $(JSON),--json '$(JSON)')

$(VIEWER_READY): requirements/viewer.txt | $(READY)
	test -x $(VIEWER)/python || $(PYTHON) -m venv .venv-viewer
	$(VIEWER)/python -m pip install --quiet --require-hashes --requirement requirements/viewer.txt
	@touch $@

# The drivers' tests once more, in other surroundings; VARIANT_ARGS are pytest's.
VERSIONS ?= 15 16 17 18
VARIANT_ARGS ?= --numprocesses=$(WORKERS)

.PHONY: test-pooler test-roles test-matrix
test-pooler: $(READY) ## the drivers' tests through pgbouncer, by transaction
	$(BIN)/python -m tests.variants.pooler $(VARIANT_ARGS)

test-roles: $(READY) ## the drivers' tests as a role with the least rights
	$(BIN)/python -m tests.variants.roles $(VARIANT_ARGS)

test-matrix: $(READY) ## the drivers' tests on several PostgreSQLs (VERSIONS="15 16 17 18")
	$(BIN)/python -m tests.variants.versions $(VERSIONS) -- $(VARIANT_ARGS)

.PHONY: faults
faults: $(READY) ## break owners, connections, processes and the server (JSON=file, FAULT_ARGS="--share 0.1")
	$(BIN)/python -m tests.faults.check $(if $(JSON),--json '$(JSON)') $(FAULT_ARGS)

.PHONY: soak
MINUTES ?= 2
soak: $(READY) ## kills, freezes, restarts, cuts and stepped clocks for MINUTES, judged by a ledger (JSON=file, SOAK_ARGS="--only sqlite")
	$(BIN)/python -m tests.soak.check --minutes $(MINUTES) $(if $(JSON),--json '$(JSON)') $(SOAK_ARGS)

.PHONY: crashes
crashes: $(READY) ## kill a process at every SQL statement (JSON=file, CRASH_ARGS="--share 1/8")
	$(BIN)/python -m tests.crashes.enumerate $(if $(JSON),--json '$(JSON)') $(CRASH_ARGS)

.PHONY: cancels
cancels: $(READY) ## cancel every store operation at every await (JSON=file, CANCEL_ARGS="--share 1/8")
	$(BIN)/python -m tests.cancels.enumerate $(if $(JSON),--json '$(JSON)') $(CANCEL_ARGS)

.PHONY: mutants
mutants: $(READY) ## plant defects, and see that tests notice each (JSON=file, MUTANT_ARGS="--share 1/8")
	$(BIN)/python -m tests.mutants.check $(if $(JSON),--json '$(JSON)') $(MUTANT_ARGS)

# What every driver promises, tried harder than in `make test`.
SEEDS ?= 100
VALUES ?= 10000

.PHONY: conformance
conformance: $(READY) ## every driver against the contract (JSON=file, SEEDS=n, VALUES=n)
	$(BIN)/pytest --numprocesses=$(WORKERS) -m 'belay_conformance or belay_case' --belay-seeds=$(SEEDS) \
		--belay-values=$(VALUES) $(if $(JSON),--belay-conformance='$(JSON)') $(TEST_ARGS)

.PHONY: downstream
downstream: $(READY) ## install the wheel elsewhere, with other people's driver and project (JSON=file)
	$(BIN)/python -m tests.downstream.check $(if $(JSON),--json '$(JSON)')

.PHONY: bench
bench: $(READY) ## measure belay beside what the database can do (JSON=file, BENCH_ARGS="--quick --only loop")
	$(BIN)/python -m tests.bench.measure $(if $(JSON),--json '$(JSON)') $(BENCH_ARGS)

PEERS := .venv-peers/bin
PEERS_READY := .venv-peers/.ready

.PHONY: bench-peers
bench-peers: $(PEERS_READY) ## measure belay beside other libraries (JSON=file, PEERS_ARGS="--quick --only dbos")
	$(BIN)/python -m tests.bench.peers.compare $(if $(JSON),--json '$(JSON)') $(PEERS_ARGS)

$(PEERS_READY): requirements/peers.txt | $(READY)
	test -x $(PEERS)/python || $(PYTHON) -m venv .venv-peers
	$(PEERS)/python -m pip install --quiet --require-hashes --requirement requirements/peers.txt
	@touch $@
