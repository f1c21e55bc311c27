package main

import (
	"bytes"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBump runs the verb between two hosts: what one sends arrives at the other, the status and the metrics say so, and a far
// end that is not there is a warning.
func TestBump(t *testing.T) {
	f := newField(t)
	dir := t.TempDir()
	status, metrics := filepath.Join(dir, "status.sock"), filepath.Join(dir, "metrics.sock")
	cmd, _, log := launch(t, f.nic, f.binary, "bump", "--host", "port0", "--wire", "port1", "--dead-after", "200ms",
		"--rule", "udp dport=4000 offset=0 type=float32 codec=bfp16", "--status", status, "--metrics", "unix:"+metrics, "--api", f.api)
	buf := make([]byte, 2000)
	to := &net.UDPAddr{IP: net.IPv4(10, 50, 0, 2), Port: 4000}
	for end := time.Now().Add(500 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		want := bytes.Repeat([]byte{1, 2, 3, 0x3f}, 300)
		if _, err := f.workers[0].WriteToUDP(want, to); err != nil {
			t.Fatal(err)
		}
		if err := f.workers[1].SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := f.workers[1].ReadFromUDP(buf)
		if err != nil || !bytes.Equal(buf[:n], want) {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}

	shown, err := f.nic.Command(t.Context(), f.binary, "bump", "show", "-j", "--status", status).Output()
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Counters struct {
			Raw       map[string]uint64
			Completed uint64
			Missing   uint64
		}
		Peers []struct{ State string }
	}
	if err := json.Unmarshal(shown, &s); err != nil {
		t.Fatal(err)
	}
	if s.Counters.Raw["no-peer"] < 20 || s.Counters.Completed < 20 || s.Counters.Missing != 1 || len(s.Peers) != 1 || s.Peers[0].State != "absent" {
		t.Errorf("%s", shown)
	}
	if table, err := f.nic.Command(t.Context(), f.binary, "bump", "show", "--status", status).Output(); err != nil || !strings.Contains(string(table), "absent") {
		t.Errorf("%v: %s", err, table)
	}
	ports, err := f.nic.Command(t.Context(), f.binary, "show", "ports", "--api", f.api).Output()
	if err != nil || !strings.Contains(string(ports), "port1") {
		t.Errorf("%v: %s", err, ports)
	}
	if page := get(t, metrics, "/metrics"); !strings.Contains(page, `gradnic_bump_raw_frames_total{reason="no-peer"}`) {
		t.Errorf("no metrics of the bump: %s", page)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, log.String())
	}
	if !strings.Contains(log.String(), "no NIC answers at the far end") {
		t.Errorf("no warning: %s", log.String())
	}
}

// get asks for a page over a Unix socket.
func get(t *testing.T, socket, path string) string {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("GET " + path + " HTTP/1.0\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(c); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestBumpRefused(t *testing.T) {
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"bump"}, "--host or --wire is missing"},
		{[]string{"bump", "--host", "a", "--wire", "b", "--rule", "udp codec=bfp16"}, "needs offset=BYTES and type=TYPE"},
		{[]string{"bump", "--host", "a", "--wire", "b", "--log", "xml"}, "legal are text and json"},
	} {
		var out, errOut bytes.Buffer
		if code := run(t.Context(), c.args, nil, &out, &errOut); code != exitUsage || !strings.Contains(errOut.String(), c.say) {
			t.Errorf("%v: status %d, %s", c.args, code, errOut.String())
		}
	}
	var out, errOut bytes.Buffer
	if code := run(t.Context(), []string{"bump", "show", "--status", t.TempDir() + "/none"}, nil, &out, &errOut); code != exitFailed {
		t.Errorf("nobody answers: status %d", code)
	}
}
