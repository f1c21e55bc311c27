package main

import (
	"strings"
	"testing"
)

func TestACCLUsage(t *testing.T) {
	for line, says := range map[string]string{
		"accl":                                     "--ranks is missing",
		"accl --ranks 1.2.3":                       `"1.2.3"`,
		"accl --ranks no.json":                     "no.json",
		"accl --ranks 10.0.0.1,10.0.0.1:5500":      "ranks 0 and 1 are both at",
		"accl --ranks 10.0.0.1 --rank 1":           "rank 1 of 1",
		"accl --ranks 10.0.0.1 --collective all":   "legal are send, recv, bcast",
		"accl --ranks 10.0.0.1 --type int8":        "legal are float32, float16",
		"accl --ranks 10.0.0.1 --op min":           "legal are sum, max",
		"accl --ranks 10.0.0.1 --transport tcp":    "legal are udp and xdp",
		"accl --ranks 10.0.0.1 --transport xdp":    "the interface is missing",
		"accl --ranks 10.0.0.1 --segment 8128":     "multiples of 64 up to 4032",
		"accl --ranks 10.0.0.1 --mac 01:0:0:0:0:0": "--mac",
		"accl --ranks 10.0.0.1 --count 1,x":        "--count",
	} {
		t.Run(line, func(t *testing.T) {
			gradnic(t, "", strings.Fields(line)...).want(t, exitUsage, says)
		})
	}
}

// What a card's UDP engine cannot do is refused with the reason, and the status says so.
func TestACCLRefused(t *testing.T) {
	for _, line := range []string{
		"accl --ranks 127.0.0.1:45500,127.0.0.2:45501 --settle 0 --collective barrier",
		"accl --ranks 127.0.0.1:45500,127.0.0.2:45501 --settle 0 --count 65537 --max-eager 262144",
	} {
		t.Run(line, func(t *testing.T) {
			gradnic(t, "", strings.Fields(line)...).want(t, exitFailed, "rendezvous")
		})
	}
}
