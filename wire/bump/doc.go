// Package bump is the frame that two NICs with a bump in the wire exchange: docs/bump.md is its specification.
//
// A frame keeps the Ethernet addresses of the hosts that it is between, under an EtherType of its own, so that switches
// between the two NICs forward it as they would the hosts' frames. After the header come items, each of which is one host
// frame: its IPv4 and transport headers, whole or as the difference to the item before in the same frame, and its payload,
// compressed. Nothing refers to another frame, so that loss, reordering and restarts touch no more than the frames they
// touch. A CRC-32C over everything stands in for the transport checksums, which the far end makes anew.
//
// [Open] checks a frame and [Reader] walks its items: nothing is read outside of it, nothing is allocated, and what does
// not hold is refused under a named [Fault]. [PutItem] and [Seal] are the other direction. What the bytes of an item decode
// to is not this package's: codecs are package codec's.
package bump
