# One binary, no cgo: it runs on any Linux of its architecture.
export CGO_ENABLED := 0

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILDFLAGS   = -trimpath -buildvcs=auto -ldflags '-s -w -X xpyd/cmd.version=$(VERSION)'
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 5m
BENCH       ?= .
D           ?= 3m
ARGS        ?=
# The programs of tools/, a module of its own, are built here; they run in this directory.
TOOL         = go build -C tools -o ../dist/
UNIT         = configs/xpyd.service
# systemd-analyze counts in tenths: 15 is the exposure 1.5.
EXPOSURE     = 15

.PHONY: help build demo test race lint fuzz mutants faults policies bench bench-proxy bench-routing churn reload-churn soak fmt docs check-unit check-configs check-openai clients nightly e2e e2e-mutants e2e-down record dist/tools

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./xpyd
	go build $(BUILDFLAGS) -o xpyd .

demo: build ## two simulated prefill and decode engines behind the proxy; ARGS=--once stops after one answer
	./xpyd demo $(ARGS)

test: ## all tests, those of tools/ too
	go test ./...
	go test -C tools ./...

race: ## all tests, shuffled, under the race detector (needs a C compiler)
	CGO_ENABLED=1 go test -race -shuffle=on ./...
	CGO_ENABLED=1 go test -C tools -race -shuffle=on ./...

lint: ## gofmt, go vet, staticcheck at a pinned version
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: run make fmt for:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	go vet -C tools ./...
	go run $(STATICCHECK) ./...
	cd tools && go run $(STATICCHECK) ./...

fmt: ## format the Go files
	gofmt -w .

fuzz: ## every fuzz target for FUZZTIME (5m), one after the other
	@scripts/fuzz.sh $(FUZZTIME)

mutants: ## plant one fault at a time in the path of a completion; the test named for it must fail (ARGS='-v -run REGEXP', ARGS=-quick has those of handles and streams, ARGS=-stale runs none)
	@$(TOOL)mutants ./mutants
	@dist/mutants $(ARGS)

faults: ## the fault matrix: each row's tests must run and pass (ARGS='-v -run ^T4$$' picks rows, ARGS='-prefill-policy prefix' has others than round_robin)
	@$(TOOL)faults ./faults
	@dist/faults $(ARGS)

policies: dist/tools ## the fault matrix and a churn with each policy in both pools, the default, pd.mode auto and never (25 minutes; ARGS=-quick, ARGS='-each ^prefix$$')
	@$(TOOL)faults ./faults
	@dist/faults -each . $(ARGS)

bench: build dist/tools ## the benchmarks of the packages (BENCH=regexp picks some), then what the running proxy costs
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...
	dist/tools cost

bench-proxy: build dist/tools ## beside nginx and others at the same work: CPU, memory, delay, and whether the bars hold (ARGS='--run ^json$$')
	dist/tools proxy $(ARGS)

bench-routing: build dist/tools ## routing policies over engines that cache: prefix hits, TTFT, tokens/s, and whether the goals are met (ARGS=--quick)
	dist/tools routing $(ARGS)

churn: dist/tools ## 200 clients that leave in every phase; fails if a block, goroutine or descriptor stays behind (ARGS='-- --prefill-policy prefix')
	dist/tools churn $(ARGS)

reload-churn: build dist/tools ## 1,000 backends that come and go by reload for D (3m); fails if one that left is asked, or anything of it stays
	dist/tools soak reload --duration $(D) $(ARGS)

soak: build dist/tools ## D (3m, nightly 1h) of load over engines and connections that break; fails if anything is lost or leaks
	dist/tools soak --duration $(D) $(ARGS)

nightly: ## what takes too long for each change: all mutants, the matrix and a churn with each policy, fuzzing, an hour of soak (2 hours)
	$(MAKE) mutants policies
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) reload-churn
	$(MAKE) soak D=1h

record: ## record what a real vLLM answers (VLLM=0.32.0) into sim/testdata, and compare the sim with it
	VERSION=$(VLLM) scripts/real-vllm/record.sh
	go test -run '^TestSimIsTheRecordedEngine$$' ./sim

docs: ## rewrite the tables of docs/ and configs/default.yaml from the code
	go test -p 1 -run '^TestDocs' ./config ./cmd -update

# go build knows by itself what is up to date.
dist/tools:
	@$(TOOL)tools .

check-unit: ## verify the systemd unit and its exposure
	scripts/check-unit.sh $(UNIT) $(EXPOSURE)

check-configs: build ## load the example configurations
	scripts/check-configs.sh

check-openai: build ## the official OpenAI SDKs for Python, Node and Go before simulated engines, the quick part of make clients
	@$(TOOL)clients ./clients
	@dist/clients -sdks $(ARGS)

clients: build ## the clients that users have, unchanged: SDKs and load generators (7 GB in CLIENTS_CACHE, vLLM in E2E_CACHE; ARGS='-run REGEXP'); Error 3: cannot run here
	@$(TOOL)clients ./clients
	@dist/clients $(ARGS)

e2e: build ## real vLLM engines on this machine's CPU judge xpyd (7 GB in E2E_CACHE; VLLM=0.32.0, ARGS='-run REGEXP'); Error 3: cannot run here
	@VERSION=$(VLLM) scripts/real-vllm/setup.sh
	@$(TOOL)e2e ./e2e
	@VERSION=$(VLLM) dist/e2e $(ARGS)

e2e-mutants: build ## builds xpyd with one thing wrong after the other; a check of make e2e must find each (ARGS='-run REGEXP')
	@VERSION=$(VLLM) scripts/real-vllm/setup.sh
	@$(TOOL)e2e ./e2e
	@VERSION=$(VLLM) dist/e2e -wrongs $(ARGS)

e2e-down: ## end every engine of make e2e
	@scripts/real-vllm/engine.sh stop-all
