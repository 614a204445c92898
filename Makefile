# Everything that people and CI run. `make help` lists the targets.
# The virtual environment is made on first use; stamp files keep later runs quick.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= auto
# A table of measured runs, which some steps of `make proof` and `make refit` need; it is not part of the repository.
RUNS ?=

BIN := $(VENV)/bin
CORE := $(VENV)/.installed-core
RUN := $(VENV)/.installed-run
DEV := $(VENV)/.installed-dev
ORACLES := $(VENV)/.installed-oracles
PYTEST := $(BIN)/python -m pytest
SITE := $(VENV)/.installed-site
STEPS := $(BIN)/python benchmarks/run_steps.py
RUNS_OPTION = $(if $(RUNS),--runs $(RUNS))

# The tests start hundreds of processes: they keep compiled modules even where the environment says otherwise.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help quickstart train test check proof refit refit-serving parsers synchronise recover stragglers format docs docs-site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(CORE) ## plan, predict and export two models; then install torch, plan and train a small one here
	@MESHWRIGHT=$(BIN)/meshwright bash scripts/quickstart.sh
	@$(MAKE) --no-print-directory train

train: $(RUN) ## the second part of the quickstart alone: measure this machine, plan, prove and train a small model
	@rm -rf quickstart/small-llama
	@MESHWRIGHT=$(BIN)/meshwright bash scripts/quickstart_train.sh

test: $(DEV) ## all tests that take seconds each but those of `make check`, in random order
	$(PYTEST) -m "not slow" -n $(WORKERS) --dist loadfile --ignore=tests/house

check: $(DEV) ## lint, format, types, house rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYTEST) -m "not slow" -n $(WORKERS) --dist loadfile tests/house

proof: $(ORACLES) ## the slow tests and the pages of benchmarks/, step by step; a second call resumes
	$(STEPS) proof $(RUNS_OPTION)

refit: $(DEV) ## fit the constants to RUNS=FILE, and rewrite the pages that follow from them
	$(STEPS) refit $(RUNS_OPTION)

refit-serving: $(DEV) ## fit the levels of serving to RUNS=FILE, and rewrite the page of its accuracy
	$(STEPS) refit-serving $(RUNS_OPTION)

parsers: $(DEV) ## the pages and tests that ask the programs of others (scripts/parsers.sh installs them)
	$(STEPS) parsers

synchronise: $(RUN) ## rewrite the page of systems that communicate less: figures, and losses of short trainings
	PYTHONPATH=src $(BIN)/python benchmarks/synchronise.py --write

recover: $(DEV) ## rewrite the page of recovery: checkpoints between plans; a second call resumes
	PYTHONPATH=src $(BIN)/python benchmarks/recover.py --write

stragglers: $(DEV) ## rewrite the page of wrong and late replicas: rules, quorums, codes; a second call resumes
	PYTHONPATH=src $(BIN)/python benchmarks/stragglers.py --write

format: $(DEV) ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs-site: $(SITE) ## build the documentation site in build/site, with its links checked
	$(BIN)/python scripts/build_site.py

docs: $(DEV) ## rewrite the generated pages and the list of options
	$(BIN)/python scripts/write_docs.py

clean: ## remove what the targets above made, the environment too; trainings of one's own in run/ stay
	rm -rf $(VENV) quickstart .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(RUN): pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[run]'
	@touch $(CORE) $@

$(DEV): pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,run]'
	@touch $(CORE) $(RUN) $@

$(SITE): pyproject.toml | $(BIN)/pip
	$(BIN)/python -m pip install --quiet --editable '.[site]'
	@touch $(CORE) $@

$(ORACLES): $(DEV)
	$(BIN)/python -m pip install --quiet --editable '.[dev,run,oracles,ray]'
	@touch $@
