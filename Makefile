# Two commands do everything on a machine that has only Python, pip and make:
#   make demo    start a server, train small models that grow and shrink, kill a worker, compare
#                with the simulator's prediction, and leave nothing behind
#   make test    run the tests, in a few minutes
# Both install Roost into .venv first; `make install` does just that. The other tests need more
# packages or more time: each target installs what it needs, and no more.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# One more than there are cores: some tests wait for processes.
WORKERS ?= $(shell expr $$(nproc) + 1)
PYTEST  := $(BIN)/python -m pytest -n $(WORKERS) --dist=worksteal
ROUNDS  ?= 100
SEED    ?= 1

# Images: where they are to be pushed, what builds them, and what else it is told.
REGISTRY ?= localhost
BUILD    ?= buildah build --isolation chroot
HELM     ?= helm
PACKAGES ?= build
VERSION  := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/roost/__init__.py)

.PHONY: install demo test test-compiled test-faults test-torch test-kubernetes test-browser test-benchmarks test-all chaos check format measure constraints image chart clean

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/roost demo

test: $(VENV)/.with-test
	$(PYTEST)

# Faults and hostile users against real servers: kill -9, full disks, broken databases, fuzzing.
test-faults: $(VENV)/.with-faults
	$(PYTEST) tests/faults

# PyTorch: 5 GB. Tests of GPUs are skipped where there is none.
test-torch: $(VENV)/.with-torch
	$(PYTEST) tests/torch

# Needs Go, or KUBEBUILDER_ASSETS: the first time, the binaries of Kubernetes are built (minutes).
# A real kubelet needs root, containerd, runc and CNI's bridge; its tests are skipped without.
test-kubernetes: $(VENV)/.with-kubernetes
	$(BIN)/python -m tests.support.kubernetes.binaries
	$(BIN)/python -m tests.support.kubernetes.controller_programs
	$(BIN)/python -m pytest -n2 --dist=loadfile tests/kubernetes

# Needs Chromium.
test-browser: $(VENV)/.with-browser
	$(BIN)/python -m pytest tests/browser

# The scheduling core compiled, and the tests of everything that runs on it.
test-compiled: $(VENV)/.with-test build/wheel/.unpacked
	PYTHONPATH=build/wheel/unpacked $(PYTEST) tests/unit/core tests/unit/placement tests/unit/policies \
		tests/unit/sim tests/contract tests/golden tests/oracles tests/property

# The package in benchmarks/; some measures need PyTorch and are skipped without it.
test-benchmarks: $(VENV)/.with-kubernetes
	$(PYTEST) tests/benchmarks

test-all: test test-compiled test-faults test-torch test-kubernetes test-browser test-benchmarks

# Kills the server, its shims and its workers at random moments and at every failpoint.
chaos: $(VENV)/.with-test
	$(BIN)/python -m tests.support.chaos --rounds $(ROUNDS) --seed $(SEED)
	$(BIN)/python -m tests.support.flood --rounds $(ROUNDS) --seed $(SEED) --clusters 2

check: $(VENV)/.with-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.with-lint
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Figures about the source: sizes, comments, names, words. ARGS="--list names" shows what is behind one.
measure:
	@$(PYTHON) tools/measure.py $(ARGS)

# The versions that a release is built and tested with, in constraints.txt.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	ROOST_COMPILE=no build/constraints/bin/pip install --quiet '.[agent,kubernetes,postgres]'
	(echo '# The versions of a release, written by `make constraints`: pip install -c constraints.txt roost'; \
		build/constraints/bin/pip freeze --exclude roost) > constraints.txt

# The operator's image and that of roost.train. buildah needs no daemon; others do it, too:
# make image REGISTRY=registry.example.org/lab BUILD="docker build"
image:
	$(BUILD) --file deploy/Containerfile $(ARGS) --target train --tag $(REGISTRY)/roost-train:$(VERSION) .
	$(BUILD) --file deploy/Containerfile $(ARGS) --tag $(REGISTRY)/roost:$(VERSION) .

# The Helm chart as one file.
chart:
	$(HELM) package deploy/helm/roost --destination $(PACKAGES)

clean:
	rm -rf $(VENV) build demo.html .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

build/wheel/.unpacked: $(BIN)/python pyproject.toml hatch_build.py $(shell find src -name '*.py')
	rm -rf build/wheel
	ROOST_COMPILE=yes $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m zipfile --extract build/wheel/roost-*.whl build/wheel/unpacked
	PYTHONPATH=build/wheel/unpacked $(BIN)/roost --version
	touch $@

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roost needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed: $(BIN)/python pyproject.toml benchmarks/pyproject.toml
	ROOST_COMPILE=no $(BIN)/python -m pip install --quiet --editable . --editable benchmarks
	touch $@

# One stamp for each group of packages in pyproject.toml.
$(VENV)/.with-%: $(VENV)/.installed
	ROOST_COMPILE=no $(BIN)/python -m pip install --quiet --editable '.[agent,kubernetes,postgres]' --group $*
	touch $@
