# `make demo` and `make test` are all that a fresh clone needs: both set up .venv first.

PYTHON ?= python3
VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif
STAMP := $(VENV)/.ready
DEMO := .demo
MANIFEST ?= etc/training_manifest.toml.example
AGENTS ?= 2
SET ?= servers

# What is long is broken between words, as all that the fleet says.
SAY := $(BIN)/python -m broker.wrapping

.PHONY: sim chaos kill fuzz mutants help setup demo demo-real test test-all lint types imports check generate bench clean

help: ## what there is to make
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## a virtual environment in .venv; does nothing the second time

$(STAMP): pyproject.toml etc/constraints.txt
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@echo "Installing torch, the largest part of what the fleet needs: some minutes ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c etc/constraints.txt torch
	@echo "Installing the rest ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c etc/constraints.txt \
		-e '.[trainers,dashboard,onnx,dev]'
	@touch $(STAMP)

$(DEMO)/data/feature_schema_v1.json: $(STAMP)
	@$(SAY) "Simulating a small data set (8 hosts, seeded) in $(DEMO)/data ..."
	@mkdir -p $(DEMO)
	@$(BIN)/python -m agent.trainer.simulate --out-dir $(DEMO)/raw >$(DEMO)/prepare.log
	@$(BIN)/python -m agent.trainer.prepare --raw $(DEMO)/raw/simulated.parquet \
		--schema $(DEMO)/raw/simulated.schema.json --out-dir $(DEMO)/data >>$(DEMO)/prepare.log

demo: $(DEMO)/data/feature_schema_v1.json ## train every job of the example plan that a CPU may run
	@rm -rf $(DEMO)/state
	@$(SAY) "Training $(MANIFEST) on simulated telemetry, with $(AGENTS) agents ..."
	@env -u FLEET_BROKER $(BIN)/fleet up --agents $(AGENTS) --manifest $(MANIFEST) --data $(DEMO)/data \
		--state $(DEMO)/state --port 0 --prefer-cuda-grace 5 --until-idle
	@echo
	@$(SAY) 'Next: `$(BIN)/fleet up --manifest PLAN.toml --data $(DEMO)/data` with a plan of your own' \
		'(docs/reference/manifest.md), or your machines: README.md, "A fleet of several machines".'

demo-real: $(STAMP) ## the same on real telemetry: make demo-real DATA=FOLDER [SET=servers]
	@test -f "$(DATA)/$(SET).parquet" -a -f "$(DATA)/$(SET).schema.json" || { $(SAY) \
		"make demo-real DATA=FOLDER SET=NAME: needs FOLDER/NAME.parquet and FOLDER/NAME.schema.json"; \
		exit 2; }
	@rm -rf $(DEMO)/$(SET)-state $(DEMO)/$(SET)-data && mkdir -p $(DEMO)
	@$(SAY) "Preparing $(DATA)/$(SET).parquet in $(DEMO)/$(SET)-data ..."
	@$(BIN)/python -m agent.trainer.prepare --raw $(DATA)/$(SET).parquet \
		--schema $(DATA)/$(SET).schema.json --out-dir $(DEMO)/$(SET)-data >$(DEMO)/prepare.log
	@$(SAY) "Training $(MANIFEST) on it, with $(AGENTS) agents ..."
	@env -u FLEET_BROKER $(BIN)/fleet up --agents $(AGENTS) --manifest $(MANIFEST) --data $(DEMO)/$(SET)-data \
		--state $(DEMO)/$(SET)-state --port 0 --prefer-cuda-grace 5 --until-idle

SEEDS ?= 2000
FIRST ?= 0
SEED ?=
PROCESSES ?= 1

sim: $(STAMP) ## the fleet in a simulation: make sim SEEDS=100000 [FIRST=0 PROCESSES=1]; SEED=42 replays one
	@$(BIN)/python -m tests.simulation $(if $(SEED),--replay $(SEED),--seeds $(SEEDS) \
		--first $(FIRST) --processes $(PROCESSES))

JOBS ?= 100
STRIKES ?= 150

chaos: $(STAMP) ## real trainings while plugs are pulled: make chaos JOBS=100 STRIKES=150, on both brokers
	@$(BIN)/python -m tests.chaos --jobs $(JOBS) --strikes $(STRIKES)

kill: JOBS = 200
kill: STRIKES = 200
kill: $(STAMP) ## jobs of seconds while each connection is struck: make kill [JOBS=200 STRIKES=200 SEED=1]
	@$(BIN)/python -m tests.chaos --kills --jobs $(JOBS) --strikes $(STRIKES) --seed $(or $(SEED),1)

MESSAGES ?= 1000000

fuzz: $(STAMP) ## mutated messages for every decoder and both cores: make fuzz MESSAGES=1000000
	@$(BIN)/python -m tests.fuzz --messages $(MESSAGES)

mutants: $(STAMP) ## does the simulation find deliberate bugs?
	@$(BIN)/python -m tests.simulation --mutants

test: $(STAMP) ## pure tests, the simulation and a dozen smoke tests: 2 to 4 minutes
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-all: $(STAMP) ## every test: 20 to 40 minutes
	$(BIN)/python -m pytest -m "" -n 3 --dist loadfile
	$(BIN)/python -m pytest -p tests.harness.marked_words -n 3 --dist loadfile

BENCH ?=

bench: $(STAMP) ## the benchmarks, on a machine with nothing else to do: make bench [BENCH="ledger stream"]
	@$(BIN)/python -m benchmarks $(BENCH)

lint: $(STAMP) ## ruff, both of it
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

imports: $(STAMP) ## who may import whom
	$(BIN)/lint-imports

check: lint types imports ## everything but the tests

generate: $(STAMP) ## files that are made from the code
	$(BIN)/python -m broker.protocol.asyncapi > docs/reference/asyncapi.yaml
	$(BIN)/python -m agent.trainer.common.config > coordinator/manifest/trainers.json
	$(BIN)/python -m coordinator.cli.reference > docs/reference/cli.md
	$(BIN)/python -m agent.trainer.evaluation.report_schema > docs/reference/report.schema.json
	for broker in mosquitto rabbitmq nats; do XDG_CONFIG_HOME=/nowhere $(BIN)/python -m coordinator.cli broker config \
		$$broker --root fleet --at /etc/$$broker -o etc/$$broker || exit 1; done

clean: ## all that `make` has made
	rm -rf $(VENV) $(DEMO)
