# makegood: `make` alone lists the targets. Each makes its environment first; nothing has to be installed by hand.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

STORE ?= sqlite
# Orders of a demo in the terminal; empty: the stage, where there is a terminal
ORDERS ?=
# A broker that orders of the demo or of chaos come through, and notices go to: rabbitmq, nats, kafka, redis; empty: none
BROKER ?=
SEEDS ?= 300
ELECTION_SEEDS ?= 10000
RECORDINGS ?= 12
FROM ?= 0
SECONDS ?= 60
BUSY ?= 4
RING ?= test
WORKERS ?= 4
# What is ordered and what falls when in a run of chaos; empty: chance, and the run says what it drew
SEED ?=
# Further arguments of what is run, pytest or the target's own program: make test ARGS="-k takeover"
ARGS ?=

# Hundreds of processes import the same modules: they are compiled once, whatever the machine's habit is (empty is unset).
export PYTHONDONTWRITEBYTECODE :=

bin := .venv/bin
python := $(bin)/python
fast := tests/unit tests/house
rings := $(python) -m pytest -n $(WORKERS) --dist worksteal

.PHONY: help
help: ## list the targets
	@printf 'makegood, targets of make:\n\n'
	@sed -nE 's/^([a-z.-]+):[^#]*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  %-17s %s\n' "$$name" "$$text"; done
	@printf '\nSTORE=%s, BROKER and ORDERS are the settings of demo (STORE=postgres starts a private PostgreSQL, BROKER=rabbitmq, nats, kafka or redis such a broker);\nSTORE, BROKER (rabbitmq, nats, kafka or redis), SECONDS=%s and SEED those of chaos.\n' '$(STORE)' '$(SECONDS)'

demo_options = $(if $(ORDERS),--orders $(ORDERS)) $(if $(BROKER),--broker '$(BROKER)')

.PHONY: demo
demo: .venv ## the order system on a stage: kill its processes by button (STORE=sqlite or postgres; BROKER=rabbitmq, nats, kafka or redis; ORDERS=200: in the terminal)
ifeq ($(STORE),sqlite)
	@$(python) -m makegood demo $(demo_options) $(ARGS)
else ifeq ($(STORE),postgres)
	@scripts/postgres.sh
	@$(python) -m makegood demo --postgres $(demo_options) $(ARGS)
else
	@echo 'makegood: STORE=$(STORE) is not known; use STORE=sqlite or STORE=postgres' >&2; exit 2
endif

.PHONY: chaos
chaos: .venv ## the order example under every fault, with real processes (STORE, BROKER, SECONDS=60, SEED), then the books
	@[[ '$(STORE)' != postgres ]] || scripts/postgres.sh
	@$(python) -m examples.chaos --store '$(STORE)' --seconds '$(SECONDS)' $(if $(BROKER),--broker '$(BROKER)') $(if $(SEED),--seed '$(SEED)') $(ARGS)

.PHONY: test
# Many tests wait, for processes, servers, leases: four at a time (WORKERS=4) keep two cores busy. It needs PostgreSQL and Chromium.
test: .venv ## under 14 minutes: form, types, layers, then both stores, actors, doors, pages, a storm and a kill of each role
	@$(MAKE) --no-print-directory --jobs=3 --output-sync lint surroundings compiled
ifeq ($(strip $(ARGS)),)
	@$(rings) -m 'check or test'
else
	@$(python) -m pytest $(ARGS)
endif

.PHONY: proof
proof: .venv ## under 30 minutes: processes under every fault, replicas, chaos, elections, plugin, power cuts, models, example
	@$(MAKE) --no-print-directory surroundings programs
	@$(rings) -m proof $(ARGS)

.PHONY: nightly
# Each part runs whatever became of the others; the whole fails when one has failed.
nightly: .venv ## hours: half an hour of chaos on both stores, then every storm, fault point, replica, model and crash image there is
	@failed=; \
	run() { echo "makegood: make $$*"; $(MAKE) --no-print-directory "$$@" || failed="$$failed, make $$*"; }; \
	run chaos STORE=sqlite SECONDS=900; \
	run chaos STORE=postgres SECONDS=900; \
	run chaos STORE=sqlite BROKER=rabbitmq SECONDS=300; \
	run chaos STORE=postgres BROKER=nats SECONDS=300; \
	run simulate SEEDS=10000; \
	run everywhere; \
	run replicas; \
	run variants; \
	run newer-rabbitmq; \
	run hostile; \
	run models ALL=1; \
	run platforms; \
	if grep -q '^crash:' Makefile; then run crash; fi; \
	if [[ -n $$failed ]]; then echo "makegood: failed$$failed" >&2; exit 1; fi

.PHONY: variants
variants: .venv ## the tests that only `make nightly` runs: variants of what `make proof` has tested once
	@$(MAKE) --no-print-directory surroundings
	@$(rings) -m nightly $(ARGS)

.PHONY: newer-rabbitmq
newer-rabbitmq: .venv ## as root: the tests of brokers on the RabbitMQ of Debian unstable, which it installs in a folder
	@root=$$($(python) -m scripts.rabbitmq) && MAKEGOOD_TEST_RABBITMQ_ROOT=$$root $(python) -m pytest -n 2 -m 'proof or nightly' -k rabbitmq tests/brokers $(ARGS)

.PHONY: busy
busy: .venv postgres ## a ring's tests beside four busy loops: none may need an idle machine (BUSY=4, RING=test or proof)
	@[[ '$(RING)' != proof ]] || $(MAKE) --no-print-directory programs
	@scripts/busy.sh '$(BUSY)' $(if $(strip $(ARGS)),$(python) -m pytest $(ARGS),$(rings) -m '$(if $(filter proof,$(RING)),proof,check or test)')

.PHONY: postgres
postgres: .venv
	@scripts/postgres.sh

.PHONY: surroundings
# What tests need besides Python. One after another: of two runs of apt-get at the same time, one fails.
surroundings: .venv
	@scripts/postgres.sh
	@scripts/chromium.sh

.PHONY: programs
# What the machine lacks of spin and of the servers that leases are kept on.
programs: .venv
	@scripts/models.sh --ready
	@scripts/servers.sh

.PHONY: compiled
# Each of the processes that run the tests would otherwise compile all of them. What cannot be imported, the run itself tells.
compiled: .venv
	@$(python) -m pytest --collect-only --quiet >/dev/null || true

.PHONY: simulate
simulate: .venv ## storms over the real engine on virtual time, a seed each (SEEDS=300 FROM=0); a failing one says how to replay it
	@$(python) -m proofs.seeds --seeds $(SEEDS) --from $(FROM) --processes $$(nproc)

.PHONY: simulate-election
simulate-election: .venv ## candidates for a lease under faults on virtual time (ELECTION_SEEDS=10000 FROM=0)
	@$(python) -m proofs.elections --seeds $(ELECTION_SEEDS) --from $(FROM) --processes $$(nproc)

.PHONY: bench-election
bench-election: .venv ## fail-over by store and fault, real processes, beside a port of a sample (ARGS="--runs 30 --stores sqlite,redis")
	@scripts/postgres.sh
	@scripts/servers.sh
	@$(python) -m benchmarks.election $(ARGS)

.PHONY: everywhere
everywhere: .venv ## one fault at every point of a calm run, one run for each (ARGS="--kind kill --workflow place_order")
	@$(python) -m proofs.everywhere --processes $$(nproc) $(ARGS)

.PHONY: crash
crash: .venv ## the power goes at every sync of the SQLite file: all that the disk may hold then (RECORDINGS=12 FROM=0)
	@$(python) -m proofs.powercut --seeds $(RECORDINGS) --from $(FROM) --processes $$(nproc) $(ARGS)

.PHONY: check
check: .venv lint ## under 2 minutes, before a commit: form, types, layers, tidiness, the fast tests
	@$(python) -m pytest -q -n 2 $(wildcard $(fast)) $(ARGS)

.PHONY: replicas
replicas: .venv ## PostgreSQL with a real standby: killed, promoted, five rounds of it, and what is not promised
	@scripts/postgres.sh
	@for round in 1 2 3 4 5; do $(python) -m pytest -q tests/replicas $(ARGS) || exit 1; done
	@$(python) -m pytest -q tests/replicas/not_promised.py $(ARGS)

.PHONY: platforms
platforms: .venv ## as root: other Debians, Pythons, PostgreSQLs and an old SQLite, in folders (ARGS="python3.14 sqlite3.35")
	@$(python) -m scripts.platforms $(ARGS)

.PHONY: hostile
hostile: .venv ## PostgreSQL with every setting that a role can have, one at a time, at its extremes; rows with more odd values
	@scripts/postgres.sh
	@MAKEGOOD_NIGHT=1 $(python) -m pytest -q tests/postgres/hostile_settings.py tests/console/test_hostile_rows.py $(ARGS)

.PHONY: models
models: .venv ## search the protocol models with spin (ALL=1: the slow ones too)
	@scripts/models.sh $(if $(filter-out 0,$(ALL)),--all) $(ARGS)

.PHONY: bench
bench: .venv ## makegood beside its peers and the bare floor, in one run (QUICK=1: small; ARGS="--only throughput --peers dbos")
	@scripts/postgres.sh
	@scripts/servers.sh
	@$(python) -m benchmarks $(if $(filter-out 0,$(QUICK)),--quick) $(ARGS)

.PHONY: bench-scale
bench-scale: .venv ## what one PostgreSQL carries with 1, 2, 4, 8 processes, and a model of larger machines (ARGS="--quick")
	@scripts/postgres.sh
	@$(python) -m benchmarks.scale $(ARGS)

.PHONY: bench-brokers
bench-brokers: .venv ## readers from brokers beside Celery and FastStream: messages/s, lost and written twice when killed (ARGS="--brokers redis")
	@$(python) -m benchmarks.broker_peers $(ARGS)

.PHONY: bench-console
bench-console: .venv ## pages of the console beside 1,000,000 ended tasks, and a loop without and with 20 viewers (ARGS="--quick")
	@scripts/postgres.sh
	@$(python) -m benchmarks.console $(ARGS)

.PHONY: pictures
pictures: .venv ## draw the pictures of the pages anew: diagrams, and terminals, the demo, its stage and the console from real runs
	@$(python) -m scripts.pictures.diagrams
	@$(python) -m scripts.pictures.record
	@$(python) -m scripts.pictures.stage
	@$(python) -m scripts.pictures.console

.PHONY: vendor
vendor: .venv ## fetch through npm what the console's pages use and is not ours (vendor.toml; ARGS=--accept for a new version)
	@$(python) -m scripts.vendor $(ARGS)

.PHONY: docs
docs: .venv ## build the documentation site into build/site; a warning is an error
	@$(python) -m scripts.site

.PHONY: lint
lint: .venv
	@$(bin)/ruff format --check --quiet --output-format=concise . || { echo 'makegood: the files above are not formatted; run `make format`' >&2; exit 1; }
	@$(bin)/ruff check --quiet --output-format=concise .
	@$(bin)/mypy
	@$(bin)/lint-imports --no-cache

.PHONY: format
format: .venv ## bring the code into form
	@$(bin)/ruff format --quiet .
	@$(bin)/ruff check --quiet --fix .

.PHONY: .venv
.venv: ## make the environment only
	@scripts/environment.sh

.PHONY: lock
lock: .venv ## write requirements.lock anew with the latest versions
	@scripts/lock.sh

.PHONY: clean
clean: ## remove the environment and everything made
	@rm -rf .venv .bootstrap .servers .platforms dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
