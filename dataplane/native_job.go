package dataplane

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"gradnic/aggregation"
	"gradnic/aggregation/recovery"
	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// ProtocolNative is gradnic's own protocol, docs/protocol.md.
const ProtocolNative = "native"

// Limits and defaults of native jobs.
const (
	MaxNativeWorkers = native.MaxWorkers
	MaxNativeSlots   = native.MaxSlots
	// MaxPoolBytes is the most memory of a job's slots on one lane.
	MaxPoolBytes = 1 << 30
	// DefaultDeadline is how long a round waits for a worker before the job is aborted.
	DefaultDeadline = 10 * time.Second
)

// NativeSpec is what a job of the native protocol has beside the rest. The zero value sums int32 as they arrive, wrapping.
type NativeSpec struct {
	// ID is the job's number on the wire; 0 takes the lowest free one from 1.
	ID     uint16             `json:"id"`
	Type   aggregation.Type   `json:"type"`
	Op     aggregation.Op     `json:"op"`
	Order  aggregation.Order  `json:"order"`
	Policy aggregation.Policy `json:"policy"`
	// Codec and Result name what contributions and results of float32 are compressed by, as codec.ByName has them; "none"
	// is plain. An empty Codec is none; an empty Result is Codec, or for top-k what holds every sum of such contributions.
	// setDefaults writes out what that is.
	Codec  string `json:"codec"`
	Result string `json:"result_codec"`
	// Deadline is how long a round may wait for a worker before the job is aborted and all are told; 0 means
	// DefaultDeadline, negative for ever. It is kept to the millisecond.
	Deadline time.Duration `json:"deadline"`
	// Keys, one a rank, have messages in both directions tagged (docs/protocol.md); none: messages have no tags, and those
	// that have are dropped.
	Keys []native.Key `json:"keys,omitempty"`
}

// NativeStatus is where a native job stands.
type NativeStatus struct {
	Epoch uint32 `json:"epoch"`
	// State is forming, ready, out-of-step or aborted. Ranks are those that have not reported, or that are to blame.
	State string `json:"state"`
	Ranks []int  `json:"ranks"`
}

var stateNames = [...]string{recovery.Forming: "forming", recovery.Ready: "ready", recovery.OutOfStep: "out-of-step", recovery.Aborted: "aborted"}

// nativeRoom is the most bytes of values in a frame. n.mu is held.
func (n *NIC) nativeRoom() int {
	if n.state == ready {
		_ = n.measure() // Start asks the netdevs again, and says what is wrong with them
	}
	return n.longest - native.ValuesOffset
}

// setNativeDefaults checks what a native job has of its own.
func (s *JobSpec) setNativeDefaults() error {
	if s.Native == nil {
		s.Native = &NativeSpec{}
	}
	c := *s.Native
	s.Native = &c
	if c.Deadline == 0 {
		s.Native.Deadline = DefaultDeadline
	}
	if s.Workers < 1 || s.Workers > MaxNativeWorkers {
		return fmt.Errorf("%d workers: legal are 1 to %d", s.Workers, MaxNativeWorkers)
	}
	if s.Elements < 1 {
		return fmt.Errorf("%d elements a frame: legal are 1 and up", s.Elements)
	}
	if _, _, err := c.Codecs(s.Workers, s.Elements); err != nil {
		return err
	}
	s.Native.NameCodecs(s.Workers, s.Elements)
	if err := s.checkTags(); err != nil {
		return err
	}
	if s.Slots == 0 {
		s.Slots = DefaultSlots
	}
	if s.Slots < 1 || s.Slots > MaxNativeSlots {
		return fmt.Errorf("%d slots: legal are 1 to %d", s.Slots, MaxNativeSlots)
	}
	if m := s.Multicast; m != nil {
		if m.IP[0]>>4 != 14 {
			return fmt.Errorf("multicast address %v: legal are 224.0.0.0 to 239.255.255.255", m.IP)
		}
		g := *m
		if g.MAC.IsZero() {
			g.MAC = native.GroupMAC(g.IP)
		}
		if g.Port == 0 {
			g.Port = native.Port
		}
		if !g.MAC.IsMulticast() {
			return fmt.Errorf("multicast address %v: not a group's", g.MAC)
		}
		s.Multicast = &g
	}
	return nil
}

// admitNative checks a native job against the NIC, and gives it a number. n.mu is held.
func (n *NIC) admitNative(s *JobSpec) error {
	spec := n.poolSpec(s)
	if err := spec.Validate(); err != nil {
		return err
	}
	if room, most := n.nativeRoom(), max(spec.WireBytes(), spec.ResultBytes())+s.Native.TagBytes(); most > room {
		return fmt.Errorf("%d elements of %v are up to %d bytes: the longest frame of %d bytes takes %d", s.Elements, s.Native.Type, most, n.longest, room)
	}
	if b := spec.Bytes(); b > MaxPoolBytes {
		return fmt.Errorf("%d slots of %d elements of %v for %d workers take %d bytes a lane: the limit is %d", s.Slots, s.Elements, s.Native.Type, s.Workers, b, MaxPoolBytes)
	}
	used := map[uint16]string{}
	for _, j := range n.jobs {
		if j.spec.Native != nil {
			used[j.spec.Native.ID] = j.spec.Name
		}
	}
	if id := s.Native.ID; id != 0 {
		if other, ok := used[id]; ok {
			return fmt.Errorf("native number %d is job %s already: %w", id, other, ErrJobExists)
		}
		return nil
	}
	for id := 1; id < 1<<16; id++ {
		if _, ok := used[uint16(id)]; !ok {
			s.Native.ID = uint16(id)
			return nil
		}
	}
	return conflictf("no native number is free: other jobs have them all")
}

// laneNative is what a lane knows of a native job beside its laneJob. Group and state are made by lane 0 and handed to
// the others.
type laneNative struct {
	id       uint16
	typ      native.Type
	elements int
	values   int   // bytes of a contribution; with a codec the most
	results  int   // and of a result
	deadline int64 // ns, 0 for ever
	notice   native.NoticeBody
	codec    uint8  // wire ids, 0 for none
	result   uint8  // as codec, of results
	coded    bool   // there is a codec: results are made in whole
	whole    []byte // room for the frame of a result that is not made in the frame of a contribution

	tags *laneTags // nil: messages have none

	nativeState
	wanted   []uint32 // by own slot: the round that is wanted, if isWanted
	wants    []bool
	asked    int // requests for results so far
	late     []byte
	since    int64 // when this state began; -1 before the first message
	returned bool  // lane 0: in this state a worker has come that others do not wait for in vain: it has been in the job before

	lead *lead // lane 0 only
}

// nativeState is where the job stands, as all lanes are told.
type nativeState struct {
	epoch     uint32
	reply     recovery.Reply
	formation *recovery.Formation
	ranks     []byte // bitmap of those that are missing or to blame
}

// lead is what lane 0 knows: who the workers are, and what they reported.
type lead struct {
	co    *recovery.Coordinator
	given []bool // ranks whose station the job's specification names
	said  int64  // when the log last said that two stations ask for one rank
}

func randomEpoch() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return binary.BigEndian.Uint32(b[:])
}

// newLaneNative makes a lane's share of a native job.
func (n *NIC) newLaneNative(s *JobSpec, lane int, co *recovery.Coordinator) *laneNative {
	spec := n.poolSpec(s)
	x := &laneNative{
		id: s.Native.ID, typ: native.Type(s.Native.Type), elements: s.Elements, values: spec.WireBytes(), results: spec.ResultBytes(),
		deadline: max(int64(s.Native.Deadline), 0),
		notice: native.NoticeBody{
			Op: uint8(s.Native.Op), Order: uint8(s.Native.Order), Policy: uint8(s.Native.Policy),
			Workers: uint16(s.Workers), Elements: uint16(s.Elements), Slots: uint32(s.Slots),
			Deadline: uint32(max(s.Native.Deadline, 0) / time.Millisecond),
		},
		wanted: make([]uint32, spec.Slots), wants: make([]bool, spec.Slots),
		late:  make([]byte, 0, native.MaxWorkers/8),
		since: -1,
	}
	x.tags = newLaneTags(s.Native.Keys, lane)
	x.whole = make([]byte, native.FrameLen(x.results+native.TrailerLen))
	if spec.HasCodec() {
		x.setCodecs(&spec)
	}
	if m := s.Multicast; m != nil {
		x.notice.Group, x.notice.GroupPort = m.IP, m.Port
	}
	x.nativeState = stateOf(co, s.Workers)
	if lane == 0 {
		x.lead = &lead{co: co, given: make([]bool, s.Workers)}
		for _, m := range s.Members {
			if m.Rank >= 0 && m.Rank < s.Workers {
				x.lead.given[m.Rank] = true
			}
		}
	}
	return x
}

// stateOf is what the lanes are to know of a coordinator.
func stateOf(co *recovery.Coordinator, workers int) nativeState {
	ranks := co.Blamed()
	if co.State() == recovery.Forming {
		ranks = co.Missing()
	}
	return nativeState{epoch: co.Epoch(), reply: co.Reply(), formation: co.Formation(), ranks: bitmapOf(ranks, workers)}
}

func bitmapOf(ranks []int, workers int) []byte {
	if len(ranks) == 0 {
		return nil
	}
	b := make([]byte, (workers+7)/8)
	for _, r := range ranks {
		b[r>>3] |= 1 << (r & 7)
	}
	return b
}

// spreadGroup sets the copies of a result of a job that sends one multicast frame a port.
func (j *laneJob) spreadGroup(m *MulticastSpec) {
	if len(m.Ports) > 0 {
		return // they are given
	}
	j.copies = nil
	seen := map[int]bool{}
	for _, c := range j.group.Copies() {
		if !seen[c.Port] {
			seen[c.Port] = true
			j.copies = append(j.copies, multicast.Copy{Rank: -1, Port: c.Port, MAC: m.MAC, IP: m.IP, UDPPort: m.Port})
		}
	}
	j.receivers = len(j.copies)
}

// nativeStatus asks lane 0, on its thread.
func (j *laneJob) nativeStatus() *NativeStatus {
	co := j.native.lead.co
	s := &NativeStatus{Epoch: co.Epoch(), State: stateNames[co.State()], Ranks: co.Blamed()}
	if co.State() == recovery.Forming {
		s.Ranks = co.Missing()
	}
	if s.Ranks == nil {
		s.Ranks = []int{}
	}
	return s
}

// station is where a worker's frames come from.
func (l *lane) station(i int) (mac inet.MAC, ip inet.Addr, port int, udp uint16) {
	p := &l.batch.pkt[i]
	return p.Src, p.SrcIP, int(l.batch.port[i]), p.SrcPort
}
