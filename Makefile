# Short names for commands that CONTRIBUTING.md explains. ARGS are passed on: make test ARGS='-run Fair ./postgres'
.PHONY: help check test sqlite mutants generate fmt lint bench ci
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]*:.*## / { printf "%-12s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)
check: ## what the first minute tells: format, widths, layers, links, the mutants' texts
	.ci/lint quick
test: ## every test with the race detector, on every server
	scripts/test $(ARGS)
sqlite: ## what needs no server
	DBLOCK_TEST_ONLY=sqlite scripts/test $(ARGS)
mutants: ## break each rule and see a test fail; ARGS are packages, as ./internal/session
	scripts/mutants $(ARGS)
generate: ## make gen/ anew from queries/ and migrations/
	scripts/generate
fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')
lint: ## vet and staticcheck
	go vet ./... && go -C tools run honnef.co/go/tools/cmd/staticcheck ../...
bench: ## the benchmarks, each beside its reference
	bench/run
ci: ## what must hold before a change goes in
	.ci/run
