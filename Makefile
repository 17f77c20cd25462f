# Each target does its own set-up on a fresh machine with Python 3.11 or later (and Go 1.26 for e2e).
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help setup demo test e2e e2e-capi e2e-gangs e2e-karpenter e2e-long e2e-newest e2e-browser e2e-prometheus e2e-node e2e-ticks bench bench-scheduler bench-decisions bench-capacity bench-scale \
	bench-waves bench-karpenter bench-peer bench-pod bench-ticks bench-growth bench-check fuzz storm storm-mutants storm-machines storm-capi storm-machines-mutants storm-capi-mutants protobuf check fix cluster requirements docs docs-walk docs-site pictures release image-index audit sast install evidence clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Tests wait for threads and processes half of their time: three for each processor (on two, 4 min 48 s instead of 5 min 52 s).
WORKERS = $(shell $(BIN)/python -c "import os; print(3 * (os.cpu_count() or 1))")

# These start the program hundreds of times: what Python compiles for that is kept, whatever the environment says.
test e2e e2e-capi e2e-gangs e2e-karpenter e2e-long e2e-newest storm storm-machines storm-capi: export PYTHONDONTWRITEBYTECODE =

help:  ## show the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

# Where there is no C compiler, the one that the image is built with compiles rebalancer/core. Tests check its bounds.
$(STAMP): pyproject.toml requirements-dev.txt setup.py $(wildcard rebalancer/core/*.py rebalancer/core/*.pxd)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@command -v $${CC:-cc} >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r image/build-requirements.txt
	REBALANCER_CHECKS=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

setup: $(STAMP)  ## make .venv with everything (some two minutes; the core with checks, which is slower), so that .venv/bin/rebalancer is the command

# What the program itself needs, for those who only look; `make setup` adds the rest to the same .venv.
LIGHT := $(VENV)/.program
$(LIGHT): pyproject.toml setup.py $(wildcard rebalancer/core/*.py rebalancer/core/*.pxd)
	@test -e $(STAMP) || echo "Installing and compiling the program into $(VENV): about a minute on two processors."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -e $(STAMP) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

demo: $(LIGHT)  ## the story in an embedded cluster; needs no Kubernetes, and installs only what the program needs
	$(BIN)/rebalancer demo --report demo-report.html
	@echo "The command is in $(BIN): source $(BIN)/activate puts it on the PATH."

# Folders of which each test needs more than this machine has are not even read, which takes each worker a second.
test: $(STAMP)  ## unit, property, contract and chart tests on all processors, no cluster; PYTEST_ARGS="-n 0" for one process
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -o cache_dir=.pytest_cache/test -m "not e2e and not node" \
		$(addprefix --ignore=tests/,browser capi e2e gangs karpenter node prometheus ticks) $(PYTEST_ARGS)

docs: $(STAMP)  ## write the tables, outputs and strategies' pictures in README and docs again
	$(BIN)/python -m tests.docs

docs-walk: $(STAMP)  ## what the commands of docs/replace.md print, on a real control plane; make e2e compares
	$(BIN)/python -m tests.docs.walk

docs-site: $(STAMP)  ## README and docs as a site in dist/site, by mkdocs; a link that leads nowhere fails
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/docs/site/requirements.txt
	$(BIN)/python -m tests.docs.site dist/site

pictures: $(STAMP)  ## draw the pictures of README again; needs chromium
	$(BIN)/python -m tests.docs.pictures

fuzz: $(STAMP)  ## coverage-guided fuzzing of what reads bytes of others, and of the core; all targets share SECONDS=600
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/fuzz/requirements.txt
	$(BIN)/python -m tests.fuzz $(or $(SECONDS),600) $(TARGETS)

# Tests on a control plane wait half of their time: one process more than processors, each with its own.
E2E_WORKERS ?= $(shell $(BIN)/python -c "import os; print(1 + (os.cpu_count() or 1))")
ON_CONTROL_PLANES = $(BIN)/python -m pytest -n $(E2E_WORKERS) --dist loadfile --no-loadscope-reorder -p no:randomly
e2e: $(STAMP)  ## the tests on a real control plane, built from Go modules at the first run; one case of each kind
	$(ON_CONTROL_PLANES) -o cache_dir=.pytest_cache/e2e -m "e2e and not long" $(PYTEST_ARGS) tests/e2e tests/chart tests/docs tests/release

e2e-long: $(STAMP)  ## the other cases of what e2e and e2e-capi show by one of each kind: more kills, changes and versions, kills after each single write; and EvictionRequests on 1.37
	$(ON_CONTROL_PLANES) -o cache_dir=.pytest_cache/long -m long $(PYTEST_ARGS) tests/e2e tests/capi

# Not the profiles of a configuration: that code is the same in both versions.
NEWEST ?= budgets condition_types control_plane_contract fields pods_that_stay restarts scheduler_model story
KUBERNETES ?= $$($(BIN)/python -m tests.controlplane newest)
e2e-newest: $(STAMP)  ## what a version of Kubernetes may change, on the newest that can be built: story, budgets, gangs, conditions of nodes, what controllers do, the scheduler model; NEWEST=story KUBERNETES=1.37.2
	version=$(KUBERNETES) && echo "Kubernetes $$version" && \
	$(ON_CONTROL_PLANES) -o cache_dir=.pytest_cache/e2e-newest -m "e2e and not long" --kubernetes $$version -k "not every_profile" $(PYTEST_ARGS) \
		$(foreach name,$(NEWEST),tests/e2e/test_$(name).py)

e2e-capi: $(STAMP)  ## the provider cluster-api on Cluster API's own controllers, built from Go modules at the first run
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/capi -m "capi and not long" $(PYTEST_ARGS) tests/capi

e2e-gangs: $(STAMP)  ## gangs of the controllers of LeaderWorkerSet and JobSet themselves, built from Go modules at the first run
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/gangs -m gangs $(PYTEST_ARGS) tests/gangs

e2e-karpenter: $(STAMP)  ## beside Karpenter itself, built from Go modules at the first run, which takes about 8 minutes; not in CI
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/karpenter -m karpenter $(PYTEST_ARGS) tests/karpenter

e2e-prometheus: $(STAMP)  ## alerts, dashboard and pushes on the real programs; needs prometheus and prometheus-pushgateway
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/prometheus -m prometheus $(PYTEST_ARGS) tests/prometheus

e2e-browser: $(STAMP)  ## the HTML report in chromium (apt-get install chromium)
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/browser -m browser $(PYTEST_ARGS) tests/browser

e2e-node: $(STAMP)  ## the installed product on a real kubelet; needs root, containerd, runc and the CNI plug-ins, and what e2e-prometheus needs
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/node -m node $(PYTEST_ARGS) tests/node tests/chart/test_image.py

e2e-ticks: $(STAMP)  ## the chart with pure defaults on a real kubelet, tick by tick, 20 minutes; not beside e2e-node
	$(BIN)/python -m pytest -p no:randomly -o cache_dir=.pytest_cache/ticks -m ticks --capture=no tests/ticks

storm: $(STAMP)  ## whole runs on a real control plane while requests and the world go wrong; SEEDS=0-19 RUNS=1000 from the first seed on, AT_ONCE=2, SERVE=1 by serve
	$(BIN)/python -m tests.storm --seeds $(or $(SEEDS),0-19) $(if $(RUNS),--runs $(RUNS)) $(if $(ROWS),--rows $(ROWS)) $(if $(AGAIN),--again $(AGAIN)) $(if $(SERVE),--serve) --at-once $(or $(AT_ONCE),2)

storm-machines: $(STAMP)  ## what ends machines and empties nodes, while API server, cloud and world go wrong; SEEDS=0-11 RUNS=500 AT_ONCE=2
	$(BIN)/python -m tests.storm.machines --seeds $(or $(SEEDS),0-11) $(if $(RUNS),--runs $(RUNS)) $(if $(ROWS),--rows $(ROWS)) $(if $(AGAIN),--again $(AGAIN)) $(if $(SHORT),--short) --at-once $(or $(AT_ONCE),2)

storm-capi: $(STAMP)  ## that storm on Cluster API's own controllers, which e2e-capi builds; SEEDS=0-19 RUNS=100 AT_ONCE=1; about 2 minutes a seed
	$(BIN)/python -m tests.storm.machines --provider cluster-api --seeds $(or $(SEEDS),0-19) $(if $(RUNS),--runs $(RUNS)) $(if $(ROWS),--rows $(ROWS)) $(if $(AGAIN),--again $(AGAIN)) $(if $(SHORT),--short) --at-once $(or $(AT_ONCE),1)

storm-machines-mutants: $(STAMP)  ## that storm against each mend undone, one at a time: it must fail each time; ONLY=name
	$(BIN)/python -m tests.storm.machines.mutants $(if $(ONLY),--only $(ONLY))

storm-capi-mutants: $(STAMP)  ## the storm on Cluster API against each mend undone, one at a time: it must fail each time; ONLY=name
	$(BIN)/python -m tests.storm.machines.cluster_api.mutants $(if $(ONLY),--only $(ONLY))

storm-mutants: $(STAMP)  ## the storm against each mend undone, one at a time: it must fail each time; ONLY=name
	$(BIN)/python -m tests.storm.mutants $(if $(ONLY),--only $(ONLY))

check: $(STAMP)  ## formatting, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(STAMP)  ## format and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)  ## micro-benchmarks of each phase
	$(BIN)/python -m pytest benchmarks --benchmark-enable --benchmark-only

bench-growth: $(STAMP)  ## how each phase grows with the cluster: tables, and benchmarks/phases/growth.svg
	$(BIN)/python -m benchmarks.phases.growth

bench-check: $(STAMP)  ## fail if a phase grows faster than the cluster, and a move costs 1 ms of CPU at most, beside a reference
	$(BIN)/python -m benchmarks.phases.check

bench-scale: $(STAMP)  ## the peer against ours, tables in Markdown; SIZES="3:30 1000:30000 5000:150000:lean" ROUNDS=3
	$(BIN)/python -m benchmarks.scale $(or $(SIZES),3:30 1000:30000) --rounds $(or $(ROUNDS),3)

bench-peer: $(STAMP)  ## policies of the peer on random small clusters: it and ours after policy migrate, each difference by its kind; CASES=300
	$(BIN)/python -m benchmarks.peer --cases $(or $(CASES),300)

bench-karpenter: $(STAMP)  ## a day of load on Karpenter's nodes: it alone, with the descheduler, with ours; SEEDS=0,1 HOUR=150 (seconds of an hour of the day)
	$(BIN)/python -m benchmarks.karpenter --seeds $(or $(SEEDS),0) --hour $(or $(HOUR),150)

bench-waves: $(STAMP)  ## what a look at the cluster costs between two waves; SIZE=1000:30000
	$(BIN)/python -m benchmarks.scale.waves $(or $(SIZE),1000:30000)

bench-pod: $(STAMP)  ## a run in the CronJob's pod on a real kubelet beside a big cluster; needs what e2e-node needs; SIZE=1000:30000
	$(BIN)/python -m benchmarks.scale.pod $(or $(SIZE),1000:30000)

bench-ticks: $(STAMP)  ## a CronJob's whole way out of a heavy drift, and the peer's, on a real control plane; SIZE=1000:30000
	$(BIN)/python -m benchmarks.scale.ticks $(or $(SIZE),1000:30000)

protobuf: $(STAMP)  ## compile the description of the API's protobuf lists again
	for name in objects stored; do $(BIN)/python -m grpc_tools.protoc -Irebalancer/wire/protobuf --descriptor_set_out=rebalancer/wire/protobuf/$$name.binpb $$name.proto; done

bench-scheduler: $(STAMP)  ## the scheduler model against the real kube-scheduler: scores, landings, then devices
	$(BIN)/python -m benchmarks.scheduler.decisions
	$(BIN)/python -m benchmarks.scheduler.landings
	$(BIN)/python -m benchmarks.scheduler.devices

bench-capacity: $(STAMP)  ## machines that capacity buys for pending pods, beside the proven optimum
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/decisions/requirements.txt
	$(BIN)/python -m benchmarks.capacity

bench-decisions: $(STAMP)  ## peer, ours and the proven optimum on a real control plane
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/decisions/requirements.txt
	$(BIN)/python -m benchmarks.decisions run

cluster: $(STAMP)  ## leave a real control plane running; DRIFT=article|zone-back|new-nodes|drained-return; CLOUD=1: with machines of moto
	$(BIN)/python -m tests.controlplane up $(if $(CLOUD),--cloud) $(if $(DRIFT),--drift $(DRIFT)) $(if $(NODES),--nodes $(NODES)) --seed $(or $(SEED),0)

COMPILE := $(BIN)/uv pip compile --quiet --upgrade --no-header --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links
requirements: $(STAMP)  ## renew the hash-pinned requirements
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	$(COMPILE) --output-file requirements-dev.txt pyproject.toml requirements-dev.in
	$(COMPILE) --constraint requirements-dev.txt --extra aws --output-file image/requirements.txt pyproject.toml
	$(COMPILE) --output-file tests/fuzz/requirements.txt tests/fuzz/requirements.in
	$(COMPILE) --constraint requirements-dev.txt --output-file tests/release/requirements.txt tests/release/requirements.in
	$(COMPILE) --output-file tests/audit/requirements.txt tests/audit/requirements.in
	$(COMPILE) --output-file benchmarks/room/requirements.txt benchmarks/room/requirements.in
	$(COMPILE) --constraint requirements-dev.txt --output-file tests/docs/site/requirements.txt tests/docs/site/requirements.in
	$(COMPILE) --constraint requirements-dev.txt --output-file image/build-requirements.txt image/build-requirements.in

image-index:  ## one image for several architectures from archives of `make release`: NAME=repository:tag PARTS="amd64.oci.tar arm64.oci.tar"
	@mkdir -p dist
	$(PYTHON) -m image.index dist/kube-rebalancer.oci.tar $(NAME) $(PARTS)

release: $(STAMP)  ## the files of a release of the last commit in dist/release, made twice, then installed and run; needs Go 1.26 for Helm
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/release/requirements.txt
	$(BIN)/python -m tests.release dist/release

IMAGE := dist/kube-rebalancer.dev.oci.tar
$(IMAGE): Containerfile pyproject.toml setup.py $(shell find image rebalancer strategies -name '*.py' -o -name '*.pxd' -o -name '*requirements.txt')
	@echo "building the image takes minutes"
	@mkdir -p dist && rm -rf build/image build/image-env
	$(PYTHON) -m venv build/image-env
	build/image-env/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes --requirement=image/build-requirements.txt
	build/image-env/bin/python -m image.root build/image
	$(PYTHON) -m image.oci build/image $@ localhost/kube-rebalancer:dev

install:  ## the chart of this checkout on a cluster, with an image that this machine serves; CONTEXT=, ADDRESS=127.0.0.1:5000, HELM_FLAGS=
	@$(PYTHON) -m image.install $(if $(CONTEXT),--context=$(CONTEXT))
	@$(MAKE) --no-print-directory $(IMAGE)
	$(PYTHON) -m image.install $(IMAGE) $(if $(CONTEXT),--context=$(CONTEXT)) $(if $(ADDRESS),--address=$(ADDRESS)) --helm-flags='$(HELM_FLAGS)'

evidence: $(STAMP)  ## docs/evidence.md: hours, goes on where it was stopped; ONLY=room,consolidation MINUTES=10 AT_ONCE=2 TRACES=FOLDER
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r benchmarks/decisions/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target build/solvers -r benchmarks/room/requirements.txt
	PYTHONPATH=build/solvers $(BIN)/python -m benchmarks.evidence $(if $(ONLY),--only $(ONLY)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(AT_ONCE),--at-once $(AT_ONCE))

audit:  ## known vulnerabilities of what the image ships, beside docs/project/vex.openvex.json where it is; STRICT=1: what is not judged fails, too
	@test -x $(VENV)/audit/bin/python || $(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r tests/audit/requirements.txt
	@$(VENV)/audit/bin/python -m tests.audit $(if $(STRICT),--strict)

sast: $(STAMP)  ## static analysis for security, the S rules of ruff: dist/sast.sarif
	@mkdir -p dist
	$(BIN)/ruff check --select S --output-format sarif --output-file dist/sast.sarif rebalancer strategies image

clean:  ## remove what the targets made, but not the built control plane
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
