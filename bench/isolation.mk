.PHONY: bench-isolation
bench-isolation: ## what one tenant's flood does to another's all-reduce, at most 1.10x (root, a quiet machine)
	@mkdir -p build/bench
	$(GO) test -count=1 -timeout 10m -v -run TestOneTenantsFlood ./bench/isolation -args -strict -json $(CURDIR)/build/bench/isolation.json
