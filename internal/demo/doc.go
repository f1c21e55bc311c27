// Package demo runs gradnic end to end inside one process: a NIC, its SwitchML controller and N workers that sum real
// gradients through it, every element of every worker checked against a float64 sum.
//
// As root the NIC runs on AF_XDP and each worker has a UDP socket in a network namespace of its own:
//
//	namespace w0   eth0 10.50.0.1 ──veth── p0 ┐
//	namespace w1   eth0 10.50.0.2 ──veth── p1 ├ namespace nic: gradnic, 10.50.0.254, one lane over all ports
//	     ...                                  ┘
//
// The NIC's ports have no address of the kernel's: what answers the workers' ARP requests is gradnic. Workers find the
// NIC through the controller, which listens on a Unix socket, in the sequence of SwitchML's public client. Without root
// the same workers speak the same frames over ports in memory.
//
// A run removes what it made before it reports, whatever happened; what a killed run leaves is removed by the next.
package demo
