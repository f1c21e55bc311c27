package dataplane

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/internal/sequence"
	"gradnic/wire/inet"
	"gradnic/wire/pktgen"
	"gradnic/xdp"
)

// PktgenStreams is how many senders a port's account tells apart; frames of further ones are only counted.
const PktgenStreams = 16

// pktgenLongest bounds the latencies that are kept, in ns.
const pktgenLongest = int64(10e9)

// PktgenSnapshot is what a port's sink or reflect function has seen of the kernel's packet generator, over all lanes, or
// over all CPUs when the function runs in the kernel. There latencies are right to 2 %, and end in the driver.
type PktgenSnapshot struct {
	Frames uint64 `json:"frames"` // of pktgen
	Other  uint64 `json:"other"`  // that are not
	// Streams are the senders, told apart by their source addresses.
	Streams []PktgenStream `json:"streams"`
	// Untracked are frames of senders beyond PktgenStreams.
	Untracked uint64 `json:"untracked"`
	// Latency in us from the generator's time of day to ours: on one machine the way, on two with the difference of
	// their clocks. Nil when nothing was stamped. P99 is 0 with fewer than 1,000 samples, P999 with fewer than 10,000.
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
	P99     float64 `json:"p99_us,omitempty"`
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

// pktgenPart is the account of one lane, or of one CPU on which the steering program ran.
type pktgenPart struct {
	frames, other, untracked uint64
	streams                  []pktgenPartStream
	latency                  *hdrhistogram.Histogram
}

// pktgenPartStream is one sender: its address and its runs that are over, and the counts of the run that is not.
type pktgenPartStream struct {
	past   PktgenStream
	counts sequence.Counts
}

func (a *pktgenAccount) part() pktgenPart {
	p := pktgenPart{frames: a.frames, other: a.other, untracked: a.untracked, latency: hdrhistogram.Import(a.latency.Export())}
	for i, key := range a.keys {
		if key == 0 {
			break
		}
		past := a.past[i]
		past.MAC, past.IP = a.macs[i], inet.AddrFromUint32(uint32(key>>32))
		p.streams = append(p.streams, pktgenPartStream{past, a.streams[i].Counts()})
	}
	return p
}

// partOf is the account of a CPU as the steering program keeps it.
func partOf(a *xdp.Account) pktgenPart {
	p := pktgenPart{frames: a.Frames, other: a.Other, untracked: a.Untracked, latency: hdrhistogram.New(1, pktgenLongest, 3)}
	for i := range a.Streams {
		x := &a.Streams[i]
		p.streams = append(p.streams, pktgenPartStream{
			past: PktgenStream{
				MAC: x.MAC, IP: x.IP, Unique: x.Past.Unique, Lost: x.Past.Lost, Duplicates: x.Past.Duplicates, Reordered: x.Past.Reordered,
			},
			counts: sequence.Counts{
				First: x.First, Next: x.Next, Unique: x.Unique, Duplicates: x.Duplicates, Reordered: x.Reordered, Ancient: x.Ancient,
			},
		})
	}
	for _, l := range a.Latency {
		// Within the histogram's bounds a value is always taken.
		_ = p.latency.RecordValues(min(max(int64(l.Latency), 1), pktgenLongest), int64(l.Packets))
	}
	return p
}

// Pktgen returns what a port's function has seen of pktgen since it was set with Function.Pktgen.
func (n *NIC) Pktgen(portName string) (PktgenSnapshot, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	i, ok := n.PortIndex(portName)
	if !ok {
		return PktgenSnapshot{}, fmt.Errorf("no port %s", portName)
	}
	p := n.ports[i]
	if !p.function.Pktgen {
		return PktgenSnapshot{}, fmt.Errorf("port %s: its function %v does not account for pktgen's frames", portName, p.function)
	}
	var parts []pktgenPart
	if p.function.InKernel {
		if p.open == nil || p.open.accounts == nil {
			return PktgenSnapshot{}, fmt.Errorf("port %s: not open", portName)
		}
		accounts, err := p.open.accounts()
		if err != nil {
			return PktgenSnapshot{}, fmt.Errorf("port %s: %w", portName, err)
		}
		for k := range accounts {
			parts = append(parts, partOf(&accounts[k]))
		}
	} else {
		parts = make([]pktgenPart, len(n.lanes))
		// Each lane copies its own account; they are added up here.
		n.onLanes(func(l *lane) { parts[l.id] = l.ports[i].pktgen.part() })
	}
	return pktgenSum(parts), nil
}

// pktgenSum adds accounts up: a sender may have come to several lanes.
func pktgenSum(parts []pktgenPart) (s PktgenSnapshot) {
	type sender struct {
		mac inet.MAC
		ip  inet.Addr
	}
	var (
		all     []pktgenPartStream
		index   = map[sender]int{}
		latency = hdrhistogram.New(1, pktgenLongest, 3)
	)
	s.Streams = []PktgenStream{} // an empty list in JSON, not null
	for k := range parts {
		p := &parts[k]
		s.Frames, s.Other, s.Untracked = s.Frames+p.frames, s.Other+p.other, s.Untracked+p.untracked
		latency.Merge(p.latency)
		for _, x := range p.streams {
			at, known := index[sender{x.past.MAC, x.past.IP}]
			if !known {
				index[sender{x.past.MAC, x.past.IP}] = len(all)
				all = append(all, x)
				continue
			}
			y := &all[at]
			y.counts = y.counts.Merge(x.counts)
			y.past.Unique, y.past.Lost = y.past.Unique+x.past.Unique, y.past.Lost+x.past.Lost
			y.past.Duplicates, y.past.Reordered = y.past.Duplicates+x.past.Duplicates, y.past.Reordered+x.past.Reordered
		}
	}
	for _, x := range all {
		x.past.add(x.counts)
		s.Streams = append(s.Streams, x.past)
	}
	if samples := latency.TotalCount(); samples > 0 {
		us := func(q float64) float64 { return float64(latency.ValueAtQuantile(q)) / 1e3 }
		s.Latency = &PktgenLatency{Samples: samples, P50: us(50), Max: float64(latency.Max()) / 1e3}
		if samples >= 1_000 {
			s.Latency.P99 = us(99)
		}
		if samples >= 10_000 {
			s.Latency.P999 = us(99.9)
		}
	}
	return s
}
