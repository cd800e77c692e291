# make build   the binary, ./dlock
# make test    installs what is missing, then runs every test
# make lint    go vet and staticcheck, also for the other systems
# make full    every test with all its repetitions (an hour or so)
# make fuzz    each fuzz test for FUZZTIME
# make bench-startup   what dlock costs beside flock(1)

FUZZTIME ?= 30s

.PHONY: build test full lint fuzz bench-startup deps

build:
	CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o dlock .

deps:
	./tools/install-deps

test: deps
	go test -race -timeout 25m ./...

full: deps
	DLOCK_FULL=1 go test -race -count=1 -timeout 120m ./...

lint:
	go vet ./...
	GOOS=darwin go vet ./...
	GOOS=freebsd go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt would change these files'; exit 1; }

fuzz:
	./tools/fuzz $(FUZZTIME)

bench-startup:
	go run ./bench/startup
