// Package guest has the tests that run inside a virtual machine, on kernels and drivers that the machine at hand does not
// have. Its test binary is the machine's init: it mounts what the kernel offers, loads the drivers, runs xdp's socket tests
// and its own, says how they went, and switches the machine off (vm/run.sh builds and boots it).
//
// The build tag vm keeps these tests out of `go test ./...`: they would load kernel modules and switch the machine off.
package guest
