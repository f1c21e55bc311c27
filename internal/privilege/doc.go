// Package privilege gives up what the process does not need once it runs.
//
// A NIC needs a lot to start: CAP_NET_RAW for its sockets, CAP_BPF and CAP_NET_ADMIN for its program, CAP_SYS_ADMIN for a
// private namespace, CAP_IPC_LOCK for its memory. When it runs, wake-ups, statistics and map updates go through
// descriptors that it has, and need nothing. Only healing (a netdev that was made again) opens sockets and loads
// programs anew.
//
// Capabilities belong to threads. [Drop] changes all threads of the process at once by the Go runtime, and threads that
// are started later inherit from those. That takes a binary without cgo (CGO_ENABLED=0, as `make build` makes it): with
// cgo there may be threads that the runtime does not know, and Drop refuses.
package privilege
