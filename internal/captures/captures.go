// Package captures reads the recorded traffic of the public SwitchML client in
// testdata/switchml, for tests. The files are described in README.md there.
package captures

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/wire/inet"
)

// Workers is the number of workers in each capture.
const Workers = 2

// SwitchMAC is the switch's Ethernet address in the recorded session.
func SwitchMAC() inet.MAC { return inet.MAC{0x06, 0, 0, 0, 0, 0xfe} }

// SwitchIP is the switch's IPv4 address.
func SwitchIP() inet.Addr { return inet.Addr{10, 50, 0, 254} }

// WorkerMAC is the Ethernet address of worker rank.
func WorkerMAC(rank int) inet.MAC { return inet.MAC{0x02, 0, 0, 0, 0x01, byte(rank)} }

// WorkerIP is the IPv4 address of worker rank.
func WorkerIP(rank int) inet.Addr { return inet.Addr{10, 50, 0, byte(rank + 1)} }

// Step is one recorded frame.
type Step struct {
	Time    time.Time
	Worker  int    // the rank on whose port it was recorded
	Frame   []byte // Ethernet without the frame check sequence
	Request bool   // sent by the worker; otherwise a reply to it
}

// Load reads the captures of both workers with 64 or 256 elements a packet and
// merges them in time order.
func Load(elements int) ([]Step, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	var steps []Step
	for rank := range Workers {
		s, err := read(filepath.Join(dir, fmt.Sprintf("hello-%del-w%d.pcap", elements, rank)), rank)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s...)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.Time.Compare(b.Time) })
	return steps, nil
}

// Dir is the folder of the captures. It is found from the working directory
// upwards, which for a test is its package's folder.
func Dir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find captures: %w", err)
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "testdata", "switchml"), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find captures: no go.mod above %s", wd)
		}
	}
}

func read(path string, rank int) ([]Step, error) {
	var steps []Step
	err := packets(path, func(frame []byte, ci gopacket.CaptureInfo) error {
		if ci.CaptureLength != ci.Length || len(frame) < inet.EthernetLen {
			return fmt.Errorf("%d of %d bytes were recorded", ci.CaptureLength, ci.Length)
		}
		steps = append(steps, Step{
			Time: ci.Timestamp, Worker: rank, Frame: frame,
			Request: inet.MAC(frame[6:12]) == WorkerMAC(rank),
		})
		return nil
	})
	return steps, err
}

// packets gives each packet of a capture to f.
func packets(path string, f func(frame []byte, ci gopacket.CaptureInfo) error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read capture: %w", err)
	}
	defer file.Close()
	r, err := pcapgo.NewReader(file)
	if err != nil {
		return fmt.Errorf("read capture %s: %w", path, err)
	}
	for n := 1; ; n++ {
		frame, ci, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f(frame, ci)
		}
		if err != nil {
			return fmt.Errorf("read capture %s, frame %d: %w", path, n, err)
		}
	}
}
