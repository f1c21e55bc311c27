package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// field is a lab with the built binary: a namespace for the NIC, and one for each of two workers.
type field struct {
	binary, api string
	nic         *netlab.NS
	spaces      []*netlab.NS // of the workers
	workers     []*net.UDPConn
	target      *net.UDPAddr
}

func newField(t *testing.T) *field {
	t.Helper()
	lab := netlabtest.New(t, "cli")
	f := &field{
		binary: built.Path(t), api: filepath.Join(t.TempDir(), "api.sock"),
		target: &net.UDPAddr{IP: net.IPv4(10, 50, 0, 254), Port: switchml.PortBase},
	}
	f.nic = netlabtest.Namespace(t, lab, "nic")
	for rank := range 2 {
		ns := netlabtest.Namespace(t, lab, fmt.Sprintf("w%d", rank))
		netlabtest.Veth(t, lab,
			netlab.End{NS: f.nic, Name: fmt.Sprintf("port%d", rank)},
			netlab.End{NS: ns, Name: "eth0", MAC: fmt.Sprintf("02:00:00:00:01:%02x", rank), Addr: fmt.Sprintf("10.50.0.%d/24", 1+rank)})
		var conn *net.UDPConn
		if err := ns.Do(func() (err error) {
			conn, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(10, 50, 0, byte(1+rank)), Port: 4000})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		f.spaces, f.workers = append(f.spaces, ns), append(f.workers, conn)
	}
	return f
}

// start runs `gradnic run` in the NIC's namespace and waits for its ready line.
func (f *field) start(t *testing.T, args ...string) (cmd *exec.Cmd, ready string) {
	t.Helper()
	cmd, ready, _ = launch(t, f.nic, f.binary, append([]string{"run", "--ip", "10.50.0.254", "--port", "port0", "--port", "port1", "--api", f.api}, args...)...)
	return cmd, ready
}

// launch starts a command in a namespace and waits for its ready line. What still runs when the test ends is killed. The log may
// be read when the command has ended.
func launch(t *testing.T, ns *netlab.NS, binary string, args ...string) (cmd *exec.Cmd, ready string, log *bytes.Buffer) {
	t.Helper()
	cmd = ns.Command(context.Background(), binary, args...)
	log = new(bytes.Buffer)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", cmd.Args, log.String())
		}
	})
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		s, _ := r.ReadString('\n')
		line <- s
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case ready = <-line:
	case <-time.After(20 * time.Second):
	}
	if !strings.HasPrefix(ready, "ready ") {
		t.Fatalf("no ready line but %q", ready)
	}
	return cmd, ready, log
}

func (f *field) gradnic(t *testing.T, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), f.binary, append(args, "--api", f.api)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
}

// send makes a worker contribute value to a slot.
func (f *field) send(t *testing.T, rank, slot int, value byte) {
	t.Helper()
	frame := make([]byte, switchml.FrameLen(64))
	switchml.PutRequest(frame, switchml.Request{Elements: 64, PoolIndex: uint16(slot)})
	payload := frame[inet.PayloadOffset:]
	for i := switchml.HeaderLen + 3; i < len(payload); i += 4 {
		payload[i] = value
	}
	if _, err := f.workers[rank].WriteToUDP(payload, f.target); err != nil {
		t.Fatal(err)
	}
}

// result waits for a slot's result and returns its first element.
func (f *field) result(t *testing.T, rank, slot int) int {
	t.Helper()
	buf := make([]byte, 2048)
	if err := f.workers[rank].SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := f.workers[rank].Read(buf)
	if err != nil {
		t.Fatalf("rank %d: %v", rank, err)
	}
	v, fault := switchml.Validate(buf[:n])
	if fault != switchml.OK || v.Slot() != slot {
		t.Fatalf("rank %d: %v, slot %d, want %d", rank, fault, v.Slot(), slot)
	}
	return int(v.Values()[3])
}

// xdp says which interfaces of the NIC's namespace have an XDP program.
func (f *field) xdp(t *testing.T) (with []string) {
	t.Helper()
	links, err := f.nic.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if x := l.Attrs().Xdp; x != nil && x.Attached {
			with = append(with, l.Attrs().Name)
		}
	}
	return with
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

func TestBinary(t *testing.T) {
	f := newField(t)
	t.Run("over XDP", f.testOverXDP)
	t.Run("after kill", f.testAfterKill)
	t.Run("started at once after kill", f.testStartsAtOnceAfterKill)
}

// The whole way of a user: run, install, watch, impair, remove, stop; over AF_XDP with the built binary.
func (f *field) testOverXDP(t *testing.T) {
	cmd, ready := f.start(t)
	for _, want := range []string{"ip=10.50.0.254 mac=02:67:0a:32:00:fe", "port=port0:xdp-native port=port1:xdp-native", "api=unix:" + f.api} {
		if !strings.Contains(ready, want) {
			t.Errorf("ready line %q has no %q", ready, want)
		}
	}
	if with := f.xdp(t); len(with) != 2 {
		t.Errorf("XDP programs on %v", with)
	}
	f.gradnic(t, "install", "job", "train", "--workers", "2", "--elements", "64",
		"--member", "0=02:00:00:00:01:00,10.50.0.1", "--member", "1=02:00:00:00:01:01,10.50.0.2").want(t, exitOK, "job train installed\n")
	f.gradnic(t, "show", "job", "train").want(t, exitOK, "missing    registered but never sent: rank 0,1\n")

	// Rank 0 comes, rank 1 does not: it is named.
	f.send(t, 0, 3, 40)
	within(t, "rank 1 alone is missing", func() bool {
		r := f.gradnic(t, "show", "job", "train").want(t, exitOK, "job        train")
		return strings.Contains(r.out, "missing    registered but never sent: rank 1\n") && strings.Contains(r.out, "1 waiting")
	})
	f.send(t, 1, 3, 2)
	for rank := range 2 {
		if got := f.result(t, rank, 3); got != 42 {
			t.Errorf("rank %d got %d, want 42", rank, got)
		}
	}
	f.gradnic(t, "show", "job", "train").want(t, exitOK, "missing    nobody\n")

	// Exactly the first frame is lost; sent again it counts.
	f.gradnic(t, "set", "impair", "port0", "--drop-ingress", "1").want(t, exitOK, "port port0 impaired\n")
	f.send(t, 0, 4, 1)
	f.send(t, 1, 4, 5)
	within(t, "the loss is counted", func() bool {
		return strings.Contains(f.gradnic(t, "show", "drops").want(t, exitOK, "WHERE").out, "impaired-ingress  1\n")
	})
	f.send(t, 0, 4, 1)
	for rank := range 2 {
		if got := f.result(t, rank, 4); got != 6 {
			t.Errorf("rank %d got %d, want 6", rank, got)
		}
	}
	f.gradnic(t, "clear", "impair", "--all").want(t, exitOK, "")
	// To the NIC, on a port that it does not serve: left to the kernel, and seen.
	if _, err := f.workers[0].WriteToUDP([]byte("hello"), &net.UDPAddr{IP: f.target.IP, Port: 9}); err != nil {
		t.Fatal(err)
	}
	within(t, "what steering leaves to the kernel is counted", func() bool {
		return strings.Contains(f.gradnic(t, "show", "drops").want(t, exitOK, "WHERE").out, "steering  pass-port         1\n")
	})
	var counters struct {
		Counters struct{ Contributed, Results uint64 }
		Fault    string
	}
	r := f.gradnic(t, "show", "counters", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &counters); err != nil || counters.Counters.Contributed != 4 || counters.Counters.Results != 2 || counters.Fault != "" {
		t.Errorf("%v: %+v", err, counters)
	}
	f.gradnic(t, "remove", "job", "train").want(t, exitOK, "job train removed\n")
	f.gradnic(t, "show", "job", "train").want(t, exitFailed, "no such job")

	// SIGTERM: status 0, soon, and nothing is left.
	begin := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if with := f.xdp(t); len(with) != 0 {
		t.Errorf("XDP programs are left on %v", with)
	}
	if _, err := os.Stat(f.api); err == nil {
		t.Error("the API's socket is left")
	}
	f.gradnic(t, "show", "jobs").want(t, exitFailed, "start one with gradnic run")
}

// After kill -9 the netdevs are free, and the next start works at once, over the stale socket.
func (f *field) testAfterKill(t *testing.T) {
	cmd, _ := f.start(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Stat(f.api); err != nil {
		t.Fatalf("the kill left no stale socket to test with: %v", err)
	}
	if with := f.xdp(t); len(with) != 0 {
		t.Errorf("XDP programs are left on %v", with)
	}
	cmd, ready := f.start(t, "--mode", "generic", "--log", "json", "--wait", "interrupt", "--switchml", "unix:"+filepath.Join(t.TempDir(), "s.sock"))
	if !strings.Contains(ready, "port=port0:xdp-generic") || !strings.Contains(ready, "switchml=unix:") {
		t.Errorf("ready line %q", ready)
	}
	// A second NIC on the same address is refused, and says so.
	second := f.nic.Command(t.Context(), f.binary, "run", "--ip", "10.50.0.253", "--port", "port0", "--api", f.api)
	var errOut bytes.Buffer
	second.Stderr = &errOut
	if err := f.nic.Start(second); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); second.ProcessState.ExitCode() != exitFailed || !strings.Contains(errOut.String(), "another gradnic answers") {
		t.Errorf("second NIC: %v, %s", err, errOut.String())
	}
	f.gradnic(t, "show", "nic").want(t, exitOK, "10.50.0.254")
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
}
