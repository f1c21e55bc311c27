.PHONY: bench-codec
bench-codec: ## every codec against copy, for each vector level: build/bench/codec.json and docs/codecs.md
	$(GO) run ./bench/codec -page docs/codecs.md
