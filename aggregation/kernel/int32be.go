package kernel

// SwitchML's loops, which every other job's slots could have too: see For.
var int32BE = mustOps[int32](Spec{Type: Int32, Order: BigEndian, Op: Sum, Policy: Propagate})

func mustOps[A Element](s Spec) *Ops[A] {
	o, err := For[A](s)
	if err != nil {
		panic(err)
	}
	return o
}

// SetInt32BE decodes big-endian int32 elements into a slot: the first contribution of a round.
// It panics unless len(src) == 4*len(dst).
func SetInt32BE(dst []int32, src []byte) { int32BE.Set(dst, src) }

// AddInt32BE adds big-endian int32 elements to a slot, wrapping as SwitchML's switch does, and returns how many
// elements overflowed. It panics unless len(src) == 4*len(dst).
func AddInt32BE(dst []int32, src []byte) (wrapped int) { return int32BE.Fold(dst, src) }

// PutInt32BE encodes a slot as big-endian int32 elements: the values of a result.
// It panics unless len(dst) == 4*len(src).
func PutInt32BE(dst []byte, src []int32) { int32BE.Put(dst, src) }

// AddPutInt32BE is AddInt32BE followed by PutInt32BE in one pass: the last contribution of a round is added to the slot
// acc and the sum is encoded into out. out and src may be the same buffer, but must not overlap otherwise.
// It panics unless len(out) == len(src) == 4*len(acc).
func AddPutInt32BE(out []byte, acc []int32, src []byte) (wrapped int) {
	return int32BE.FoldPut(out, acc, src)
}
