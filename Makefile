# Everything a fresh machine with Python 3.11 or newer needs is fetched by the target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-unit test-docs docs check format bench lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/user: $(VENV)/created pyproject.toml constraints.txt
	@echo "installing timewheel[embedded] into $(VENV)"
	@$(INSTALL) '.[embedded]'
	@touch $@

$(VENV)/dev: $(VENV)/user
	@echo "installing timewheel[embedded,dev] into $(VENV)"
	@$(INSTALL) '.[embedded,dev]'
	@touch $@

setup: $(VENV)/dev ## Fetch everything: virtual environment, Kafka's jars, a Java runtime where there is none
	@$(BIN)/python -m connectors.embedded

demo: $(VENV)/user ## A real Kafka, the sidecar, and records coming back on time
	@$(BIN)/timewheel demo

test: $(VENV)/dev ## Every test but the slow ones, against a real Kafka
	@$(BIN)/pytest -m 'not slow'

test-slow: $(VENV)/dev ## The slow ones: SIGKILLs, zombies, floods, full disks
	@$(BIN)/pytest -m slow

test-unit: $(VENV)/dev ## The tests that need no Kafka
	@$(BIN)/pytest tests/unit tests/simulation

test-docs: $(VENV)/dev ## Every command of README.md and docs/, those of Java (Maven), Go and npm too
	@$(BIN)/pytest tests/docs

docs: $(VENV)/dev ## Write the pages of docs/reference that follow from the code
	@$(BIN)/python -m docs.generate

check: $(VENV)/dev ## Format, lint, types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

format: $(VENV)/dev ## Put the code into the shape that check wants
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/dev ## Figures beside their floors, in one run; ARGS='--help' shows what can be chosen
	@$(BIN)/python -m benchmarks $(ARGS)

lock: $(VENV)/dev ## Pin the newest versions in constraints.txt
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
		--all-extras --upgrade pyproject.toml --output-file constraints.txt

clean: ## Remove the virtual environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info
