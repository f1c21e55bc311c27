# Everything a developer does, by name: `make help`.
SHELL       := /bin/bash -o pipefail
GO          ?= go
GOTOOL      := $(GO) tool -modfile=tools/go.mod
# Kernel tests of two packages at a time: more would share the same cores and wait for each other.
P           ?= 2
PKG         ?= ./...
FUZZTIME    ?= 10s
BENCHTIME   ?= 1s
GOFILES      = $(shell git ls-files --cached --others --exclude-standard --deduplicate '*.go')

.DEFAULT_GOAL := help
.PHONY: help build demo test race lint generate bench-go fuzz cover deploy soak ci-full clean

help: ## show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-zA-Z0-9_%-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/gradnic, a static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/gradnic ./cmd/gradnic

demo: build ## sum eight workers' real gradients in the network (root: over AF_XDP in own namespaces)
	bin/gradnic demo

test: ## run all tests (root: with AF_XDP), list what was skipped
	@mkdir -p build
	$(GO) run ./internal/ci/testsum -out build/test.json -again 3 $(if $(filter ./...,$(PKG)),-need-native) $(GO) test -json -count=1 -p $(P) -timeout 15m $(PKG)

race: ## run all tests under the race detector (needs a C compiler)
	@mkdir -p build
	CGO_ENABLED=1 $(GO) run ./internal/ci/testsum -out build/race.json $(GO) test -race -json -count=1 -p $(P) -timeout 15m $(PKG)

lint: ## gofmt, go vet, staticcheck, the project's own rules, shellcheck where it is installed
	@unformatted="$$(gofmt -l $(GOFILES))"; \
		if [[ -n "$$unformatted" ]]; then echo "not formatted by gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GOTOOL) staticcheck ./...
	$(GO) run ./internal/ci/sourcelint
	@if command -v shellcheck >/dev/null; then shellcheck .ci/* deploy/*.sh vm/*.sh interop/rtl/*.sh; else echo "shellcheck is not installed: .ci/, deploy/, vm/ and interop/ not checked"; fi

generate: ## make generated files again (needs clang-14, llvm-14, libbpf-dev)
	$(GO) generate ./...

bench-go: ## run all Go benchmarks
	$(GO) test -run '^$$' -bench . -benchtime $(BENCHTIME) -p 1 ./...

fuzz: ## run every fuzz target for FUZZTIME each
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -parallel 2 $$pkg || exit 1; \
		done; \
	done

cover: ## run all tests and write build/cover.html
	@mkdir -p build
	$(GO) test -p $(P) -coverpkg=./... -coverprofile=build/cover.out ./...
	$(GO) tool cover -html=build/cover.out -o build/cover.html
	$(GO) tool cover -func=build/cover.out | tail -1

deploy: ## check the alert rules, the service and its configuration in deploy/
	deploy/check.sh

soak: build ## kill a NIC 200 times while jobs come and go, then run the demo with lossy links for 10 minutes
	GRADNIC_KILLS=200 $(GO) test -count=1 -timeout 30m -run '^TestKilledAtAnyMoment' ./cmd/gradnic
	@end=$$(($$(date +%s) + 600)); n=0; \
		while (($$(date +%s) < end)); do bin/gradnic demo --json --loss 0.01 >build/soak.json || exit 1; n=$$((n + 1)); done; \
		echo "$$n demos with 1 % loss each way, all right"

ci-full: ## what .ci/run does, then what takes longer: race detector, tests three times over, fuzzing, the service
	.ci/run
	$(MAKE) race
	$(GO) test -count=3 -p 1 -timeout 30m ./...
	$(MAKE) fuzz FUZZTIME=30s
	$(MAKE) soak
	$(MAKE) test-service

clean: ## remove what was built
	rm -rf bin build

# A folder may bring targets of its own.
-include $(wildcard */*.mk)
