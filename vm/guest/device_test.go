//go:build vm

package guest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The script of `gradnic pktgen script` drives the kernel's generator against `gradnic bench device`, which finds every frame:
// none lost, none late, none twice, over two runs whose numbers begin anew. The generator's thread gets its CPU so late that
// the kernel's start has long returned when it begins.
func TestPktgenScriptDrivesTheDevice(t *testing.T) {
	gen, nut := vethPair(t)
	const frames = 500
	script, err := exec.Command("/gradnic", "pktgen", "script", "--interface", gen.name, "--to-mac", nut.mac.String(), "--to", "10.9.0.2", "--first-cpu", "1",
		"--sizes", "60,298", "--count", fmt.Sprint(frames), "--rate", "2000").Output()
	if err != nil {
		t.Fatal(err)
	}
	device := exec.Command("/gradnic", "bench", "device", "--interface", nut.name, "--function", "sink", "--pktgen", "--json")
	var out bytes.Buffer
	device.Stdout = &out
	stderr, err := device.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := device.Start(); err != nil {
		t.Fatal(err)
	}
	defer device.Process.Kill()
	log := bufio.NewReader(stderr)
	if line, err := log.ReadString('\n'); !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the device says %q: %v", line, err)
	}
	sh := exec.Command("/bin/sh")
	sh.Env = []string{"PATH=/bin"}
	sh.Stdin = bytes.NewReader(script)
	held := make(chan error, 1)
	go func() { held <- hold(1, gen.name, "dst_max: 10.9.0.2") }()
	said, err := sh.CombinedOutput()
	if err := errors.Join(err, <-held); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if n := strings.Count(string(said), fmt.Sprintf("pkts-sofar: %d ", frames)); n != 2 {
		t.Errorf("%d runs of %d frames in %s", n, frames, said)
	}
	if err := device.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(log)
	if err := errors.Join(err, device.Wait()); err != nil {
		t.Fatalf("%v: %s", err, rest)
	}
	var got struct {
		Pktgen struct {
			Frames  uint64 `json:"frames"`
			Streams []struct {
				Unique, Lost, Duplicates, Reordered uint64
			} `json:"streams"`
			Latency *struct {
				Samples int64 `json:"samples"`
			} `json:"latency"`
		} `json:"pktgen"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatalf("%v: %s%s", err, out.Bytes(), rest)
	}
	p := got.Pktgen
	if p.Frames != 2*frames || len(p.Streams) != 1 || p.Latency == nil || p.Latency.Samples != 2*frames {
		t.Fatalf("%s%s", out.Bytes(), rest)
	}
	if s := p.Streams[0]; s.Unique != 2*frames || s.Lost+s.Duplicates+s.Reordered != 0 {
		t.Errorf("%+v of %d frames", s, 2*frames)
	}
}

// hold keeps the other threads of a CPU from running for 600 ms, from when pktgen has taken a setting of a device, which must be
// within 5 s. A process of its own spins: the runtime of Go would give the CPU away now and then.
func hold(cpu int, device, setting string) error {
	hog := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := hog.Start(); err != nil {
		return fmt.Errorf("hold CPU %d: %w", cpu, err)
	}
	defer func() {
		hog.Process.Kill()
		hog.Wait()
	}()
	const most = 5 * time.Second
	for until := time.Now().Add(most); time.Now().Before(until); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile("/proc/net/pktgen/" + device)
		if err != nil || !bytes.Contains(text, []byte(setting)) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := errors.Join(unix.SchedSetaffinity(hog.Process.Pid, &one),
			unix.SchedSetAttr(hog.Process.Pid, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)); err != nil {
			return fmt.Errorf("hold CPU %d: %w", cpu, err)
		}
		// Less than the 950 ms of a second that Linux gives such a process.
		time.Sleep(600 * time.Millisecond)
		return nil
	}
	return fmt.Errorf("hold CPU %d: %s did not take %s within %v", cpu, device, setting, most)
}
