package kernel

// Table is a table of 16 ascending small integers from 0 to 31 at most, as THC
// uses it, with what its kernels need to know about it.
type Table struct {
	// below[p] is the last index whose value is at most p.
	below [32]uint8
	// value and next are the table and the table moved by one; its end is
	// repeated.
	value, next [16]uint8
	// t is where values are clamped, unit the table's units a unit of value.
	t, unit float32
}

// NewTable prepares a table whose ends stand for -t and t.
func NewTable(values [16]uint8, t float32) Table {
	need(values[0] == 0 && values[15] > 0 && values[15] < 32, "NewTable: the ends are not 0 and 1 to 31")
	k := Table{value: values, t: t, unit: float32(values[15]) / (2 * t)}
	copy(k.next[:], values[1:])
	k.next[15] = values[15]
	for p := range k.below {
		for i, v := range values {
			if int(v) <= p {
				k.below[p] = uint8(i)
			}
		}
	}
	return k
}

// tableGroup is the number of elements that share 32 random words: RoundTable
// takes whole groups.
const tableGroup = 64

// RoundTable writes one 4-bit index an element, two in a byte with the first in
// the low half. v * scale is clamped to [-t, t] and rounded to one of its two
// neighbours in the table so that its mean is kept: up when the element's 16
// random bits are below the fraction of the way, in units of 2^-16. A group of 64
// elements has 32 words of r: element i < 32 takes the lower half of word i,
// element 32 + i the upper half.
//
// len(src) must be a multiple of 64 and 2 * len(dst), and src * scale finite.
func RoundTable(dst []byte, src []float32, scale float32, k *Table, r *Philox) {
	need(len(src) == 2*len(dst) && len(src)%tableGroup == 0, "RoundTable: no whole groups, or dst is not half a byte an element")
	done := 0
	if level != 0 {
		done = roundTableFast(dst, src, scale, k, r)
	}
	roundTableGo(dst[done/2:], src[done:], scale, k, r, uint32(done/8))
}

func roundTableGo(dst []byte, src []float32, scale float32, k *Table, r *Philox, from uint32) {
	for len(src) > 0 {
		var w [32]uint32
		for i := uint32(0); i < 8; i++ {
			b := r.Block(from + i)
			copy(w[4*i:], b[:])
		}
		for i := range tableGroup / 2 {
			lo, hi := w[2*i%32], w[2*i%32+1]
			if i >= 16 {
				lo, hi = lo>>16, hi>>16
			}
			dst[i] = k.index(src[2*i]*scale, uint16(lo)) | k.index(src[2*i+1]*scale, uint16(hi))<<4
		}
		dst, src = dst[tableGroup/2:], src[tableGroup:]
		from += 8
	}
}

func (k *Table) index(y float32, r uint16) uint8 {
	p := float32(float32(max(min(y, k.t), -k.t)+k.t) * k.unit) // the conversion forbids a fused p-lo
	i := k.below[int(p)&31]
	lo, hi := float32(k.value[i]), float32(k.next[i])
	if float32(float32(r)*0x1p-16)*(hi-lo) < p-lo {
		i++
	}
	return i
}

// AddTable adds the values that indices name to acc, one byte an element,
// modulo 256. len(acc) must be 2 * len(indices).
func AddTable(acc, indices []byte, k *Table) {
	need(len(acc) == 2*len(indices), "AddTable: acc is not one byte an element")
	done := 0
	if level != 0 {
		done = addTableFast(acc, indices, k)
	}
	acc, indices = acc[2*done:], indices[done:]
	for i, b := range indices {
		acc[2*i] += k.value[b&15]
		acc[2*i+1] += k.value[b>>4]
	}
}

// AffineUint8 writes (float32(q) * step - offset) * scale for every q of src,
// each operation rounded to float32. len(dst) must be len(src).
func AffineUint8(dst []float32, src []byte, step, offset, scale float32) {
	need(len(dst) == len(src), "AffineUint8: lengths differ")
	done := 0
	if level != 0 {
		done = affineUint8Fast(dst, src, step, offset, scale)
	}
	dst, src = dst[done:], src[done:]
	for i := range dst {
		dst[i] = float32(float32(float32(src[i])*step)-offset) * scale
	}
}
