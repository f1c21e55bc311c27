.PHONY: bench-codec
bench-codec: ## every codec against copy, for each vector level: build/bench/codec.json and a table
	$(GO) run ./bench/codec
