package dataplane

import (
	"errors"
	"fmt"
	"time"

	"gradnic/wire/inet"
)

// ProtocolSwitchML is SwitchML's UDP protocol, the default of JobSpec.Protocol.
const ProtocolSwitchML = "switchml"

// Limits of a job. The P4 program has 32 workers (one bitmap word; 16 at 256 elements, since the folded pipe's table
// has entries for 16) and registers for 8192 slots of the 14 bits that the wire has. Here 256 elements take 32
// workers as well.
const (
	MaxWorkers   = 32
	MaxSlots     = 8192
	DefaultSlots = 512
)

// WorkerSpec is one worker of a job.
type WorkerSpec struct {
	// Rank is 0 to JobSpec.Workers-1.
	Rank int `json:"rank"`
	// MAC and IP are the source of the worker's frames. A pair belongs to one worker of one job.
	MAC inet.MAC  `json:"mac"`
	IP  inet.Addr `json:"ip"`
	// Port is the index of the NIC's port that results leave by; -1 takes the port of the worker's first frame.
	Port int `json:"port"`
}

// JobSpec is a job: workers that reduce together, and the slots they may use.
type JobSpec struct {
	Name     string `json:"name"`
	Tenant   string `json:"tenant,omitempty"`
	Protocol string `json:"protocol"` // "" means switchml
	// Workers is the number of workers, 1 to MaxWorkers, or to MaxNativeWorkers.
	Workers int `json:"workers"`
	// Elements is the number of values a frame carries: 64 or 256 for switchml, what a chunk takes for native.
	Elements int `json:"elements"`
	// Slots is the number of slots, 1 to MaxSlots, each in two sets; 0 means DefaultSlots.
	Slots int `json:"slots"`
	// Members are the workers known from the start; AddWorker adds others. A native job learns those that are
	// not given from their reports.
	Members []WorkerSpec `json:"members"`
	// Multicast, if set, sends one frame a port for each result instead of one a worker. Workers that ask again
	// for a result still get it alone.
	Multicast *MulticastSpec `json:"multicast,omitempty"`
	// Layout is the name of a header in Config.Layouts that the job's frames have instead of the protocol's own.
	Layout string `json:"layout,omitempty"`
	// Native is for protocol native; nil means its zero value.
	Native *NativeSpec `json:"native,omitempty"`
	// InKernel has the steering programs of the ports add up what the workers send, where a frame arrives (xdp.Sums), and
	// only frames that have a result to tell come to a lane: one in Workers. For protocol switchml without a layout, on a NIC
	// whose ports are all netdevs, with members whose ports are known. Frames that are only added up are in no lane's counters
	// and captures: PortSnapshot.Steering and JobStatus count them. Impairments of ports are refused beside it.
	InKernel bool `json:"in_kernel,omitempty"`
}

// MulticastSpec is where the one frame for all workers of a port goes.
type MulticastSpec struct {
	MAC inet.MAC  `json:"mac"`
	IP  inet.Addr `json:"ip"`
	// Port is the UDP destination port; 0 takes the source port of the message that completed the slot, or for
	// native the protocol's own.
	Port uint16 `json:"port"`
	// Ports are the indices of the NIC's ports, one frame each. Empty means, for native, those with members.
	Ports []int `json:"ports"`
}

func (s *JobSpec) setDefaults() error {
	if s.Name == "" {
		return errors.New("it has no name")
	}
	if s.Protocol == "" {
		s.Protocol = ProtocolSwitchML
	}
	if s.Protocol == ProtocolNative {
		return s.setNativeDefaults()
	}
	if s.Protocol != ProtocolSwitchML {
		return fmt.Errorf("protocol %q: legal are %s and %s", s.Protocol, ProtocolSwitchML, ProtocolNative)
	}
	if s.Native != nil {
		return fmt.Errorf("protocol %s has no native part", s.Protocol)
	}
	if s.Workers < 1 || s.Workers > MaxWorkers {
		return fmt.Errorf("%d workers: legal are 1 to %d", s.Workers, MaxWorkers)
	}
	if s.Elements != 64 && s.Elements != 256 {
		return fmt.Errorf("%d elements a frame: legal are 64 and 256", s.Elements)
	}
	if s.Slots == 0 {
		s.Slots = DefaultSlots
	}
	if s.Slots < 1 || s.Slots > MaxSlots {
		return fmt.Errorf("%d slots: legal are 1 to %d", s.Slots, MaxSlots)
	}
	return nil
}

// WorkerStatus is what the NIC knows of one rank of a job.
type WorkerStatus struct {
	Rank int       `json:"rank"`
	MAC  inet.MAC  `json:"mac"`
	IP   inet.Addr `json:"ip"`
	// Port is the index of its port, -1 as long as it is not known.
	Port int `json:"port"`
	// Known is true when the rank was given or added; Joined when a frame of it arrived.
	Known  bool `json:"known"`
	Joined bool `json:"joined"`
	// Received is the number of its frames that matched; Contributed and Duplicates are their verdicts.
	Received    uint64 `json:"rx"`
	Contributed uint64 `json:"contributed"`
	Duplicates  uint64 `json:"duplicates"`
	// Sent is the number of results posted to it.
	Sent uint64 `json:"tx"`
	// Resent is the number of results that were sent to it again, as it asked for them.
	Resent uint64 `json:"resent"`
	// Last is the number of slots for which it was the last to come: that the others waited for.
	Last uint64 `json:"last"`
	// MissingSince is when the oldest unfinished slot that waits for it began; zero: none does.
	MissingSince time.Time `json:"missing_since,omitzero"`
	// LastSeen is when its last frame arrived, to the batch; zero for never.
	LastSeen time.Time `json:"last_seen,omitzero"`
}

// SlotStatus counts the slots of a job. A slot counts for each of its two sets.
type SlotStatus struct {
	Total    int `json:"total"`    // slots times sets
	InUse    int `json:"in_use"`   // with at least one contribution
	Complete int `json:"complete"` // with all contributions
	Waiting  int `json:"waiting"`  // with some but not all
}

// JobStatus is a job and how far it is.
type JobStatus struct {
	JobSpec
	Status []WorkerStatus `json:"status"` // by rank, one for each of Workers
	Use    SlotStatus     `json:"slot_status"`
	// Missing are the ranks that unfinished slots wait for, and those that never came; in order.
	Missing []int `json:"missing"`
	// Results, Resent and Wrapped are the job's share of the counters of the same name.
	Results uint64 `json:"results"`
	Resent  uint64 `json:"resent"`
	Wrapped uint64 `json:"wrapped"`
	// Times says how long slots took.
	Times Completions `json:"times"`
	// State is there for native jobs.
	State *NativeStatus `json:"state,omitempty"`
}
