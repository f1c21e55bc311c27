// Package bump compresses chosen flows between two NICs, unseen by the hosts: a bump in the wire.
//
// A NIC has a host port and a wire port. What comes in on one leaves by the other untouched and in order, but for frames of
// flows that a [Rule] names: those cross the wire as items of wire/bump's frames, several to a frame, and the NIC at the
// other end restores them. docs/bump.md says how it is deployed and what hosts see.
//
// # Shape
//
// [Engine] is the whole function without a socket or a clock: it is handed frames and the time, and emits frames. [Serve]
// puts it on a lane of a dataplane.NIC as a dataplane.Service.
//
//   - rule.go: which flows, where their elements are, which codec; flow.go: the table of flows
//   - peer.go: is there a NIC at the other end of a path? A path is a pair of hosts' Ethernet addresses.
//   - encode.go and decode.go: a host frame to an item, and back; elements.go: payload bytes to elements, and back
//   - checksum.go: hosts behind a veth or a tap leave transport checksums to their card; that card is the bump
//
// # What holds
//
// Headers are restored byte for byte, with the checksum that the payload has. A payload is exact, or each element is within
// the codec's bound. Anything in doubt goes as it came: a wrong checksum, a frame that does not shrink, a far end that does
// not answer or does not know the codec. No frame refers to another, so that loss, reordering and restarts of either end
// need no repair. What a far end that dies without a word is sent until that is noticed is lost ([Options.DeadAfter]).
package bump
