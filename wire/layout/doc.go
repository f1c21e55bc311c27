// Package layout describes the header of a card's protocol in a file, so that a NIC speaks it without new code.
//
// A layout is a page of YAML. It names the rules that the card follows, which are a state machine that gradnic has
// (switchml, docs/protocol.md's native, or none: then frames are decoded and shown only), the encapsulation, and the
// fields: where each lies in the header, how wide it is, and what it means to the rules. What a page cannot mean is
// refused when it is loaded, with file, line, and what mends it.
//
// A layout is compiled to offsets, shifts and masks. Enter turns a frame of the card into a frame of the rules' own
// protocol, and Leave turns an answer back. Both write headers only: the payload stays where it lies, unless its byte
// order differs, and the frame's start moves. So everything between the two (matching, slots, captures, traces,
// hand-off between lanes) knows one form of each protocol, and costs the same whether layouts are loaded or not.
//
// The shipped layouts are SwitchML itself (its recorded packets pass through it byte for byte), the native protocol,
// ATP (decoded only: its switch follows other rules), and an annotated example of a card of one's own.
package layout
