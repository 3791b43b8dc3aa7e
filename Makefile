# One entry point for everything. The two commands of the README are `make demo` and `make test`;
# both do all the set-up themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
JOBS   ?= 5
SEEDS  ?= 40000
SCHEDULES ?= 1000000
SESSIONS := $(foreach store,zookeeper etcd consul,tests/acceptance/test_$(store)_sessions.py)
RESIDUE  := $(foreach store,postgres mysql,tests/acceptance/test_$(store)_residue.py) $(SESSIONS)

.DEFAULT_GOAL := help
.PHONY: help demo test check fix floors sim model mutants proof coverage bench chaos soak docs servers versions pythons clean

help:  ## show this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "python3 is missing: install Python 3.11 or newer"; exit 69; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed"; exit 69; }
	@echo "setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV) || { echo "venv is missing: apt-get install python3-venv"; exit 69; }
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable . --group dev
	@touch $@

demo: $(STAMP)  ## watch several workers share one job list, crash and all
	@$(BIN)/fencelock demo

test: check  ## everything that must hold; BACKEND="memory sqlite": without servers and without root
	@$(BIN)/python -m tools.tests $(if $(BACKEND),--backend "$(BACKEND)") --numprocesses $(JOBS) --dist loadscope $(if $(BACKEND),,tests)

check: $(STAMP)  ## types, style, generated pages: quick
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python tools/clidocs.py --check
	@$(BIN)/python tools/apidocs.py --check
	@$(BIN)/python -m tools.versions --check
	@$(BIN)/python -m tools.pythons --check

fix: $(STAMP)  ## let ruff tidy up, and write the generated pages anew
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .
	@$(BIN)/python tools/clidocs.py
	@$(BIN)/python tools/apidocs.py
	@$(BIN)/python -m tools.versions --page
	@$(BIN)/python -m tools.pythons --page

sim: $(STAMP)  ## the core under a seeded scheduler with faults: SEEDS=40000 for each flavour
	@$(BIN)/python -m fencelock.testing.simulation --seeds 0:$(SEEDS)

model: $(STAMP)  ## SCHEDULES=1000000 of the quorum's tokens and as many of the lease machine: half an hour
	@$(BIN)/python -m fencelock.testing.simulation --machine quorum --seeds 0:$(SCHEDULES) --json chaos/results/quorum.json
	@$(BIN)/python -m fencelock.testing.simulation --seeds 0:$$(( $(SCHEDULES) / 2 )) --json chaos/results/lease.json

mutants: $(STAMP)  ## break fencelock on purpose, and show which check notices: a quarter of an hour
	@$(BIN)/python tests/mutants $(or $(MUTANT),--json chaos/results/mutants.json)

proof: $(STAMP)  ## what make test shows in a short form, at full size: the better part of an hour
	@FENCELOCK_SEEDS=20000 $(BIN)/python -m pytest --numprocesses 2 tests/sim
	@FENCELOCK_CHECKS=all $(BIN)/python -m pytest --numprocesses 3 tests/conformance
	@FENCELOCK_NAMES=1000000 $(BIN)/python -m pytest -s tests/acceptance/test_residue.py tests/acceptance/test_redis_residue.py
	@FENCELOCK_NAMES=100000 $(BIN)/python -m pytest -s $(RESIDUE) -k names_leave
	@FENCELOCK_LEASES=10000 $(BIN)/python -m pytest -s $(SESSIONS) -k many_leases
	@FENCELOCK_FENCING_ROUNDS=50 FENCELOCK_FENCING_WRITES=100 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal $(wildcard tests/acceptance/test_fencing_*.py) -k "slept or 32_writers"
	@FENCELOCK_FORMS=100000 $(BIN)/python -m pytest -s tests/unit/crdt tests/acceptance/test_crdt_speed.py
	@FENCELOCK_LOSSES=200 $(BIN)/python -m pytest -s --timeout 1200 tests/acceptance/test_leaders.py -k no_two_lead
	@FENCELOCK_ROUNDS=5 $(BIN)/python -m pytest --timeout 900 tests/acceptance/test_optimistic_stock.py tests/acceptance/test_idempotency_processes.py tests/acceptance/test_crdt_exchange.py
	@FENCELOCK_SECONDS=60 FENCELOCK_SEEDS=50 $(BIN)/python -m pytest -s --timeout 900 tests/unit/schedule/test_fleet.py $(wildcard tests/acceptance/test_schedule_*.py)
	@FENCELOCK_ROUNDS=5 $(BIN)/python -m pytest --timeout 900 -s tests/acceptance/test_flight_processes.py
	@FENCELOCK_ROUNDS=20 FENCELOCK_TICKS=60 $(BIN)/python -m pytest --timeout 900 $(wildcard tests/acceptance/test_contrib_*.py)
	@FENCELOCK_TIMES=200 $(BIN)/python -m pytest $(wildcard tests/acceptance/test_*counter.py)
	@FENCELOCK_CRASHES=4 $(BIN)/python -m pytest $(foreach store,postgres mysql,tests/acceptance/test_$(store)_crash.py)
	@FENCELOCK_CHURN=60 $(BIN)/python -m pytest -s tests/acceptance/test_postgres_residue.py -k churn
	@FENCELOCK_OPERATIONS=100000 $(BIN)/python -m pytest tests/unit/testing/test_checker.py
	@FENCELOCK_LOCKS=10000 $(BIN)/python -m pytest -s tests/acceptance/test_dashboard_watch.py -k many_locks
	@FENCELOCK_JOBS=2000 FENCELOCK_SECONDS=60 $(BIN)/python -m pytest -s tests/acceptance/test_jobs_once.py
	@FENCELOCK_BROWSER=all $(BIN)/python -m pytest -s --timeout 600 tests/browser
	@$(MAKE) --no-print-directory chaos BACKEND="sqlite redis postgresql" MINUTES=0.5 INJECTIONS=50
	@$(MAKE) --no-print-directory mutants

floors: $(STAMP)  ## the lowest versions that pyproject.toml declares: unit tests and conformance, twenty minutes
	@$(BIN)/python -m tools.floors

coverage: $(STAMP)  ## branch coverage of the core
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -p no:xdist tests/unit
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --include 'src/fencelock/core/*' --fail-under 100

bench: $(STAMP)  ## measure beside the physical limit and beside peers: SUITE="sqlite redis"
	@$(BIN)/python -m bench $(SUITE)

chaos: $(STAMP)  ## real servers, real faults: BACKEND=sqlite FAULT=pause MINUTES=0.3 SEED=7
	@$(BIN)/python -m chaos --backend "$(BACKEND)" --fault "$(FAULT)" --minutes "$(MINUTES)" --seed "$(SEED)" \
		--injections "$(INJECTIONS)" --subject "$(or $(SUBJECT),fencelock)" --ease "$(EASE)" --report "$(REPORT)"

soak: $(STAMP)  ## an hour of churn and faults, and nothing may have grown: BACKEND="redis etcd" MINUTES=60 SEED=7
	@$(BIN)/python -m chaos.soak --backend "$(BACKEND)" --minutes "$(MINUTES)" --seed "$(SEED)" --report "$(REPORT)"

docs: $(STAMP)  ## write the generated pages, and run every example of the docs
	@$(BIN)/python tools/clidocs.py
	@$(BIN)/python tools/apidocs.py
	@$(BIN)/python -m tools.versions --page
	@$(BIN)/python -m tools.pythons --page
	@$(BIN)/python -m pytest tests/unit/test_docs.py

servers: $(STAMP)  ## start every server the project knows, show that it answers, stop it
	@$(BIN)/python -m tools.servers check

versions: $(STAMP)  ## conformance and doctor on every server version at hand, as root: 40 minutes; VERSIONS="redis@sid etcd"
	@$(if $(VERSIONS),,FENCELOCK_SUITES=sid $(BIN)/python -m pytest -q tests/acceptance/test_servers.py -k "starts_answers and sid")
	@$(BIN)/python -m tools.versions $(VERSIONS)

pythons: $(STAMP)  ## every supported Python: unit tests, simulation, conformance, uvloop: half an hour; PYTHONS="3.14"
	@$(BIN)/python -m tools.pythons $(PYTHONS)

clean:  ## remove what make made
	@rm -rf $(VENV) .floors .pythons .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/results bench/.environments
