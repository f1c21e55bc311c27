// Package sink receives what the bench's generators sent, and says what became of it: how much came, what is missing,
// late, twice or damaged, and how long it took. It receives over AF_XDP, one thread a queue, or through UDP sockets.
package sink

import (
	"errors"
	"fmt"

	"github.com/HdrHistogram/hdrhistogram-go"

	"gradnic/bench/flow"
	"gradnic/internal/sequence"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// Streams is how many streams, numbered from 0, an account tells apart.
const Streams = 64

// longestLatency is what a histogram holds, in ns; a longer one counts as that.
const longestLatency = int64(10e9)

// Account is what one thread has received.
type Account struct {
	kind    flow.Kind
	stampAt int
	streams [Streams]*sequence.Tracker
	latency *hdrhistogram.Histogram // nil: not asked for
	Counts
}

// Counts are the counts of an account, or of several.
type Counts struct {
	Frames  uint64 `json:"frames"`  // of the flow, damaged ones too
	Bytes   uint64 `json:"bytes"`   // of them, without FCS
	Damaged uint64 `json:"damaged"` // frames of the flow whose stamp or payload is not as it was sent
	Other   uint64 `json:"other"`   // frames that are not of the flow: other protocols, broken headers
}

// NewAccount makes an account of a flow. With latency the time from a frame's stamp to its receipt is kept; it means
// something on the sender's machine only, whose monotonic clock the stamp has.
func NewAccount(kind flow.Kind, latency bool) *Account {
	return newAccount(&Options{Flow: kind, Latency: latency})
}

func newAccount(o *Options) *Account {
	a := &Account{kind: o.Flow, stampAt: o.StampAt}
	if a.stampAt == 0 {
		a.stampAt = o.Flow.StampAt()
	}
	if o.Latency {
		a.latency = hdrhistogram.New(1, longestLatency, 3)
	}
	return a
}

// Observe takes a frame that came at now (CLOCK_MONOTONIC, ns).
func (a *Account) Observe(frame []byte, now uint64) {
	var p inet.Packet
	if inet.Parse(frame, &p) != inet.OK || p.Proto != inet.ProtoUDP || !a.ours(&p) {
		a.Other++
		return
	}
	a.payload(p.Payload, len(frame), now)
}

// ours tells by the port whether a datagram is of the flow.
func (a *Account) ours(p *inet.Packet) bool {
	switch a.kind {
	case flow.SwitchML:
		return switchml.IsPort(p.DstPort)
	case flow.Native:
		return p.DstPort == native.Port
	case flow.ACCL:
		return p.DstPort == flow.ACCLPort+flow.MaxWorkers
	}
	return p.DstPort == flow.UDPPort
}

// payload takes the payload of a datagram of the flow; frame is the length of its frame.
func (a *Account) payload(b []byte, frame int, now uint64) {
	a.Frames++
	a.Bytes += uint64(frame)
	at := a.stampAt - inet.PayloadOffset
	if len(b) < at {
		a.Damaged++
		return
	}
	s, ok := flow.ReadStamp(b[at:])
	if !ok || s.Stream >= Streams {
		a.Damaged++
		return
	}
	t := a.streams[s.Stream]
	if t == nil {
		t = new(sequence.Tracker)
		a.streams[s.Stream] = t
	}
	t.Observe(s.Number)
	if a.latency != nil {
		// A value within the histogram's bounds is always taken.
		_ = a.latency.RecordValue(min(max(int64(now-s.Time), 1), longestLatency))
	}
}

// Latency is what became of the times, in microseconds. A percentile that needs more samples than there are is absent.
type Latency struct {
	Samples int64    `json:"samples"`
	Min     float64  `json:"min_us"`
	Mean    float64  `json:"mean_us"`
	P50     float64  `json:"p50_us"`
	P90     float64  `json:"p90_us"`
	P99     *float64 `json:"p99_us,omitempty"`   // from 1,000 samples on
	P999    *float64 `json:"p99.9_us,omitempty"` // from 10,000 samples on
	Max     float64  `json:"max_us"`
}

// Samples that a percentile needs: ten beyond it.
const (
	samplesP99  = 1_000
	samplesP999 = 10_000
)

// Summarise reads the percentiles that the number of samples allows; nil when there is none.
func Summarise(h *hdrhistogram.Histogram) *Latency {
	n := h.TotalCount()
	if n == 0 {
		return nil
	}
	us := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1e3 }
	l := &Latency{
		Samples: n, Min: float64(h.Min()) / 1e3, Mean: h.Mean() / 1e3, P50: us(50), P90: us(90), Max: float64(h.Max()) / 1e3,
	}
	if n >= samplesP99 {
		v := us(99)
		l.P99 = &v
	}
	if n >= samplesP999 {
		v := us(99.9)
		l.P999 = &v
	}
	return l
}

// String is "p50 5.1 us, p99 20 us, p99.9 (10,000 samples needed), max 80 us, 5000 samples".
func (l *Latency) String() string {
	few := func(v *float64, need int) string {
		if v == nil {
			return fmt.Sprintf("not from under %d samples", need)
		}
		return fmt.Sprintf("%.1f us", *v)
	}
	return fmt.Sprintf("p50 %.1f us, p90 %.1f us, p99 %s, p99.9 %s, max %.1f us; %d samples",
		l.P50, l.P90, few(l.P99, samplesP99), few(l.P999, samplesP999), l.Max, l.Samples)
}

// Summary is what several threads have received together.
type Summary struct {
	Counts
	Unique     uint64   `json:"unique"`     // numbers that came
	Lost       uint64   `json:"lost"`       // numbers between the first and the last of a stream that did not
	Duplicates uint64   `json:"duplicates"` // frames whose number had come
	Reordered  uint64   `json:"reordered"`  // frames behind a higher number
	Streams    int      `json:"streams"`
	Latency    *Latency `json:"latency,omitempty"`
	Queues     []Counts `json:"queues,omitempty"`
}

// Sum joins the accounts of all queues. A queue's streams may have come to several threads.
func Sum(accounts []*Account) (*Summary, error) {
	var (
		s     Summary
		all   *hdrhistogram.Histogram
		trunc int64
	)
	for _, a := range accounts {
		s.Frames += a.Frames
		s.Bytes += a.Bytes
		s.Damaged += a.Damaged
		s.Other += a.Other
		s.Queues = append(s.Queues, a.Counts)
		if a.latency == nil {
			continue
		}
		if all == nil {
			all = hdrhistogram.New(1, longestLatency, 3)
		}
		trunc += all.Merge(a.latency)
	}
	for i := range Streams {
		var c sequence.Counts
		for _, a := range accounts {
			if t := a.streams[i]; t != nil {
				c = c.Merge(t.Counts())
			}
		}
		if c.Unique == 0 {
			continue
		}
		s.Streams++
		s.Unique += c.Unique
		s.Lost += c.Lost()
		s.Duplicates += c.Duplicates
		s.Reordered += c.Reordered
	}
	if all != nil {
		s.Latency = Summarise(all)
	}
	if trunc != 0 {
		return &s, errors.New("sink: histograms of the queues do not fit together")
	}
	return &s, nil
}
