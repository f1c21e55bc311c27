.PHONY: bench-layout
bench-layout: ## a lane's cost a frame by a layout file beside SwitchML by hand (goal: at most 1.3 times)
	$(GO) test ./dataplane -run '^$$' -bench BenchmarkLayout -benchtime 1000000x -count 5
