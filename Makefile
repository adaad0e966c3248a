PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
unexport PYTHONDONTWRITEBYTECODE # compiled tests are kept: to rewrite their assertions takes seconds in each process

.PHONY: help venv demo test test-fast coverage fuzz mutants check format docs bench reproduce-small tables

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

venv: $(STAMP)  ## make .venv/ with the pinned versions of constraints.txt

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	@touch $@

demo: $(STAMP)  ## learn an invariance from a few hundred digits
	$(BIN)/python -m experiments demo

test: $(STAMP)  ## all tests, on two processes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

test-fast: $(STAMP)  ## the tests without the slow ones, and without checks of shapes, in a minute or so
	JAXTYPING_DISABLE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

coverage: $(STAMP)  ## all tests, and the lines that none of them runs, which must be few: a third longer
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal --cov --cov-report=term-missing:skip-covered

fuzz: $(STAMP)  ## random problems, hostile files, faults and kills, on all cores
	$(BIN)/python -m tests.fuzz problems
	$(BIN)/python -m tests.fuzz files
	$(BIN)/python -m tests.fuzz faults
	$(BIN)/python -m tests.fuzz kills

mutants: $(STAMP)  ## small mistakes in inference and comparison, one at a time: do the tests notice them?
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants

check: $(STAMP)  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)  ## format and sort imports
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## the documentation as pages in out/site/, warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(STAMP)  ## the benchmarks
	$(BIN)/python -m benchmarks

reproduce-small: $(STAMP)  ## every experiment in reduced form, in minutes on two cores: do its claims hold?
	OMP_NUM_THREADS=1 $(BIN)/python -m experiments reproduce-small

tables: $(STAMP)  ## the tables of README.md and docs/notes/results.md, from results/
	$(BIN)/python -m experiments tables
