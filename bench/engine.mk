.PHONY: bench-engine
bench-engine: build ## measure the engine beside asavie/xdp, C, UDP sockets and the kernel (root; docs/performance.md)
	bin/gradnic bench engine --command "make bench-engine" --json build/bench/engine.json --page docs/performance.md
