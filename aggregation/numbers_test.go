package aggregation

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var allTypes = []Type{Int32, Int64, Int8, Float32, Float64, Float16, BFloat16, BFP16}

// everySpec calls fn for every type, operation, order and policy by rule Rounds.
func everySpec(t *testing.T, s Spec, fn func(t *testing.T, s Spec)) {
	t.Helper()
	s.Rule = Rounds
	for _, s.Type = range allTypes {
		for s.Op = Sum; s.Op <= Max; s.Op++ {
			for s.Order = Arrival; s.Order <= Ranked; s.Order++ {
				for s.Policy = Propagate; s.Policy <= Saturate; s.Policy++ {
					s.ByteOrder = ByteOrder(uint8(s.Type+Type(s.Op)) & 1)
					if s.Order == Ranked && s.Workers > MaxRankedWorkers {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/%v/%v", s.Type, s.Op, s.Order, s.Policy), func(t *testing.T) { fn(t, s) })
				}
			}
		}
	}
}

// send contributes and checks the outcome and, if there is one, the result.
func send(t *testing.T, p *Pool, slot, w int, k uint32, want Outcome, result []byte, flags Flags) {
	t.Helper()
	out := make([]byte, p.Spec().WireBytes())
	got := p.Contribute(&Contribution{Slot: slot, Set: int(k & 1), Worker: w, Round: k, Values: wireValues(p.Spec(), slot, w, k)}, 0, out)
	if got != want {
		t.Fatalf("worker %d round %d: %v, want %v", w, k, got, want)
	}
	if f := p.Flags(slot, int(k&1)); got.HasResult() && (!bytes.Equal(out, result) || f != flags) {
		t.Fatalf("worker %d round %d: result %x %v, want %x %v", w, k, out, f, result, flags)
	}
}

// played is the model's result of round k of workers that contribute in the
// order given.
func played(s Spec, slot int, k uint32, order ...int) ([]byte, Flags) {
	x := round{sent: map[int][]byte{}}
	for _, w := range order {
		x.arrived = append(x.arrived, w)
		x.sent[w] = wireValues(s, slot, w, k)
	}
	x.complete(s, &Counters{})
	return x.result, x.flags
}

// Four workers, slot 7, in every type: a duplicate, a resend after completion,
// a packet of the round before, of one that is gone and of one to come.
func TestFourWorkersEveryType(t *testing.T) {
	everySpec(t, Spec{Workers: 4, Slots: 8, Elements: 67}, func(t *testing.T, s Spec) {
		p := mustPool(t, s)
		for k := uint32(0); k < 20; k += 2 {
			r0, f0 := played(s, 7, k, 2, 0, 3, 1)
			r1, f1 := played(s, 7, k+1, 0, 1, 2, 3)
			send(t, p, 7, 2, k, Added, nil, 0)
			send(t, p, 7, 0, k, Added, nil, 0)
			send(t, p, 7, 2, k, Duplicate, nil, 0)
			send(t, p, 7, 0, k, Duplicate, nil, 0)
			send(t, p, 7, 3, k, Added, nil, 0)
			send(t, p, 7, 1, k, Completed, r0, f0)
			send(t, p, 7, 1, k, Answered, r0, f0)
			for w := range 3 {
				send(t, p, 7, w, k+1, Added, nil, 0)
			}
			send(t, p, 7, 3, k, Answered, r0, f0)
			send(t, p, 7, 3, k+1, Completed, r1, f1)
			send(t, p, 7, 0, k, Answered, r0, f0)
			send(t, p, 7, 0, k+3, Early, nil, 0)
			if k > 0 {
				send(t, p, 7, 0, k-1, Stale, nil, 0)
			}
			send(t, p, 7, 1, k+1, Answered, r1, f1)
		}
	})
}

// The same slot 100 times with different data, for one worker and for five whose
// arrival changes from round to round: nothing stale.
func TestReuseEveryType(t *testing.T) {
	for _, n := range []int{1, 5} {
		everySpec(t, Spec{Workers: n, Slots: 2, Elements: 19}, func(t *testing.T, s Spec) {
			p := mustPool(t, s)
			rng := rand.New(rand.NewPCG(uint64(n), 2))
			for k := range uint32(100) {
				order := rng.Perm(n)
				r, f := played(s, 1, k, order...)
				for i, w := range order {
					if i < n-1 {
						send(t, p, 1, w, k, Added, nil, 0)
					} else {
						send(t, p, 1, w, k, Completed, r, f)
					}
				}
			}
		})
	}
}

// One worker gets its own bits, whatever they are, but for NaN, of which there
// is only one. Of BFP16 it gets its values: a block may have a smaller exponent.
func TestOneWorkerGetsItsOwnBits(t *testing.T) {
	everySpec(t, Spec{Workers: 1, Slots: 1, Elements: 65}, func(t *testing.T, s Spec) {
		p := mustPool(t, s)
		out := make([]byte, s.WireBytes())
		for k := range uint32(50) {
			sent := wireValues(s, 0, 0, k)
			if o := p.Contribute(&Contribution{Round: k, Values: sent}, 0, out); o != Completed {
				t.Fatal(o)
			}
			m := &numbers{Spec: s}
			si, sf := m.decode(sent)
			oi, of := m.decode(out)
			if !slices.Equal(si, oi) {
				t.Fatalf("round %d: sent %v, got %v", k, si, oi)
			}
			for e, v := range sf {
				switch {
				case s.Type == BFP16 && !emitted(sent, s.Elements, e/16):
				case math.IsInf(v, 0) && s.Policy == Saturate:
				case math.Float64bits(of[e]) != math.Float64bits(v) && !(v != v && of[e] != of[e]):
					t.Fatalf("round %d element %d: sent %v, got %v", k, e, v, of[e])
				}
			}
		}
	})
}

// emitted says that a block of BFP16 is finite and could come from an encoder,
// which emits no mantissa of -128 and no exponent below 7.
func emitted(wire []byte, elements, block int) bool {
	exponent := wire[(elements+15)/16*16+block]
	return exponent >= 7 && exponent < 255 && bytes.IndexByte(wire[16*block:16*block+16], 0x80) < 0
}

// Twenty runs in shuffled order give the same bits in order Ranked, those of
// Reference and of the model in order of rank; in order of arrival float sums do
// not, or the test would show nothing.
func TestRankedIsReproducible(t *testing.T) {
	for _, n := range []int{2, 3, 8, 64} {
		everySpec(t, Spec{Workers: n, Slots: 1, Elements: 70}, func(t *testing.T, s Spec) {
			p := mustPool(t, s)
			ranks := make([]int, n)
			sent := make([][]byte, n)
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			out, reference := make([]byte, s.WireBytes()), make([]byte, s.WireBytes())
			results := map[string]bool{}
			tame := uint32(0)
			for (tame*0x9e3779b1)>>13&1 != 0 {
				tame++
			}
			for w := range n {
				ranks[w], sent[w] = w, wireValues(s, 0, w, tame)
			}
			want, _ := result(s, &Counters{}, sent...)
			flags, err := Reference(s, sent, reference)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(reference, want) {
				t.Errorf("Reference gives %x, the model %x", reference, want)
			}
			for k := range uint32(20) {
				for _, w := range ranks {
					p.Contribute(&Contribution{Worker: w, Round: k, Values: sent[w]}, 0, out)
				}
				if s := p.State(0, int(k&1)); s.Phase != Complete || s.Flags&FlagNonFinite != flags&FlagNonFinite {
					t.Fatalf("run %d: %+v", k, s)
				}
				results[string(out)] = true
				rng.Shuffle(n, func(i, j int) { ranks[i], ranks[j] = ranks[j], ranks[i] })
			}
			switch {
			case s.Order == Ranked && (len(results) != 1 || !results[string(want)]):
				t.Errorf("%d different results; by rank it is %x", len(results), want)
			case s.Order == Arrival && s.Op == Sum && s.Type == Float32 && n >= 8 && len(results) == 1:
				t.Error("sums in order of arrival all have the same bits")
			}
		})
	}
}

// What arrives in order of rank is folded at once: kept memory is not written.
func TestRankedKeepsOnlyWhatComesEarly(t *testing.T) {
	for _, typ := range []Type{Float32, Float16, BFP16, Float64} {
		s := Spec{Rule: Rounds, Workers: 8, Slots: 1, Elements: 20, Type: typ, Order: Ranked}
		p := mustPool(t, s)
		for i := range p.kept {
			p.kept[i] = 0xa5
		}
		written := func() int { return len(p.kept) - bytes.Count(p.kept, []byte{0xa5}) }
		out := make([]byte, s.WireBytes())
		for w := range 8 {
			p.Contribute(&Contribution{Worker: w, Values: wireValues(s, 0, w, 1)}, 0, out)
		}
		if n := written(); n != 0 || p.State(0, 0).Phase != Complete {
			t.Errorf("%v: in order, %d bytes were kept", typ, n)
		}
		for i, w := range []int{0, 1, 3, 2, 4, 5, 6, 7} {
			p.Contribute(&Contribution{Worker: w, Round: 1, Values: bytes.Repeat([]byte{byte(i)}, s.WireBytes())}, 0, out)
		}
		if n := written(); n != s.WireBytes() {
			t.Errorf("%v: one contribution came early, %d bytes were kept, want %d", typ, n, s.WireBytes())
		}
	}
}

// A round that ends without some has the result of the others in either order,
// and a mean is divided by their number.
func TestPartialEveryType(t *testing.T) {
	everySpec(t, Spec{Workers: 6, Slots: 1, Elements: 33, Stragglers: Partial, Deadline: 1}, func(t *testing.T, s Spec) {
		p := mustPool(t, s)
		out := make([]byte, s.WireBytes())
		for k, order := range [][]int{{0}, {5}, {4, 1}, {0, 1, 2}, {3, 5, 4}, {0, 5, 2, 1}, {5, 4, 3, 2, 1}, {4, 3, 2, 1, 0}} {
			k := uint32(k)
			x := round{sent: map[int][]byte{}, arrived: order}
			var counters Counters
			for _, w := range order {
				x.sent[w] = wireValues(s, 0, w, k)
				send(t, p, 0, w, k, Added, nil, 0)
			}
			before := p.Counters()
			x.complete(s, &counters)
			if !p.CompletePartial(0, int(k&1), out) {
				t.Fatal("the round did not end")
			}
			if f := p.Flags(0, int(k&1)); !bytes.Equal(out, x.result) || f != x.flags || f&FlagPartial == 0 {
				t.Fatalf("of %v: %x %v, want %x %v", order, out, f, x.result, x.flags)
			}
			if p.Counters().Partial != before.Partial+1 {
				t.Errorf("of %v: counters %+v after %+v", order, p.Counters(), before)
			}
			for w := range 6 {
				send(t, p, 0, w, k, Answered, x.result, x.flags)
			}
		}
	})
	// By hand: 3 and 5 of four workers, and their mean.
	p := mustPool(t, Spec{Rule: Rounds, Workers: 4, Slots: 1, Elements: 1, Type: Int8, Op: Mean, Order: Ranked, Stragglers: Partial, Deadline: 1})
	out := make([]byte, 1)
	p.Contribute(&Contribution{Worker: 3, Values: []byte{3}}, 0, nil)
	p.Contribute(&Contribution{Worker: 1, Values: []byte{5}}, 0, nil)
	if p.CompletePartial(0, 0, out); out[0] != 4 || p.Flags(0, 0) != FlagPartial || p.Counters() != (Counters{Partial: 1}) {
		t.Errorf("mean %d %v %+v", out[0], p.Flags(0, 0), p.Counters())
	}
}

func TestReferenceRefuses(t *testing.T) {
	s := Spec{Elements: 2, Type: Float32}
	ok, out := make([]byte, 8), make([]byte, 8)
	for _, c := range []struct {
		sent [][]byte
		out  []byte
		say  string
	}{
		{nil, out, "workers 0"},
		{[][]byte{nil, nil}, out, "no contribution"},
		{[][]byte{ok, ok[:7]}, out, "rank 1: values-length"},
		{[][]byte{ok}, out[:7], "room for 7 bytes"},
	} {
		if _, err := Reference(s, c.sent, c.out); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v, want an error about %q", err, c.say)
		}
	}
	if f, err := Reference(s, [][]byte{nil, ok}, out); err != nil || f != FlagPartial {
		t.Errorf("one of two: %v %v", f, err)
	}
}

// A version that is not complete shows what has come so far.
func TestResultSoFar(t *testing.T) {
	for _, order := range []Order{Arrival, Ranked} {
		s := Spec{Rule: Rounds, Workers: 3, Slots: 1, Elements: 1, Type: Float32, ByteOrder: LittleEndian, Order: order}
		p := mustPool(t, s)
		m := &numbers{Spec: s}
		read := func(k uint32) float64 {
			out := []byte{1, 2, 3, 4}
			p.Result(0, int(k&1), out)
			_, f := m.decode(out)
			return f[0]
		}
		add := func(w int, k uint32) {
			p.Contribute(&Contribution{Worker: w, Round: k, Values: m.append(nil, uint64(math.Float32bits(float32(w+1))), 4)}, 0, nil)
		}
		for k := range uint32(4) {
			for i, w := range []int{1, 0, 2} {
				if k == 0 && i == 0 && read(k) != 0 {
					t.Errorf("%v: idle, but %v", order, read(k))
				}
				add(w, k)
				want := []float64{2, 3, 6}[i]
				if order == Ranked && i == 0 {
					want = 0
				}
				if got := read(k); got != want {
					t.Errorf("%v round %d: %v after %d contributions, want %v", order, k, got, i+1, want)
				}
			}
		}
	}
}

func TestEveryTypeAllocatesNothing(t *testing.T) {
	everySpec(t, Spec{Workers: 3, Slots: 4, Elements: 40, Exponents: 2, Stragglers: Partial, Deadline: 1}, func(t *testing.T, s Spec) {
		p := mustPool(t, s)
		out := make([]byte, s.WireBytes())
		var sent [3][]byte
		for w := range sent {
			sent[w] = wireValues(s, 0, w, 3) // with NaN and infinities
		}
		var c Contribution
		k := uint32(0)
		if n := testing.AllocsPerRun(20, func() {
			for _, w := range []int{2, 0, 1} {
				c = Contribution{Slot: 2, Worker: w, Round: k, Values: sent[w]}
				p.Contribute(&c, 0, out)
				p.Contribute(&c, 0, nil)
			}
			c = Contribution{Slot: 2, Worker: 2, Round: k + 1, Values: sent[2]}
			p.Contribute(&c, 0, out)
			p.CompletePartial(2, int(k+1)&1, out)
			k += 2
		}); n != 0 {
			t.Errorf("%v allocations in two rounds", n)
		}
	})
}

func BenchmarkTypes(b *testing.B) {
	for _, order := range []Order{Arrival, Ranked} {
		for _, typ := range allTypes {
			b.Run(fmt.Sprintf("%v/%v", typ, order), func(b *testing.B) {
				s := Spec{Rule: Rounds, Workers: 8, Slots: 64, Elements: 256, Type: typ, ByteOrder: LittleEndian, Order: order}
				p, err := NewPool(s)
				if err != nil {
					b.Fatal(err)
				}
				vals, out := make([]byte, s.WireBytes()), make([]byte, s.WireBytes())
				c := Contribution{Values: vals}
				b.SetBytes(int64(len(vals)))
				for i := 0; b.Loop(); i++ {
					c.Worker = 7 - i&7 // the worst order: all but the last are kept
					c.Slot = i >> 3 & 63
					c.Round = uint32(i >> 9)
					p.Contribute(&c, 0, out)
				}
				if p.Collecting() > 1 {
					b.Fatal("rounds did not complete")
				}
			})
		}
	}
}
