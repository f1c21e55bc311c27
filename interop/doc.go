// Package interop tests cards: the same suite of cases runs against gradnic in memory, gradnic or a card on an
// interface, and a simulator behind a pipe.
//
// A suite is data (suites/*.yaml): frames to send, described by their fields, and the frames that must come back, with a
// mask for what is left open. Header fields have the names of the protocol's layout (package wire/layout). Cases use
// slots of their own, and bring them to a known state first, so that a suite can run again on a card that keeps its
// memory.
//
// A case passes when exactly the expected frames came, in any order, and nothing else. It fails otherwise, with the
// fields and bytes that differ and a capture of the whole case. It is unsupported when the target cannot do what the
// case takes (a frame longer than its link, a pause on a target without a clock), or when the case is about something
// that the protocol leaves to the card and the card does it otherwise.
//
// Some cards have clocks of their own, and a host that must act: nodes of a ring, whose frames come when they come. Their
// suite says what may come at any time (Suite.Ignore), and what is in a slice follows from the rules (ringModel).
//
// Worker r of N is a station: 02:00:00:00:01:0r, 10.50.0.(r+1), UDP port 4000; the card is 06:00:00:00:00:fe,
// 10.50.0.254; Options changes that.
package interop
