package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A renamed flag still sets the value, is in no help, and adds nothing to what is printed.
func TestRenamedFlags(t *testing.T) {
	for _, verb := range [][]string{{"worker"}, {"pktgen", "pcap"}} {
		if r := gradnic(t, "", append(verb, "--help")...); strings.Contains(r.out, "--job") || !strings.Contains(r.out, "--number") {
			t.Errorf("%v: %s", verb, r.out)
		}
	}
	write := func(flag string) ([]byte, result) {
		file := filepath.Join(t.TempDir(), "x.pcap")
		r := gradnic(t, "", "pktgen", "pcap", file, "--protocol", "native", flag, "9", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe", "--packets", "2").want(t, exitOK, "16 frames")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r.out = strings.ReplaceAll(r.out, file, "")
		return b, r
	}
	now, a := write("--number")
	before, b := write("--job")
	if a != b || !bytes.Equal(now, before) {
		t.Errorf("%+v, %+v, equal: %v", a, b, bytes.Equal(now, before))
	}
}
