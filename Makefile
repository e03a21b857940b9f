# Two commands matter: `make demo` and `make test`. Both set up what is missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
ONLY ?=
OSV ?=
# Some shells of containers set it; then each worker of the tests, and each process that they start,
# would compile all of our code again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test tests test-full test-rest checked lint setup setup-dev classes bench soak docs screenshots audit clean help

help:
	@echo "make demo    everything on this machine, with a story in the logs (ARGS=--once to end by itself)"
	@echo "make test    set up and run all checks, and a test of each promise"
	@echo "make test-full   all tests but those of \`make soak\`, and each property with more examples"
	@echo "make bench   all benchmarks, or one: ONLY=sink_cost (QUICK=1: smaller, not kept; RULES=FOLDER: Sigma rules for ONLY=rules)"
	@echo "make soak    the long fault runs and the benchmarks that take hours (ARGS=PATH: only these tests)"
	@echo "make audit   bill of materials and known vulnerabilities (offline: OSV='PyPI.zip Maven.zip')"

demo: setup
	@$(BIN)/headgate demo $(ARGS)

PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
# The same tree has the same verdict; `make test-full` draws its examples anew.
SEED := --hypothesis-seed=0

# Beside the tests, for the checks keep one core busy for a minute.
test: setup-dev
	@$(MAKE) --no-print-directory -j2 lint tests

# Named by their path, tests run whether `full` or not. Too few drivers start here for `classes` to pay.
tests: setup-dev
	$(PYTEST) $(SEED) -m "$(if $(findstring tests/,$(ARGS)),not soak,not soak and not full)" $(ARGS)

test-full: checked
	$(PYTEST) --hypothesis-profile=full -m "not soak" $(ARGS)

# What `make test` left out.
test-rest: classes
	$(PYTEST) $(SEED) --hypothesis-profile=full -m "full and not soak" $(ARGS)

# Both at once: each keeps one core busy.
checked: setup-dev
	@$(MAKE) --no-print-directory -j2 lint classes

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup-dev classes
	$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick) $(if $(RULES),--rules $(RULES))

# With ARGS only the tests that they name; without, also what is measured over hours.
soak: setup-dev classes
	$(BIN)/python -m pytest -m soak $(ARGS)
	$(if $(ARGS),,set -e; for name in catch_up recovery day files scale_out; do $(BIN)/python -m bench --only $$name; done)

audit: setup
	@$(BIN)/python -m infra.supply_chain.audit --sbom build/headgate.cdx.json $(if $(OSV),--osv $(OSV))

screenshots: setup-dev
	$(BIN)/python -m tests.console.screenshots

docs: setup-dev
	$(BIN)/python -m tests.docs.generated

setup: $(VENV)/.runtime
	@$(BIN)/headgate doctor --jars

setup-dev: $(VENV)/.dev
	@$(BIN)/headgate doctor --jars

# What starts many drivers gains by it; a first demo would only wait for it.
classes: setup-dev
	@$(BIN)/headgate doctor --classes

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Headgate needs Python 3.11 or newer; '$(PYTHON)' is older: make PYTHON=python3.11 ..."; exit 1; }
	@test -x "$$JAVA_HOME/bin/java" || command -v java >/dev/null || \
	  { echo "Headgate needs Java 17 or 21 and found none; install it (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "python3 -m venv failed; on Debian: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.runtime: requirements.lock pyproject.toml | $(VENV)/.python
	@echo "installing the locked packages (once) ..."
	@test -e $(VENV)/.dev || $(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(VENV)/.python
	@echo "installing the locked packages for development (once) ..."
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runtime

clean:
	rm -rf .headgate build dist *.egg-info
