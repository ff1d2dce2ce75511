# Two commands do everything on a machine that has only Python, pip and make:
#   make demo    replay a bundled workload under several policies, write the HTML report
#   make test    run the tests
# Both install Roost into .venv first; `make install` does just that.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
REPORT ?= demo.html

.PHONY: install demo test check format clean

install: $(VENV)/.installed

demo: $(VENV)/.installed
	$(BIN)/roost demo --report $(REPORT)

test: $(VENV)/.developed
	$(BIN)/python -m pytest

check: $(VENV)/.developed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.developed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

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
