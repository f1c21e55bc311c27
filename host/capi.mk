.PHONY: lib
lib: ## build build/libgradnic.so and gradnic.h beside it: a process's way to its NIC (needs a C compiler)
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags="-s -w" -buildmode=c-shared -o build/libgradnic.so ./host/capi
	@cp host/capi/gradnic.h build/gradnic.h && rm -f build/libgradnic.h

.PHONY: train-ring train-ring-short test-train-ring
train-ring: lib ## train a language model with PyTorch over a ring of NICs and over gloo, on limited links: docs/training-ring.md (root, python3-torch)
	$(GO) run ./bench/trainring -svg docs/training-ring.svg -page docs/training-ring.md,README.md

train-ring-short: lib ## two minutes of train-ring, on two nodes; the docs stay as they are (root, python3-torch)
	$(GO) run ./bench/trainring -nodes 2 -steps 12 -rounds 1 -json build/bench/trainring-short.json

test-train-ring: ## a few steps of training over the ring beside gloo and the ring's order, without and with compression (root, python3-torch)
	GRADNIC_TRAIN_RING=1 $(GO) test -count=1 -timeout 10m -v ./internal/ringtrain
