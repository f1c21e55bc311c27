package dataplane

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"gradnic/wire/inet"
)

// Limits of a trace.
const (
	// DefaultTraceCount is how many frames a trace has when it is not said.
	DefaultTraceCount = 10
	// MaxTraceCount is the most frames of a trace.
	MaxTraceCount = 1 << 20
	// traceDepth is the frames between a lane and the reader.
	traceDepth = 256
	// maxTraceReplies is the most copies of a result that a trace lists.
	maxTraceReplies = 32
	// maxTraceLosses is the most different reasons for lost copies that a trace lists.
	maxTraceLosses = 4
)

// TraceOptions say which frames to follow.
type TraceOptions struct {
	// Slot is the slot whose frames are followed, in both sets.
	Slot int
	// Job is the name of the job; empty follows the frames for the slot of every job, and those of no job.
	Job string
	// Count ends the trace after so many frames, 1 to MaxTraceCount; 0 means DefaultTraceCount.
	Count int
}

// TraceFrame is one frame's way through the stages. A traced frame passes them alone, so that what it caused is known;
// the frames before and after it keep their order.
type TraceFrame struct {
	Time time.Time `json:"time"`
	// Lane followed the frame; From is the lane that received it and handed it over, -1 when it is the same.
	Lane int `json:"lane"`
	From int `json:"from"`
	// Receive stage: the port and the frame's length in bytes.
	Port   string `json:"port"`
	Length int    `json:"length"`
	// Parse stage.
	Message TraceMessage `json:"message"`
	// Match stage: Job and Rank of the worker; Rank is -1 when it has none.
	Job  string `json:"job"`
	Rank int    `json:"rank"`
	// Contribute stage: what the slot said (added, completed, answered, duplicate), or how it was answered
	// otherwise (told); empty when the frame did not get there. Seen are the ranks whose values are in
	// this version of the slot now, Waiting the others; both empty when it did not get there.
	Outcome string `json:"outcome"`
	Seen    []int  `json:"seen"`
	Waiting []int  `json:"waiting"`
	// Reply and transmit stages.
	Replies []TraceReply `json:"replies"`
	// Lost counts copies of the result that were not made, by reason.
	Lost map[string]int `json:"lost"`
	// Verdict is contributed, duplicate, answered, or drop and its reason: as the counters have it.
	Verdict string `json:"verdict"`
	Reason  string `json:"reason,omitempty"`
}

// TraceMessage is what parse found in the frame.
type TraceMessage struct {
	Protocol string    `json:"protocol"` // switchml or native
	MAC      inet.MAC  `json:"mac"`      // the source
	IP       inet.Addr `json:"ip"`
	UDPPort  uint16    `json:"udp_port"`
	To       uint16    `json:"to_udp_port"`
	Kind     string    `json:"kind"` // request, or a native message's kind
	JobID    uint16    `json:"job_id"`
	Slot     int       `json:"slot"`
	Set      int       `json:"set"`
	Round    uint32    `json:"round"` // native
	TSI      string    `json:"tsi,omitempty"`
	Elements int       `json:"elements"`
}

// TraceReply is one frame that the traced one caused.
type TraceReply struct {
	Rank    int       `json:"rank"` // -1: for several workers
	MAC     inet.MAC  `json:"mac"`
	IP      inet.Addr `json:"ip"`
	UDPPort uint16    `json:"udp_port"`
	Port    string    `json:"port"`
	Length  int       `json:"length"`
	Posted  bool      `json:"posted"`           // to the transmit ring
	Reason  string    `json:"reason,omitempty"` // why not
}

// Trace is a running trace. One goroutine may call Read; Close and Lost may be called from others.
type Trace struct {
	nic   *NIC
	lanes []*traceLane
	left  int
	ended atomic.Bool
}

// Trace follows the next frames of a slot through every stage. It must be closed; it ends by itself when the NIC stops.
func (n *NIC) Trace(o TraceOptions) (*Trace, error) {
	if o.Count == 0 {
		o.Count = DefaultTraceCount
	}
	if o.Count < 1 || o.Count > MaxTraceCount {
		return nil, fmt.Errorf("trace: %d frames: legal are 1 to %d", o.Count, MaxTraceCount)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	most := MaxSlots
	if o.Job != "" {
		j, ok := n.jobs[o.Job]
		if !ok {
			return nil, fmt.Errorf("trace: job %s: %w", o.Job, ErrNoJob)
		}
		most = j.spec.Slots
	}
	if o.Slot < 0 || o.Slot >= most {
		return nil, fmt.Errorf("trace: slot %d: legal are 0 to %d", o.Slot, most-1)
	}
	t := &Trace{nic: n, left: o.Count}
	for range n.lanes {
		t.lanes = append(t.lanes, &traceLane{slot: uint32(o.Slot), job: o.Job, left: o.Count, ring: newSPSC[traceRecord](min(o.Count, traceDepth))})
	}
	if err := n.addWatcher(t); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	return t, nil
}

// Read waits for the next frame. After as many as were asked for, and after the end, it returns io.EOF.
func (t *Trace) Read(ctx context.Context) (TraceFrame, error) {
	var one [1]traceRecord
	tick := time.NewTicker(capturePoll)
	defer tick.Stop()
	for t.left > 0 {
		ended := t.ended.Load()
		for i, l := range t.lanes {
			if l.ring.pop(one[:]) == 1 {
				t.left--
				return one[0].frame(t.nic, i), nil
			}
		}
		if ended {
			break
		}
		select {
		case <-ctx.Done():
			return TraceFrame{}, ctx.Err()
		case <-tick.C:
		}
	}
	return TraceFrame{}, io.EOF
}

// Lost is the number of frames that were followed but not read in time.
func (t *Trace) Lost() uint64 {
	lost := uint64(0)
	for _, l := range t.lanes {
		lost += l.lost.Load()
	}
	return lost
}

// Close ends the trace. It is idempotent.
func (t *Trace) Close() {
	t.nic.mu.Lock()
	defer t.nic.mu.Unlock()
	t.nic.removeWatcher(t)
}

func (t *Trace) watch(p *taps, lane int) { p.traces = append(p.traces, t.lanes[lane]) }
func (t *Trace) end()                    { t.ended.Store(true) }
