package dataplane

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/internal/sequence"
	"gradnic/wire/inet"
	"gradnic/wire/pktgen"
)

// PktgenStreams is how many senders a port's account tells apart; frames of further ones are only counted.
const PktgenStreams = 16

// pktgenLongest bounds the latencies that are kept, in ns.
const pktgenLongest = int64(10e9)

// PktgenSnapshot is what a port's sink or reflect function has seen of the kernel's packet generator, over all lanes.
type PktgenSnapshot struct {
	Frames uint64 `json:"frames"` // of pktgen
	Other  uint64 `json:"other"`  // that are not
	// Streams are the senders, told apart by source address.
	Streams []PktgenStream `json:"streams"`
	// Untracked are frames of senders beyond PktgenStreams.
	Untracked uint64 `json:"untracked"`
	// Latency in us from the generator's time of day to ours: on one machine the way, on two with the difference of
	// their clocks. Nil when nothing was stamped. P999 is 0 with fewer than 10,000 samples.
	Latency *PktgenLatency `json:"latency,omitempty"`
}

// PktgenStream is one sender, over all its runs: numbers begin anew when a run begins. With several lanes what was lost in a
// run that is over counts by lane, so several runs should go through one lane.
type PktgenStream struct {
	MAC        inet.MAC  `json:"mac"`
	IP         inet.Addr `json:"ip"`
	Unique     uint64    `json:"unique"` // numbers that came
	Lost       uint64    `json:"lost"`   // numbers between the lowest and the highest that did not
	Duplicates uint64    `json:"duplicates"`
	Reordered  uint64    `json:"reordered"`
}

// PktgenLatency are percentiles in us.
type PktgenLatency struct {
	Samples int64   `json:"samples"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p99.9_us,omitempty"`
	Max     float64 `json:"max_us"`
}

// pktgenAccount is one lane's account of a port.
type pktgenAccount struct {
	frames, other, untracked uint64
	keys                     [PktgenStreams]uint64 // source IP and the lower half of the MAC; 0: free
	macs                     [PktgenStreams]inet.MAC
	streams                  [PktgenStreams]*sequence.Tracker
	past                     [PktgenStreams]PktgenStream // of runs that ended
	newest                   [PktgenStreams]int64        // the latest stamp of the run
	latency                  *hdrhistogram.Histogram
}

func newPktgenAccount() *pktgenAccount {
	a := &pktgenAccount{latency: hdrhistogram.New(1, pktgenLongest, 3)}
	for i := range a.streams {
		a.streams[i] = new(sequence.Tracker)
	}
	return a
}

// pktgenFrames looks at the batch of a port whose function accounts for pktgen's frames.
func (l *lane) pktgenFrames(a *pktgenAccount) {
	b := &l.batch
	now := time.Now().UnixNano()
	for i := range b.n {
		p := &b.pkt[i]
		f := inet.Parse(l.frame(b.desc[i]), p)
		// Of a frame larger than a chunk the first piece ends before the datagram does: the header is there all the same.
		payload := p.Payload
		if f != inet.OK && b.desc[i].Options != 0 {
			if frame := l.frame(b.desc[i]); len(frame) > inet.PayloadOffset+pktgen.HeaderLen {
				payload, f = frame[inet.PayloadOffset:], inet.OK
			}
		}
		h, ok := pktgen.Parse(payload)
		if f != inet.OK || !ok {
			a.other++
			continue
		}
		a.frames++
		a.observe(p, h, now)
	}
}

func (a *pktgenAccount) observe(p *inet.Packet, h pktgen.Header, now int64) {
	key := uint64(p.SrcIP.Uint32())<<32 | p.Src.Uint64()&0xffffffff
	for i := range a.keys {
		if a.keys[i] != key {
			if a.keys[i] != 0 {
				continue
			}
			a.keys[i], a.macs[i] = key, p.Src
		}
		if !h.Time.IsZero() {
			stamp := h.Time.UnixNano()
			// Numbers begin anew with each run of pktgen, and in a run a lower number is never the younger one.
			if stamp > a.newest[i] && a.streams[i].Behind(h.Number) {
				a.past[i].add(a.streams[i].Counts())
				*a.streams[i] = sequence.Tracker{}
			}
			a.newest[i] = max(a.newest[i], stamp)
			// Within the histogram's bounds a value is always taken.
			_ = a.latency.RecordValue(min(max(now-stamp, 1), pktgenLongest))
		}
		a.streams[i].Observe(h.Number)
		return
	}
	a.untracked++
}

// add books a run of the sender that is over.
func (s *PktgenStream) add(c sequence.Counts) {
	s.Unique += c.Unique
	s.Lost += c.Lost()
	s.Duplicates += c.Duplicates
	s.Reordered += c.Reordered
}

// Pktgen returns what a port's function has seen of pktgen since it was set with Function.Pktgen.
func (n *NIC) Pktgen(portName string) (PktgenSnapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.PortIndex(portName)
	if !ok {
		return PktgenSnapshot{}, fmt.Errorf("no port %s", portName)
	}
	if !n.ports[i].function.Pktgen {
		return PktgenSnapshot{}, fmt.Errorf("port %s: its function %v does not account for pktgen's frames", portName, n.ports[i].function)
	}
	type stream struct {
		PktgenStream
		key    uint64
		counts sequence.Counts
	}
	var (
		s       PktgenSnapshot
		parts   = make([]pktgenAccount, len(n.lanes))
		streams = make([][PktgenStreams]sequence.Counts, len(n.lanes))
	)
	// Each lane copies its own account; they are added up here.
	n.onLanes(func(l *lane) {
		a := l.ports[i].pktgen
		parts[l.id] = *a
		parts[l.id].latency = hdrhistogram.Import(a.latency.Export())
		for k, t := range a.streams {
			streams[l.id][k] = t.Counts()
		}
	})
	var all []stream
	latency := hdrhistogram.New(1, pktgenLongest, 3)
	for lane := range parts {
		a := &parts[lane]
		s.Frames, s.Other, s.Untracked = s.Frames+a.frames, s.Other+a.other, s.Untracked+a.untracked
		latency.Merge(a.latency)
	keys:
		for k, key := range a.keys {
			if key == 0 {
				break
			}
			past := &a.past[k]
			for x := range all {
				if s := &all[x]; s.key == key {
					s.counts = s.counts.Merge(streams[lane][k])
					s.Unique, s.Lost = s.Unique+past.Unique, s.Lost+past.Lost
					s.Duplicates, s.Reordered = s.Duplicates+past.Duplicates, s.Reordered+past.Reordered
					continue keys
				}
			}
			first := *past
			first.MAC, first.IP = a.macs[k], inet.AddrFromUint32(uint32(key>>32))
			all = append(all, stream{first, key, streams[lane][k]})
		}
	}
	for _, x := range all {
		x.add(x.counts)
		s.Streams = append(s.Streams, x.PktgenStream)
	}
	if samples := latency.TotalCount(); samples > 0 {
		us := func(q float64) float64 { return float64(latency.ValueAtQuantile(q)) / 1e3 }
		s.Latency = &PktgenLatency{Samples: samples, P50: us(50), P99: us(99), Max: float64(latency.Max()) / 1e3}
		if samples >= 10_000 {
			s.Latency.P999 = us(99.9)
		}
	}
	return s, nil
}
