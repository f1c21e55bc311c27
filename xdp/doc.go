// Package xdp is the AF_XDP engine: frames of a netdev in memory that a lane and the
// kernel share, received and sent in batches, without a system call a frame and, where
// the driver can, without a copy.
//
// # The parts
//
// A [UMEM] is an area of equal chunks. A [Socket] is one queue of one netdev and has
// four rings, a file each; the kernel and the socket's owner hand chunks to and fro
// through them:
//
//	            Fill                        Receive
//	owner ---- fill ring ----> kernel ---- RX ring ----> owner      a frame came in
//	            Transmit                    Complete
//	owner ---- TX ring ------> kernel ---- completion --> owner     a frame went out
//
// A [Steering] is the program in front of the sockets: it takes the NIC's own frames
// and leaves all others to the kernel.
//
//	u, err := xdp.NewUMEM(xdp.UMEMOptions{Chunks: 4096, ChunkSize: 2048})
//	s, err := u.Open(xdp.SocketOptions{IfIndex: ifindex, Queue: 0})
//	st, err := xdp.Attach(xdp.AttachOptions{IfIndex: ifindex})
//	err = st.SetAddress(mac, ip)
//	err = st.SetPorts(xdp.Ports(0xbee0, 0xbeef))
//	err = st.Bind(0, s)
//
// # Ownership
//
// A chunk is in one place. Fill and Transmit give it to the kernel, as many as they
// return, from the front; Receive and Complete give it back. The socket counts all
// four, so that what the kernel holds is known at any time (see [Socket.FillPosted]).
// Addresses come back as they are convenient: Receive gives the frame's first byte,
// Fill takes any address in a chunk, Complete gives the chunk's start. A chunk
// posted to TX k times, as a payload shared by k frames is, completes k times.
//
// A socket belongs to one goroutine, better to one locked thread. Sockets share a UMEM
// freely: a frame received on one is sent by another without a copy.
//
// The collector never closes anything here: descriptors are plain numbers, and a socket
// refers to its UMEM and its Steering.
//
// # One UMEM, many sockets; the anchor
//
// Sockets on several queues, netdevs and network namespaces share a UMEM
// (XDP_SHARED_UMEM). The kernel ties its registration to a bound socket, which must
// outlive the others, whatever happens to ports. This package binds that first socket, the
// anchor, to lo in a network namespace of its own without a name, which the kernel
// removes with the process, however that ends. Making it takes CAP_SYS_ADMIN; without,
// any open socket of the UMEM serves as the first one ([UMEM.Anchored] tells why).
//
// Later sockets inherit from the first: copy or zero-copy, need-wakeup, multi-buffer. An
// anchor on lo means copy mode. So before the first socket its queue is probed
// ([ProbeZeroCopy]); where the driver has zero-copy, or it is forced, or
// UMEMOptions.NoAnchor is set, the first socket itself holds the registration on the real
// netdev and there is no anchor: then the UMEM can take new sockets as long as one of
// them is bound. Copy and zero-copy netdevs need a UMEM each.
//
// # Waking the kernel
//
// [Socket.Kick] after Transmit, [Socket.WakeReceive] when nothing comes. Both know
// when no call is needed (wakeup.go has the rules). EAGAIN, EBUSY and ENOBUFS mean
// "later": complete, and kick again while [Socket.TxPending] is above zero. Other errors
// are returned: ENXIO, the netdev is gone; ENETDOWN, it is down, and the socket works again
// once it is up.
//
// # What is steered where
//
// The program reads Ethernet, IPv4, UDP, ARP and ICMP at fixed offsets. The first row
// that applies counts ([Verdict], [Steering.Counters]); "ours" is the NIC's MAC and IP.
//
//	frame                                                verdict          goes to
//	any, after SetWholePort                              taken-all        socket
//	any, before SetAddress                               pass-other       kernel
//	VLAN tag, priority tag, QinQ (8100, 88a8, 9100)      pass-tagged      kernel
//	IPv6                                                 pass-ipv6        kernel
//	ARP, shorter than 42 bytes                           pass-short       kernel
//	ARP request for our IP, to broadcast or our MAC      taken-arp        socket
//	other ARP                                            pass-other       kernel
//	other ethertypes, 802.3 length                       pass-ethertype   kernel
//	IPv4, shorter than 34 bytes                          pass-short       kernel
//	IPv4, not ours                                       pass-other       kernel
//	ours, version not 4 or header below 20 bytes         pass-short       kernel
//	ours, with IPv4 options                              pass-options     kernel
//	ours, first or later fragment                        pass-fragment    kernel
//	ours, UDP or ICMP header cut off                     pass-short       kernel
//	ours, UDP to a served port                           taken-udp        socket
//	ours, UDP to another port                            pass-port        kernel
//	ours, ICMP echo request                              taken-echo       socket
//	ours, other ICMP, other protocols                    pass-protocol    kernel
//	to be taken, but the queue has no socket             unbound          kernel
//	to be taken, but over its sender's budget            over-budget      nowhere: dropped
//	to be taken, after SetAnswer(SinkHere)               sunk             nowhere: dropped
//	to be taken, after SetAnswer(ReflectHere)            reflected        back, by XDP_TX
//	of a worker of a job in [Sums], new in its slot      summed           nowhere: added to the slot, unless that is complete now
//	the same once more, before its slot is complete      repeated         nowhere: dropped
//
// # Adding up where a frame arrives
//
// After [Steering.SetSums] the program holds the slots of SwitchML jobs itself: a
// contribution is added to its slot in the driver's receive path, on the core that the
// frame came to, and only one that completes its slot, or that asks again for a
// result, goes to a socket, as the result. For eight workers that is one copy to user space instead of
// eight. Values are added two at a time in 64 bits; sums that may wrap are added one
// at a time and counted (bpf/sum.h has the bounds). A lock a slot lets queues and
// netdevs share them. The rule is that of package aggregation, which the tests hold it to.
// A worker's frame that is not just what its job's are goes to the socket with a mark that
// says so ([NotJudged]); that goes for a packet with more behind its datagram, too.
//
// Budgets ([Steering.SetBudgets]) are by source MAC, each a bucket of tokens that the CPUs share; without any, the way of a
// frame is as short as it was before there were budgets (BenchmarkSteer).
//
// Lengths and checksums are not judged here: a frame with all its headers and a wrong
// length is the socket's, whose owner drops it under its own reason. A tag that a NIC
// strips into its descriptor (rx-vlan-offload), or a veth carries beside the frame, is not
// in the frame, and the program cannot see it: turn that offload off where VLANs are used.
package xdp
