.PHONY: bench-engine
bench-engine: build ## measure the engine beside asavie/xdp, C, UDP sockets and the kernel (root; docs/performance.md)
	bin/gradnic bench engine --command "make bench-engine" --json build/bench/engine.json --page docs/performance.md

.PHONY: bench-allreduce
bench-allreduce: build ## all-reduces over links of 200 Mbit/s and 1 Gbit/s, beside gloo where python3-torch is (root)
	bin/gradnic bench allreduce --command "make bench-allreduce" --json build/bench/allreduce.json --page docs/performance.md
