# Without cgo the binary runs on any Linux of its architecture.
export CGO_ENABLED := 0

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
BUILDFLAGS   = -trimpath -buildvcs=auto -ldflags '-s -w -X xpyd/cmd.version=$(VERSION)'
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
AXE         ?= 4.14.1
GOTESTSUM   ?= gotest.tools/gotestsum@v1.13.0
FUZZTIME    ?= 5m
BENCH       ?= .
D           ?= 3m
ARGS        ?=
# With RERUN=1 a test that fails runs once more, alone, after all others. It must pass then, and the report has
# both runs. After a data race, a panic or more than a few failures nothing runs again.
RERUN       ?=
RERUNS       = $(if $(RERUN),--rerun-fails=1 --rerun-fails-max-failures=6 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race)
AGAIN        = $(if $(RERUN),-rerun)
GOTEST       = go run $(GOTESTSUM) --format standard-quiet $(RERUNS)
# go test begins in this order: the two packages that take longest would otherwise begin when others have ended.
LONG_FIRST   = --packages='./proxy ./cmd ./...'
AT_ONCE      = $$(($$(nproc) + 2))
FORMATTED    = unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt: run make fmt for:"; echo "$$unformatted"; exit 1; }
# The programs of tools/, which is a module of its own, are built here and run in this directory.
TOOL         = go build -C tools -o ../dist/
UNIT         = configs/xpyd.service
# GoReleaser is built by go run, which takes some minutes the first time.
GORELEASER  ?= go run github.com/goreleaser/goreleaser/v2@v2.15.1
SNAPSHOT    ?= --snapshot
# The nfpm of that GoReleaser.
NFPM        ?= go run github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2
# What make check-packages installs, and to what it upgrades.
PACKAGES    ?= dist/packages
NEXT        ?= $(PACKAGES)
# Where make install puts things.
PREFIX      ?= /usr/local
DESTDIR     ?=
# systemd-analyze counts in tenths, so 15 is an exposure of 1.5.
EXPOSURE     = 15

.PHONY: help build demo test quick race test-here test-tools lint fuzz mutants faults policies bench bench-proxy bench-proxy-pack bench-routing agree bench-cost churn reload-churn soak sick fmt docs check-unit check-configs check-openai clients nightly e2e e2e-mutants e2e-down record gpu-dry-run dist/tools dist/sbom package-files packages quick-packages check-packages check-service check-front install check-monitoring dashboards browser

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build ./xpyd
	go build $(BUILDFLAGS) -o xpyd .

demo: build ## run two simulated prefill and two decode engines with the proxy (ARGS=--once stops after one answer)
	./xpyd demo $(ARGS)

# make lint has vetted all, so the tests need not. Most of them wait for sockets and timers, so more packages than
# there are processors run at a time, and tools/ runs beside the rest.
test: ## all tests, including those of tools/ (MATRIX=1: their run is judged as the fault matrix, as make faults does; RERUN=1: a test that fails gets a second run)
	@$(MAKE) --no-print-directory -j2 --output-sync=target test-here test-tools

test-here:
ifdef MATRIX
	@$(TOOL)faults ./faults
	$(GOTEST) $(LONG_FIRST) --jsonfile dist/tests.json -- -vet=off -p $(AT_ONCE)
	@dist/faults -judge dist/tests.json
else
	$(GOTEST) $(LONG_FIRST) -- -vet=off -p $(AT_ONCE)
endif

test-tools:
	cd tools && $(GOTEST) --packages=./... -- -vet=off

# The tests of the rooms, and a few of those that take longest: a completion of each connector and API, what is no answer, and
# how a client and an engine that leave give all back.
QUICK        = ^Test(ConnectorsMoveKV|APIsThroughBothLegs|StreamsThatOnlyLookWhole|ClientLeavesInEachPhase|HandleGoesToOneDecodeRequest|UnusableHandlesNeverReachDecode|RelayedRetries|PanicGivesEverythingBack)$$
quick: ## before each commit, less than a minute: gofmt, go vet, and the tests that are quick
	@$(FORMATTED)
	go vet ./...
	go test -short -vet=off -p $(AT_ONCE) $$(go list ./... | grep -vE '^xpyd/(proxy|cmd|sim|bench/sweep)$$')
	go test -vet=off -run '$(QUICK)|^Test(Shapes|Sizes|Rooms|Map|Docs)' ./proxy ./cmd

race: ## all tests, shuffled, under the race detector (needs a C compiler; RERUN=1 as for test)
	CGO_ENABLED=1 $(GOTEST) $(LONG_FIRST) -- -race -vet=off -shuffle=on -timeout 20m
	cd tools && CGO_ENABLED=1 $(GOTEST) --packages=./... -- -race -vet=off -shuffle=on

lint: ## gofmt, go vet, staticcheck at a pinned version
	@$(FORMATTED)
	go vet ./...
	go vet -C tools ./...
	go run $(STATICCHECK) ./...
	cd tools && go run $(STATICCHECK) ./...

fmt: ## format the Go files
	gofmt -w .

fuzz: ## run every fuzz target for FUZZTIME (5m), one after the other
	@scripts/fuzz.sh $(FUZZTIME)

mutants: ## plant one fault at a time in the path of a completion; the test named for it must fail (ARGS='-v -run REGEXP', ARGS=-quick for handles and streams only, ARGS=-stale runs none)
	@$(TOOL)mutants ./mutants
	@dist/mutants $(AGAIN) $(ARGS)

faults: ## the fault matrix: the tests of each row must run and pass (ARGS='-v -run ^T4$$' picks rows, ARGS='-prefill-policy prefix' replaces round_robin)
	@$(TOOL)faults ./faults
	@dist/faults $(AGAIN) $(ARGS)

policies: dist/tools ## the fault matrix and a churn with each policy in both pools, with the default, and with pd.mode auto and never (25 minutes; ARGS=-quick, ARGS='-each ^prefix$$')
	@$(TOOL)faults ./faults
	@dist/faults -each . $(AGAIN) $(ARGS)

bench: build dist/tools ## the benchmarks of the packages (BENCH=regexp picks some), then what the running proxy costs
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...
	dist/tools cost

bench-proxy: build dist/tools ## compare with nginx and others at the same work: CPU, memory, delay, and whether the goals are met (ARGS='--run ^json$$')
	dist/tools proxy $(ARGS)

bench-proxy-pack: build dist/tools ## pack bench-proxy with nginx and haproxy for a machine that has neither compiler nor network: dist/bench-proxy.tar.xz (ARGS='nginx PATH-OF-HAPROXY')
	scripts/bench-pack.sh dist/bench-proxy.tar.xz $(ARGS)

bench-routing: build dist/tools ## compare routing policies over engines with prefix caches: hits, TTFT, tokens/s, and whether the goals are met (ARGS=--quick)
	dist/tools routing $(ARGS)

agree: build dist/tools ## compare the figures of xpyd bench serve with those of vllm bench serve, in turns; fails if one is off by more than 2 % beyond the noise (10 minutes; ARGS='--engines real' for vLLM on this machine's CPU)
	@scripts/real-vllm/setup.sh
	dist/tools agree $(ARGS)

bench-cost: build dist/tools ## compare the CPU of xpyd bench serve with that of vllm bench serve (ARGS='--guidellm PROGRAM')
	@scripts/real-vllm/setup.sh
	dist/tools bench-cost $(ARGS)

churn: dist/tools ## 200 clients that leave in every phase; fails if a block, goroutine or descriptor stays behind (ARGS='-- --prefill-policy prefix')
	dist/tools churn $(ARGS)

reload-churn: build dist/tools ## 1,000 backends that come and go by reload for D (3m); fails if a removed one gets a request, or leaves anything behind
	dist/tools soak reload --duration $(D) $(ARGS)

soak: build dist/tools ## load for D (3m, nightly 1h) over engines and connections that break; fails if anything is lost or leaks (ARGS=--tls)
	dist/tools soak --duration $(D) $(ARGS)

sick: build dist/tools ## plant each fault that operators meet, under load; fails if the page, the events, a metric or an alert does not name it (needs root for a full disk, and prometheus for the alerts; ARGS='--run wedged', before a release ARGS='--busy 1h')
	dist/tools sick $(ARGS)

nightly: ## run what takes too long for each change: the race detector without second runs, all mutants, the matrix and a churn with each policy, fuzzing, ten minutes of soak over TLS, an hour without (2 hours)
	$(MAKE) race mutants policies RERUN=
	$(MAKE) fuzz FUZZTIME=1m
	$(MAKE) reload-churn
	$(MAKE) soak D=10m ARGS=--tls
	$(MAKE) soak D=1h

record: ## record the answers of a real vLLM (VLLM=0.32.0) in sim/testdata, and compare the sim with them
	VERSION=$(VLLM) scripts/real-vllm/record.sh
	go test -run '^TestSimIsTheRecordedEngine$$' ./sim

docs: ## rewrite the tables of docs/ and configs/default.yaml from the code
	go test -p 1 -run '^TestDocs' ./cmd/config ./cmd ./sim -update

# go build itself knows what is up to date.
dist/tools:
	@$(TOOL)tools .

package-files: build ## man pages, completions and the unit for several instances, into dist/files
	@$(TOOL)manpages ./manpages
	scripts/package-files.sh dist/files

install: ## install ./xpyd and dist/files (make package-files) below PREFIX (/usr/local), with a unit that is not started; DESTDIR for packagers
	@scripts/install.sh "$(DESTDIR)" "$(PREFIX)"

packages: ## build deb, rpm, tarballs, SBOMs and checksums for amd64 and arm64 into dist/packages (SNAPSHOT= for the version of a tag)
	$(GORELEASER) release --clean --skip=publish,announce $(SNAPSHOT)

quick-packages: package-files ## build the deb and the rpm of this architecture by nfpm alone into dist/quick, for checks; half a minute the first time, and then seconds
	@$(TOOL)nfpm ./nfpm
	NFPM="$(NFPM)" scripts/quick-packages.sh dist/quick

check-packages: ## install, upgrade and remove what make packages has built, in a Debian root (needs root, debootstrap, rpm; PACKAGES=dist/quick NEXT=dist/quick/next for make quick-packages); Error 3 means that it cannot run here
	scripts/check-packages.sh $(PACKAGES) $(NEXT)

check-service: ## boot a Debian in a container, and install, upgrade under load, hang, crash and remove the deb of make packages there (needs root, debootstrap, systemd-nspawn); Error 3 means that it cannot run here
	scripts/check-service.sh dist/packages/xpyd_*_$$(dpkg --print-architecture).deb

check-front: ## try the configurations of docs/guides/behind-a-proxy.md (apt-get install nginx-light haproxy caddy); Error 3 means that one is not installed
	@$(TOOL)front ./front
	@dist/front

dist/sbom:
	@$(TOOL)sbom ./sbom

check-unit: ## verify the systemd unit and its exposure
	scripts/check-unit.sh $(UNIT) $(EXPOSURE)

check-configs: build ## load the example configurations
	scripts/check-configs.sh

check-monitoring: build dist/tools ## test the alerts, and run every expression of the dashboards and rules in a Prometheus that scrapes xpyd demo (needs Debian's prometheus)
	dist/tools monitoring $(ARGS)

dashboards: dist/tools ## write the dashboards of configs/grafana from tools/monitoring
	dist/tools dashboards

check-openai: build ## run the official SDKs of OpenAI (Python, Node, Go) and Anthropic (Python, Node) over TLS against simulated engines, the quick part of make clients
	@$(TOOL)clients ./clients
	@dist/clients -sdks $(ARGS)

clients: build ## run the clients that users have, unchanged: SDKs, also before real vLLM engines, and load generators (7 GB in CLIENTS_CACHE, vLLM in E2E_CACHE; ARGS='-run REGEXP'); Error 3 means that they cannot run here
	@$(TOOL)clients ./clients
	@dist/clients $(ARGS)

browser: ## look at the status page in Chromium over simulated engines: token, keyboard, phone, dark, an outage, axe-core (needs chromium and npm; ARGS='-pictures docs/img -warm 75s' renews the pictures of the documentation)
	@npm install --silent --prefix dist/axe --no-save --no-audit --no-fund axe-core@$(AXE)
	@$(TOOL)browser ./browser
	@dist/browser $(ARGS)

e2e: build ## test xpyd with real vLLM engines on this machine's CPU (7 GB in E2E_CACHE; VLLM=0.32.0, CONNECTOR=nixl, nixl-push, shared-storage, lmcache, mooncake or multi, ARGS='-run REGEXP'); Error 3 means that they cannot run here
	@VERSION=$(VLLM) scripts/real-vllm/setup.sh
	@VERSION=$(VLLM) scripts/real-vllm/extra.sh $(CONNECTOR)
	@$(TOOL)e2e ./e2e
	@VERSION=$(VLLM) dist/e2e $(if $(CONNECTOR),-connector $(CONNECTOR)) $(ARGS)

e2e-mutants: build ## build xpyd with one fault at a time; a check of make e2e must find each (ARGS='-run REGEXP')
	@VERSION=$(VLLM) scripts/real-vllm/setup.sh
	@VERSION=$(VLLM) scripts/real-vllm/extra.sh $(CONNECTOR)
	@$(TOOL)e2e ./e2e
	@VERSION=$(VLLM) dist/e2e -wrongs $(if $(CONNECTOR),-connector $(CONNECTOR)) $(ARGS)

e2e-down: ## end every engine of make e2e
	@scripts/real-vllm/engine.sh stop-all

gpu-dry-run: build ## run every kind of step of the experiments on GPUs with simulated engines, 15 seconds (scripts/gpu)
	python3 scripts/gpu/rig_test.py
	python3 scripts/gpu/render.py --check
	python3 scripts/gpu/rig.py run scripts/gpu/plans/dry.json --xpyd ./xpyd --out bench-out/gpu-dry-run --dry-run
