# Everything runs in a virtual environment that make creates; only Python >= 3.11, pip and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# two BLAS threads fight with pytest's own load on small machines; the tests are about digits, not speed
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg

.PHONY: demo test test-all lint format clean

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@

demo: $(VENV)/ready
	$(BIN)/python examples/first_fit.py

lint: $(VENV)/ready
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest tests --doctest-modules src/ggpm

test-all: lint
	$(BIN)/python -m pytest tests --doctest-modules src/ggpm -m ""

format: $(VENV)/ready
	$(BIN)/ruff check --fix src tests examples
	$(BIN)/ruff format src tests examples

clean:
	rm -rf $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
