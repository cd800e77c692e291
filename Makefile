# make build   the binary, ./dlock
# make test    installs what is missing, builds Consul for the tests, then runs every test
# make package   Debian, RPM and Alpine packages for this machine, of VERSION, in dist/
# make snapshot   all that a release would publish, in dist/, with goreleaser, whose build takes long
# make lint    go vet and staticcheck, also for the other systems
# make full    every test with all its repetitions (an hour or so)
# make torture    contenders under faults, for DURATION, over all services or BACKEND, from SEED
# make fuzz    each fuzz test for FUZZTIME
# make bench-startup   what dlock costs beside flock(1), consul lock and a Go hello-world

FUZZTIME ?= 30s
DURATION ?= 10m
VERSION ?= 0.0.0-dev

.PHONY: build test full torture lint fuzz bench-startup deps debian consul scripts packages package nfpm snapshot

build:
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o dlock .

package:
	./tools/package dist $(VERSION)

GORELEASER = go tool -modfile=tools/goreleaser/go.mod goreleaser

# An SBOM needs syft, an image needs Docker: only the release itself makes these.
snapshot:
	$(GORELEASER) check
	$(GORELEASER) release --snapshot --clean --skip=sbom,docker

# Consul and nfpm are built here, once, while packages are fetched, and not beside tests that
# keep deadlines: from an empty cache they take both processors for some minutes.
deps:
	$(MAKE) -j2 debian consul nfpm

debian:
	./tools/install-deps

consul:
	CGO_ENABLED=0 go test -timeout 25m ./backend/backendtest/consultest

nfpm:
	CGO_ENABLED=0 go build -C tools/nfpm -o /dev/null .

TESTFLAGS = -parallel 4 -timeout 40m

# The tests of cmd keep deadlines of fractions of a second: they go first, alone. Most of
# the others wait for something most of the time; the longest begin first.
LONGEST = ./backend/backendtest/torture ./backend/mysql ./runner

# The scripts start thousands of processes, each ten times as slow with the race detector
# in it: they drive dlock as it is released. "make full" gives them both.
test: deps
	go test $(TESTFLAGS) -race ./cmd
	$(MAKE) -j2 scripts packages

scripts:
	go test $(TESTFLAGS) ./testscripts/...

packages:
	go test $(TESTFLAGS) -race -p 2 $(LONGEST) $$(go list ./... | grep -v /testscripts)

full: deps
	DLOCK_FULL=1 go test -race -count=1 -timeout 120m ./...
	DLOCK_FULL=1 go test -count=1 -timeout 120m ./testscripts/...

torture: deps
	TORTURE_DURATION=$(DURATION) TORTURE_SEED=$(SEED) TORTURE_BACKEND=$(BACKEND) \
		go test -count=1 -timeout 120m -v ./backend/backendtest/torture

lint:
	go vet ./...
	GOOS=darwin go vet ./...
	GOOS=freebsd go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	CGO_ENABLED=0 go vet -C tools/nfpm .
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt would change these files'; exit 1; }

fuzz:
	./tools/fuzz $(FUZZTIME)

bench-startup:
	go run ./bench/startup
