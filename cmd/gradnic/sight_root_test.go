package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gradnic/control/show"
	"gradnic/dataplane"
)

// A running NIC is looked at by the built binary, and what tcpdump and tshark read of its captures is what it counted.
func TestSightOverXDP(t *testing.T) {
	f := newField(t)
	for _, tool := range []string{"tshark", "tcpdump"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is needed to read captures (apt-get install %s): %v", tool, tool, err)
		}
	}
	cmd, _ := f.start(t)
	f.gradnic(t, "install", "job", "train", "--workers", "2", "--elements", "64",
		"--member", "0=02:00:00:00:01:00,10.50.0.1", "--member", "1=02:00:00:00:01:01,10.50.0.2").want(t, exitOK, "installed")
	t.Run("capture", f.testCapture)
	t.Run("trace", f.testTrace)
	t.Run("stages", f.testStages)
	t.Run("end with the NIC", func(t *testing.T) { f.testEndWithNIC(t, cmd) })
}

// watch starts a verb that goes on, and waits for the line that says so.
func (f *field) watch(t *testing.T, says string, args ...string) (cmd *exec.Cmd, out *bytes.Buffer, wait func() (errOut string)) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), f.binary, append(args, "--api", f.api)...)
	out = &bytes.Buffer{}
	cmd.Stdout = out
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(pipe)
	if line, err := r.ReadString('\n'); err != nil || !strings.Contains(line, says) {
		t.Fatalf("%v says %q, %v", args, line, err)
	}
	return cmd, out, func() string {
		t.Helper()
		var rest bytes.Buffer
		_, _ = rest.ReadFrom(r)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, %s", args, err, rest.String())
		}
		return rest.String()
	}
}

func (f *field) ports(t *testing.T) []dataplane.PortSnapshot {
	t.Helper()
	var d struct{ Ports []dataplane.PortSnapshot }
	r := f.gradnic(t, "show", "ports", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	return d.Ports
}

// stable waits until the counters stand still and returns them.
func (f *field) stable(t *testing.T) []dataplane.PortSnapshot {
	t.Helper()
	before := f.ports(t)
	for range 100 {
		time.Sleep(50 * time.Millisecond)
		now := f.ports(t)
		if slices.EqualFunc(before, now, func(a, b dataplane.PortSnapshot) bool {
			return a.Received == b.Received && a.Transmitted == b.Transmitted && a.Dropped() == b.Dropped()
		}) {
			return now
		}
		before = now
	}
	t.Fatal("the counters do not stand still")
	return nil
}

func (f *field) testCapture(t *testing.T) {
	before := f.stable(t)
	file := filepath.Join(t.TempDir(), "all.pcapng")
	cmd, _, wait := f.watch(t, "capturing on port0, port1", "capture", "-w", file)
	_, drops, waitDrops := f.watch(t, "capturing", "capture", "-w", "-", "--stage", "drop", "--port", "port1", "--count", "1", "--snaplen", "60")
	for slot := range 5 {
		f.send(t, 0, slot, 1)
		f.send(t, 1, slot, 2)
		for rank := range 2 {
			if got := f.result(t, rank, slot); got != 3 {
				t.Errorf("slot %d: rank %d got %d", slot, rank, got)
			}
		}
	}
	f.send(t, 1, 4000, 2) // no such slot: dropped
	if s := waitDrops(); !strings.Contains(s, "1 frames captured, none lost") {
		t.Errorf("drops: %s", s)
	}
	after := f.stable(t)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	said := wait()

	type key struct{ face, comment string }
	want := map[key]uint64{}
	total := uint64(0)
	for i := range after {
		p, was := &after[i], &before[i]
		add := func(stage, more string, n uint64) {
			if n > 0 {
				want[key{p.Name + ":" + stage, fmt.Sprintf("stage=%s port=%s lane=0%s", stage, p.Name, more)}] += n
				total += n
			}
		}
		add("rx", "", p.Received-was.Received)
		add("tx", "", p.Transmitted-was.Transmitted)
		for reason, n := range p.Drops {
			add("drop", " reason="+reason, n-was.Drops[reason])
		}
	}
	if want[key{"port1:drop", "stage=drop port=port1 lane=0 reason=slot-out-of-range"}] != 1 || want[key{"port0:tx", "stage=tx port=port0 lane=0"}] < 5 {
		t.Errorf("the traffic was not what this test is about: %v", want)
	}
	if !strings.Contains(said, fmt.Sprintf("%d frames captured, none lost", total)) {
		t.Errorf("want %d frames: %s", total, said)
	}
	got := map[key]uint64{}
	for _, line := range tool(t, "tshark", "-r", file, "-T", "fields", "-E", "separator=|", "-e", "frame.interface_name", "-e", "frame.comment", "-e", "udp.length", "-e", "frame.packet_flags_direction") {
		parts := strings.Split(line, "|")
		got[key{parts[0], parts[1]}]++
		if direction := parts[3]; (direction == "2" || direction == "0x00000002") != strings.HasSuffix(parts[0], ":tx") {
			t.Errorf("direction: %s", line)
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("tshark reads %v, counted %v", got, want)
	}
	if lines := tool(t, "tcpdump", "-r", file, "-n", "-e"); uint64(len(lines)) != total {
		t.Errorf("tcpdump reads %d frames, want %d", len(lines), total)
	}
	// A reader's filter by interface and comment works: the drops, and why.
	if lines := tool(t, "tshark", "-r", file, "-Y", `frame.interface_name == "port1:drop" && frame.comment contains "slot-out-of-range"`); len(lines) != 1 {
		t.Errorf("%q", lines)
	}
	// The one from standard output, cut to 60 bytes of 308.
	one := filepath.Join(t.TempDir(), "one.pcapng")
	if err := os.WriteFile(one, drops.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if lines := tool(t, "tshark", "-r", one, "-T", "fields", "-e", "frame.cap_len", "-e", "frame.len", "-e", "udp.dstport"); len(lines) != 1 || lines[0] != "60\t308\t48864" {
		t.Errorf("%q", lines)
	}
	if lines := tool(t, "capinfos", "-T", "-r", "-c", file); len(lines) != 1 || !strings.HasSuffix(lines[0], "\t"+strconv.FormatUint(total, 10)) {
		t.Errorf("capinfos: %q", lines)
	}

	// As text.
	_, text, waitText := f.watch(t, "capturing", "capture", "--count", "1", "--stage", "rx", "--port", "port0")
	f.send(t, 0, 4001, 1)
	waitText()
	if s := text.String(); !strings.Contains(s, "  rx    port0  lane 0  308 bytes  10.50.0.1:4000 > 10.50.0.254:48864 udp\n") {
		t.Errorf("%q", s)
	}
	f.gradnic(t, "capture", "--port", "port9").want(t, exitFailed, "no port port9: there are [port0 port1]")
	f.gradnic(t, "capture", "--stage", "rxx").want(t, exitUsage, "legal are rx, tx, drop")
}

// tool runs a reader and returns its lines.
func tool(t *testing.T, name string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, errOut.String())
	}
	s := strings.TrimRight(string(out), "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

func (f *field) testTrace(t *testing.T) {
	_, out, wait := f.watch(t, "tracing slot 7", "trace", "--slot", "7", "--job", "train", "--count", "2")
	_, doc, waitDoc := f.watch(t, "tracing slot 7", "trace", "--slot", "7", "--count", "2", "-j")
	f.send(t, 0, 7, 1)
	f.send(t, 1, 7, 1)
	for rank := range 2 {
		f.result(t, rank, 7)
	}
	wait()
	waitDoc()
	for _, says := range []string{
		"\n  rx          port1, 308 bytes\n", "switchml request from 02:00:00:00:01:01 10.50.0.2:4000 to port 48864: slot 7, set 0, 64 elements",
		"  match       job train, rank 1\n", "has rank 0,1, waits for -\n", "  reply       to rank 0 at 02:00:00:00:01:00 10.50.0.1:4000, 308 bytes\n",
		"  tx          port1, posted\n", "  verdict     contributed\n",
	} {
		if !strings.Contains(out.String(), says) {
			t.Errorf("no %q in\n%s", says, out.String())
		}
	}
	var frames []dataplane.TraceFrame
	d := json.NewDecoder(doc)
	for d.More() {
		var fr dataplane.TraceFrame
		if err := d.Decode(&fr); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, fr)
	}
	if len(frames) != 2 || frames[0].Rank+frames[1].Rank != 1 || frames[1].Outcome != "completed" || len(frames[1].Replies) != 2 || !frames[1].Replies[1].Posted {
		t.Errorf("%+v", frames)
	}
	f.gradnic(t, "trace").want(t, exitUsage, "--slot is missing")
	f.gradnic(t, "trace", "--slot", "1", "--job", "nope").want(t, exitFailed, "no such job")
	f.gradnic(t, "trace", "--slot", "512", "--job", "train").want(t, exitFailed, "legal are 0 to 511")
}

func (f *field) testStages(t *testing.T) {
	var d struct {
		Stages []struct {
			Stage   string
			Frames  uint64
			Batches uint64
		}
		Lanes []struct{ Lane int }
	}
	r := f.gradnic(t, "show", "stages", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &d); err != nil {
		t.Fatal(err)
	}
	received := uint64(0)
	for _, p := range f.stable(t) {
		received += p.Received
		if p.Rings.FillMost == 0 || p.Rings.Fill == 0 || p.Rings.Fill > p.Rings.FillMost {
			t.Errorf("%+v", p.Rings)
		}
	}
	var qs struct{ Queues []show.Queue }
	r = f.gradnic(t, "show", "queues", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &qs); err != nil {
		t.Fatal(err)
	}
	spread := uint64(0)
	for _, q := range qs.Queues {
		spread += q.Received
		if q.Queue != 0 || q.Lane != 0 || q.Batches > q.Received || q.Fill == 0 || q.Fill > q.FillMost || q.Kernel == nil {
			t.Errorf("%+v", q)
		}
	}
	if spread != received || len(qs.Queues) < 2 {
		t.Errorf("%d frames by queue, %d by port: %s", spread, received, r.out)
	}
	var one struct{ Port show.Port }
	r = f.gradnic(t, "show", "port", qs.Queues[0].Port, "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &one); err != nil {
		t.Fatal(err)
	}
	if one.Port.Name != qs.Queues[0].Port || one.Port.Received != qs.Queues[0].Received {
		t.Errorf("%s, want queue 0's %+v", r.out, qs.Queues[0])
	}
	f.gradnic(t, "show", "port", "nope").want(t, exitFailed, "port nope: no such port: gradnic show ports lists")
	by := map[string]uint64{}
	for _, s := range d.Stages {
		by[s.Stage] = s.Frames
	}
	if by["receive"] < 10 || by["receive"] > received || by["parse"] != by["receive"] || by["aggregate"] == 0 || by["transmit"] == 0 || len(d.Lanes) != 1 {
		t.Errorf("%v of %d received: %s", by, received, r.out)
	}
	f.gradnic(t, "show", "stages").want(t, exitOK, "NS/FRAME")
	var l struct{ Lanes []dataplane.LaneSnapshot }
	r = f.gradnic(t, "show", "lanes", "-j").want(t, exitOK, "{")
	if err := json.Unmarshal([]byte(r.out), &l); err != nil {
		t.Fatal(err)
	}
	lt := l.Lanes[0].Time
	if lt.Life < time.Millisecond || lt.Busy <= 0 || lt.Sleep <= 0 || lt.Busy+lt.Spin+lt.Sleep > lt.Life+time.Second {
		t.Errorf("%+v", lt)
	}
}

// A capture does not keep the NIC from stopping, and ends with what it has.
func (f *field) testEndWithNIC(t *testing.T, nic *exec.Cmd) {
	file := filepath.Join(t.TempDir(), "last.pcapng")
	_, _, wait := f.watch(t, "capturing", "capture", "-w", file)
	f.send(t, 0, 30, 1)
	within(t, "the frame is received", func() bool { return strings.Contains(f.gradnic(t, "show", "slots").out, "train") })
	f.stable(t)
	begin := time.Now()
	if err := nic.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	said := wait()
	if err := nic.Wait(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("stopping took %v", d)
	}
	if lines := tool(t, "tshark", "-r", file, "-Y", `udp.dstport == 48864 && frame.interface_name == "port0:rx"`); len(lines) != 1 {
		t.Errorf("%q, said %s", lines, said)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, f.binary, "capture", "--api", f.api).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "start one with gradnic run") {
		t.Errorf("no NIC: %v, %s", err, out)
	}
}
