# Every collective of ACCL on every size from 1 to 300 and about each segment, in memory, over sockets and over AF_XDP.
.PHONY: accl-full
accl-full: ## ACCL ranks: every collective, type and size, in memory, over UDP and over AF_XDP (root)
	$(GO) test -count=1 -timeout 30m ./worker/accl ./service/accl -args -full
	$(GO) test -run '^$$' -fuzz '^FuzzReceiver$$' -fuzztime 30s -parallel 2 ./wire/accl
	$(GO) test -run '^$$' -fuzz '^FuzzEngine$$' -fuzztime 30s -parallel 2 ./worker/accl

soak: accl-full
