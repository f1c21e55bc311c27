.PHONY: train
train: ## train a small language model through the NIC with several codecs: docs/training.md (root: over AF_XDP)
	$(GO) run ./bench/training -svg docs/training.svg -page docs/training.md
