.PHONY: lib
lib: ## build build/libgradnic.so and gradnic.h beside it: a process's way to its NIC (needs a C compiler)
	CGO_ENABLED=1 $(GO) build -trimpath -buildmode=c-shared -o build/libgradnic.so ./host/capi
	@cp host/capi/gradnic.h build/gradnic.h && rm -f build/libgradnic.h
