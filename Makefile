# make demo    the main job, start to end          make test        the tests (half an hour)
# make lint    format, lint, types, imports         make test-slow   the tests that take minutes
#
# Every target first makes the environment it needs: VENV, from the interpreter PYTHON (3.11 or later).
# Another one beside it: make test VENV=.venv/py312 PYTHON=python3.12

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
    $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-browser test-slow lint format clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	@$(BIN)/python docs/examples/demo.py

test: $(INSTALLED)
	$(BIN)/python -m pytest -q -n 2 -m "not slow and not gpu and not browser" tests

# the HTML report in headless Chromium: the system's package `chromium`
test-browser: $(INSTALLED)
	$(BIN)/python -m pytest -q -m browser tests

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest -q -n 2 -m "slow and not gpu" --hypothesis-profile=explore tests

lint: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# the editable install follows the sources by itself; only new dependencies need it again
$(INSTALLED): pyproject.toml
	@test -n "$(PYTHON)" || { echo "tinyc needs Python 3.11 or later: set PYTHON to one" >&2; exit 1; }
	@echo "installing tinyc into $(VENV): a minute or more, the first time" >&2
	@$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
