.PHONY: test-vm
test-vm: ## socket tests on Debian's 6.1 and 6.12 kernels and other drivers, in virtual machines (docs/kernels-and-drivers.md)
	vm/run.sh 6.1 6.12

.PHONY: test-service
test-service: ## the shipped unit under a real systemd, in a virtual machine (root; needs mmdebstrap)
	vm/systemd.sh
