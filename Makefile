# Python 3.11 or newer, make and a C library are all that is needed; the rest is fetched or built.

PYTHON ?= python3
TOOLS  := .tools
VENV   := .venv
UV     := $(TOOLS)/bin/uv
RUN    := $(VENV)/bin
UV_VERSION := 0.13.8

# The interpreter above is used; uv never fetches another one.
export UV_PYTHON_DOWNLOADS := never

.DEFAULT_GOAL := help
.PHONY: help site image demo demo-up demo-down demo-real demo-real-up demo-real-down check test test-long test-vm chaos histories lint format crds protocols bench bench-quality bench-topology controlplane controlplane-next operators nodes metrics clean

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/ready ## Show the whole way of a gang on a real control plane, then take it down.
	$(RUN)/python -m devcluster.demo run

demo-up: $(VENV)/ready ## Bring the demo up and leave it up to play with.
	$(RUN)/python -m devcluster.demo up

demo-down: $(VENV)/ready ## Take down what demo-up left up.
	$(RUN)/python -m devcluster.demo down

demo-real: $(VENV)/ready ## Show gangs of real containers on two real nodes (needs root), then take them down.
	$(RUN)/python -m devcluster.demo real run

demo-real-up: $(VENV)/ready ## Do the same and leave the nodes up, with a command that runs kubectl inside.
	$(RUN)/python -m devcluster.demo real up

demo-real-down: $(VENV)/ready ## Take down what demo-real-up left up.
	$(RUN)/python -m devcluster.demo real down

# The tests start hundreds of processes: compiled modules are kept, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Tests on a control plane mostly wait, so three run at once on two cores, beside a fourth worker for
# the others (tests/spreading.py). Each of the three has a control plane of its own (about 1 GiB).
WORKERS ?= 4
PYTEST  := $(RUN)/pytest --numprocesses=$(WORKERS)

check: lint ## Check the style and run every test that needs no control plane.
	$(RUN)/pytest --numprocesses=2 -m "not e2e"

test: lint controlplane operators nodes ## Check the style and run every test, those on a real API server too.
	BINDERY_TESTS=whole $(PYTEST)

test-long: lint controlplane operators nodes metrics ## Run every test in its full size: thousands of random cases, a longer attack; takes hours.
	BINDERY_TESTS=long $(PYTEST)

test-vm: controlplane nodes ## Hold predictions of NUMA zones against a kubelet in a virtual machine, with progress: 600 pods; takes two hours.
	BINDERY_TESTS=long BINDERY_REQUIRE=1,vm $(RUN)/pytest -p no:xdist -s tests/e2e/virtualnode

SEEDS ?= 100

# How many processes play histories, and compute in bench-quality.
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)

histories: $(VENV)/ready ## Play SEEDS (100) histories of failures on a virtual clock, JOBS at once; SEED=7 plays one and prints its story.
	$(RUN)/python -m tests.histories $(if $(SEED),--seed=$(SEED),--seeds=$(SEEDS) --jobs=$(JOBS)) $(ARGS)

MINUTES ?= 60

chaos: controlplane ## Attack an installation for MINUTES (60): churn, kills, cut connections; SEED repeats a run.
	$(RUN)/python -m tests.e2e.chaos --minutes=$(MINUTES) $(if $(SEED),--seed=$(SEED)) --json=build/chaos.json

lint: $(VENV)/ready ## Check style, types and import directions.
	$(RUN)/ruff check
	$(RUN)/ruff format --check
	$(RUN)/mypy
	$(RUN)/lint-imports

format: $(VENV)/ready ## Bring the code into the house's form.
	$(RUN)/ruff check --fix
	$(RUN)/ruff format

crds: $(VENV)/ready ## Write definitions, the chart's files and generated pages from the sources.
	$(RUN)/python -m bindery.kube.objects.definitions crds/ charts/bindery/crds/
	$(RUN)/python -m tests.house.configurationreference docs/configuration.md
	$(RUN)/python -m tests.house.nodecorereference docs/nodecore-reference.md
	$(RUN)/python -m tests.house.kindreference docs/kinds.md
	$(RUN)/python -m tests.house.commandreference docs/commands.md
	$(RUN)/python -m tests.house.metricreference docs/series.md
	$(RUN)/python -m bindery.api.podkeys charts/bindery/files/pod-keys.yaml
	$(RUN)/python -m bindery.grouper.ownerkinds charts/bindery/files/owner-kinds.yaml
	$(RUN)/python -m tests.house.chartnames charts/bindery/files/known-names.yaml

protocols: $(VENV)/ready ## Generate the messages of the kubelet's sockets from the definitions of its Go module.
	$(UV) run --frozen --no-sync --with grpcio-tools==1.85.1 python -m devcluster.protocols

site: $(VENV)/ready ## Build the documentation as a site in build/site; a broken link or a page that no index lists is an error.
	$(RUN)/python -m sphinx -W --keep-going -q -c docs/site -b html -d build/site-cache docs build/site
	@echo "open build/site/index.html"

IMAGE ?=
BASE  ?=

image: $(VENV)/ready ## Make the image of the components without a container engine: IMAGE=NAME:TAG, BASE=another base than Debian's packages.
	$(RUN)/python -m devcluster.image $(if $(IMAGE),--name=$(IMAGE)) $(if $(BASE),--base=$(BASE))

bench: controlplane ## Measure against kube-scheduler and a bare client; writes build/bench.json.
	$(RUN)/python -m benchmarks

DATA ?=

bench-quality: $(VENV)/ready ## Measure how well GPUs are packed: DATA=DIR with the traces of openb; ARGS="--traces default --seeds 42" for a quick look.
	@test -n "$(DATA)" || { echo "say where the data is: make bench-quality DATA=DIR (see docs/simulation.md)"; exit 2; }
	$(RUN)/python -m benchmarks.quality --data "$(DATA)" --jobs $(JOBS) $(ARGS)

bench-topology: $(VENV)/ready ## Measure how close together gangs are placed, with random arrivals and ends.
	$(RUN)/python -m benchmarks.quality.topology $(ARGS)

controlplane: $(VENV)/ready ## Build the control plane's binaries, once (about six minutes).
	$(RUN)/python -m devcluster

operators: $(VENV)/ready ## Build the operators that tests run, JobSet and LeaderWorkerSet, once (two minutes).
	$(RUN)/python -m devcluster operators

nodes: $(VENV)/ready ## Build kubelet, containerd and runc for real nodes, once (ten minutes); says so where this machine cannot.
	$(RUN)/python -m devcluster nodes

metrics: $(VENV)/ready ## Build metrics-server, which a long test lets ask the node agent, once (two minutes).
	$(RUN)/python -m devcluster metrics

controlplane-next: $(VENV)/ready ## Build an API server of the next Kubernetes for the tests that need one, once (ten minutes).
	$(RUN)/python -m devcluster next

clean: ## Remove what was built here; the control plane's binaries stay in the cache.
	rm -rf $(VENV) $(TOOLS) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/ready: pyproject.toml uv.lock $(UV)
	$(UV) sync --frozen --extra dev --python $(PYTHON)
	@touch $@

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/pip install --quiet uv==$(UV_VERSION)
