package interop

import (
	"fmt"
	"os"
	"time"

	"gradnic/wire/inet"
)

// Options say how a suite is run. The zero value is the documented one.
type Options struct {
	// Elements is the number of values of a packet; 0 means 64.
	Elements int
	// Slots is how many slots the card has for the job; 0 means 128.
	Slots int
	// NIC is the card's address; zero means 06:00:00:00:00:fe, 10.50.0.254.
	NIC Station
	// Workers are the stations; the kit plays all of them. Empty means two, DefaultWorker(0) and (1).
	Workers []Station
	// Longest is the longest frame that an exec target takes; 0: any. An interface knows its own.
	Longest int
	// Timeout is how long an answer may take; 0 means a second on an interface, 30 s on a pipe.
	Timeout time.Duration
	// Quiet is how long nothing must come from an interface before nothing more is expected; 0 means 10 ms.
	Quiet time.Duration
	// Layout, if set, is the layout that frames have instead of the suite's own: a shipped one's name or a file.
	Layout string
	// Call is a shell command that has the card on an interface make a case's call, which is in its environment as
	// ACCL_COLLECTIVE or RING_COUNT and so on; it ends when the call has, with status 77 when the card cannot make it.
	Call string
	// Captures is the folder of recorded packets; empty: cases that need them are unsupported.
	Captures string
	// Only, if set, are the names of the cases to run.
	Only []string
	// Keep is the folder that gets a capture of each case that fails; empty: none. KeepAll: of every case.
	Keep    string
	KeepAll bool
}

// DefaultWorker is worker r's usual station.
func DefaultWorker(r int) Station {
	return Station{MAC: inet.MAC{2, 0, 0, 0, 1, byte(r)}, IP: inet.Addr{10, 50, 0, byte(r + 1)}, Port: 4000}
}

func (o *Options) setDefaults() error {
	if o.Elements == 0 {
		o.Elements = 64
	}
	if o.Slots == 0 {
		o.Slots = 128
	}
	if o.NIC.MAC.IsZero() {
		o.NIC.MAC = inet.MAC{6, 0, 0, 0, 0, 0xfe}
	}
	if o.NIC.IP.IsZero() {
		o.NIC.IP = inet.Addr{10, 50, 0, 254}
	}
	if len(o.Workers) == 0 {
		o.Workers = []Station{DefaultWorker(0), DefaultWorker(1)}
	}
	if o.Quiet == 0 {
		o.Quiet = 10 * time.Millisecond
	}
	if o.Elements < 1 || o.Slots < 1 {
		return fmt.Errorf("interop: %d elements, %d slots: numbers from 1", o.Elements, o.Slots)
	}
	if o.Quiet < 0 || o.Timeout < 0 || o.Longest < 0 {
		return fmt.Errorf("interop: timeout %v, quiet %v, longest frame %d: none may be negative", o.Timeout, o.Quiet, o.Longest)
	}
	for r := range o.Workers {
		if w := o.worker(r); w.IP == o.NIC.IP || w.MAC == o.NIC.MAC {
			return fmt.Errorf("interop: the card is %v, %v, and worker %d is %v, %v: each has addresses of its own", o.NIC.MAC, o.NIC.IP, r, w.MAC, w.IP)
		}
	}
	if o.Captures != "" {
		// A folder that was meant and is not there would make its cases unsupported, which is no failure.
		if info, err := os.Stat(o.Captures); err != nil {
			return fmt.Errorf("interop: folder of recorded packets: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("interop: folder of recorded packets: %s is no folder", o.Captures)
		}
	}
	return nil
}

func (o *Options) workers() int { return len(o.Workers) }

func (o *Options) worker(r int) Station { return o.Workers[r] }
