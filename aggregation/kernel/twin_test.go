package kernel

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"gradnic/internal/cpu"
)

var lengths = func() (all []int) {
	for n := range 66 {
		all = append(all, n)
	}
	return append(all, 255, 256, 257, 1023, 1024, 1025)
}()

// results are what the loops make of the same input.
type results[A Element] struct {
	set, fold, foldPut, mean         []A
	put, foldPutOut                  []byte
	setN, foldN, putN, foldPutN, pkN int
	peak                             float32
}

const guard = 64 // bytes and elements around buffers that must stay

// run applies every loop to copies of acc and src that start shift bytes (or the elements in them) after an arbitrary
// address, and checks that nothing around the buffers changes.
func run[A Element](t testing.TB, o *Ops[A], acc []A, src []byte, shift int) (r results[A]) {
	t.Helper()
	slotShift := shift % 64 / slotBytes[A]()
	slotBuf := make([]A, len(acc)+2*guard)
	wireBuf := make([]byte, len(src)+2*guard+64)
	slot := slotBuf[guard/2+slotShift:][:len(acc):len(acc)]
	wire := wireBuf[guard/2+shift:][:len(src):len(src)]
	in := append(make([]byte, shift, shift+len(src)), src...)[shift:]
	check := func(what string) {
		t.Helper()
		for i, v := range slotBuf {
			if (i < guard/2+slotShift || i >= guard/2+slotShift+len(acc)) && bitsOf(v) != 0 {
				t.Fatalf("%v length %d shift %d: %s wrote element %d of a slot", o.spec, len(acc), shift, what, i-guard/2-slotShift)
			}
		}
		for i, v := range wireBuf {
			if (i < guard/2+shift || i >= guard/2+shift+len(src)) && v != 0 {
				t.Fatalf("%v length %d shift %d: %s wrote byte %d of a result", o.spec, len(acc), shift, what, i-guard/2-shift)
			}
		}
		if !bytes.Equal(in, src) {
			t.Fatalf("%v length %d: %s changed its source", o.spec, len(acc), what)
		}
	}
	saved := func() []A { return append([]A(nil), slot...) }

	r.setN = o.Set(slot, in)
	r.set = saved()
	copy(slot, acc)
	r.foldN = o.Fold(slot, in)
	r.fold = saved()
	copy(slot, acc)
	r.putN = o.Put(wire, slot)
	r.put = bytes.Clone(wire)
	check("set, fold or put")
	if i, same := sameBits(slot, acc); !same {
		t.Fatalf("%v: put changed element %d of its slot", o.spec, i)
	}
	r.foldPutN = o.FoldPut(wire, slot, in)
	r.foldPut, r.foldPutOut = saved(), bytes.Clone(wire)
	if p, ok := any(o).(*Ops[float32]); ok && o.spec.Op == Sum {
		copy(slot, acc)
		r.pkN, r.peak = FoldPeak(p, any(slot).([]float32), in)
		if _, same := sameBits(slot, r.fold); !same {
			t.Fatalf("%v: FoldPeak and Fold differ", o.spec)
		}
	}
	copy(slot, acc)
	o.Divide(slot, 1+shift%9)
	r.mean = saved()
	check("fold and put, peak or divide")

	// In place: the result over the contribution.
	copy(slot, acc)
	copy(wire, src)
	if n := o.FoldPut(wire, slot, wire); n != r.foldPutN || !bytes.Equal(wire, r.foldPutOut) {
		t.Fatalf("%v length %d: fold and put over the source differs", o.spec, len(acc))
	}
	return r
}

// slotBytes is the size of a slot's element.
func slotBytes[A Element]() int {
	if k := kindOf[A](); k == kindInt64 || k == kindFloat64 {
		return 8
	}
	return 4
}

func same[A Element](a, b results[A]) error {
	for _, c := range []struct {
		what string
		a, b []A
	}{{"set", a.set, b.set}, {"fold", a.fold, b.fold}, {"foldPut", a.foldPut, b.foldPut}, {"mean", a.mean, b.mean}} {
		if i, same := sameBits(c.a, c.b); !same {
			return fmt.Errorf("%s, element %d: %v (%#x), Go %v (%#x)", c.what, i, c.a[i], bitsOf(c.a[i]), c.b[i], bitsOf(c.b[i]))
		}
	}
	if !bytes.Equal(a.put, b.put) {
		return fmt.Errorf("put: % x, Go % x", a.put, b.put)
	}
	if !bytes.Equal(a.foldPutOut, b.foldPutOut) {
		return fmt.Errorf("foldPut: % x, Go % x", a.foldPutOut, b.foldPutOut)
	}
	ca := [...]int{a.setN, a.foldN, a.putN, a.foldPutN, a.pkN}
	cb := [...]int{b.setN, b.foldN, b.putN, b.foldPutN, b.pkN}
	if ca != cb {
		return fmt.Errorf("counts of set, fold, put, foldPut, peak: %v, Go %v", ca, cb)
	}
	if math.Float32bits(a.peak) != math.Float32bits(b.peak) {
		return fmt.Errorf("peak %v, Go %v", a.peak, b.peak)
	}
	return nil
}

// compare checks one spec at one level against Go. Go's results depend on no alignment, so they are made once for each
// length and divisor.
func compare[A Element](t *testing.T, s Spec, tier cpu.Tier, shifts int) {
	t.Helper()
	pure, asm := testOps[A](t, s, cpu.Off), testOps[A](t, s, tier)
	rng := rand.New(rand.NewPCG(uint64(s.Type)<<8|uint64(s.Op), uint64(s.Policy)))
	for i, n := range lengths {
		for _, c := range []struct {
			mood   mood
			shifts int
		}{{mood(i % 3), shifts}, {mood((i + 1) % 3), min(shifts, 8)}} {
			m := c.mood
			acc, src := make([]A, n), make([]byte, n*s.Type.Bytes())
			randomSlot(rng, acc, m)
			randomWire[A](rng, s, src, m)
			want := run(t, pure, acc, src, 0)
			for shift := range c.shifts {
				got := run(t, asm, acc, src, shift)
				if divisor := 1 + shift%9; divisor > 1 {
					pure.Divide(copyInto(want.mean, acc), divisor)
				} else {
					copy(want.mean, acc)
					pure.Divide(want.mean, 1)
				}
				if err := same(got, want); err != nil {
					t.Fatalf("%v, %d elements, %d bytes after an address, mood %d: %v", s, n, shift, m, err)
				}
			}
		}
	}
}

func copyInto[A Element](dst, src []A) []A {
	copy(dst, src)
	return dst
}

func TestAssemblyEqualsGo(t *testing.T) {
	shifts := 64
	if testing.Short() || raceDetector {
		shifts = 8
	}
	for _, tier := range tiers(t) {
		t.Run(tier.String(), func(t *testing.T) {
			for _, s := range specs() {
				t.Run(s.String(), func(t *testing.T) {
					t.Parallel()
					forSlot(s,
						func() { compare[int32](t, s, tier, shifts) },
						func() { compare[int64](t, s, tier, shifts) },
						func() { compare[float32](t, s, tier, shifts) },
						func() { compare[float64](t, s, tier, shifts) })
				})
			}
		})
	}
}
