package accl

import (
	"fmt"
	"sync/atomic"
	"time"

	"gradnic/dataplane"
	wire "gradnic/wire/accl"
	"gradnic/worker/accl"
)

// function is the rank on its lane.
type function struct {
	e     *accl.Engine
	own   wire.Endpoint
	peers []wire.Endpoint // by rank
	ports []int           // of the NIC, by rank

	box     atomic.Pointer[request] // a call to begin
	current *request                // the call that runs
	ticks   uint64                  // of the lane
	seen    uint64                  // of them when a caller looked last
	still   int                     // how often a caller saw none since
}

// retry is when a lane comes again that had no room for a frame.
const retry = int64(20 * time.Microsecond)

// burst is the most frames that are emitted in one round: other functions of the lane have their turn too.
const burst = dataplane.BatchSize

// pieces are chunks that a frame may take, and one in hand: what does not fit in the end would be lost for good.
const pieces = 4

// Receive implements dataplane.Service.
func (f *function) Receive(x *dataplane.Exchange, in []dataplane.Arrival) {
	now := x.Now()
	for k := range in {
		p := in[k].Packet
		if p == nil {
			x.Drop(k, dataplane.UnknownProtocol)
			continue
		}
		peer := f.e.PeerAt(p.SrcIP, p.SrcPort)
		if peer < 0 {
			f.e.Foreign()
			x.Drop(k, dataplane.ACCLReason(wire.UnknownPeer))
			continue
		}
		if fault := f.e.Receive(peer, p.Payload, now); fault != wire.OK {
			x.Drop(k, dataplane.ACCLReason(fault))
		}
		// Else it counts as consumed.
	}
}

// Tick implements dataplane.Service.
func (f *function) Tick(x *dataplane.Exchange) (next int64) {
	now := x.Now()
	f.ticks++
	f.begin(now)
	if q := f.current; q != nil {
		if why := q.stop.Load(); why != nil {
			f.e.Abort(*why)
		}
	}
	more := f.emit(x)
	late := f.e.Tick(now)
	f.end()
	if more && f.current != nil {
		return min(late, now+retry)
	}
	return late
}

// begin takes a call from the mailbox.
func (f *function) begin(now int64) {
	if f.current != nil {
		return
	}
	if q := f.box.Swap(nil); q != nil {
		f.current = q
		if err := f.e.Begin(q.call, now); err != nil {
			q.err, f.current = err, nil
			close(q.done)
		}
	}
}

// end tells the caller when its call has ended.
func (f *function) end() {
	if q := f.current; q != nil {
		if done, err := f.e.Done(); done {
			q.err, f.current = err, nil
			close(q.done)
		}
	}
}

// giveUp ends the communicator, and the calls that there are.
func (f *function) giveUp(why error) {
	f.e.Abort(why)
	f.begin(0)
	f.end()
}

// watch is called by a caller that waits, on the lane or, when it does not run, in its place: it has been woken since the
// last time, so that a lane that runs has ticked.
func (f *function) watch() {
	if f.ticks != f.seen {
		f.seen, f.still = f.ticks, 0
		return
	}
	if f.still++; f.still > 2 {
		f.giveUp(fmt.Errorf("%w: the NIC does not run", accl.ErrTimeout))
	}
}

// emit sends what there is to send and room for, and reports whether there is more.
func (f *function) emit(x *dataplane.Exchange) (more bool) {
	for range burst {
		to, n, ok := f.e.Pending()
		if !ok {
			return false
		}
		if x.Room(f.ports[to]) < pieces {
			return true
		}
		frame, ok := x.Emit(f.ports[to], wire.PayloadOffset+n)
		if !ok {
			return true
		}
		wire.PutFrame(frame, &f.own, &f.peers[to], n)
		f.e.Put(frame[wire.PayloadOffset:], x.Now())
	}
	_, _, more = f.e.Pending()
	return more
}
