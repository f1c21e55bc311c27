package xdp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"gradnic/aggregation"
	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// sumModel is what the program has to do, made of the parts that do it in user space: package inet and switchml judge a
// frame, aggregation.Pool has the slots.
type sumModel struct {
	job   SumJob
	whole bool // the whole port is the NIC's
	pool  *aggregation.Pool
	ranks map[[10]byte]int // by MAC and IP
	want  SumStatus
}

func newSumModel(t rapid.TB, job SumJob, whole bool) *sumModel {
	t.Helper()
	pool, err := aggregation.NewPool(aggregation.Spec{
		Rule: aggregation.SwitchML, Workers: job.Workers, Elements: job.Elements, Exponents: 2, Slots: job.Slots,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := &sumModel{job: job, whole: whole, pool: pool, ranks: map[[10]byte]int{}}
	for rank := range job.Workers {
		m.ranks[sumSource(sumFrame(rank, 0, 0, nil))] = rank
	}
	m.reset()
	return m
}

func (m *sumModel) reset() {
	m.pool.Reset()
	m.want = SumStatus{Workers: make([]SumWorkerStatus, m.job.Workers)}
}

// sumSource is where a frame comes from.
func sumSource(f []byte) [10]byte { return [10]byte(append(bytes.Clone(f[6:12]), f[26:30]...)) }

// judge is what has to become of a frame: the frame itself is looked at when it goes on.
func (m *sumModel) judge(frame []byte) sumEnd {
	e := sumEnd{action: xdpPass, verdict: expected(frame), frame: bytes.Clone(frame)}
	toUs := e.verdict
	if m.whole {
		e.verdict = TakenAll
	}
	if e.verdict.Taken() {
		e.action = xdpRedirect
	}
	if len(frame) >= 42 {
		e.mark = binary.BigEndian.Uint16(frame[40:])
	}
	if toUs != TakenUDP {
		return e
	}
	rank, known := m.ranks[sumSource(frame)]
	if !known {
		return e
	}
	e.tell(m.job.Tag, NotJudged)
	var p inet.Packet
	if inet.Parse(frame, &p) != inet.OK || binary.BigEndian.Uint16(frame[16:]) != 20+binary.BigEndian.Uint16(frame[38:]) {
		return e // the kernel adds up no packet that has more behind the datagram, although package inet allows for it
	}
	v, fault := switchml.Validate(p.Payload)
	if fault != switchml.OK || v.Elements() != m.job.Elements || v.Slot() >= m.job.Slots {
		return e
	}
	e0, e1 := v.Exponents()
	c := aggregation.Contribution{Slot: v.Slot(), Set: v.Set(), Worker: rank, Exponents: [2]int8{e0, e1}, Values: v.Values()}
	w := &m.want.Workers[rank]
	w.Received++
	outcome := m.pool.Contribute(&c, 0, e.frame[switchml.ValuesOffset:])
	if outcome.HasResult() {
		e0, e1 = m.pool.Exponents(c.Slot, c.Set)
		e.frame[50], e.frame[51] = byte(e0), byte(e1)
	}
	switch outcome {
	case aggregation.Added:
		e.action, e.verdict = xdpDrop, Summed
		w.Contributed++
	case aggregation.Duplicate:
		e.action, e.verdict = xdpDrop, Repeated
		w.Duplicates++
	case aggregation.Completed:
		e.tell(m.job.Tag, SumCompleted)
		w.Contributed++
		w.Last++
		m.want.Results++
	case aggregation.Answered:
		e.tell(m.job.Tag, SumAnswered)
		w.Duplicates++
		w.Resent++
		m.want.Resent++
	}
	return e
}

func (e *sumEnd) tell(tag uint16, m SumMark) {
	e.mark = tag<<2 | uint16(m)
	binary.BigEndian.PutUint16(e.frame[40:], e.mark)
}

// differs says how what became of a frame is not what the model wants; "" when it is.
func (e sumEnd) differs(want sumEnd) string {
	if e.action != want.action || e.verdict != want.verdict || e.action != xdpDrop && e.mark != want.mark {
		return fmt.Sprintf("action %d, %v, mark %#x; want %d, %v, %#x", e.action, e.verdict, e.mark, want.action, want.verdict, want.mark)
	}
	if e.action == xdpDrop || bytes.Equal(e.frame, want.frame) {
		return ""
	}
	for i := range want.frame {
		if i >= len(e.frame) || e.frame[i] != want.frame[i] {
			return fmt.Sprintf("mark %#x, and the frame of %d bytes differs from byte %d on: %x, want %x", e.mark, len(e.frame), i, e.frame[i:min(i+8, len(e.frame))], want.frame[i:min(i+8, len(want.frame))])
		}
	}
	return fmt.Sprintf("the frame has %d bytes, want %d", len(e.frame), len(want.frame))
}

// check compares a job's status with the model's, and the times that it has with the time since begin.
func (m *sumModel) check(t rapid.TB, s *Sums, id SumJobID, begin time.Duration) {
	t.Helper()
	got := sumStatus(t, s, id)
	now := monotonic(t)
	_, collecting, complete := m.pool.Occupancy()
	m.want.Wrapped = m.pool.Wrapped()
	if got.Results != m.want.Results || got.Resent != m.want.Resent || got.Wrapped != m.want.Wrapped || got.Collecting != collecting || got.Complete != complete {
		t.Fatalf("%d results, %d resent, %d wrapped, %d collecting, %d complete; want %d, %d, %d, %d, %d",
			got.Results, got.Resent, got.Wrapped, got.Collecting, got.Complete, m.want.Results, m.want.Resent, m.want.Wrapped, collecting, complete)
	}
	var times uint64
	for _, n := range got.Times {
		times += n
	}
	if times != got.Results || got.Sum < 0 || got.Sum > time.Duration(got.Results)*(now-begin) {
		t.Fatalf("%d times for %d results, %v together in %v", times, got.Results, got.Sum, now-begin)
	}
	for rank := range got.Workers {
		g, w := got.Workers[rank], m.want.Workers[rank]
		seen, since := g.Seen, g.Since
		g.Seen, g.Since = 0, 0
		if g != w {
			t.Fatalf("rank %d: %+v, want %+v", rank, g, w)
		}
		// The coarse clock is up to a tick of 10 ms behind.
		if w.Received == 0 && seen != 0 || w.Received > 0 && (seen < begin-20*time.Millisecond || seen > now) {
			t.Fatalf("rank %d was seen at %v; the test runs from %v to %v", rank, seen, begin, now)
		}
		lacks := false
		m.pool.Walk(func(slot, set int, _ aggregation.State) bool {
			lacks = lacks || m.pool.Seen(slot, set)[0]>>rank&1 == 0
			return true
		})
		if !lacks && since != 0 || lacks && (since < begin || since > now) {
			t.Fatalf("rank %d is lacking: %t, since %v; the test runs from %v to %v", rank, lacks, since, begin, now)
		}
	}
}

func monotonic(t rapid.TB) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// sumKind is how the values of a frame are chosen.
type sumKind int

const (
	sumZero sumKind = iota
	sumSmall
	sumInside  // what two halves of a word just hold: B-1 or -B
	sumHighest // B-1 all
	sumLowest  // -B all
	sumBeyond  // one that is not: B or -B-1, the others inside
	sumExtreme // the least and the greatest of all, and near them
	sumAny
	sumKinds
)

// sumDraw makes values of a kind, for so many workers.
func sumDraw(r *rand.Rand, kind sumKind, workers int, values []int32) {
	half := int64(1) << (31 - bits.Len(uint(workers-1)))
	pick := func(of ...int64) int32 { return int32(of[r.IntN(len(of))]) }
	for i := range values {
		switch kind {
		case sumZero:
			values[i] = 0
		case sumSmall:
			values[i] = int32(r.IntN(2001) - 1000)
		case sumInside, sumBeyond:
			values[i] = pick(half-1, -half, half-2, 1-half, 0, -1)
		case sumHighest:
			values[i] = int32(half - 1)
		case sumLowest:
			values[i] = int32(-half)
		case sumExtreme:
			values[i] = pick(math.MinInt32, math.MaxInt32, math.MinInt32+1, 0, -1, 1, math.MaxInt32-1)
		default:
			values[i] = int32(r.Uint32())
		}
	}
	if kind == sumBeyond {
		// Cut to 32 bits: of one worker nothing is beyond.
		values[r.IntN(len(values))] = pick(half, -half-1, math.MinInt32, math.MaxInt32)
	}
}

// The rule is the pool's: for any sequence of contributions, also those that no right worker sends, whatever the job's
// slots have held before, the program and a pool of user space do the same.
func TestSumRule(t *testing.T) {
	for _, c := range []struct{ multi, whole bool }{{false, false}, {true, true}} {
		t.Run(fmt.Sprintf("frags=%t,whole=%t", c.multi, c.whole), func(t *testing.T) {
			st, s := summing(t, c.multi)
			if err := st.SetWholePort(c.whole); err != nil {
				t.Fatal(err)
			}
			var frames, results, wrapped, answered uint64
			rapid.Check(t, func(rt *rapid.T) {
				job := SumJob{
					Workers:  rapid.OneOf(rapid.SampledFrom([]int{1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 32}), rapid.IntRange(1, MaxSumWorkers)).Draw(rt, "workers"),
					Elements: rapid.SampledFrom([]int{64, 256}).Draw(rt, "elements"),
					Slots:    rapid.IntRange(1, 3).Draw(rt, "slots"),
					Tag:      rapid.Uint16Range(0, MaxSumTag).Draw(rt, "tag"),
				}
				begin := monotonic(rt)
				id := installSum(rt, s, job)
				defer func() { // also of a check that failed: smaller ones are tried then
					if err := s.Remove(id); err != nil {
						rt.Error(err)
					}
				}()
				m := newSumModel(rt, job, c.whole)
				values := make([]int32, job.Elements)
				send := func(rank, slot, set int, kind sumKind, seed uint64) {
					r := rand.New(rand.NewPCG(seed, 1))
					sumDraw(r, kind, job.Workers, values)
					f := sumFrame(rank, slot, set, values)
					// What nobody looks at: job number, packet number, a bit of the first byte and of the pool index, exponents,
					// source port, checksums, which of the ports, and padding.
					f[42] |= byte(r.IntN(2)) << 3
					f[43] = byte(r.Uint32())
					binary.BigEndian.PutUint32(f[44:], r.Uint32())
					f[48] |= byte(r.IntN(2)) << 6
					f[50], f[51] = byte(r.Uint32()), byte(r.Uint32())
					binary.BigEndian.PutUint16(f[34:], uint16(r.Uint32()))
					f[37] |= byte(r.IntN(16))
					binary.BigEndian.PutUint16(f[24:], uint16(r.Uint32()))
					binary.BigEndian.PutUint16(f[40:], job.Tag<<2+uint16(r.IntN(4)))
					f = append(f, make([]byte, 4*r.IntN(2))...)
					frames++
					want := m.judge(f)
					if d := sumRun(rt, st, f).differs(want); d != "" {
						rt.Fatalf("rank %d, slot %d, set %d: %s", rank, slot, set, d)
					}
				}
				kinds := rapid.Custom(func(rt *rapid.T) sumKind { return sumKind(rapid.IntRange(0, int(sumKinds)-1).Draw(rt, "kind")) })
				for range rapid.IntRange(1, 25).Draw(rt, "steps") {
					slot, set := rapid.IntRange(0, job.Slots-1).Draw(rt, "slot"), rapid.IntRange(0, 1).Draw(rt, "set")
					kind, seed := kinds.Draw(rt, "kind"), rapid.Uint64().Draw(rt, "seed")
					switch rapid.IntRange(0, 9).Draw(rt, "step") {
					case 0, 1, 2, 3:
						send(rapid.IntRange(0, job.Workers-1).Draw(rt, "rank"), slot, set, kind, seed)
					case 4, 5, 6, 7: // all that the version lacks, some with other values than the others
						other, order := kinds.Draw(rt, "other kind"), rand.New(rand.NewPCG(seed, 2))
						for _, rank := range order.Perm(job.Workers) {
							if m.pool.Seen(slot, set)[0]>>rank&1 == 1 {
								continue
							}
							k := kind
							if order.IntN(4) == 0 {
								k = other
							}
							send(rank, slot, set, k, order.Uint64())
						}
					case 8:
						rank := rapid.IntRange(0, job.Workers-1).Draw(rt, "rank")
						for _, at := range []int{set, set, set ^ 1, set} { // it repeats, runs ahead, and comes back
							send(rank, slot, at, kind, seed)
						}
					case 9:
						if rapid.IntRange(0, 3).Draw(rt, "reset") == 0 {
							results, answered, wrapped = results+m.want.Results, answered+m.want.Resent, wrapped+m.pool.Wrapped()
							m.check(rt, s, id, begin)
							m.reset()
							if err := s.Reset(id); err != nil {
								rt.Fatal(err)
							}
						}
					}
				}
				m.check(rt, s, id, begin)
				results, answered, wrapped = results+m.want.Results, answered+m.want.Resent, wrapped+m.want.Wrapped
			})
			t.Logf("%d frames, %d results, %d answered, %d wrapped", frames, results, answered, wrapped)
			if results == 0 || answered == 0 || wrapped == 0 {
				t.Errorf("%d frames: %d results, %d answered, %d wrapped: something never happened", frames, results, answered, wrapped)
			}
		})
	}
}
