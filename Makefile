# `make` lists the targets. Everything runs inside .venv, which `make setup` creates; besides
# python3 with venv, make and git, a fresh machine needs nothing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
# One more than the two cores that the budget is for: tests wait for processes as often as they work.
WORKERS ?= 3
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Before a command that prints nothing for minutes: $(call ticking,WHAT) says every 5 s that it goes on.
ticking = ( exec {never}<> <(:); while true; do read -rt 5 -u "$$never" || true; \
	echo "... $$SECONDS s so far: $(1)" >&2; done ) & ticker=$$!; disown; trap "kill -9 $$ticker" EXIT
SERVE_STAMP := $(VENV)/.serve-stamp
TEST_STAMP := $(VENV)/.test-stamp
SPARK_STAMP := $(VENV)/.spark-stamp
BENCH_STAMP := $(VENV)/.bench-stamp
DOCS_STAMP := $(VENV)/.docs-stamp
SPARK_CLASSES := $(VENV)/spark-classes.jsa
COMPILED := src/goqueue/model/_ src/goqueue/model/scanning/_ src/goqueue/wire/kafka/_ src/goqueue/runtime/_
COMPILED_SOURCES := $(wildcard $(addsuffix *.[ch],$(COMPILED)))
COMPILED_MODULES := $(addsuffix *.so,$(COMPILED))
LOCK_VENV := .cache/lock
KAFKA_CLIENTS_VERSION ?= 4.4.0
KAFKA_CLIENTS_JAR := .cache/kafka-clients-$(KAFKA_CLIENTS_VERSION).jar

.PHONY: help setup setup-test setup-spark setup-bench java kcat prometheus chromium curl peers serve cluster observe test test-unit \
	test-simulation test-integration test-spark test-cluster kafka-answers check format \
	bench bench-peers bench-page demo explore simulate simulate-cluster campaign \
	campaign-transactions campaign-cluster campaign-everything campaign-journeys prove-metrics judge-kafka judge-security \
	judge-share judge-grpc judge-spark lock codecs grpc-codecs grpc-released docs-settings docs-operations docs-metrics \
	docs-reference man postman monitoring docs console check-console console-pictures bench-console console-many-topics \
	check-deploy check-load newcomer clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' \
		| expand -t 23

setup: $(SERVE_STAMP) ## Make .venv with what the broker needs

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "GoQueue needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python has no venv module; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Hashes are checked, dependencies come from the lock alone, and the build backend is in the lock
# too, so the same commit always installs the same bytes.
$(SERVE_STAMP): requirements/serve.lock pyproject.toml setup.py $(COMPILED_SOURCES) | $(BIN)/python
	@echo "Installing what the broker needs into $(VENV); this is done once and takes about a minute." >&2
	@$(call ticking,installing what the broker needs); \
		$(PIP) install --require-hashes --no-deps -r requirements/serve.lock
	@rm -f $(COMPILED_MODULES)
	@$(call ticking,compiling); $(PIP) install --no-deps --no-build-isolation --editable .
	@ls $(COMPILED_MODULES) >/dev/null 2>&1 || echo "Without a C compiler records are decoded in Python," \
		"which is slower; on Debian: apt-get install gcc python3-dev, then make setup" >&2
	@touch $@

setup-test: $(TEST_STAMP) setup-spark $(SPARK_CLASSES) kcat prometheus chromium ## Make .venv with what the tests need too

$(TEST_STAMP): requirements/test.lock $(SERVE_STAMP)
	$(PIP) install --require-hashes --no-deps -r requirements/test.lock
	@touch $@

setup-spark: $(SPARK_STAMP) java ## Make .venv with what Spark needs too

# Spark itself comes as source; what builds it is in the lock of the broker.
$(SPARK_STAMP): requirements/spark.lock $(SERVE_STAMP)
	@echo "Downloading and building Spark, some 450 MB; this is done once and may take several minutes." >&2
	@$(call ticking,downloading and building Spark); \
		$(PIP) install --require-hashes --no-deps --no-build-isolation -r requirements/spark.lock
	@touch $@

# The sessions of the tests and of the demo start in half the time with it, and start without it too.
$(SPARK_CLASSES): tools/spark_classes.py $(SPARK_STAMP) | java
	@echo "Preparing the classes of Spark, so that it starts faster; this is done once." >&2
	-@$(call ticking,preparing the classes of Spark); $(BIN)/python $< $@ 2>/dev/null

# $(call debian_package,COMMAND,PACKAGE,WHY): installed where that can be done; elsewhere people are told.
debian_package = $(call debian_unless,command -v $(1) >/dev/null,$(2),$(3))

# $(call debian_unless,TEST,PACKAGE,WHY): the same, with any test of whether it is there.
define debian_unless
@if ! { $(1); }; then \
	if [ "$$(id -u)" = 0 ]; then as_root=""; else as_root="sudo"; fi; \
	if command -v apt-get >/dev/null && { [ -z "$$as_root" ] || command -v sudo >/dev/null; }; then \
		$$as_root apt-get update -qq && $$as_root apt-get install -y -qq $(2); \
	else \
		echo "$(3); install it first (on Debian: apt-get install $(2))." >&2; \
	fi; \
fi
endef

# Without it only Spark is missing.
java:
	$(call debian_package,java,default-jre-headless,Spark needs Java 17 or newer)

# Without it only the tests that use it fail.
kcat:
	$(call debian_package,kcat,kcat,Some integration tests use kcat)

# Without it only the tests of the console fail.
chromium:
	$(call debian_package,chromium,chromium,The tests of the console use Chromium)

# Unpacked and not installed, because the package starts a server. Without it only the tests of the
# alert rules fail, and `make observe` has no Prometheus.
PROMETHEUS := .cache/prometheus/usr/bin/prometheus
prometheus:
	@if [ ! -x $(PROMETHEUS) ] && ! { command -v prometheus && command -v promtool; } >/dev/null; then \
		mkdir -p $(dir $(PROMETHEUS)) && cd .cache/prometheus && rm -f prometheus_*.deb; \
		{ [ "$$(id -u)" != 0 ] || apt-get update -qq; } \
			&& apt-get download -qq -o APT::Sandbox::User=root prometheus 2>/dev/null \
			&& dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb \
			|| echo "Some tests use Prometheus; install it first (on Debian: apt-get install prometheus)." >&2; \
	fi

# What checks deployments is built by Go and fetched by pip, into .cache; nothing is installed.
HELM_VERSION := v3.22.0
KUBERNETES_VALIDATE := kubernetes-validate==1.37.0
COMPOSE_SPEC := github.com/compose-spec/compose-go/v2@v2.16.2
CUSTOM_RESOURCES := github.com/prometheus-operator/prometheus-operator@v0.85.0 github.com/cert-manager/cert-manager@v1.21.2
GO_HERE := GOPATH=$(CURDIR)/.cache/go GOBIN=$(CURDIR)/.cache/go/bin GOFLAGS=-modcacherw CGO_ENABLED=0
.cache/go/bin/helm:
	@command -v go >/dev/null || { echo "Go builds Helm; on Debian: apt-get install golang" >&2; exit 1; }
	@echo "Building Helm, once; this takes a few minutes." >&2
	$(GO_HERE) go install helm.sh/helm/v3/cmd/helm@$(HELM_VERSION)
	$(GO_HERE) go mod download $(COMPOSE_SPEC) $(CUSTOM_RESOURCES)

.cache/kubernetes-validate: | $(BIN)/python
	$(PIP) install --target $@ $(KUBERNETES_VALIDATE)

# ARGS=--write renders the chart again for the tests.
check-deploy: $(TEST_STAMP) .cache/go/bin/helm .cache/kubernetes-validate ## Validate the Helm chart and the compose files by their schemas (needs Go)
	PYTHONPATH=.cache/kubernetes-validate $(BIN)/python -m tools.packages.charts $(ARGS)
	$(BIN)/python -m tools.packages.compose

K6_VERSION := v1.8.1
.cache/go/bin/k6:
	@command -v go >/dev/null || { echo "Go builds k6; on Debian: apt-get install golang" >&2; exit 1; }
	@echo "Building k6, once; this takes a few minutes." >&2
	$(GO_HERE) go install go.k6.io/k6@$(K6_VERSION)

check-load: $(TEST_STAMP) .cache/go/bin/k6 ## Run the load tests of deploy/k6 against a node (needs Go)
	$(BIN)/python -m pytest -q tests/integration/deploy/test_k6.py $(ARGS)

curl:
	$(call debian_package,curl,curl,The demo uses curl)

serve: setup ## Run a broker; flags in ARGS="..."
	@exec $(BIN)/goqueue serve $(ARGS)

cluster: setup ## Run three nodes that form a cluster, until Ctrl-C; flags in ARGS="..."
	@exec $(BIN)/goqueue serve --shards 3 --data-dir data/cluster --log-level warning $(ARGS)

observe: setup prometheus ## Watch a broker with Prometheus and Grafana, as far as they are installed
	$(BIN)/python -m tools.monitoring.observe $(ARGS)

# Tests take from a millisecond to a minute, so a worker that has done its share takes from the other's
# (see tests/shares.py). One more worker than elsewhere, for with Spark and browsers they wait still more.
test: WORKERS = 4
test: setup-test ## Run all tests; pick some with ARGS="-k name"
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

# Without Spark, Java and kcat: what to run after every change.
test-unit: $(TEST_STAMP) ## Run the unit tests, without Spark; pick some with ARGS="-k name"
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/unit --ignore tests/unit/spark $(ARGS)

test-simulation: $(TEST_STAMP) ## Run nodes and clusters on a virtual clock, with faults from seeds
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/simulation $(ARGS)

test-integration: $(TEST_STAMP) kcat prometheus ## Run real processes with real clients
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/integration $(ARGS)

test-spark: setup-test ## Run the tests that need Spark
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/unit/spark tests/e2e $(ARGS)

# What is about clusters anyway, and what no node is needed for, is left to `make test`.
CLUSTER_TESTS_NOT := $(wildcard tests/integration/test_cluster*.py) tests/integration/faults \
	$(addprefix tests/integration/test_,decoder_build.py dialing.py discovery.py sockets.py turns.py)
test-cluster: setup-test ## Run the tests of every front end against three nodes; pick with ARGS="-k name"
	GOQUEUE_TEST_PEER=cluster $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/integration \
		$(addprefix --ignore=,$(CLUSTER_TESTS_NOT)) $(ARGS)

kafka-answers: setup-test ## Ask Apache Kafka again what it answers to bad batches (needs Java and Maven)
	GOQUEUE_TEST_PEER=kafka $(BIN)/python -m pytest tests/integration/test_bad_batches.py $(ARGS)

check: $(TEST_STAMP) $(SPARK_STAMP) ## Lint, formatting, types and the walls between the rooms
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_architecture_map.py

format: $(TEST_STAMP) ## Format the code and sort its imports
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: setup-test ## Run the benchmarks; choose in ARGS="..."
	$(BIN)/python -m bench $(ARGS)

setup-bench: $(BENCH_STAMP) setup-test ## Make .venv with what the pictures of the benchmarks need too

$(BENCH_STAMP): requirements/bench.lock $(SERVE_STAMP)
	$(PIP) install --require-hashes --no-deps -r requirements/bench.lock
	@touch $@

# What cannot be had is left out, and the table says so. Go builds NATS and its client, Maven fetches
# Kafka and ElasticMQ; neither is installed here.
HEADERS := /usr/include
peers: java
	-$(call debian_package,gcc,gcc libc6-dev,The load generators are written in C)
	-$(call debian_package,redis-server,redis-server,Redis is one of the peers)
	-$(call debian_unless,[ -x /usr/lib/rabbitmq/bin/rabbitmq-server ],rabbitmq-server,RabbitMQ is one of the peers)
	-$(call debian_unless,[ -e $(HEADERS)/librdkafka/rdkafka.h ],librdkafka-dev,The Kafka clients are written in C)
	-$(call debian_unless,[ -e $(HEADERS)/hiredis/hiredis.h ],libhiredis-dev,The Redis client is written in C)
	-$(call debian_unless,[ -e $(HEADERS)/amqp.h ] || [ -e $(HEADERS)/rabbitmq-c/amqp.h ],librabbitmq-dev,The RabbitMQ client is written in C)
	@command -v go >/dev/null || echo "NATS is left out: it is built with Go, which is not here." >&2
	@command -v mvn >/dev/null || echo "Apache Kafka and ElasticMQ may be left out: Maven fetches them, and is not here." >&2

bench-peers: setup-bench peers ## Run all benchmarks beside all peers, with tables and pictures
	$(BIN)/python -m bench --peers all $(ARGS)

RESULTS ?= $(wildcard bench/results/*.json)
bench-page: $(BENCH_STAMP) ## Write docs/benchmarks.md from all results, or RESULTS="a.json ..."
	$(BIN)/python -m bench.page $(RESULTS)

demo: setup-spark $(SPARK_CLASSES) curl ## Watch a broker and Spark at work, for two minutes on two free cores
	PATH="$(CURDIR)/$(BIN):$$PATH" examples/demo.sh

newcomer: ## Time the way from a clone to the first message; with LIMIT=60 fail above that many seconds
	$(PYTHON) tools/newcomer.py $(if $(LIMIT),--limit $(LIMIT))

# A long run may be cut short: each failure, with its seed, is printed and written there at once.
FAILURES ?= .cache/failures.txt
SEEDED := $(BIN)/python -m pytest -q --failures $(FAILURES)

SEEDS ?= 25
simulate: $(TEST_STAMP) ## Run the simulations with SEEDS times as many seeds as `make test`
	$(SEEDED) -n $(WORKERS) --seeds $(SEEDS) tests/simulation $(ARGS)

explore: setup-test ## Run the property tests with examples that were never tried before
	$(SEEDED) -n $(WORKERS) -m hypothesis --hypothesis-profile explore tests/unit $(ARGS)

# About 225 whole clusters at a time, so 45 times are more than 10,000.
CLUSTER_SEEDS ?= 45
simulate-cluster: $(TEST_STAMP) ## Run whole clusters in trouble, 10,000 of them; see CLUSTER_SEEDS
	$(SEEDED) -n $(WORKERS) --seeds $(CLUSTER_SEEDS) -m seeds \
		$(wildcard tests/simulation/test_cluster*.py) $(ARGS)

campaign: $(TEST_STAMP) ## Kill a node under queue traffic again and again, SEEDS times over
	$(SEEDED) -n $(WORKERS) --seeds $(SEEDS) -o log_cli=true -o log_cli_level=INFO \
		tests/integration/test_queue_crashes.py $(ARGS)

campaign-transactions: $(TEST_STAMP) ## Kill clients and nodes under transactions, SEEDS times over
	$(SEEDED) -n $(WORKERS) --seeds $(SEEDS) -o log_cli=true -o log_cli_level=INFO \
		tests/integration/test_transaction_crashes.py $(ARGS)

# It needs root, for network namespaces, and says so; one at a time, for it measures time-outs.
campaign-cluster: $(TEST_STAMP) ## Break machines under three nodes, SEEDS times over
	$(SEEDED) --seeds $(SEEDS) -o log_cli=true -o log_cli_level=INFO \
		tests/integration/faults/test_cluster_faults.py $(ARGS)

# The same needs, and the machine for itself: docs/faults.md says what is checked.
DURATION ?= 120
FIRST_SEED ?= 0
campaign-everything: $(TEST_STAMP) ## Break machines under clients of every kind, SEEDS times DURATION seconds
	$(BIN)/python -m tests.integration.faults --first $(FIRST_SEED) --seeds $(SEEDS) \
		--seconds $(DURATION) $(ARGS)

# Bounded by SECONDS, plus a minute.
SECONDS ?= 300
prove-metrics: $(TEST_STAMP) prometheus ## Compare counters with those of clients: three nodes, Prometheus, SECONDS of load
	$(BIN)/python -m tests.integration.monitoring --seconds $(SECONDS) $(ARGS)

MESSAGES ?= 10000000
campaign-journeys: setup-test ## Put faults into the journeys of MESSAGES messages; Spark must find them all
	$(BIN)/python -m tests.e2e.journal_faults --messages $(MESSAGES) $(ARGS)

# It needs Java, and Maven for the jars of Kafka. ARGS=--record writes Kafka's answers down for the tests.
judge-kafka: $(TEST_STAMP) java ## Compare answers with those of Apache Kafka; run its tools and Kafka Streams
	$(BIN)/python -m tests.judge $(ARGS)
	GOQUEUE_TEST_TOOLS=1 $(BIN)/python -m pytest -q tests/integration/test_kafka_tools.py \
		tests/integration/test_kafka_streams.py

judge-security: $(TEST_STAMP) java ## Test the client against Apache Kafka's TLS and SASL, and nodes with Kafka's tools
	$(BIN)/python -m tests.judge.client_security $(ARGS)
	GOQUEUE_TEST_TOOLS=1 $(BIN)/python -m pytest -q tests/integration/security/test_kafka_*tool*.py \
		tests/integration/test_java_telemetry.py

# It needs Java and Go; Maven and Go fetch the clients.
judge-share: $(TEST_STAMP) java ## Test share groups with the Java client, franz-go and Kafka's tool; drain 100,000 messages
	GOQUEUE_TEST_TOOLS=1 $(BIN)/python -m pytest -q -rP tests/integration/test_share_tools.py \
		tests/integration/mixed $(ARGS)

# It needs Go and Node, which fetch the gRPC libraries; buf, which is here, reads the proto files.
judge-grpc: $(TEST_STAMP) ## Test the gRPC examples in Go and Node, and docs/grpc.md with grpcurl
	GOQUEUE_TEST_TOOLS=1 $(BIN)/python -m pytest -q tests/integration/rpc/test_grpc_examples.py \
		tests/integration/rpc/test_grpc_docs.py $(ARGS)

# Maven fetches the connector.
judge-spark: setup-test ## Read with Spark's own Kafka source too, option by option, and compare
	$(BIN)/python -m tests.judge.spark_options $(ARGS)

lock: $(LOCK_VENV)/bin/uv ## Choose new versions of all dependencies
	$(call compile_lock,--group build --extra server --extra grpc,requirements/serve.lock)
	$(call compile_lock,--group build --group test --extra server --constraint requirements/serve.lock,requirements/test.lock)
	$(call compile_lock,--extra spark --extra server --constraint requirements/serve.lock --constraint requirements/test.lock,requirements/spark.lock)
	$(call compile_lock,--group bench --extra server $(addprefix --constraint requirements/,serve.lock test.lock spark.lock),requirements/bench.lock)
	$(call compile_lock,--group docs --extra server $(addprefix --constraint requirements/,serve.lock test.lock spark.lock bench.lock),requirements/docs.lock)

# `--universal` locks for every platform and Python at once. Where the files come from is the
# business of the machine that installs, so no address is written down.
define compile_lock
$(LOCK_VENV)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-emit-find-links --no-header \
	$(1) --output-file $(2) pyproject.toml
endef

$(LOCK_VENV)/bin/uv:
	$(PYTHON) -m venv $(LOCK_VENV)
	$(LOCK_VENV)/bin/python -m pip --disable-pip-version-check --quiet install uv

codecs: $(TEST_STAMP) $(KAFKA_CLIENTS_JAR) ## Generate the Kafka codecs from the official message definitions
	$(BIN)/python -m tools.kafka_codegen --jar $(KAFKA_CLIENTS_JAR)

grpc-codecs: $(TEST_STAMP) ## Generate the Python messages of the gRPC API from proto/
	$(BIN)/python -m tools.grpc_codegen

# A change of messages must not break clients that were made from what is released; a test compares.
grpc-released: $(TEST_STAMP) ## Write proto/released.binpb, with which proto/ must stay compatible
	$(BIN)/buf breaking proto --against proto/released.binpb
	$(BIN)/buf build proto --exclude-source-info -o proto/released.binpb

$(KAFKA_CLIENTS_JAR):
	@command -v mvn >/dev/null || { echo "Maven fetches the definitions; on Debian: apt-get install maven" >&2; exit 1; }
	mvn --batch-mode --quiet dependency:copy \
		-Dartifact=org.apache.kafka:kafka-clients:$(KAFKA_CLIENTS_VERSION) \
		-DoutputDirectory=$(@D)

docs-settings: setup ## Write docs/settings.md from the table of settings
	$(BIN)/python tools/settings_page.py > docs/settings.md

docs-operations: setup ## Write docs/operations.md from the operations of the gate
	$(BIN)/python tools/operations_page.py > docs/operations.md

docs-metrics: setup ## Write docs/metrics.md from the catalogue of metrics
	$(BIN)/python tools/metrics_page.py > docs/metrics.md

docs-reference: $(TEST_STAMP) ## Write docs/reference/ from the commands, the HTTP and gRPC APIs, the errors and the Kafka API
	$(BIN)/python -m tools.reference_pages

man: setup ## Write the manual pages of the commands into build/man
	$(BIN)/python -m tools.man_pages

docs: $(DOCS_STAMP) ## Build the documentation site into build/docs/site; fails on a broken link
	$(BIN)/python tools/docs_site.py

$(DOCS_STAMP): requirements/docs.lock $(SERVE_STAMP)
	$(PIP) install --require-hashes --no-deps -r requirements/docs.lock
	@touch $@

postman: setup ## Write the Postman collection of the HTTP API
	$(BIN)/python tools/postman_collection.py > docs/goqueue.postman_collection.json

# Only those who change console/ need Node; what is built is committed.
CONSOLE_PACKAGES := console/node_modules/.package-lock.json
$(CONSOLE_PACKAGES): console/package.json console/package-lock.json
	@command -v npm >/dev/null || { echo "The console is built with Node and npm; install them first." >&2; exit 1; }
	cd console && npm ci --no-audit --no-fund
	@touch $@

console: $(CONSOLE_PACKAGES) ## Build the web console from console/src (needs Node)
	cd console && npm run build

check-console: $(CONSOLE_PACKAGES) $(TEST_STAMP) ## Check the types of the console, test its functions, and compare what is committed with a build
	cd console && npm run check && npm test
	$(BIN)/python -m tools.check_console

console-pictures: setup-test ## Write the pictures of docs/console.md
	GOQUEUE_CONSOLE_PICTURES=1 $(BIN)/python -m pytest -q tests/e2e/console $(ARGS)

TAIL_SECONDS ?= 600
bench-console: setup-test ## Measure the console in Chromium; the live tail for TAIL_SECONDS
	$(BIN)/python -m tests.e2e.console.timings --seconds $(TAIL_SECONDS) $(ARGS)

TOPICS ?= 10000
GROUPS ?= 100000
console-many-topics: setup-test ## Test the lists of the console with TOPICS topics and GROUPS groups, and print times
	GOQUEUE_CONSOLE_TOPICS=$(TOPICS) GOQUEUE_CONSOLE_GROUPS=$(GROUPS) $(BIN)/python -m pytest -q -s tests/e2e/console/test_many.py $(ARGS)

monitoring: setup ## Write the alert rules, their tests and the dashboards
	$(BIN)/python -m tools.monitoring $(ARGS)

clean: ## Remove what can be made again; keeps data/
	rm -rf $(VENV) .cache build dist demo-report .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info $(COMPILED_MODULES)
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
