package native

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
)

// outbox is a transport that keeps what is sent, and may fail.
type outbox struct {
	t    *testing.T
	e    *engine
	sent [][]byte // messages
	fail bool
}

func (r *outbox) Send(frames [][]byte) error {
	if r.fail {
		return errors.New("it fails")
	}
	for _, f := range frames {
		m := bytes.Clone(f[inet.PayloadOffset:])
		if v, fault := wire.Validate(m); fault != wire.OK || v.Kind().FromNetwork() {
			r.t.Fatalf("%v is sent: %x", fault, m)
		} else if w := r.e.win; v.Kind() == wire.Contribution && w.held(uint64(v.Slot())) && uint32(w.redo[v.Slot()].chunk/w.slots) != v.Round() {
			r.t.Fatalf("round %d of slot %d is begun, and an earlier one is to be contributed again", v.Round(), v.Slot())
		}
		r.sent = append(r.sent, m)
	}
	return nil
}

func (r *outbox) Recv(time.Time) ([][]byte, error) { return nil, nil }
func (r *outbox) Wake()                            {}
func (r *outbox) Faults() datagram.Faults          { return datagram.Faults{} }
func (r *outbox) Close() error                     { return nil }

// fuzzed is a worker without a clock or a socket, and what its tape does to it.
type fuzzed struct {
	t     *testing.T
	e     *engine
	tr    *outbox
	slots uint32 // of the job
	now   int64
	all   []*fuzzedCall
}

// fuzzedCall counts what is delivered of a call.
type fuzzedCall struct {
	*call
	drained []int // by element
}

const fuzzElements = 4

func newFuzzed(t *testing.T) *fuzzed {
	cfg := Config{NIC: nicIP, IP: workerIP(0)}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	x := &fuzzed{t: t, tr: &outbox{t: t}, slots: 8}
	from, nic := cfg.ends()
	x.e = newEngine(cfg, x.tr, from, nic)
	x.tr.e = x.e
	return x
}

// answer is a message of the network.
func (x *fuzzed) answer(h wire.Header, payload []byte) {
	b := make([]byte, wire.HeaderLen, wire.HeaderLen+len(payload))
	h.Job = x.e.cfg.Job
	h.Put(b, len(payload))
	x.take(append(b, payload...))
}

func (x *fuzzed) take(b []byte) {
	x.e.mu.Lock()
	x.e.take(x.now, b)
	x.e.pump(x.now)
	x.e.mu.Unlock()
	x.check()
}

// notice tells a state; the job's parameters are right ones.
func (x *fuzzed) notice(code wire.Code, epoch, nonce, slot, round uint32) {
	n := wire.NoticeBody{Code: code, Workers: 2, Elements: fuzzElements, Slots: x.slots, Life: 1, Nonce: nonce, Ranks: []byte{2}}
	b := make([]byte, n.Len())
	n.Put(b)
	x.answer(wire.Header{Kind: wire.Notice, Epoch: epoch, Slot: slot, Round: round}, b)
}

// submit starts a call whose parts begin anywhere.
func (x *fuzzed) submit(n int, gives, takes part) {
	if x.e.win == nil || len(x.all) > 10 {
		return
	}
	c := &fuzzedCall{drained: make([]int, n)}
	made, err := x.e.submit(n, &call{
		gives: gives, takes: takes,
		fill: func(lo, hi int, b []byte) { clear(b) },
		drain: func(lo, hi int, b []byte) {
			for i := lo; i < hi; i++ {
				c.drained[i]++
			}
		},
	})
	if err != nil && x.e.err == nil {
		x.t.Fatalf("submitted: %v, the worker: %v", err, x.e.err)
	}
	if made != nil {
		c.call = made
		x.all = append(x.all, c)
	}
	x.check()
}

// pass lets time pass.
func (x *fuzzed) pass(d time.Duration) {
	x.now += int64(d)
	x.e.mu.Lock()
	x.e.read = x.now
	x.e.tick(x.now)
	x.e.pump(x.now)
	x.e.mu.Unlock()
	x.check()
}

// check is what must hold between any two events.
func (x *fuzzed) check() {
	x.t.Helper()
	w := x.e.win
	if w == nil {
		return
	}
	inFlight, due, redos, redoDue := 0, 0, 0, 0
	for g := w.low; g < w.next; g++ {
		switch c := w.cell(g); {
		case c.chunk != g:
		case c.state == flying:
			inFlight++
		case c.state == missed:
			due++
		}
	}
	for i := range w.redo {
		switch w.redo[i].state {
		case flying:
			inFlight++
			redos++
		case missed:
			redoDue++
			redos++
		}
	}
	if inFlight != w.inFlight || due != w.lost || redos != w.redos || redoDue != w.redoLost || w.low > w.next || w.next > w.low+w.slots || w.next > w.end {
		x.t.Fatalf("window %d to %d of %d: in flight %d by the books and %d by the cells, due %d and %d; to be contributed again %d and %d, of which due %d and %d",
			w.low, w.next, w.end, w.inFlight, inFlight, w.lost, due, w.redos, redos, w.redoLost, redoDue)
	}
	for i, c := range x.all {
		ended := false
		select {
		case <-c.done:
			ended = true
		default:
		}
		if ended != (c.left == 0 || x.e.err != nil) || ended && (c.err != nil) == (c.left == 0) {
			x.t.Fatalf("call %d: ended %v, %d results are missing, its error %v, the worker's %v", i, ended, c.left, c.err, x.e.err)
		}
		for k, n := range c.drained {
			if n > 1 || c.left == 0 && n == 0 && c.takes.in(k/fuzzElements*fuzzElements, min(k/fuzzElements*fuzzElements+fuzzElements, c.elements)) {
				x.t.Fatalf("call %d: element %d was delivered %d times", i, k, n)
			}
		}
	}
}

// settle is a network that does what it should: whatever came before, the calls end.
func (x *fuzzed) settle() {
	for round := 0; x.e.err == nil && (x.e.state != running || slices.ContainsFunc(x.all, func(c *fuzzedCall) bool { return c.left > 0 })); round++ {
		if round > 2000 {
			x.t.Fatalf("it does not end: state %d, window %+v", x.e.state, x.e.win)
		}
		sent := x.tr.sent
		x.tr.sent = nil
		for _, m := range sent {
			v, _ := wire.Validate(m)
			switch {
			case v.Kind() == wire.Report:
				epoch := max(x.e.epoch, 1)
				x.notice(wire.Ready, epoch, x.e.nonce, v.Slot(), v.Round())
			case v.Kind() == wire.Contribution && v.Epoch() == x.e.epoch:
				h := v.Header()
				h.Kind, h.Rank = wire.Result, 2
				h.Flags &= wire.FlagResend
				payload := make([]byte, 4*fuzzElements)
				if v.Flags()&wire.FlagNoValues != 0 {
					payload = nil
				}
				x.answer(h, payload)
			}
		}
		x.pass(10 * time.Millisecond)
	}
}

// FuzzWorker gives a worker a tape of what a network may say, rightly or not, of time that passes and of calls. It never panics, its
// window's books are right at every moment, each call ends once, each element is delivered once; and when the network does
// its work from then on, all calls end.
func FuzzWorker(f *testing.F) {
	const join, call, result, notice, ask, pass, raw, fail = 0, 1, 2, 3, 4, 5, 6, 7
	f.Add([]byte{join, 0, 0, 0, call, 0, 40, 0, result, 0, 0, 0, pass, 9, 0, 0})
	f.Add([]byte{join, 0, 0, 0, call, 1, 200, 3, result, 1, 3, 0, result, 0, 4, 0, notice, 1, 0, 1, pass, 200, 0, 0, notice, 2, 0, 0})
	// Results without values, of chunks that this worker has no use for; the network loses its memory, and some are contributed again.
	f.Add([]byte{
		join, 0, 0, 0, call, 1, 200, 0x82, result, 1, 2, 0, result, 1, 3, 0, result, 1, 0, 0, notice, 1, 0, 1, notice, 2, 0, 0,
		result, 1, 1, 0, ask, 0, 255, 0, pass, 200, 0, 0, pass, 200, 0, 0, result, 0, 2, 0, notice, 3, 1, 0, notice, 1, 0, 0, notice, 2, 0, 0,
	})
	// All slots are in use when that happens, and the later chunk of one must wait.
	f.Add([]byte{
		join, 0, 0, 0, call, 1, 200, 0x82, result, 1, 0, 0, result, 1, 0, 0, notice, 1, 0, 1, notice, 2, 6, 0x80, pass, 200, 0, 0,
		result, 1, 7, 0x80, pass, 200, 0, 0, result, 1, 6, 0x80, pass, 200, 0, 0,
	})
	f.Add([]byte{
		join, 0, 0, 0, call, 1, 32, 0xc0, result, 1, 0, 0, result, 1, 0, 0, notice, 1, 0, 1, notice, 2, 6, 0x80, call, 0, 32, 0,
		result, 1, 0, 0, result, 1, 0, 0, result, 1, 0, 0, pass, 200, 0, 0,
	})
	// One is overtaken by more than a gap; one that is there is asked for; another worker's call has another length.
	late := []byte{join, 1, 0, 0, call, 0, 255, 1}
	for k := range byte(40) {
		late = append(late, result, 0, k+1, 0)
	}
	f.Add(append(late, pass, 0, 1, 0, ask, 0, 5, 0, result, 0, 0, 0x20, result, 0, 3, 0, result, 8, 0, 0, pass, 255, 255, 0, pass, 255, 255, 0))
	f.Add([]byte{join, 0, 0, 0, call, 2, 255, 3, result, 1, 0, 0, result, 1, 1, 0, ask, 0, 0, 1, notice, 2, 0, 1, pass, 9, 9, 9, result, 1, 1, 0})
	f.Add([]byte{join, 1, 0, 0, call, 0, 255, 255, fail, 0, 0, 0, pass, 255, 255, 0, call, 0, 9, 9})
	f.Add([]byte{join, 0, 0, 0, call, 0, 9, 0, notice, 4, 0, 0, result, 0, 0, 0, notice, 3, 0, 0, notice, 5, 1, 0, notice, 6, 0, 0})
	f.Add(append([]byte{join, 0, 0, 0, call, 0, 9, 0, raw, 8, 0, 48, 0x18, 0, 0, 0, 0, 1}, make([]byte, 42)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		x := newFuzzed(t)
		e := x.e
		for events := 0; len(b) >= 4 && events < 400; events++ {
			op, a, c, d := b[0]%8, b[1], b[2], b[3]
			b = b[4:]
			slot, round := uint32(0), uint32(0)
			if e.win != nil { // around the window
				slot, round = e.win.place(e.win.low + uint64(c))
				round += []uint32{0, 1, ^uint32(0), 2}[d>>6]
			}
			epoch := e.epoch + uint32(d&1)
			switch op {
			case join:
				x.pass(20 * time.Millisecond) // it reports
				x.slots = []uint32{8, 128, 1, 31}[a&3]
				x.notice(wire.Ready, max(epoch, 1), e.nonce, 0, 0)
			case call:
				n := int(c) + int(d&3)<<8
				lo := int(d>>3) * n / 32
				p := part{some: true, lo: lo, hi: lo + n/4}
				switch a % 4 {
				case 0:
					x.submit(n, part{}, part{})
				case 1:
					x.submit(n, part{}, p)
				case 2:
					x.submit(n, p, part{})
				case 3:
					x.submit(n, p, part{some: true, lo: n / 2, hi: n})
				}
			case result:
				h := wire.Header{Kind: wire.Result, Rank: 2, Epoch: epoch, Slot: slot, Round: round, Flags: wire.Flags(d & 0x3e)}
				if e.win != nil {
					if g, ok := e.win.chunkOf(slot, round); ok && g < e.win.next && !e.win.has(g) && e.state == running && a&8 == 0 {
						k := e.callOf(g)
						lo, hi := k.span(g, fuzzElements)
						h.Collective, h.Elements = k.id, uint16(hi-lo)
					}
				}
				x.answer(h, make([]byte, []int{4 * fuzzElements, 0, 4 * fuzzElements, 8}[a&3]))
			case notice:
				nonce := []uint32{0, e.nonce, 7}[a>>4%3]
				x.notice(wire.Code(a&15%8), epoch, nonce, slot, round)
			case ask:
				x.answer(wire.Header{Kind: wire.Ask, Rank: uint16(a & 1), Epoch: epoch, Slot: slot, Round: round}, nil)
			case pass:
				x.pass(time.Duration(binary.BigEndian.Uint16([]byte{a, c})) * 100 * time.Microsecond)
			case raw:
				n := min(int(d), len(b))
				if e.win != nil { // the job is known
					x.take(b[:n:n])
				}
				b = b[n:]
			case fail:
				x.tr.fail = a == 0
			}
			x.tr.sent = x.tr.sent[max(0, len(x.tr.sent)-1000):]
		}
		x.tr.fail = false
		x.settle()
		x.check()
	})
}
