.PHONY: bench-kernels
bench-kernels: ## loops over elements against copy: build/bench/kernels.json and a table
	$(GO) run ./bench/kernels
