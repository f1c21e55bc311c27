package dataplane

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// CaptureStage is a place where frames can be looked at.
type CaptureStage uint8

// The places.
const (
	// CaptureReceive has each frame as it was received, before anything looked at it.
	CaptureReceive CaptureStage = iota
	// CaptureTransmit has each frame that was posted to a transmit ring.
	CaptureTransmit
	// CaptureDrop has each frame that was dropped, and why. Copies of results that were not even made (no free
	// chunk, no known port) have no bytes and are in the counters only.
	CaptureDrop

	numCaptureStages = int(iota)
)

var captureStageNames = [...]string{"rx", "tx", "drop"}

// String returns rx, tx or drop.
func (s CaptureStage) String() string {
	if int(s) < len(captureStageNames) {
		return captureStageNames[s]
	}
	return fmt.Sprintf("stage(%d)", uint8(s))
}

// ParseCaptureStage returns the stage of this name.
func ParseCaptureStage(name string) (CaptureStage, error) {
	if i := slices.Index(captureStageNames[:], name); i >= 0 {
		return CaptureStage(i), nil
	}
	return 0, fmt.Errorf("stage %q: legal are %s", name, strings.Join(captureStageNames[:], ", "))
}

// Limits of captures.
const (
	// MaxWatchers is the most captures and traces at a time.
	MaxWatchers = 8
	// DefaultCaptureBuffer, MinCaptureBuffer and MaxCaptureBuffer are bytes a lane.
	DefaultCaptureBuffer = 4 << 20
	MinCaptureBuffer     = 64 << 10
	MaxCaptureBuffer     = 1 << 30
	// MaxSnapLen is the most bytes of a frame that are kept.
	MaxSnapLen = 16 << 10
)

// capturePoll is how often a reader that waits looks whether a lane has written. Lanes never wake a reader: that
// would be a system call on their way.
const capturePoll = 2 * time.Millisecond

// CaptureOptions say what to capture.
type CaptureOptions struct {
	// Ports are the names of ports; none means all. A dropped frame counts for the port that its drop does.
	Ports []string
	// Stages are the places; none means all.
	Stages []CaptureStage
	// SnapLen is the most bytes of a frame to keep, 1 to MaxSnapLen; 0 means MaxSnapLen.
	SnapLen int
	// Buffer is the bytes between each lane and the reader, rounded up to a power of two; 0 means
	// DefaultCaptureBuffer. What does not fit is lost to the capture, and to nothing else.
	Buffer int
}

// CapturedFrame is one frame at one stage.
type CapturedFrame struct {
	Time   time.Time
	Stage  CaptureStage
	Port   int // index
	Lane   int
	Reason string // of a drop, else empty
	Length int    // of the whole frame
	Data   []byte // its first bytes
}

// CaptureLoss counts the frames that a capture saw and could not keep.
type CaptureLoss struct {
	Port   int
	Stage  CaptureStage
	Frames uint64
}

// Capture is a running capture. One goroutine may call Read; Close and Lost may be called from others.
type Capture struct {
	nic   *NIC
	ports []string
	lanes []*captureLane
	ended atomic.Bool // no lane writes any more
}

// Capture starts to capture. It must be closed; it ends by itself when the NIC stops.
func (n *NIC) Capture(o CaptureOptions) (*Capture, error) {
	want, err := n.captureMasks(&o)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c := &Capture{nic: n, ports: n.portNames()}
	for _, l := range n.lanes {
		c.lanes = append(c.lanes, newCaptureLane(l, want, o.SnapLen, o.Buffer))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.addWatcher(c); err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	return c, nil
}

// captureMasks fills in the defaults and returns for each port the stages that are wanted, a bit each.
func (n *NIC) captureMasks(o *CaptureOptions) ([]uint8, error) {
	if o.SnapLen == 0 {
		o.SnapLen = MaxSnapLen
	}
	if o.SnapLen < 1 || o.SnapLen > MaxSnapLen {
		return nil, fmt.Errorf("%d bytes a frame: legal are 1 to %d", o.SnapLen, MaxSnapLen)
	}
	if o.Buffer == 0 {
		o.Buffer = DefaultCaptureBuffer
	}
	if o.Buffer < MinCaptureBuffer || o.Buffer > MaxCaptureBuffer {
		return nil, fmt.Errorf("buffer of %d bytes: legal are %d to %d", o.Buffer, MinCaptureBuffer, MaxCaptureBuffer)
	}
	var mask uint8
	for _, s := range o.Stages {
		if int(s) >= numCaptureStages {
			return nil, fmt.Errorf("%v: legal are %s", s, strings.Join(captureStageNames[:], ", "))
		}
		mask |= 1 << s
	}
	if mask == 0 {
		mask = 1<<numCaptureStages - 1
	}
	want := make([]uint8, len(n.ports))
	for _, name := range o.Ports {
		i, ok := n.PortIndex(name)
		if !ok {
			return nil, fmt.Errorf("no port %s: there are %v", name, n.portNames())
		}
		want[i] = mask
	}
	if len(o.Ports) == 0 {
		for i := range want {
			want[i] = mask
		}
	}
	return want, nil
}

func (n *NIC) portNames() []string {
	names := make([]string, len(n.ports))
	for i, p := range n.ports {
		names[i] = p.name
	}
	return names
}

// PortNames returns the names of the NIC's ports by index.
func (c *Capture) PortNames() []string { return c.ports }

// Read waits for frames and returns at most as many as asked for, those of each lane in their order and of all lanes by
// time as far as they are there. After the capture has ended it gives what is left, then io.EOF.
func (c *Capture) Read(ctx context.Context, most int) ([]CapturedFrame, error) {
	var tick *time.Ticker
	for {
		ended := c.ended.Load() // before looking: what was written before the end is found
		if out := c.take(most); len(out) > 0 {
			return out, nil
		}
		if ended {
			return nil, io.EOF
		}
		if tick == nil {
			tick = time.NewTicker(capturePoll)
			defer tick.Stop()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// take merges what the lanes have written.
func (c *Capture) take(most int) (out []CapturedFrame) {
	for len(out) < most {
		var first *captureLane
		var earliest int64
		for _, l := range c.lanes {
			if t, ok := l.ring.peek(); ok && (first == nil || t < earliest) {
				first, earliest = l, t
			}
		}
		if first == nil {
			break
		}
		f := first.ring.read()
		f.Lane = first.lane
		f.Time = c.nic.epoch.Add(time.Duration(earliest))
		out = append(out, f)
	}
	return out
}

// Lost returns what the capture could not keep so far, by port and stage; nothing when nothing was lost.
func (c *Capture) Lost() []CaptureLoss {
	var lost []CaptureLoss
	for port := range c.ports {
		for s := range CaptureStage(numCaptureStages) {
			frames := uint64(0)
			for _, l := range c.lanes {
				frames += l.lost[port*numCaptureStages+int(s)].Load()
			}
			if frames > 0 {
				lost = append(lost, CaptureLoss{port, s, frames})
			}
		}
	}
	return lost
}

// Close ends the capture. What was captured before can still be read. It is idempotent.
func (c *Capture) Close() {
	c.nic.mu.Lock()
	defer c.nic.mu.Unlock()
	c.nic.removeWatcher(c)
}

func (c *Capture) watch(t *taps, lane int) { t.captures = append(t.captures, c.lanes[lane]) }
func (c *Capture) end()                    { c.ended.Store(true) }
