package dataplane

import (
	"fmt"
	"sync/atomic"
	"time"

	"gradnic/xdp"
)

// taps is who looks at a lane's frames. A lane that nobody looks at has none: a nil check a batch, and one a dropped
// frame. It is built by the control side and never changed but by the lane, in what it points to.
type taps struct {
	captures []*captureLane
	traces   []*traceLane
	tracing  *traceRecord // of the frame that is being traced just now
}

// watcher is a Capture or a Trace as the NIC keeps it.
type watcher interface {
	// watch adds the watcher's share of a lane.
	watch(t *taps, lane int)
	// end is called when no lane writes any more.
	end()
}

// addWatcher lets a watcher look at all lanes from now on. n.mu is held.
func (n *NIC) addWatcher(w watcher) error {
	if n.state == stopped {
		return ErrStopped
	}
	if len(n.watchers) == MaxWatchers {
		return fmt.Errorf("%d captures and traces run: that is the most", MaxWatchers)
	}
	n.watchers = append(n.watchers, w)
	n.setTaps()
	return nil
}

// removeWatcher ends a watcher, once no lane writes to it any more. n.mu is held.
func (n *NIC) removeWatcher(w watcher) {
	for i, o := range n.watchers {
		if o == w {
			n.watchers = append(n.watchers[:i:i], n.watchers[i+1:]...)
			if n.state != stopped {
				n.setTaps()
			}
		}
	}
	w.end()
}

// endWatchers is called when the lanes have ended. n.mu is held.
func (n *NIC) endWatchers() {
	for _, w := range n.watchers {
		w.end()
	}
	n.watchers = nil
}

// setTaps gives each lane what its watchers look at.
func (n *NIC) setTaps() {
	all := make([]*taps, len(n.lanes))
	for i := range all {
		if len(n.watchers) == 0 {
			continue
		}
		all[i] = &taps{}
		for _, w := range n.watchers {
			w.watch(all[i], i)
		}
	}
	n.onLanes(func(l *lane) { l.taps = all[l.id] })
}

// captureLane is a capture's share of one lane.
type captureLane struct {
	lane int
	want []uint8 // by port: a bit for each stage
	snap int
	ring *captureRing
	lost []atomic.Uint64 // by port and stage; the lane alone writes
}

func newCaptureLane(l *lane, want []uint8, snap, buffer int) *captureLane {
	return &captureLane{
		lane: l.id, want: want, snap: snap, ring: newCaptureRing(buffer),
		lost: make([]atomic.Uint64, len(want)*numCaptureStages),
	}
}

// frames captures a batch. The pieces of a frame larger than a chunk follow each other; they are joined.
func (c *captureLane) frames(l *lane, now int64, port int, stage CaptureStage, reason Reason, descs []Desc) {
	if c.want[port]&(1<<stage) == 0 {
		return
	}
	var pieces [maxPieces][]byte
	for len(descs) > 0 {
		n, length := 0, 0
		for more := true; more && n < len(descs) && n < maxPieces; n++ {
			pieces[n] = l.frame(descs[n])
			length += len(pieces[n])
			more = descs[n].Options&xdp.PacketContinues != 0
		}
		if !c.ring.write(now, uint16(port), stage, reason, c.snap, length, pieces[:n]...) {
			c.lost[port*numCaptureStages+int(stage)].Add(1)
		}
		descs = descs[n:]
	}
	c.ring.publish()
}

// maxPieces is the most descriptors of one frame: MAX_SKB_FRAGS + 1 of the kernel.
const maxPieces = 18

// received shows a batch as it came in.
func (t *taps) received(l *lane, port int, descs []Desc) { t.show(l, port, CaptureReceive, 0, descs) }

// sent shows what was posted. It must be called before anything of it is reaped.
func (t *taps) sent(l *lane, port int, descs []Desc) {
	if len(descs) == 0 {
		return
	}
	if t.tracing != nil {
		t.tracing.sent(l, port, descs)
	}
	t.show(l, port, CaptureTransmit, 0, descs)
}

func (t *taps) show(l *lane, port int, stage CaptureStage, reason Reason, descs []Desc) {
	if len(t.captures) == 0 {
		return
	}
	now := int64(time.Since(l.epoch))
	for _, c := range t.captures {
		c.frames(l, now, port, stage, reason, descs)
	}
}

// sawDrop shows a frame that was dropped; the zero Desc stands for one that was not made. The frame is not free yet.
func (l *lane) sawDrop(port int, d Desc, r Reason) {
	if l.taps != nil {
		l.taps.dropped(l, port, d, r)
	}
}

func (t *taps) dropped(l *lane, port int, d Desc, r Reason) {
	if t.tracing != nil {
		t.tracing.dropped(l, port, d, r)
	}
	if d.Len != 0 {
		d.Options = 0 // a piece alone
		t.show(l, port, CaptureDrop, r, []Desc{d})
	}
}
