// Package fidelity measures what codecs do to real data: how much smaller it
// becomes, what is lost, and how fast. It is the part of the codecs that has a
// clock, and what `gradnic codec eval` and `gradnic show codecs` print.
package fidelity
