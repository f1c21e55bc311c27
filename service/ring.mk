.PHONY: bench-ring test-ring-long
bench-ring: build ## rings of NICs over links of 200 Mbit/s beside the bound, TCP and the model (root; docs/ring.md)
	bin/gradnic bench ring --command "make bench-ring" --json build/bench/ring.json --page docs/ring.md

test-ring-long: ## 2,000 requests of random sizes back to back, in memory and over AF_XDP, without and with loss
	GRADNIC_RING_REQUESTS=2000 $(GO) test -count=1 -timeout 20m -v -run 'BackToBack' ./service/ring
