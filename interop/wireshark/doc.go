// Package wireshark holds gradnic.lua, the Wireshark dissector of every protocol that gradnic speaks, and its tests: each
// field of each frame of the shipped captures, as tshark shows it, is compared with what the Go decoders read.
//
// It also makes the captures of testdata/captures: go test ./interop/wireshark -run TestCaptures -update
package wireshark
