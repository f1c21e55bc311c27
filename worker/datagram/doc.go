// Package datagram carries the packets of a worker's protocol to the NIC and
// back, in bursts: over a UDP socket (sendmmsg, recvmmsg), or over a link that
// carries whole Ethernet frames. What the packets say is not its business.
package datagram
