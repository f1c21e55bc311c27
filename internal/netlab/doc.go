// Package netlab makes small laboratories of network namespaces for the demo, the tests and the benchmarks, and
// removes them without a trace.
//
// A [Lab] owns network namespaces ([NS]) and the veth pairs between them. Namespaces are named, so that ip(8) shows
// them while the lab lives:
//
//	<prefix>-<pid>-<start>-<random>-<name>      demo-4711-1x9k2-3fa9c1-w0
//
// <pid> and <start> (the owner's start time in clock ticks since boot, base 36) say who owns the lab. When a process
// dies without closing its lab, for example by kill -9, the next [New] finds its namespaces, sees that no process with
// that pid and start time lives, and removes them. Links are made inside the namespaces, never in the namespace of
// the caller, so nothing appears in the host's `ip link` at any moment.
//
// Every interface is made for AF_XDP: IPv6 is off (the kernel would send neighbour discovery and multicast listener
// reports into measurements), and generic receive offload is on at both ends (frames that arrive on a veth by
// redirect or by copy-mode transmit are lost when the receiver runs without NAPI).
//
// tc does not shape what AF_XDP transmits in copy mode: such frames go to the driver past the qdisc. [Lab.LimitedVeth]
// therefore puts a bridge namespace in the middle of the link and shapes on the bridge's ports, where the frames are
// ordinary forwarded packets.
package netlab
