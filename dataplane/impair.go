package dataplane

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Impairment makes a port lose, double and delay frames, for tests and drills. The zero value is a perfect port.
// Losses have reasons of their own ("impaired-ingress", "impaired-egress"), so that accounting still balances.
type Impairment struct {
	// IngressLoss is the probability, 0 to 1, that a received frame is lost before anything looks at it.
	IngressLoss float64 `json:"ingress_loss"`
	// EgressLoss is the probability, 0 to 1, that a frame that leaves by this port is lost.
	EgressLoss float64 `json:"egress_loss"`
	// EgressTogether decides EgressLoss once for all copies of a result, by the port that the completing frame
	// came in by, as SwitchML's P4 program does. Otherwise each copy is decided by the port it leaves by.
	EgressTogether bool `json:"egress_together"`
	// DropIngress and DropEgress lose exactly the k-th frames, counted from 1 from when the impairment was set.
	DropIngress []uint64 `json:"drop_ingress,omitempty"`
	DropEgress  []uint64 `json:"drop_egress,omitempty"`
	// CutEgress, if not 0, loses every frame that leaves by this port after so many, counted from when the impairment was
	// set: to those behind the port, the NIC has died there.
	CutEgress uint64 `json:"cut_egress,omitempty"`
	// Duplicate is the probability that a received frame is received twice.
	Duplicate float64 `json:"duplicate"`
	// Reorder is the probability that a received frame is held back until ReorderBy later frames of the same
	// queue have gone by (0 means 3), or ReorderHold has passed (0 means 5 ms).
	Reorder     float64       `json:"reorder"`
	ReorderBy   int           `json:"reorder_by"`
	ReorderHold time.Duration `json:"reorder_hold"`
	// Seed replaces Config.Seed for this port when not 0.
	Seed uint64 `json:"seed"`
}

const (
	defaultReorderBy   = 3
	defaultReorderHold = 5 * time.Millisecond
	maxHeld            = BatchSize
)

func (im *Impairment) setDefaults() error {
	for _, p := range []struct {
		name string
		v    float64
	}{{"ingress loss", im.IngressLoss}, {"egress loss", im.EgressLoss}, {"duplicate", im.Duplicate}, {"reorder", im.Reorder}} {
		if !(p.v >= 0 && p.v <= 1) {
			return fmt.Errorf("%s %v: a probability is 0 to 1", p.name, p.v)
		}
	}
	if im.ReorderBy == 0 {
		im.ReorderBy = defaultReorderBy
	}
	if im.ReorderBy < 0 {
		return fmt.Errorf("reorder by %d frames: legal are 1 and up", im.ReorderBy)
	}
	if im.ReorderHold == 0 {
		im.ReorderHold = defaultReorderHold
	}
	if im.ReorderHold < 0 || im.ReorderHold > time.Second {
		return fmt.Errorf("reorder hold %v: legal are up to 1s", im.ReorderHold)
	}
	for _, list := range []*[]uint64{&im.DropIngress, &im.DropEgress} {
		*list = slices.Clone(*list)
		slices.Sort(*list)
		if len(*list) > 0 && (*list)[0] == 0 {
			return fmt.Errorf("frames are counted from 1")
		}
	}
	return nil
}

// none is true for a perfect port.
func (im *Impairment) none() bool {
	return im.CutEgress == 0 && im.IngressLoss == 0 && im.EgressLoss == 0 && im.Duplicate == 0 && im.Reorder == 0 &&
		len(im.DropIngress) == 0 && len(im.DropEgress) == 0
}

// laneImpair is a port's impairment on one lane, with a random stream of its own for each direction, so that what
// happens to the k-th frame does not depend on how frames fell into batches.
type laneImpair struct {
	*impairState
	in   *rand.Rand
	out  *rand.Rand
	seen uint64 // frames that this lane has let by
	held []heldFrame
}

// heldFrame is a frame that is held back until seen reaches after, or the time until.
type heldFrame struct {
	desc  Desc
	tail  []Desc
	after uint64
	until int64
}

func newLaneImpair(s *impairState, seed uint64, port, lane int) *laneImpair {
	if s.Seed != 0 {
		seed = s.Seed
	}
	stream := uint64(port)<<32 | uint64(lane)<<1
	return &laneImpair{
		impairState: s,
		in:          rand.New(rand.NewPCG(seed, stream)),
		out:         rand.New(rand.NewPCG(seed, stream|1)),
		held:        make([]heldFrame, 0, maxHeld),
	}
}

func happens(r *rand.Rand, p float64) bool { return p > 0 && r.Float64() < p }

func (im *laneImpair) dropIngress() bool {
	k := im.ingress.Add(1)
	if len(im.DropIngress) > 0 {
		if _, hit := slices.BinarySearch(im.DropIngress, k); hit {
			return true
		}
	}
	return happens(im.in, im.IngressLoss)
}

func (im *laneImpair) dropEgress() bool {
	k := im.egress.Add(1)
	if im.CutEgress != 0 && k > im.CutEgress {
		return true
	}
	if len(im.DropEgress) > 0 {
		if _, hit := slices.BinarySearch(im.DropEgress, k); hit {
			return true
		}
	}
	return happens(im.out, im.EgressLoss)
}

// impairIngress loses, doubles and holds back frames of the batch. At most twice the batch and all held frames come
// out, which batchRoom has room for.
func (l *lane) impairIngress(port int, im *laneImpair) {
	b := &l.batch
	count := &l.counts[port]
	var in [BatchSize]Desc
	var tails [BatchSize][]Desc
	n := copy(in[:], b.desc[:b.n])
	if l.chains != nil {
		for i := range n {
			tails[i] = b.tail(i)
		}
	}
	b.n = 0
	for i, d := range in[:n] {
		if im.dropIngress() {
			count[cDrops+int(ImpairedIngress)]++
			l.sawDrop(port, d, tails[i], ImpairedIngress)
			l.freePieces(d, tails[i])
			continue
		}
		var twin Desc
		var twinTail []Desc
		double := false
		if happens(im.in, im.Duplicate) {
			twin, twinTail, double = l.clone(d, tails[i])
		}
		if len(im.held) < maxHeld && happens(im.in, im.Reorder) {
			// A chain's tail stays longer than the batch: it is copied, which allocates.
			im.held = append(im.held, heldFrame{d, slices.Clone(tails[i]), im.seen + uint64(im.ReorderBy), l.now + int64(im.ReorderHold)})
			l.held++
			l.pieces += len(tails[i])
		} else {
			l.letBy(im, d, tails[i])
		}
		if double {
			count[cInjected]++
			l.letBy(im, twin, twinTail)
		}
	}
}

// letBy appends a frame to the batch, and after it the held frames whose turn has come.
func (l *lane) letBy(im *laneImpair, d Desc, tail []Desc) {
	l.batch.add(d, tail)
	im.seen++
	l.releaseDue(im)
}

// releaseDue appends the held frames whose turn has come to the batch.
func (l *lane) releaseDue(im *laneImpair) {
	b := &l.batch
	keep := im.held[:0]
	for _, h := range im.held {
		if im.seen < h.after && l.now < h.until {
			keep = append(keep, h)
			continue
		}
		b.add(h.desc, h.tail)
		l.held--
		l.pieces -= len(h.tail)
	}
	im.held = keep
}

// releaseHeld lets the held frames go on whose time is over. Frames of an impairment that was taken away go at once.
func (l *lane) releaseHeld() int {
	work := 0
	b := &l.batch
	l.updateNow()
	for port := range l.ports {
		p := &l.ports[port]
		if p.impair == nil || len(p.impair.held) == 0 {
			continue
		}
		im := p.impair
		l.begin()
		l.releaseDue(im)
		if b.n == 0 {
			continue
		}
		work += b.n
		l.runFunction(port)
	}
	return work
}

// clone copies a frame into free chunks, at the same offsets.
func (l *lane) clone(d Desc, tail []Desc) (Desc, []Desc, bool) {
	if len(l.free) < 1+len(tail) {
		return Desc{}, nil, false
	}
	twin := func(d Desc) Desc {
		addr, _ := l.take()
		c := Desc{Addr: addr + d.Addr&(l.chunk-1), Len: d.Len, Options: d.Options}
		copy(l.frame(c), l.frame(d))
		return c
	}
	head := twin(d)
	if len(tail) == 0 {
		return head, nil, true
	}
	copies := make([]Desc, len(tail))
	for i := range tail {
		copies[i] = twin(tail[i])
	}
	return head, copies, true
}

// setImpairment replaces a port's impairment. What the old one held back is let go in the next round.
func (l *lane) setImpairment(port int, im *laneImpair) {
	p := &l.ports[port]
	if old := p.impair; old != nil && len(old.held) > 0 {
		if im == nil { // keep one that does nothing but let go
			im = newLaneImpair(&impairState{}, 0, port, l.id)
		}
		for _, h := range old.held {
			im.held = append(im.held, heldFrame{desc: h.desc, tail: h.tail})
		}
	}
	p.impair = im
}
