// Package accl reads and writes what an FPGA card with ACCL, the open collective
// engine, sends over UDP: the header of a message, and the cutting of messages into
// datagrams. It is compatible on the wire with ACCL's UDP engine at commit 723d8ec
// (github.com/Xilinx/ACCL); other versions and other network engines of the same
// cards (TCP, RDMA) are not spoken.
//
// # Message
//
// A message is one segment of one rank's data for one peer: a header of 64 bytes,
// which is one word of the card's data path, and the elements. Everything is
// little-endian.
//
//	 0  bytes of elements in this message, header excluded  4
//	 4  tag; every collective uses TagAny                   4
//	 8  rank of the sender                                  4
//	12  sequence number                                     4
//	16  0, or the kernel stream that the message is for     4
//	20  the sender's session with the receiver              2
//	22  message type: 0                                     1
//	23  1 if a rendezvous target is in host memory          1
//	24  rendezvous target; in other messages leftovers      8
//	32  zero                                               32
//
// Nothing on the wire says which element type, operation, collective or
// communicator it belongs to. Both sides must have been told the same.
//
// # Datagrams
//
// The first datagram of a message carries the header and up to 4032 bytes, the
// others up to 4096 bytes and no header. The last one is padded to whole words of
// 64 bytes; the padding's content means nothing. A receiver therefore keeps for
// each peer how much of a message is still to come: Receiver does. A message whose
// elements are at most OneDatagram bytes has a header in its only datagram.
//
// Nothing is acknowledged or sent again. The sequence number counts a sender's
// messages to one receiver, from 0, for as long as the communicator lives, so a
// lost, doubled or overtaken message is seen at the next header. Inside a message
// there is nothing to see it by but lengths: with messages of more than one
// datagram a Receiver finds a single lost datagram, but not two datagrams of 4096
// bytes that changed places, and not a run of losses that ends in the same place
// of a later message. Keep messages within OneDatagram to have every loss found.
//
// # Addresses
//
// Rank r has one IPv4 address and the UDP port BasePort + r, and sends from it. A
// receiver tells its peers apart by their source address and port. Frames have
// no options, no tag, no checksum in UDP; FrameLen is the longest, which needs an
// MTU of 4124 or more.
package accl
