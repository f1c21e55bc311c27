.PHONY: bench-bump
bench-bump: ## the bump in the wire over links of 500 Mbit/s, 2 and 10 Gbit/s beside the bare link: build/bench/bump.json and docs/bump.md (root)
	$(GO) run ./bench/bump -page docs/bump.md
