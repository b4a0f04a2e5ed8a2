# Every target sets up what it needs in .venv, once, and again when pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.PHONY: help demo test check bench bench-processes clean

help: ## show this
	@echo 'make TARGET, where TARGET is one of:'
	@sed -nE 's/^([a-z-]+):[^#]*## (.*)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
	@echo 'Settings: PYTHON=$(PYTHON) VENV=$(VENV) JOBS=$(JOBS) ARGS=$(ARGS)'

demo: $(VENV)/.core ## shard, reshard, reduce and differentiate on a 2x4 mesh, with pictures
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev ## run all tests; more for pytest in ARGS, such as ARGS='--exhaustive' or ARGS='-k gather'
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(VENV)/.dev ## format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

bench: $(VENV)/.dev ## measure against JAX and write docs/benchmarks.md; ARGS='pairs' for one suite, ARGS=--quick
	@code=0; $(BIN)/python -m benchmarks $(ARGS) || code=$$?; $(BIN)/python -m benchmarks report && exit $$code

bench-processes: $(VENV)/.dev ## the same over 4 processes; as root also over links of 1 Gbit/s
	@code=0; $(BIN)/python -m benchmarks.processes $(ARGS) || code=$$?; $(BIN)/python -m benchmarks report && exit $$code

clean: ## remove what make made, .venv included
	@rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

# The environment itself. --clear, because a run that was interrupted leaves half of one.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Lamina needs Python 3.11 or newer, and '$(PYTHON)' is $$($(PYTHON) --version 2>/dev/null || echo not there)." >&2; \
	  echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# What a user gets: enough for the demo.
$(VENV)/.core: pyproject.toml | $(VENV)/.made
	@echo 'Installing Lamina and JAX into $(VENV) (only this once)...'
	@$(PIP) -e .
	@touch $@

# The same with the development tools. It contains the core, so it marks that as done too.
$(VENV)/.dev: pyproject.toml | $(VENV)/.made
	@echo 'Installing Lamina, JAX and the development tools into $(VENV) (only this once)...'
	@$(PIP) -e '.[dev]'
	@touch $(VENV)/.core $@
