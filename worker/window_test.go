package worker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gradnic/worker/rtt"
)

// modelSwitch is a SwitchML switch in a few lines: bitmap and count per slot and
// set, as the P4 program has them, and a sum of one number a packet.
type modelSwitch struct {
	workers int
	cells   map[[2]int]*modelCell // slot, set
}

type modelCell struct {
	seen  uint32
	count int
	sum   uint64
}

// contribute returns the sum and who gets it: every worker, one, or none.
func (s *modelSwitch) contribute(worker, slot, set int, value uint64) (sum uint64, all, one bool) {
	cell := func(set int) *modelCell {
		k := [2]int{slot, set}
		if s.cells[k] == nil {
			s.cells[k] = &modelCell{}
		}
		return s.cells[k]
	}
	c, other := cell(set), cell(1-set)
	bit := uint32(1) << worker
	before := c.seen
	c.seen |= bit
	other.seen &^= bit
	dup := before&bit != 0
	flag := c.count
	if s.workers == 1 {
		flag = 1
		if dup {
			flag = 0
		}
	} else if !dup {
		if c.count == 0 {
			c.count = s.workers - 1
		} else {
			c.count--
		}
	}
	switch {
	case before == 0:
		c.sum = value
	case !dup:
		c.sum += value
	}
	return c.sum, !dup && flag == 1, dup && flag == 0
}

// modelWorker runs jobs over a window.
type modelWorker struct {
	w      *window
	job    int
	begun  bool
	out    []modelFrame // to the switch, in order
	in     []modelFrame // from the switch
	values map[int]uint64
	sent   map[int]bool
}

type modelFrame struct {
	job, packet, slot, set int
	value                  uint64
}

type modelJob struct{ total, stride int }

func valueOf(worker, job, packet int) uint64 {
	r := rand.NewPCG(uint64(worker)<<32|uint64(job), uint64(packet))
	return r.Uint64()
}

// simulate runs the jobs of all workers over lossy links that keep the order of
// each worker's requests, and returns an error when a sum is wrong, a packet is
// sent out of turn, or it does not end.
func simulate(seed uint64, workers, m int, jobs []modelJob, loss, doubled float64, reorderReplies bool) error {
	rnd := rand.New(rand.NewPCG(seed, 1))
	sw := &modelSwitch{workers: workers, cells: map[[2]int]*modelCell{}}
	ws := make([]*modelWorker, workers)
	for i := range ws {
		ws[i] = &modelWorker{w: newWindow(m, 0, rtt.NewTimer(rtt.Bounds{First: 10 * time.Millisecond, Least: 5 * time.Millisecond, Most: 40 * time.Millisecond}))}
	}
	now := int64(0)
	carry := func(q []modelFrame, f modelFrame) []modelFrame {
		if rnd.Float64() < loss {
			return q
		}
		q = append(q, f)
		if rnd.Float64() < doubled {
			q = append(q, f)
		}
		return q
	}
	send := func(i int, k int) {
		mw := ws[i]
		slot, set := mw.w.place(k)
		mw.out = carry(mw.out, modelFrame{mw.job, k, slot, set, valueOf(i, mw.job, k)})
	}
	toWorker := func(i int, f modelFrame) { ws[i].in = carry(ws[i].in, f) }

	finished := 0
	for step := 0; finished < workers; step++ {
		if step > 2_000_000 {
			return fmt.Errorf("no end after %d steps", step)
		}
		now += int64(rnd.IntN(200)) * 1000
		i := rnd.IntN(workers)
		mw := ws[i]
		if mw.job == len(jobs) && len(mw.out) == 0 {
			continue
		}
		switch rnd.IntN(4) {
		case 0: // the worker's own turn
			if mw.job == len(jobs) {
				break
			}
			if !mw.begun {
				j := jobs[mw.job]
				mw.w.begin(j.total, j.stride)
				mw.begun, mw.values, mw.sent = true, map[int]uint64{}, map[int]bool{}
			}
			for {
				k, ok := mw.w.next(now)
				if !ok {
					break
				}
				if mw.sent[k] {
					return fmt.Errorf("worker %d job %d: packet %d sent for the first time twice", i, mw.job, k)
				}
				mw.sent[k] = true
				j := jobs[mw.job]
				for _, need := range []int{k - m, k - j.stride} {
					if _, got := mw.values[need]; need >= 0 && need != k && !got {
						return fmt.Errorf("worker %d job %d: packet %d sent before the result of %d", i, mw.job, k, need)
					}
				}
				send(i, k)
			}
			if len(mw.in) == 0 {
				again, _ := mw.w.expired(now, nil)
				for _, k := range again {
					if _, got := mw.values[k]; got {
						return fmt.Errorf("worker %d job %d: packet %d resent after its result", i, mw.job, k)
					}
					send(i, k)
				}
			}
			if mw.w.finished() {
				if len(mw.values) != jobs[mw.job].total {
					return fmt.Errorf("worker %d job %d: finished with %d of %d results", i, mw.job, len(mw.values), jobs[mw.job].total)
				}
				mw.w.end()
				mw.begun = false
				if mw.job++; mw.job == len(jobs) {
					finished++
				}
			}
		case 1: // a request arrives at the switch, in order
			if len(mw.out) == 0 {
				break
			}
			f := mw.out[0]
			mw.out = mw.out[1:]
			sum, all, one := sw.contribute(i, f.slot, f.set, f.value)
			f.value = sum
			if one {
				toWorker(i, f)
			}
			for j := range ws {
				if all {
					toWorker(j, f)
				}
			}
		default: // a result arrives at the worker
			if len(mw.in) == 0 || !mw.begun {
				break
			}
			at := 0
			if reorderReplies {
				at = rnd.IntN(len(mw.in))
			}
			f := mw.in[at]
			mw.in = append(mw.in[:at:at], mw.in[at+1:]...)
			if f.job != mw.job {
				break // the thread's check
			}
			v, _ := mw.w.result(now, uint32(f.packet), f.slot, f.set)
			_, had := mw.values[f.packet]
			if had != (v == duplicate) || v == stale {
				return fmt.Errorf("worker %d job %d packet %d: verdict %d, had %v", i, mw.job, f.packet, v, had)
			}
			if v != fresh {
				break
			}
			var want uint64
			for j := range ws {
				want += valueOf(j, mw.job, f.packet)
			}
			if f.value != want {
				return fmt.Errorf("worker %d job %d packet %d: sum %x, want %x", i, mw.job, f.packet, f.value, want)
			}
			mw.values[f.packet] = f.value
		}
	}
	return nil
}

func TestWindowOverLossyLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		m := rapid.IntRange(1, 9).Draw(t, "m")
		jobs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) modelJob {
			blocks := rapid.IntRange(0, 3*m+2).Draw(t, "blocks")
			if rapid.Bool().Draw(t, "float") {
				b := min(m, blocks)
				return modelJob{blocks + b, b}
			}
			return modelJob{blocks, 0}
		}), 1, 6).Draw(t, "jobs")
		loss := rapid.Float64Range(0, 0.4).Draw(t, "loss")
		doubled := rapid.Float64Range(0, 0.3).Draw(t, "doubled")
		reorder := rapid.Bool().Draw(t, "reorder replies")
		if err := simulate(rapid.Uint64().Draw(t, "seed"), workers, m, jobs, loss, doubled, reorder); err != nil {
			t.Fatal(err)
		}
	})
}

// Why a packet waits for the one before it on its slot: without the rule, as
// the public client sends short float jobs, one lost frame makes a wrong sum. The
// model must be able to show it, else the test above proves nothing.
func TestModelShowsWhySlotsWait(t *testing.T) {
	sw := &modelSwitch{workers: 2, cells: map[[2]int]*modelCell{}}
	a, b := valueOf(0, 0, 0), valueOf(1, 0, 0)
	sw.contribute(0, 0, 0, a)                // worker 0: packet k on set 0
	sw.contribute(0, 0, 1, valueOf(0, 0, 1)) // and k+M on set 1 before the result of k
	sum, all, _ := sw.contribute(0, 0, 0, a) // then k again, because worker 1 is late
	if !all || sum == a+b {
		t.Fatalf("broadcast %v of %x: the model should have broadcast a sum without worker 1", all, sum)
	}
}

func TestWindowPlaces(t *testing.T) {
	// i = (k + shift) mod 2M; i < M: slot 2Mt+i set 0, else slot 2Mt+i-M set 1.
	w := newWindow(4, 2*4*3, rtt.NewTimer(rtt.Bounds{First: 1, Least: 1, Most: 1}))
	w.begin(11, 0)
	for k, want := range [][2]int{{24, 0}, {25, 0}, {26, 0}, {27, 0}, {24, 1}, {25, 1}, {26, 1}, {27, 1}, {24, 0}, {25, 0}, {26, 0}} {
		if slot, set := w.place(k); slot != want[0] || set != want[1] {
			t.Errorf("packet %d: slot %d set %d, want %v", k, slot, set, want)
		}
	}
	w.done = 11
	w.end()
	w.begin(2, 0)
	if slot, set := w.place(0); slot != 27 || set != 0 {
		t.Errorf("next job starts at slot %d set %d, want 27 and 0", slot, set)
	}
	if slot, set := w.place(1); slot != 24 || set != 1 {
		t.Errorf("next job goes on at slot %d set %d, want 24 and 1", slot, set)
	}
}

func TestWindowRefusesWhatItDidNotSend(t *testing.T) {
	w := newWindow(4, 0, rtt.NewTimer(rtt.Bounds{First: 1, Least: 1, Most: 1}))
	w.begin(10, 0)
	for {
		if _, ok := w.next(0); !ok {
			break
		}
	}
	for _, c := range []struct {
		name      string
		packet    uint32
		slot, set int
		want      verdict
	}{
		{"past the job", 10, 2, 0, stale},
		{"far past the job", 1<<32 - 1, 3, 1, stale},
		{"not sent yet", 4, 0, 1, stale},
		{"other slot", 1, 2, 0, stale},
		{"other set", 1, 1, 1, stale},
		{"right", 1, 1, 0, fresh},
		{"again", 1, 1, 0, duplicate},
	} {
		if got, _ := w.result(1, c.packet, c.slot, c.set); got != c.want {
			t.Errorf("%s: verdict %d, want %d", c.name, got, c.want)
		}
	}
	if k, ok := w.next(1); !ok || k != 5 {
		t.Fatalf("after the result of 1: packet %d %v may go, want 5", k, ok)
	}
	if got, _ := w.result(1, 1, 1, 0); got != duplicate {
		t.Errorf("an old result after the slot went on: %d, want duplicate", got)
	}
	if w.done != 1 {
		t.Errorf("%d results counted, want 1", w.done)
	}
}

func TestTimerDoublesOnceForABurst(t *testing.T) {
	w := newWindow(4, 0, rtt.NewTimer(rtt.Bounds{First: 10 * time.Millisecond, Least: time.Millisecond, Most: time.Second}))
	w.begin(4, 0)
	for i := range int64(4) {
		w.next(i * 1000)
	}
	at, ok := w.deadline()
	if !ok || at != int64(10*time.Millisecond) {
		t.Fatalf("deadline %d %v", at, ok)
	}
	if got, _ := w.expired(at-1, nil); len(got) != 0 {
		t.Fatalf("expired early: %v", got)
	}
	if got, _ := w.expired(at+500, nil); len(got) != 1 || got[0] != 0 {
		t.Fatalf("expired %v, want packet 0 alone", got)
	}
	if got := w.timer.Timeout(); got != int64(20*time.Millisecond) {
		t.Fatalf("timeout %v", got)
	}
	if got, _ := w.expired(at+int64(10*time.Millisecond)+5000, nil); len(got) != 3 {
		t.Fatalf("expired %v, want the other three", got)
	}
}

// A packet that later ones overtake is sent again at once, and again only when
// packets sent after the resend come back.
func TestLaterResultsCallAPacketLost(t *testing.T) {
	w := newWindow(8, 0, rtt.NewTimer(rtt.Bounds{First: time.Hour, Least: time.Hour, Most: time.Hour}))
	w.begin(1000, 0)
	send := func() (last int) {
		for {
			k, ok := w.next(0)
			if !ok {
				return last
			}
			last = k
		}
	}
	result := func(k int) {
		slot, set := w.place(k)
		if v, _ := w.result(0, uint32(k), slot, set); v != fresh {
			t.Fatalf("packet %d: verdict %d", k, v)
		}
	}
	send() // 0 to 7; the result of 2 is lost
	resent := func(want ...int) {
		t.Helper()
		got, early := w.expired(0, nil)
		if !slices.Equal(got, want) || early != len(want) {
			t.Fatalf("resent %v, %d of them early, want %v", got, early, want)
		}
	}
	for _, k := range []int{0, 1, 3, 4} {
		result(k)
		resent() // sendings 3 is packet 2's; 4 and 5 are answered: not far enough
	}
	result(5)
	resent(2)
	resent()
	send() // 8, 9, 11, 12, 13: sendings 10 to 14, after the resend, which is 9
	result(6)
	result(7)
	resent()
	result(8)
	result(9)
	resent()
	result(11) // sending 12
	resent(2)
	result(2)
	send()
	resent()
}

// A resend that the switch answered although the result was on its way teaches
// the timer how long the way is.
func TestSpuriousResendTeachesTheTimer(t *testing.T) {
	const ms = int64(time.Millisecond)
	w := newWindow(1, 0, rtt.NewTimer(rtt.Bounds{First: 10 * time.Millisecond, Least: 5 * time.Millisecond, Most: time.Second}))
	w.begin(1, 0)
	w.next(0)
	if got, _ := w.expired(10*ms, nil); len(got) != 1 {
		t.Fatal("not resent")
	}
	if v, rtt := w.result(50*ms, 0, 0, 0); v != fresh || rtt != -1 {
		t.Fatalf("verdict %d rtt %d: a resent packet has no round trip", v, rtt)
	}
	if w.timer.Sampled() {
		t.Fatal("took a sample from an ambiguous result")
	}
	if v, _ := w.result(51*ms, 0, 0, 0); v != duplicate {
		t.Fatalf("verdict %d", v)
	}
	if got := w.timer.Timeout(); got < 50*ms {
		t.Fatalf("timeout is %d ms after a spurious resend with a round trip of 50", got/ms)
	}
	// It teaches once, and also when the slot has gone on.
	w = newWindow(1, 0, rtt.NewTimer(rtt.Bounds{First: 10 * time.Millisecond, Least: 5 * time.Millisecond, Most: time.Second}))
	w.begin(2, 0)
	w.next(0)
	w.expired(10*ms, nil)
	w.result(50*ms, 0, 0, 0)
	w.next(50 * ms)
	w.result(60*ms, 0, 0, 0)
	if w.timer.RoundTrip() != 50*ms {
		t.Fatalf("learned a round trip of %d ms, want 50", w.timer.RoundTrip()/ms)
	}
	w.result(90*ms, 0, 0, 0)
	if w.timer.RoundTrip() != 50*ms || w.heard != 0 {
		t.Fatal("learned twice from one packet")
	}
}

// Results come in bursts: the timer learns the longest of a round, once.
func TestTimerLearnsOnceARound(t *testing.T) {
	const ms = int64(time.Millisecond)
	w := newWindow(4, 0, rtt.NewTimer(rtt.Bounds{First: 10 * time.Millisecond, Least: time.Millisecond, Most: time.Second}))
	now := int64(0)
	w.begin(400, 0)
	for round := range 100 {
		var sent []int
		for {
			k, ok := w.next(now)
			if !ok {
				break
			}
			sent = append(sent, k)
		}
		rtt := 10 * ms
		if round%2 == 1 {
			rtt = 20 * ms // a slow round after each fast one
		}
		for i, k := range sent {
			slot, set := w.place(k)
			w.result(now+rtt-int64(i)*ms, uint32(k), slot, set)
		}
		now += rtt
	}
	if !w.finished() {
		t.Fatal("not finished")
	}
	if got := w.timer.Timeout(); got <= 20*ms || got > 60*ms {
		t.Errorf("timeout %d ms for rounds of 10 and 20 ms", got/ms)
	}
}
