package main

import (
	"strings"
	"testing"
)

// A renamed flag still sets the value, says its new name, and is in no help.
func TestRenamedFlags(t *testing.T) {
	for _, verb := range [][]string{{"worker"}, {"pktgen", "pcap"}} {
		if r := gradnic(t, "", append(verb, "--help")...); strings.Contains(r.out, "--job") || !strings.Contains(r.out, "--number") {
			t.Errorf("%v: %s", verb, r.out)
		}
	}
	r := gradnic(t, "", "worker", "--protocol", "native", "--job", "3", "--ip", "10.50.0.1").want(t, exitUsage, "--nic is missing")
	if !strings.Contains(r.err, "--job has been deprecated, its name is --number now") {
		t.Error(r.err)
	}
	gradnic(t, "", "worker", "--job", "70000").want(t, exitUsage, "70000")
	cmd := newPktgenPcapCmd()
	if err := cmd.ParseFlags([]string{"--job", "9"}); err != nil || cmd.Flag("number").Value.String() != "9" {
		t.Errorf("%v %s", err, cmd.Flag("number").Value)
	}
}
