package worker

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Counts are the packets of all-reduces.
type Counts struct {
	// Packets carried the array, those of the exponent batch included. Each is counted once here.
	Packets uint64 `json:"packets"`
	// Resent is the number of packets sent again; Early those of them that did
	// not wait for the timer, because later packets had their result; Timeouts is
	// how often the timer expired (each time for one or more packets).
	Resent   uint64 `json:"resent"`
	Early    uint64 `json:"resent_early"`
	Timeouts uint64 `json:"timeouts"`
	// Received is the number of results taken: Packets, once the job is done.
	Received uint64 `json:"received"`
	// Duplicates are results of this job that were there already. Stale are
	// frames of another job or for a packet that was not sent. Foreign are
	// frames that are not results for this worker at all: wrong addresses, size or type.
	// All three are ignored.
	Duplicates uint64 `json:"duplicates"`
	Stale      uint64 `json:"stale"`
	Foreign    uint64 `json:"foreign"`
	// SocketErrors are errors that a later resend mends: the NIC's address
	// does not resolve, its port is closed, no buffers.
	SocketErrors uint64 `json:"socket_errors"`
	// Saturated is the number of blocks that some worker saturated; see [NonFinite].
	Saturated uint64 `json:"saturated"`
}

// Add adds others.
func (c *Counts) Add(o *Counts) {
	c.Packets += o.Packets
	c.Resent += o.Resent
	c.Early += o.Early
	c.Timeouts += o.Timeouts
	c.Received += o.Received
	c.Duplicates += o.Duplicates
	c.Stale += o.Stale
	c.Foreign += o.Foreign
	c.SocketErrors += o.SocketErrors
	c.Saturated += o.Saturated
}

// Stats is what one all-reduce cost, over all threads.
type Stats struct {
	Elements int `json:"elements"` // of the array
	Counts
	// Elapsed is the time of the call. RTT is the time from the first sending
	// of a packet to its result, of packets that were not resent: it holds the
	// wait for the slowest worker.
	Elapsed time.Duration `json:"elapsed_ns"`
	RTT     Latency       `json:"rtt"`
}

// Latency is a distribution of times, with a resolution of 1 % from 1 us to 1 min.
type Latency struct {
	Count int64         `json:"count"`
	Mean  time.Duration `json:"mean_ns"`
	P50   time.Duration `json:"p50_ns"`
	P90   time.Duration `json:"p90_ns"`
	P99   time.Duration `json:"p99_ns"`
	Max   time.Duration `json:"max_ns"`
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(time.Minute), 2)
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Count: h.TotalCount(),
		Mean:  time.Duration(h.Mean()),
		P50:   time.Duration(h.ValueAtQuantile(50)),
		P90:   time.Duration(h.ValueAtQuantile(90)),
		P99:   time.Duration(h.ValueAtQuantile(99)),
		Max:   time.Duration(h.Max()),
	}
}
