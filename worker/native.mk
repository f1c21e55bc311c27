# The native protocol under what takes longer: 64 MiB while the NIC is killed ten times, a thousand jobs under any accident.
.PHONY: soak-native
soak-native: ## the native protocol: 64 MiB with ten kills, a thousand accidents (root: with SIGKILL over AF_XDP)
	$(GO) test -count=1 -timeout 30m -run 'Killed|SIGKILL|AnyAccident' ./worker/native -soak

soak: soak-native
