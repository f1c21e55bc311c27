// Package collective measures whole all-reduces over links of a real rate: gradnic's native protocol through the NIC, and
// gloo's ring through a switch, over the same kind of links in the same run.
//
// AF_XDP transmit passes by the netdev's qdisc, so a link is limited by a bridge in a namespace of its own with tbf on both
// of its ports (internal/netlab). Before anything is measured a raw AF_XDP sender tries each kind of link: when it gets
// more than 1.02 of the rate across, the run is INVALID.
//
// [Run] is the table of docs/performance.md. [Compare] puts transports side by side as nccl-tests prints them: native, with
// codecs, SwitchML, a parameter server over UDP sockets, gloo, MPI.
//
// What a link allows is its rate times the share of a frame that is payload. The NIC's all-reduce sends each element once
// and receives it once, so at best it takes bytes / allowance; a ring of N sends 2(N-1)/N times the bytes each way.
package collective
