// Package rtl holds a second aggregator, in Verilog, written from the protocol pages alone: what an FPGA engineer would
// build first. It is simulated by Icarus Verilog and joined to a pipe, so that the conformance kit can test it like a
// card. README.md is how to read it, and how to put it in front of another simulator.
//
// The Go side is tests only: the recorded traffic of the public SwitchML client, byte for byte, and random traffic
// against package aggregation.
package rtl
