// Package doctor looks at a machine and says what it lacks to run the NIC well, with the command that mends it.
//
// It changes nothing: what a driver can is asked of the kernel (the netdev family of generic netlink, from Linux 6.3
// on). Only where the kernel does not tell, the interface was named and no program is on it, is zero-copy tried.
package doctor

import (
	"fmt"
	"strings"
)

// Status is how a check ended.
type Status string

// The ends.
const (
	OK      Status = "ok"
	Advice  Status = "advice"  // it works, and would work better
	Missing Status = "missing" // it does not work
)

// Machine is the subject of checks that are about no interface.
const Machine = "machine"

// Check is one thing that was looked at.
type Check struct {
	Subject string `json:"subject"` // Machine, or the interface
	Name    string `json:"check"`
	Status  Status `json:"status"`
	Found   string `json:"found"`
	Why     string `json:"why,omitempty"`  // why that is not well
	Mend    string `json:"mend,omitempty"` // the command that mends it; empty: nothing is to be mended, or no command can
}

// Report is all checks.
type Report struct {
	OK     bool    `json:"ok"` // nothing is missing
	Checks []Check `json:"checks"`
}

// Options say what the machine is to run.
type Options struct {
	// Interfaces are looked at in earnest. None: all Ethernet interfaces are, and what they lack is advice.
	Interfaces []string
	// Lanes, ChunkSize and Frames (a queue) are as for gradnic run; 0 means 1, 2048 and 2048.
	Lanes, ChunkSize, Frames int
	// HugePages is true when the memory is to be from huge pages.
	HugePages bool
}

func (o *Options) setDefaults() error {
	if o.Lanes == 0 {
		o.Lanes = 1
	}
	if o.ChunkSize == 0 {
		o.ChunkSize = 2048
	}
	if o.Frames == 0 {
		o.Frames = 2048
	}
	if o.Lanes < 1 || o.Frames < 1 || o.ChunkSize != 2048 && o.ChunkSize != 4096 {
		return fmt.Errorf("%d lanes, %d frames of %d bytes: legal are 1 and more lanes and frames, and frames of 2048 or 4096 bytes", o.Lanes, o.Frames, o.ChunkSize)
	}
	return nil
}

// memory is what the frames take in bytes, for ports of so many queues: as package dataplane deals them out. Each lane
// has the chunks of its queues, some for the frames in its hands, and those that wait for other lanes.
func (o *Options) memory(queues []int) uint64 {
	const inHand, delayed = 128, 64 // of a lane; of a lane and port
	perLane := inHand + delayed*len(queues)
	for _, q := range queues {
		perLane += (max(1, q) + o.Lanes - 1) / o.Lanes * o.Frames
	}
	if o.Lanes > 1 {
		perLane += o.Frames
	}
	return uint64(perLane) * uint64(o.Lanes) * uint64(o.ChunkSize)
}

// Examine looks at the machine and its interfaces, in the calling thread's network namespace. An interface that is
// not there is a check that is missing; an error is a wrong option.
func Examine(o Options) (Report, error) {
	if err := o.setDefaults(); err != nil {
		return Report{}, err
	}
	named := len(o.Interfaces) > 0
	interfaces := o.Interfaces
	var r Report
	if !named {
		var err error
		if interfaces, err = ethernets(); err != nil {
			r.add(Check{Machine, "interfaces", Missing, err.Error(), "", ""})
		}
	}
	k := kernelNow()
	var queues []int // of the interfaces that the NIC is to run on
	var found []Check
	for _, name := range interfaces {
		checks, n := examineInterface(&o, k, name)
		if named {
			queues = append(queues, n)
		}
		for i := range checks {
			if !named && checks[i].Status == Missing {
				checks[i].Status = Advice
			}
		}
		found = append(found, checks...)
	}
	if !named {
		queues = []int{o.Lanes}
	}
	r.add(machine(&o, k, o.memory(queues))...)
	r.add(found...)
	if !named && len(interfaces) == 0 {
		r.add(Check{Machine, "interfaces", Advice, "no Ethernet interface", "there is nothing to run on here", "ip link"})
	}
	r.OK = true
	for i := range r.Checks {
		r.OK = r.OK && r.Checks[i].Status != Missing
	}
	return r, nil
}

func (r *Report) add(c ...Check) { r.Checks = append(r.Checks, c...) }

// Text is the report for people: a line a check, and below those that are not ok why, and the command.
func (r *Report) Text() string {
	var b strings.Builder
	wide := 0
	for i := range r.Checks {
		wide = max(wide, len(r.Checks[i].Subject)+1+len(r.Checks[i].Name))
	}
	missing, advice := 0, 0
	for i := range r.Checks {
		c := &r.Checks[i]
		fmt.Fprintf(&b, "%-7s  %-*s  %s\n", c.Status, wide, c.Subject+" "+c.Name, c.Found)
		switch c.Status {
		case OK:
			continue
		case Missing:
			missing++
		case Advice:
			advice++
		}
		if c.Why != "" {
			fmt.Fprintf(&b, "%9s%s\n", "", c.Why)
		}
		if c.Mend != "" {
			fmt.Fprintf(&b, "%9smend: %s\n", "", c.Mend)
		}
	}
	verdict := "nothing is missing"
	if missing > 0 {
		verdict = fmt.Sprintf("%d missing", missing)
	}
	if advice > 0 {
		verdict += fmt.Sprintf(", %d to be better", advice)
	}
	fmt.Fprintln(&b, verdict)
	return b.String()
}
