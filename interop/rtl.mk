.PHONY: rtl
rtl: ## test the Verilog aggregator on Icarus and on Verilator, all recorded traffic with pauses too (a minute)
	GRADNIC_RTL=all $(GO) test -count=1 -timeout 30m -v ./interop/rtl
