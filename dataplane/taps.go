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

// frame captures one frame: its first piece, and the others if it is a chain.
func (c *captureLane) frame(l *lane, now int64, port int, stage CaptureStage, reason Reason, head Desc, tail []Desc) {
	if c.want[port]&(1<<stage) == 0 {
		return
	}
	pieces := [xdp.MaxPieces][]byte{l.frame(head)}
	length := int(head.Len)
	n := 1
	for _, d := range tail[:min(len(tail), len(pieces)-1)] {
		pieces[n] = l.frame(d)
		length += int(d.Len)
		n++
	}
	if !c.ring.write(now, uint16(port), stage, reason, c.snap, length, pieces[:n]...) {
		c.lost[port*numCaptureStages+int(stage)].Add(1)
	}
}

// received shows a batch as it came in.
func (t *taps) received(l *lane, port int) {
	if len(t.captures) == 0 {
		return
	}
	b := &l.batch
	now := int64(time.Since(l.epoch))
	for _, c := range t.captures {
		for i, d := range b.desc[:b.n] {
			c.frame(l, now, port, CaptureReceive, 0, d, b.tail(i))
		}
		c.ring.publish()
	}
}

// sent shows what was posted. It must be called before anything of it is reaped.
func (t *taps) sent(l *lane, port int, descs []Desc) {
	if len(descs) == 0 {
		return
	}
	if t.tracing != nil {
		t.tracing.sent(l, port, descs)
	}
	if len(t.captures) == 0 {
		return
	}
	now := int64(time.Since(l.epoch))
	for _, c := range t.captures {
		for rest := descs; len(rest) > 0; {
			n := chainAt(rest)
			c.frame(l, now, port, CaptureTransmit, 0, rest[0], rest[1:n])
			rest = rest[n:]
		}
		c.ring.publish()
	}
}

// chainAt is how many descriptors the first frame of descs has.
func chainAt(descs []Desc) int {
	n := 1
	for n < len(descs) && descs[n-1].Options&xdp.PacketContinues != 0 {
		n++
	}
	return n
}

// sawDrop shows a frame that was dropped; the zero Desc stands for one that was not made. The frame is not free yet.
func (l *lane) sawDrop(port int, head Desc, tail []Desc, r Reason) {
	if l.taps != nil {
		l.taps.dropped(l, port, head, tail, r)
	}
}

// sawFrameDrop is sawDrop for frame i of the batch.
func (l *lane) sawFrameDrop(i int, r Reason) {
	if l.taps != nil {
		l.lowerLayout(i)
		l.taps.dropped(l, int(l.batch.port[i]), l.batch.desc[i], l.batch.tail(i), r)
	}
}

func (t *taps) dropped(l *lane, port int, head Desc, tail []Desc, r Reason) {
	if t.tracing != nil {
		t.tracing.dropped(l, port, head, tail, r)
	}
	if head.Len == 0 || len(t.captures) == 0 {
		return
	}
	now := int64(time.Since(l.epoch))
	for _, c := range t.captures {
		c.frame(l, now, port, CaptureDrop, r, head, tail)
		c.ring.publish()
	}
}

// unsent shows the frames of a port's batch from number first on, which could not be posted.
func (t *taps) unsent(l *lane, port int, b *txBatch, first int, r Reason) {
	for i := first; i < b.n; {
		n := chainAt(b.desc[i:b.n])
		last := i + n - 1 // stands for the frame
		at := port
		if b.kind[last] != sentReplica {
			at = int(b.from[last])
		}
		t.dropped(l, at, b.desc[i], b.desc[i+1:i+n], r)
		i += n
	}
}

// notHanded shows the frames that another lane did not take.
func (t *taps) notHanded(l *lane, frames []handoff) {
	var chain [xdp.MaxPieces]Desc
	for n := 0; len(frames) > 0; frames = frames[1:] {
		if n < len(chain) {
			chain[n] = frames[0].Desc
			n++
		}
		if frames[0].Options == 0 {
			t.dropped(l, int(frames[0].port), chain[0], chain[1:n], HandoffFull)
			n = 0
		}
	}
}
