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
	"regexp"
	"strings"
	"testing"
)

var scriptLine = regexp.MustCompile(`^pg (\S+) (?:'([^']*)'|(\w+))(.*)$`)

// The script of `gradnic pktgen script`, command by command, drives the kernel's generator against `gradnic bench device`, which
// finds every frame: none lost, none late, none twice, over two runs whose numbers begin anew.
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
	ran := 0
	for line := range strings.Lines(string(script)) {
		m := scriptLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		ran++
		if err := pktgen(m[1], m[2]+m[3]); err != nil && !strings.Contains(m[4], "|| true") {
			t.Fatal(err)
		}
	}
	if ran < 20 {
		t.Fatalf("%d commands in %s", ran, script)
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
