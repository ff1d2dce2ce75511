# Two commands do everything on a machine that has only Python, pip and make:
#   make demo    start a server, train small models that grow and shrink, kill a worker, compare
#                with the simulator's prediction, and leave nothing behind
#   make test    run the tests
# Both install Roost into .venv first; `make install` does just that.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ROUNDS ?= 100
SEED   ?= 1

.PHONY: install demo test test-kubernetes chaos check format measure clean

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/roost demo

test: $(VENV)/.developed
	$(BIN)/python -m pytest --ignore=tests/kubernetes

# Needs Go, or KUBEBUILDER_ASSETS: the first time, the binaries of Kubernetes are built (minutes).
test-kubernetes: $(VENV)/.developed
	$(BIN)/python -m tests.support.kubernetes.binaries
	$(BIN)/python -m pytest -n2 --dist=loadfile tests/kubernetes

# Kills the server, its shims and its workers at random moments and at every failpoint.
chaos: $(VENV)/.developed
	$(BIN)/python -m tests.support.chaos --rounds $(ROUNDS) --seed $(SEED)

check: $(VENV)/.developed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.developed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Figures about the source: sizes, comments, names, words. ARGS="--list names" shows what is behind one.
measure:
	@$(PYTHON) tools/measure.py $(ARGS)

clean:
	rm -rf $(VENV) demo.html .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Roost needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.developed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --group dev
	touch $@
