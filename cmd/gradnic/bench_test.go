package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"

	benchreport "gradnic/bench/report"
)

// cli runs a command line and returns its status and what it printed.
func benchCLI(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	var o, e strings.Builder
	status = run(context.Background(), args, strings.NewReader(""), &o, &e)
	return status, o.String(), e.String()
}

func TestBenchGenDryRun(t *testing.T) {
	to := []string{"bench", "gen", "--dry-run", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe"}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--sizes", "64", "--fcs", "--rate", "10Gbit/s-L1"}, "10Gbit/s-L1 is 14.88 Mpps over 1 queues"},
		{[]string{"--sizes", "64", "--fcs", "--rate", "50%", "--link", "10Gbit/s-L1", "--queues", "8"}, "50% is 7.44 Mpps over 8 queues"},
		{[]string{"--imix"}, "as fast as it goes"},
	} {
		status, out, errOut := benchCLI(t, append(to, tt.args...)...)
		if status != exitOK || !strings.Contains(out, tt.want) {
			t.Errorf("%q: status %d, %q, %q; want %q", tt.args, status, out, errOut, tt.want)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"bench gen --rate 10Gbit/s --to 10.0.0.1", "which layer"},
		{"bench gen --flow tcp", `flow "tcp"`},
		{"bench gen --to here", "--to"},
		{"bench gen --dry-run --to 10.0.0.1 --to-mac 02:00:00:00:00:01 --sizes 20", "60 to 9014"},
		{"bench sink", "one of --interface and --listen"},
		{"bench device --interface x --function aggregate", "sink and reflect"},
		{"bench allreduce -b 1T", "-b"},
		{"bench allreduce --link 1Gbit/s-L1", "--link"},
		{"bench ndr --trial 0s", "--trial"},
		{"bench report", "accepts between 1 and 2"},
		{"pktgen script --interface x --port 70000", "--port 70000"},
	} {
		status, _, errOut := benchCLI(t, strings.Fields(tt.line)...)
		if status != exitUsage || !strings.Contains(errOut, tt.want) {
			t.Errorf("%q: status %d, %q; want %d, %q", tt.line, status, errOut, exitUsage, tt.want)
		}
	}
}

func TestBenchReport(t *testing.T) {
	dir := t.TempDir()
	for i, name := range []string{"a.json", "b.json"} {
		r := benchreport.New("make x")
		k := float64(i + 1)
		r.Add(benchreport.Row{Name: "drop/64", Unit: "Mpps"}, []float64{k, k * 1.01, k * 1.02, k * 1.03, k * 1.04}, nil)
		if err := r.WriteFile(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	a, b := filepath.Join(dir, "a.json"), filepath.Join(dir, "b.json")
	if status, out, _ := benchCLI(t, "bench", "report", a, b); status != exitOK || !strings.Contains(out, "| drop/64 | Mpps | 1.02 | 2.04 | +100.0 % | p=0.008 n=5+5 |") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if status, out, _ := benchCLI(t, "bench", "report", a); status != exitOK || !strings.Contains(out, "| drop/64 | 1.02 Mpps |") {
		t.Errorf("status %d:\n%s", status, out)
	}
	page := filepath.Join(dir, "a.html")
	if status, _, errOut := benchCLI(t, "bench", "report", "--html", page, a); status != exitOK {
		t.Errorf("status %d: %s", status, errOut)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "drop/64") {
		t.Errorf("page: %v", err)
	}
	if status, _, errOut := benchCLI(t, "bench", "report", "--html", page, a, b); status != exitUsage || !strings.Contains(errOut, "one report") {
		t.Errorf("status %d: %s", status, errOut)
	}
}

func TestPktgenPcap(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.pcap")
	status, out, errOut := benchCLI(t, "pktgen", "pcap", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe", "--workers", "2", "--packets", "5", path)
	if status != exitOK || !strings.Contains(out, "10 frames") {
		t.Fatalf("status %d: %q %q", status, out, errOut)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if b, _, err := r.ReadPacketData(); err != nil || len(b) != 1076 {
		t.Errorf("a frame of %d bytes: %v", len(b), err)
	}
	bad := filepath.Join(t.TempDir(), "bad.pcap")
	if status, _, _ := benchCLI(t, "pktgen", "pcap", "--to", "10.50.0.254", "--to-mac", "02:67:0a:32:00:fe", "--workers", "9", bad); status == exitOK {
		t.Error("nine workers")
	}
	if _, err := os.Stat(bad); err == nil {
		t.Error("a file of nothing stayed behind")
	}
}
