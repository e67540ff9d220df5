# Everything that continuous integration runs is a target here. `make` alone prints the list.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := bin
SERVER := $(BIN)/metacontroller-apiserver
PLUGIN := $(BIN)/kubectl-metacontroller
# kubectl asks this for what may follow in a command line.
COMPLETION := $(BIN)/kubectl_complete-metacontroller
# Tests run these: the server with the race detector, and with counters of its statements.
SERVER_RACE := $(BIN)/race/metacontroller-apiserver
SERVER_COVERAGE := $(BIN)/coverage/metacontroller-apiserver

# The version comes from git alone, the date is that of the commit: the same commit gives the same bytes.
ifndef VERSION
VERSION := $(shell hack/version.sh version)
endif
COMMIT := $(shell hack/version.sh commit)
COMMIT_DATE := $(shell hack/version.sh date)
STAMP := k8s.io/component-base/version
LDFLAGS := -s -w -X $(STAMP).gitVersion=$(VERSION) -X $(STAMP).gitCommit=$(COMMIT) -X $(STAMP).buildDate=$(COMMIT_DATE)

# Where the archives of `make release-artifacts` will be published, and its image, whose tag is the version.
RELEASE_URI ?= https://github.com/metacontroller/metacontroller-apiserver/releases/download/$(VERSION)
RELEASE_IMAGE ?= metacontroller-apiserver

# The name that engines give to the image of `make image` when they load it, without the version, and the platforms that it is for.
IMAGE ?= metacontroller-apiserver
PLATFORMS ?= linux/amd64,linux/arm64

# Port on which `make run` and `make demo` serve the API. Empty: a free one.
PORT ?=
# What `make run` and `make demo` run: a folder of artifacts/examples, by default hello-world; or the program of a hook, with the files and
# folders that have the manifests of its controller; or several programs, with a folder for each, separated by spaces.
EXAMPLE ?=
HOOK ?=
CONTROLLER ?=
DEMO_ARGS = --port '$(PORT)' --example '$(EXAMPLE)' --hook '$(HOOK)' --controller '$(CONTROLLER)'
# Time that each fuzz target gets.
FUZZTIME ?= 30s
# How long `make churn` churns.
CHURNTIME ?= 10m
# How many changes `make pairs` makes for each of the four combinations of two controllers.
CHANGES ?= 500
# How many children `make ordered` has, separated by commas.
CHILDREN ?= 150,1000,5000
# How many histories `make simulate` runs, and the seed of the first one.
SEEDS ?= 1000
FIRST ?= 1
# Which tests of faults `make faults` runs, as go test's -run has it: TestOneServer/HookDown. Empty: all.
FAULT ?=
# How often each microbenchmark is run, and the commit with which benchmarks are compared.
COUNT ?= 6
BASE ?= HEAD
# How often `make bench-compare`, `make bench-arguments` and `make bench-peer` measure each of those that they compare.
TURNS ?= 3
# What `make bench-peer` compares with: Metacontroller's binary, the flags of a second peer of the same binary, empty for none, and the
# file of its CustomResourceDefinitions, empty for the one in the source beside the binary.
PEER ?=
PEER_TUNED ?= --client-go-qps=-1 --workers=20
PEER_CRDS ?=

##@ General

.PHONY: help
help: ## Print this help.
	@awk 'BEGIN {FS = ":.*##"} \
		/^[a-zA-Z0-9_-]+:.*?##/ {printf "  %-20s %s\n", $$1, $$2} \
		/^##@/ {printf "\n%s\n", substr($$0, 5)}' $(MAKEFILE_LIST)

##@ Build

.PHONY: build
build: completion ## Build the server at bin/metacontroller-apiserver, and the plugin.
	@CGO_ENABLED=0 hack/build.sh '$(SERVER) $(VERSION) and $(PLUGIN)' -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(BIN)/ \
		./cmd/kubectl-metacontroller ./cmd/metacontroller-apiserver

.PHONY: build-plugin
build-plugin: completion ## Build the plugin of kubectl at bin/kubectl-metacontroller.
	@CGO_ENABLED=0 hack/build.sh '$(PLUGIN)' -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $(PLUGIN) ./cmd/kubectl-metacontroller

.PHONY: completion
completion:
	@mkdir -p $(BIN)
	@printf '#!/bin/sh\nexec kubectl metacontroller __complete "$$@"\n' >$(COMPLETION) && chmod +x $(COMPLETION)

.PHONY: build-race
build-race: ## Build the server with the race detector, as some suites run it.
	@hack/build.sh '$(SERVER_RACE)' -race -buildvcs=false -ldflags '$(LDFLAGS)' -o $(SERVER_RACE) ./cmd/metacontroller-apiserver

.PHONY: build-coverage
build-coverage:
	@go build -cover -covermode=set -coverpkg='./cmd/...,./pkg/...' -buildvcs=false \
		-ldflags '$(LDFLAGS)' -o $(SERVER_COVERAGE) ./cmd/metacontroller-apiserver

# hack/release is a module of its own, which is run where it is.
RELEASE := go -C hack/release run .
RELEASE_FLAGS = --root '$(CURDIR)' --version '$(VERSION)' --commit '$(COMMIT)' --date '$(COMMIT_DATE)'

.PHONY: image
image: ## Write the server's image to bin/image, without a container engine: an OCI layout with all PLATFORMS, and an archive of each to load.
	@$(RELEASE) image $(RELEASE_FLAGS) --folder '$(CURDIR)/$(BIN)/image' --image '$(IMAGE)' --platforms '$(PLATFORMS)'

.PHONY: image-local
image-local: ## Write the image for this machine alone to bin/image-local, from which tests run it.
	@$(RELEASE) image $(RELEASE_FLAGS) --folder '$(CURDIR)/$(BIN)/image-local' --image '$(IMAGE)' --platforms "linux/$$(go env GOARCH)"

.PHONY: release-artifacts
release-artifacts: ## Write to bin/release what a release publishes: programs, images, manifests, the chart, what they are made of, notes, SHA256SUMS.
	@$(RELEASE) artifacts $(RELEASE_FLAGS) --folder '$(CURDIR)/$(BIN)/release' --image '$(RELEASE_IMAGE)' --uri '$(RELEASE_URI)'

.PHONY: clean
clean: ## Remove what was built here. The control plane's binaries live in the user's cache and stay.
	rm -rf $(BIN) cover.out

##@ Run

.PHONY: run
run: demo-check build control-plane-soon ## Run EXAMPLE, or your own HOOK and CONTROLLER, on a local control plane until Ctrl-C.
	@$(BIN)/demo $(DEMO_ARGS)

.PHONY: demo
demo: demo-check build control-plane-soon ## The same, but exit after showing the result.
	@$(BIN)/demo $(DEMO_ARGS) --once

.PHONY: demo-build
demo-build:
	@CGO_ENABLED=0 hack/build.sh '$(BIN)/demo' -trimpath -buildvcs=false -o $(BIN)/demo ./hack/demo

# What is wrong is said before anything else is built.
.PHONY: demo-check
demo-check: demo-build
	@$(BIN)/demo $(DEMO_ARGS) --check

.PHONY: control-plane
control-plane: control-plane-build ## Start a local control plane alone, print its KUBECONFIG, and stay until Ctrl-C.
	@hack/control-plane.sh start

.PHONY: control-plane-build
control-plane-build: ## Build the local control plane's programs where they are not built yet (minutes, once).
	@hack/control-plane.sh build

# kube-controller-manager is built while a demonstration runs.
.PHONY: control-plane-soon
control-plane-soon:
	@hack/control-plane.sh build --soon

##@ Test

# They take the control plane's program from here, instead of building it again, as hack/test.sh does.
churn pairs conformance-definitions gitops ordered bench bench-inline bench-compare bench-arguments bench-peer: export METACONTROLLER_PROGRAMS := $(CURDIR)/$(BIN)

.PHONY: test
test: build build-race demo-build control-plane-build ## Run every test, with the race detector where much happens at once; RACE=all: everywhere.
	@hack/test.sh all

.PHONY: coverage
coverage: build-coverage build-plugin demo-build image-local control-plane-build ## Run the tests of the product's module without it, and report coverage.
	@hack/test.sh coverage

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane.
	@hack/test.sh unit

.PHONY: fuzz
fuzz: ## Fuzz every fuzz target for FUZZTIME each.
	@hack/fuzz.sh $(FUZZTIME)

.PHONY: churn
churn: build-race control-plane-build ## Create, change and delete parents and controllers for CHURNTIME, and check that nothing is left.
	@go test -race -count=1 -v -timeout 60m ./test/churn -churn.duration $(CHURNTIME)

.PHONY: pairs
pairs: build-race control-plane-build ## Run two controllers on the same parents, with CHANGES changes for each combination of their kinds: each must be seen.
	@go test -race -count=1 -v -timeout 60m ./test/conformance/pairs -pairs.changes $(CHANGES)

.PHONY: conformance-definitions
conformance-definitions: build control-plane-build ## Run test/conformance with controllers on CustomResourceDefinitions, without what is about the API server.
	@METACONTROLLER_TEST_API=definitions METACONTROLLER_APISERVER='$(CURDIR)/$(SERVER)' go test -count=1 -p 2 -timeout 30m ./test/conformance/...

.PHONY: gitops
gitops: build control-plane-build ## Run the engines of Argo CD and Flux against the server, with the Go that they want.
	@METACONTROLLER_APISERVER='$(CURDIR)/$(SERVER)' hack/gitops.sh

.PHONY: ordered
ordered: build control-plane-build ## Have hooks delete their children one by one, CHILDREN of them: none is slowed down.
	@METACONTROLLER_APISERVER='$(CURDIR)/$(SERVER)' go test -count=1 -v -timeout 60m -run '^TestBrakes$$/^InOrder$$' ./test/conformance/brakes \
		-ordered.children '$(CHILDREN)'

.PHONY: faults
faults: build control-plane-build ## Run the long forms of all faults, or of those that FAULT matches, and write test/faults/measured.md.
	@hack/faults.sh '$(FAULT)'

.PHONY: simulate
simulate: ## Run SEEDS random histories of the engine in a simulated cluster, from the seed FIRST on.
	@hack/simulate.sh -simulation.seeds $(SEEDS) -simulation.first $(FIRST)

.PHONY: simulate-replay
simulate-replay: ## Run the history HISTORY, a seed or a file, alone, and print it; TRACE=1 prints the requests of the engine, too.
	@TESTS='^TestReplay$$' hack/simulate.sh -exec 'env GOMAXPROCS=1' $(if $(TRACE),-simulation.trace) \
		-simulation.replay '$(or $(and $(wildcard $(HISTORY)),$(abspath $(HISTORY))),$(HISTORY),$(error HISTORY must be a seed or a file))'

.PHONY: simulate-coverage
simulate-coverage: ## The same in one process, with the coverage of the engine's statements.
	@hack/simulate-coverage.sh $(SEEDS) $(FIRST)

.PHONY: simulate-mutants
simulate-mutants: ## Put small faults into the engine, one at a time, and count the histories until the simulation finds them.
	@GOGC=800 go run ./test/simulation/mutants $(MUTANTS_ARGS)

.PHONY: bench
bench: build control-plane-build ## Measure the server against bare writes; BENCH_ARGS has further flags.
	@go build -o $(BIN)/bench ./test/bench && $(BIN)/bench $(BENCH_ARGS)

.PHONY: bench-inline
bench-inline: build control-plane-build ## Measure an inline hook, the webhook that does the same and bare writes in turns, with 3000x3 objects; BENCH_ARGS has further flags.
	@go build -o $(BIN)/bench ./test/bench && $(BIN)/bench --sizes 3000x3 --workloads inline $(BENCH_ARGS)

.PHONY: bench-compare
bench-compare: build control-plane-build ## Measure the working tree, its server with the flags ARGUMENTS, and the commit BASE in TURNS turns, and compare them; BENCH_ARGS has further flags.
	@go build -o $(BIN)/bench ./test/bench && CHANGED_ARGUMENTS='$(ARGUMENTS)' hack/bench-compare.sh commit $(BASE) $(TURNS) $(BENCH_ARGS)

.PHONY: bench-arguments
bench-arguments: build control-plane-build ## Measure the server with the flags ARGUMENTS and without them in TURNS turns, and compare: what a feature costs; BENCH_ARGS has further flags.
	@go build -o $(BIN)/bench ./test/bench && hack/bench-compare.sh arguments '$(or $(ARGUMENTS),$(error ARGUMENTS must be flags of the server))' $(TURNS) $(BENCH_ARGS)

.PHONY: bench-peer
bench-peer: build control-plane-build ## Measure the server and Metacontroller, the binary PEER, in TURNS turns, with its default flags and with PEER_TUNED.
	@go build -o $(BIN)/bench ./test/bench && $(BIN)/bench --runs $(TURNS) --peer '$(or $(PEER),$(error PEER must be the path of Metacontroller))' \
		--peer-crds '$(PEER_CRDS)' --peer-args '' $(if $(PEER_TUNED),--peer-args '$(PEER_TUNED)') $(BENCH_ARGS)

.PHONY: microbench
microbench: ## Run the microbenchmarks COUNT times.
	@hack/microbench.sh $(COUNT)

.PHONY: microbench-compare
microbench-compare: ## Compare the microbenchmarks with those of the commit BASE.
	@hack/microbench.sh $(COUNT) $(BASE)

.PHONY: vet
vet: ## Run go vet over every module.
	@hack/vet.sh

.PHONY: lint
lint: ## Run golangci-lint over every module.
	@hack/lint.sh

##@ Generate and verify

.PHONY: generate
generate: ## Write all generated code and documents.
	hack/update-codegen.sh
	go run ./hack/definitions
	go run ./hack/hook-schema
	go run ./hack/sdk-types
	go run ./hack/api-reference > docs/reference/api.md
	go run ./hack/metrics-reference > docs/reference/metrics.md

.PHONY: verify
verify: verify-boilerplate verify-size verify-docs verify-shell verify-monitoring verify-deps verify-codegen ## Run every check on the tree.

.PHONY: verify-codegen
verify-codegen: ## Generated files are up to date.
	@hack/verify-codegen.sh

.PHONY: verify-size
verify-size: ## Files and folders are small.
	@hack/verify-size.sh

.PHONY: verify-boilerplate
verify-boilerplate: ## Go files carry the licence, packages a doc.go.
	@hack/verify-boilerplate.sh

.PHONY: verify-deps
verify-deps: ## Every go.mod is tidy.
	@hack/verify-deps.sh

.PHONY: vulnerabilities
vulnerabilities: ## Known vulnerabilities that code of ours can reach; needs the network.
	@hack/vulnerabilities.sh

.PHONY: verify-docs
verify-docs: ## Links in documents lead somewhere, documents keep their budget of words, and every package says what it is for.
	@hack/verify-docs.sh

.PHONY: verify-monitoring
verify-monitoring: ## Alerts, their runbooks and the dashboard belong together.
	@cd test/monitoring && go test -count=1 ./...

.PHONY: verify-shell
verify-shell: ## Shell scripts are clean.
	@hack/verify-shell.sh
