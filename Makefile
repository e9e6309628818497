# From a fresh clone: `make demo` shows what Elman does, `make test` runs what CI runs.
# Both need Python 3.11 or newer, and set up .venv first where that has not been done.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV ?= .venv
PYTEST_FLAGS ?=
LOCK_FLAGS ?=

BIN := $(VENV)/bin
READY := $(VENV)/.ready
UNFINISHED := $(VENV)/.unfinished
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check
UV := uv==0.13.7

# Does the environment hold a torch that pyproject.toml accepts?
TORCH_FITS := $(BIN)/python -c "from importlib.metadata import version as v; \
	raise SystemExit(not (2, 11) <= tuple(map(int, v('torch').split('.')[:2])) < (3, 0))" 2>/dev/null

.DELETE_ON_ERROR:
.PHONY: help setup demo test lint types pytest quick format bench lock clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

setup: $(READY) ## create .venv with everything in it (demo and test do this themselves)
	@echo "· $(VENV) is ready"

demo: $(READY) ## the main job from end to end on a built-in corpus
	@$(BIN)/elman demo

test: lint types pytest ## everything CI runs: ruff, mypy, pytest

lint: $(READY) ## ruff: lint and format
	@echo "· ruff"
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo "  make format puts this right"; exit 1; }

types: $(READY) ## mypy, strict on src/
	@echo "· mypy"
	@$(BIN)/mypy --no-error-summary

# A core a worker, a file of tests at a time: files share what they prepare. Torch's threads would only compete.
pytest: $(READY) ## the tests alone, on all cores; PYTEST_FLAGS="-k lstm" picks some
	@echo "· pytest"
	@OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(PYTEST_FLAGS)

quick: lint types ## the inner loop: ruff, mypy and one case of each test that takes a moment
	@OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal --quick $(PYTEST_FLAGS)

format: $(READY) ## let ruff format the code and mend what it can
	@$(BIN)/ruff check --fix --quiet; $(BIN)/ruff format

bench: $(READY) ## this machine: the engine beside torch
	@$(BIN)/elman bench

lock: ## renew requirements.lock; LOCK_FLAGS=--upgrade takes newer releases
	@$(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/python -m pip -qq --disable-pip-version-check install $(UV)
	@echo "torch ; python_version < '3'" > .venv-lock/without-torch.txt
	@.venv-lock/bin/uv pip compile --quiet --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --custom-compile-command "make lock" \
		--overrides .venv-lock/without-torch.txt $(LOCK_FLAGS) \
		--extra dev --output-file requirements.lock pyproject.toml requirements.in
	@echo "· requirements.lock pins $$(grep -c == requirements.lock) packages"

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) .venv-lock build dist .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# A pip that is stopped half-way leaves packages that look installed and are not. So a set-up that
# did not reach its end begins again with an empty environment.
$(READY): pyproject.toml requirements.lock
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "Elman needs Python 3.11 or newer; name one with: make PYTHON=python3.11 …"; exit 1; }
	@if [ -e $(UNFINISHED) ]; then \
		echo "· the last set-up did not finish: starting again"; rm -rf $(VENV); fi
	@mkdir -p $(VENV) && touch $(UNFINISHED)
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		echo "· creating $(VENV)"; $(PYTHON) -m venv $(VENV); fi
	@if ! $(TORCH_FITS); then echo "· installing $(TORCH)"; $(PIP) install "$(TORCH)"; fi
	@echo "· installing the packages of requirements.lock"
	@$(PIP) install --require-hashes --no-deps -r requirements.lock
	@echo "· installing elman"
	@$(PIP) install --no-deps --no-build-isolation -e .
	@rm $(UNFINISHED) && touch $(READY)
