// Package ring reads and writes the frames of the ring of NICs: slices of gradients that go from node to node, their
// acknowledgements, and what the nodes tell each other about the ring itself. The card that this ring follows (Ma et al.,
// arXiv 2204.10943) has no public framing between cards, so this one is gradnic's own; docs/protocol.md is its
// specification and this package its layout. What is inside a data message, and in which order, is the card's.
//
// A message is the payload of one UDP datagram to port 48881: a header of 40 bytes in network byte order, and a payload
// of as many bytes as the header says. The first 16 bytes are alike in all kinds:
//
//	 0  version (high nibble), kind (low nibble)   1
//	 1  flags                                      1
//	 2  codec (data), reason (notice)              1
//	 3  step (data)                                1
//	 4  ring                                       2
//	 6  node that sends                            2
//	 8  generation of the ring                     4
//	12  epoch: who of that generation              4
//
// then by kind:
//
//	     data             acknowledgement       hello               notice
//	16   sequence 4       cumulative 4          slice elements 4    request 4
//	20   request 4        reduce credit 4       settings 4          boot 8
//	24   block 4          gather credit 4       boot 8
//	28   length 4         waits: request 4                          zero 4
//	32   slice 2          waits: node 2         nodes 2             node 2
//	34   offset 2         waits: hops 2         zero 2              origin 2
//	36   elements 2       zero 2                zero 2              zero 2
//	38   payload 2        payload 2             payload 2           payload 2
package ring
