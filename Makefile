# Every target builds what it needs first; nothing but Python 3.11 or newer and make has to be there.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
KILL ?= 0
# Test processes side by side, each with servers of its own: more than processors, since tests wait half of the time.
JOBS ?= 3
INPUTS ?= 100000
MESSAGES ?= 20000
KIND ?= 503
KILLS ?= 2000
MODE ?= wal
# Stages are started by the hundred: each would compile the same modules again.
export PYTHONDONTWRITEBYTECODE :=
TYPES = $(PY) -m mypy --no-error-summary
LINT_IMPORTS = $(PY) -c 'import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())'
LAYERS = { $(LINT_IMPORTS) >/dev/null || $(LINT_IMPORTS); }

.PHONY: help demo test check style types format crash relayfuzz scenarios outage timeouts chaos bench cases fuzz up down lock clean

help: ## these lines
	@grep -hE '^[a-z]+:.*## ' Makefile | sed 's/:.*## /\t/' | expand -t 10

.venv/ready: requirements/dev.txt pyproject.toml requirements/make-venv
	@requirements/make-venv

demo: .venv/ready ## the whole pipeline on real servers, judged by the simulator's ledger; KILL=1 kills every stage once
	@$(PY) -m demo --kill $(KILL)

# Types and layers are looked at beside the tests, when these wait; what they say is told at the end, and fails the target too.
test: .venv/ready ## formatting, lint, types, layers and every test
	@$(MAKE) --no-print-directory style
	@told=$$(mktemp) && trap 'rm -f "$$told"' EXIT && \
	{ ( nice $(TYPES) && $(LAYERS) ) >"$$told" 2>&1 & types=$$!; }; \
	$(PY) -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS); tested=$$?; \
	wait $$types; typed=$$?; cat "$$told"; exit $$((tested | typed))

check: style types ## formatting, lint, types, layers

style: .venv/ready
	@$(PY) -m ruff format --check --quiet .
	@$(PY) -m ruff check --quiet .

types: .venv/ready
	@$(TYPES)
	@$(LAYERS)

format: .venv/ready ## formats the code
	@$(PY) -m ruff format --quiet .
	@$(PY) -m ruff check --fix --quiet .

up: .venv/ready ## the whole system on this machine, kept running
	@$(PY) -m devservers up --processes demo.up:processes

down: .venv/ready ## ends what `make up` started
	@$(PY) -m devservers down

cases: .venv/ready ## the field cases, or those of CASES_DIR=<folder>, against the product on real servers
	@CASES_DIR='$(CASES_DIR)' $(PY) -m pytest tests/cases -n $(JOBS) --dist loadfile --show-capture=no $(PYTEST_ARGS)

scenarios: .venv/ready ## the field cases with brokers restarted, calls slowed and answers lost, as they are written (about 40 minutes)
	@SCENARIOS=long $(PY) -m pytest tests/scenarios -v $(PYTEST_ARGS)

outage: .venv/ready ## SES is down for half an hour (scaled to 30 s) while 5,000 messages wait; KIND=503, unreachable or mute
	@$(PY) -m demo.outage --kind $(KIND)

timeouts: .venv/ready ## SES takes 5,000 messages and leaves 5 % of the calls without an answer: all are settled by events
	@$(PY) -m demo.timeouts

chaos: .venv/ready ## events under every disturbance of SNS while their stages are killed, judged by the simulator's ledger; MESSAGES=20000
	@$(PY) -m demo.events_chaos --messages $(MESSAGES)

bench: .venv/ready ## the benchmarks; one alone: python -m benchmarks NAME
	@$(PY) -m benchmarks

crash: .venv/ready ## every process and server killed, frozen and cut off again and again under load, judged by the simulator's ledger; KILLS=2000 MESSAGES=200000 RESUME=<folder>
	@$(PY) -m crash --report $(if $(RESUME),--resume $(RESUME)) --kills $(KILLS) --messages $(if $(filter command line environment,$(origin MESSAGES)),$(MESSAGES),200000)

relayfuzz: .venv/ready ## two relays killed, frozen and cut off with PostgreSQL and Kafka, judged by the topics; KILLS=2000 RESUME=<folder> MODE=wal or poll
	@$(PY) -m relayfuzz --report $(if $(RESUME),--resume $(RESUME)) --kills $(KILLS) --mode $(MODE)

fuzz: .venv/ready ## inputs changed from genuine ones against the SNS endpoint, judged; INPUTS=100000
	@$(PY) -m tests.fuzz --inputs $(INPUTS)

lock: ## locks the dependencies anew (needs uv)
	@requirements/lock

clean: ## removes what the targets made, but no data of `make up`
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
