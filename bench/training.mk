.PHONY: train
train: ## train a small language model through the NIC with several codecs: docs/training.md (root: over AF_XDP)
	$(GO) run ./bench/training -svg docs/training.svg -page docs/training.md

.PHONY: bench-squeeze
bench-squeeze: build ## steps of a training over limited links, with and without compression (root)
	bin/gradnic bench squeeze --command "make bench-squeeze" --json build/bench/squeeze.json --page docs/performance.md
