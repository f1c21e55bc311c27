package aggregation

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// A result that is restored into another pool is answered with the same bits, and the next round follows it.
func TestRestoreGivesTheSameBits(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for typ := Int32; typ <= BFP16; typ++ {
		for op := Sum; op <= Max; op++ {
			for _, policy := range []Policy{Propagate, Saturate} {
				s := Spec{Rule: Rounds, Workers: 3, Slots: 2, Elements: 48, Type: typ, ByteOrder: LittleEndian, Op: op, Policy: policy}
				lost, err := NewPool(s)
				if err != nil {
					t.Fatal(err)
				}
				next, _ := NewPool(s)
				n := s.WireBytes()
				result := make([]byte, n)
				contribution := make([]byte, n)
				for w := range 3 {
					for i := range contribution {
						contribution[i] = byte(r.Uint32())
					}
					lost.Contribute(&Contribution{Slot: 1, Worker: w, Round: 7, Values: contribution}, 0, result)
				}
				if o := next.Restore(1, 7, result, lost.Flags(1, 1)); o != Completed {
					t.Fatalf("%v %v: %v", typ, op, o)
				}
				got := make([]byte, n)
				if o := next.Contribute(&Contribution{Slot: 1, Worker: 2, Round: 7, Values: contribution}, 0, got); o != Answered || !bytes.Equal(got, result) {
					t.Fatalf("%v %v %v: %v\n got %x\nwant %x", typ, op, policy, o, got, result)
				}
				if next.Flags(1, 1) != lost.Flags(1, 1) || next.State(1, 1).Count != 3 {
					t.Errorf("%v %v: flags %v, want %v", typ, op, next.Flags(1, 1), lost.Flags(1, 1))
				}
				if o := next.Restore(1, 7, result, 0); o != Answered {
					t.Errorf("again: %v", o)
				}
				if o := next.Restore(1, 8, result, 0); o != Stale {
					t.Errorf("another round: %v", o)
				}
				if o := next.Contribute(&Contribution{Slot: 1, Worker: 0, Round: 8, Values: contribution}, 0, nil); o != Added {
					t.Errorf("the next round: %v", o)
				}
			}
		}
	}
	p, _ := NewPool(Spec{Rule: Rounds, Workers: 1, Slots: 1, Elements: 4})
	if p.Restore(1, 0, make([]byte, 16), 0) != InvalidSlot || p.Restore(0, 0, make([]byte, 15), 0) != InvalidLength {
		t.Error("accepted what does not fit")
	}
}
