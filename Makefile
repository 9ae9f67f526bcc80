# One entry for everything. `make help` lists it; CI runs exactly these.
SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Quiet twice: errors are shown, warnings about root or a cache folder are not, since nobody has to act on them.
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet --quiet --no-compile
# Ends the program when `make` itself is killed: a demo that nobody watches must not go on.
TIED = exec $(BIN)/python -I -S service/local/guard.py $$PPID 15 -1 -1

.DEFAULT_GOAL := help
.PHONY: help venv demo up doctor test lint types bench bench-detect bench-bisect bench-noise bench-edits bench-faults clean

help:  ## Show what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

$(VENV)/.runtime: requirements.txt pyproject.toml hatch_build.py $(wildcard service/stats/*.[ch])
	@echo "installing into $(VENV) (about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements-dev.txt
	@echo "installing the tools for tests, lint and types"
	@$(PIP) -r requirements-dev.txt
	@touch $@

venv: $(VENV)/.runtime  ## Make the virtual environment and install everything that runs

demo: venv  ## Show the whole path on a planted history; DEMO_EXIT=1 ends after the table
	@$(TIED) $(BIN)/kernelwatch demo $(if $(DEMO_EXIT),--exit,--stay)

up: venv  ## Start the whole service on this machine, without the demo
	@$(TIED) $(BIN)/kernelwatch up

doctor: venv  ## Check every dependency and say what is missing
	@$(BIN)/kernelwatch doctor

test: $(VENV)/.dev  ## Run every test that this machine can run
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev  ## Check style, formatting and who imports whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(VENV)/.dev  ## Check types
	@$(BIN)/mypy

bench: venv  ## Kernels against NumPy on one core, and the memory of each process
	@$(BIN)/python benchmarks/kernels.py
	@$(BIN)/python benchmarks/memory.py

bench-detect: venv  ## The detector on simulated histories: false alarms and what it finds
	@$(BIN)/python benchmarks/detect.py

bench-bisect: venv  ## Bisection on simulated histories: cost and right answers
	@$(BIN)/python benchmarks/bisection.py

bench-noise: venv  ## Measure the measurement: A/A alarms and planted slowdowns on this machine
	@$(BIN)/python benchmarks/noise.py

bench-edits: venv  ## One-line edits of the GEMM, seen by `kernelwatch compare`
	@$(BIN)/python benchmarks/edits.py

bench-faults: venv  ## kill -9 at random moments of bisection and delivery: same verdicts, each message once
	@$(BIN)/python benchmarks/faults.py

clean:  ## Remove the environment and every cache below this folder
	@rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
	@rm -f service/stats/_*.so
