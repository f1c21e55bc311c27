# The measurements of docs/performance.md. Each is a command of the binary; here are the options that the pages are made
# with. Progress is shown on a terminal. All need root, two CPUs, a C compiler.
#
# BENCH_OUT is where reports and pages go; BENCH_PAGE is whose tables are replaced, none when empty. BENCH_MORE is added to every
# command, such as --strict.
BENCH_OUT  = docs/bench
BENCH_PAGE = docs/performance.md
BENCH_MORE =
BENCH_PUT  = $(if $(BENCH_PAGE),--page $(BENCH_PAGE)) $(BENCH_MORE)

# One after the other, whatever the make was given: two would take each other's processors. A part that is INVALID (status 3) or
# fails leaves the others to be made; the whole then fails.
BENCH_EACH = $(MAKE) --no-print-directory -j1 -k

.PHONY: bench
bench: build ## the main tables of docs/performance.md and docs/bench/*.html|json, in under 10 minutes (root, two CPUs)
	@begin=$$SECONDS; status=0; \
	$(BENCH_EACH) bench-engine bench-reflect bench-allreduce || status=$$?; \
	echo "$$(((SECONDS - begin) / 60)) min $$(((SECONDS - begin) % 60)) s"; exit $$status

.PHONY: bench-full
bench-full: build ## what bench does, then searches, comparisons, scaling and transports
	@$(BENCH_EACH) bench bench-ndr bench-compare bench-scale bench-transports

# The second run's reports become those of the docs. INVALID rows of either are in the table, and do not keep it from being made.
.PHONY: bench-twice
bench-twice: build ## make bench twice, and say in docs/performance.md which medians differ by more than 10 %, and why
	rm -rf build/bench/first build/bench/second
	-@$(MAKE) --no-print-directory bench BENCH_OUT=build/bench/first BENCH_PAGE=
	-@$(MAKE) --no-print-directory bench BENCH_OUT=build/bench/second
	cp build/bench/second/* $(BENCH_OUT)/
	bin/gradnic bench agree build/bench/first build/bench/second $(if $(BENCH_PAGE),--page $(BENCH_PAGE))

.PHONY: bench-engine
bench-engine: build ## measure the engine beside asavie/xdp, C, UDP sockets and the kernel (root; docs/performance.md)
	bin/gradnic bench engine --command "make bench-engine" --rounds 6 --run 250ms --patience 2m --json $(BENCH_OUT)/engine.json --html $(BENCH_OUT)/engine.html $(BENCH_PUT)

.PHONY: bench-reflect
bench-reflect: build ## the 0.5 % partial-drop rate of reflect at 1066 bytes beside asavie/xdp's (root; docs/performance.md)
	bin/gradnic bench ndr --command "make bench-reflect" --devices in-kernel,lane,rings,asavie-example,asavie --sizes 1066 --loss 0.5 --trial 400ms --rounds 3 \
		--json $(BENCH_OUT)/reflect.json --html $(BENCH_OUT)/reflect.html $(BENCH_PUT)

.PHONY: bench-allreduce
bench-allreduce: build ## all-reduces over links of 200 Mbit/s and 1 Gbit/s, beside gloo where python3-torch is (root)
	bin/gradnic bench allreduce --command "make bench-allreduce" --rounds 3 --json $(BENCH_OUT)/allreduce.json --html $(BENCH_OUT)/allreduce.html $(BENCH_PUT)

.PHONY: bench-loss
bench-loss: build ## what lost frames cost: the native protocol and SwitchML with 0 to 10 % lost each way (root)
	@for loss in 0 0.1 1 10; do \
		bin/gradnic bench allreduce -q --command "make bench-loss" -b 2000000 -e 2000000 -n 15 --transports native,switchml --loss $$loss || exit; \
	done

.PHONY: bench-ndr
bench-ndr: build ## no-drop and partial-drop rates by frame size, RFC 2544 (root; docs/bench/ndr.html)
	bin/gradnic bench ndr --command "make bench-ndr" --devices in-kernel,lane,rings,asavie-example,asavie,c,udp --json $(BENCH_OUT)/ndr.json --html $(BENCH_OUT)/ndr.html $(BENCH_MORE)

.PHONY: bench-compare
bench-compare: build ## everything that takes frames, side by side (root; docs/bench/compare.html)
	bin/gradnic bench compare --command "make bench-compare" --json $(BENCH_OUT)/compare.json --html $(BENCH_OUT)/compare.html $(BENCH_MORE)

.PHONY: bench-scale
bench-scale: build ## how cost grows with workers, groups, slots, jobs (root; docs/bench/scale.html)
	bin/gradnic bench scale --command "make bench-scale" --json $(BENCH_OUT)/scale.json --html $(BENCH_OUT)/scale.html $(BENCH_MORE)

.PHONY: bench-transports
bench-transports: build ## all-reduce by every transport, as nccl-tests prints it (root; docs/bench/transports.html)
	bin/gradnic bench allreduce --command "make bench-transports" -b 64K -e 16M -f 4 --workers 4 -n 20 -J $(BENCH_OUT)/transports-table.json \
		--json $(BENCH_OUT)/transports.json --html $(BENCH_OUT)/transports.html $(BENCH_MORE)
