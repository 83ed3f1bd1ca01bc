# Two commands on a fresh machine: `make demo` and `make test`. Both set up .venv first and only when it is out of date.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Pinned on a line of its own: with a range, pip may pull the newest build with gigabytes of CUDA.
TORCH  := torch==2.13.0
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint format docs clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## create .venv and install everything

$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "sympformer needs Python 3.11 or newer; say which with: make PYTHON=python3.11 ..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check $(TORCH)
	$(BIN)/python -m pip install --disable-pip-version-check -e '.[dev,docs,data,hf,tensorboard]'
	@touch $(STAMP)

demo: $(STAMP)  ## set up, then run the main job
	$(BIN)/sympformer compare demo --out runs/demo --jobs 2 --samples

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint  ## set up, lint, then run all tests
	$(BIN)/python -m pytest -n 2 --durations 5

test-fast: $(STAMP)  ## the tests that take about a minute
	$(BIN)/python -m pytest -n 2 -m 'not slow'

format: $(STAMP)  ## put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## build the site in build/site
	$(BIN)/python site/build.py

clean:  ## remove .venv, caches, runs and the site
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis runs build
