.PHONY: bench-kernels
bench-kernels: ## loops over elements against copy: build/bench/kernels.json and the table of docs/kernels.md
	$(GO) run ./bench/kernels -page docs/kernels.md
