# Everything runs in a virtual environment that make creates; only Python >= 3.11, pip and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# two BLAS threads fight with pytest's own load on small machines; the tests are about digits, not speed
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MPLBACKEND ?= Agg
# tests start many interpreters, which would compile everything anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: docs test-docs demo test test-all lint format bench bench-previous bench-variational bench-special bench-neighbours bench-predictions bench-promises bench-columns forecasts test-dist test-oldest fuzz clean

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	touch $@

# the light environment of a user, and the full one of a developer; __init__.py holds the version that is installed
$(VENV)/user: pyproject.toml src/ggpm/__init__.py $(VENV)/made
	$(BIN)/python -m pip install --quiet -e ".[cli]"
	touch $@

$(VENV)/ready: pyproject.toml src/ggpm/__init__.py $(VENV)/made
	$(BIN)/python -m pip install --quiet -e ".[test]"
	touch $@ $(VENV)/user

demo: $(VENV)/user
	$(BIN)/python examples/first_fit.py
	$(BIN)/ggpm reproduce triangle --fast
	$(BIN)/ggpm reproduce simplex --fast

lint: $(VENV)/ready
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/mypy

test: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile tests --doctest-modules src/ggpm

test-all: lint
	$(BIN)/python -m pytest -n 2 --dist loadfile tests --doctest-modules src/ggpm -m ""

# what users install: sdist and wheel are built, the wheel from the sdist, which has the tests too; they run outside the
# source tree. Another Python: make test-dist PYTHON=python3.13
DIST := .venv-dist
test-dist:
	rm -rf $(DIST) dist && $(PYTHON) -m venv $(DIST)
	$(DIST)/bin/python -m pip install --quiet --upgrade pip build
	$(DIST)/bin/python -m build --outdir dist .
	$(DIST)/bin/python -m pip install --quiet "$$(ls dist/*.whl)[test]"
	mkdir $(DIST)/outside && tar -xzf dist/*.tar.gz -C $(DIST)/outside --strip-components=1 && rm -r $(DIST)/outside/src
	cd $(DIST)/outside && ../bin/python -m pytest -n 2 --dist loadfile tests $(TESTS)

# the oldest versions that pyproject.toml allows, of what is needed and of every extra that tests use
OLD := .venv-oldest
test-oldest:
	rm -rf $(OLD) && $(PYTHON) -m venv $(OLD)
	$(PYTHON) tests/oldest.py > $(OLD)/oldest.txt
	$(OLD)/bin/python -m pip install --quiet -r $(OLD)/oldest.txt
	$(OLD)/bin/python -m pip install --quiet --no-deps -e .
	$(OLD)/bin/python -m pytest -n 2 --dist loadfile tests $(TESTS)

# broken model files, tables and kernel texts: documented errors only; the tests take a few thousand of them
fuzz: $(VENV)/ready
	$(BIN)/python tests/fuzzing.py --inputs 100000

format: $(VENV)/ready
	$(BIN)/ruff check --fix src tests examples benchmarks
	$(BIN)/ruff format src tests examples benchmarks

# the site, strict; figures of the gallery are made anew only where an example changed
$(VENV)/docs: pyproject.toml src/ggpm/__init__.py $(VENV)/made
	$(BIN)/python -m pip install --quiet -e ".[docs]"
	touch $@

docs: $(VENV)/docs
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html docs docs/_build/html
	@echo "the site is in docs/_build/html/index.html"

# the site and a report in a real browser: needs the system's chromium
test-docs: docs
	$(BIN)/python -m pip install --quiet -e ".[test-docs]"
	$(BIN)/python -m pytest -q docs/test_site.py -p no:cacheprovider

# peers live in an environment of their own; one that cannot be installed is reported as missing
BENCH := .venv-bench
$(BENCH)/ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet --upgrade pip
	$(BENCH)/bin/python -m pip install --quiet -e ".[bench]" || { \
		$(BENCH)/bin/python -m pip install --quiet -e . && \
		for peer in gpflow gpboost GPy; do $(BENCH)/bin/python -m pip install --quiet $$peer || echo "missing: $$peer"; done; }
	touch $@

bench: $(BENCH)/ready
	$(BENCH)/bin/python benchmarks/run.py

# forecasts of unseen rows of public data, against what practitioners use; finished pairs of set and method are kept in out/
FORECASTS := .venv-forecasts
$(FORECASTS)/ready: pyproject.toml
	$(PYTHON) -m venv $(FORECASTS)
	$(FORECASTS)/bin/python -m pip install --quiet --upgrade pip
	$(FORECASTS)/bin/python -m pip install --quiet -e ".[forecasts]"
	$(FORECASTS)/bin/python -m pip install --quiet gpboost || echo "missing: gpboost"
	touch $@

forecasts: $(FORECASTS)/ready
	$(FORECASTS)/bin/python benchmarks/forecasts/run.py --held-back --write

bench-neighbours: $(BENCH)/ready
	$(BENCH)/bin/python benchmarks/neighbours.py rough
	$(BENCH)/bin/python benchmarks/neighbours.py growth

# version 0.1 comes from the history of this repository: no peers are needed
bench-previous: $(VENV)/ready
	$(BIN)/python benchmarks/previous.py --threads 1

# variational inference against Laplace's, family by family, in one run
bench-variational: $(VENV)/ready
	$(BIN)/python benchmarks/variational.py

# special functions and the methods of families that call them: time per value and error
bench-special: $(VENV)/ready
	$(BIN)/python benchmarks/special.py

# units of the triangular solves behind them, family by family
bench-predictions: $(VENV)/ready
	$(BIN)/python benchmarks/predictions.py
	$(BIN)/python benchmarks/predictions.py --large

# a kernel on all columns against the kernel itself
bench-columns: $(VENV)/ready
	$(BIN)/python benchmarks/columns.py

# coverage of 90 % regions, two hundred data sets per family, hyperparameters averaged over
bench-promises: $(VENV)/ready
	$(BIN)/python benchmarks/promises.py

clean:
	rm -rf $(BENCH) $(FORECASTS) $(VENV) out build dist .pytest_cache .mypy_cache .ruff_cache
