//go:build !amd64

package kernel

// Prefetch does nothing here: the processor fetches memory when it is read.
func Prefetch([]byte) {}
