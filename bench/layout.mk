.PHONY: bench-layout
bench-layout: ## a lane's cost a frame by a layout file beside the rules' own header by hand: at most 1.3 times (native rules 1.4), or it fails
	GRADNIC_LAYOUT_RUNS=60 $(GO) test -count=1 -v -timeout 5m -run '^TestLayoutCost$$' ./dataplane
