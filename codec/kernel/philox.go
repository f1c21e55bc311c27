package kernel

// Philox is the counter-based generator Philox4x32-10 (Salmon, Moraes, Dror,
// Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011): 128 bits of
// counter and 64 bits of key give 128 random bits. Element i of a stream takes
// word i mod 4 of the counter whose first word is Base + i / 4, so any element
// can be computed alone and runs repeat.
type Philox struct {
	Key     [2]uint32
	Counter [3]uint32 // the upper three words of the counter
	Base    uint32    // the first word of the counter for element 0; wraps
}

const (
	philoxM0 = 0xd2511f53
	philoxM1 = 0xcd9e8d57
	philoxW0 = 0x9e3779b9
	philoxW1 = 0xbb67ae85
)

// Block returns the four words of the counter whose first word is Base + i.
func (p *Philox) Block(i uint32) [4]uint32 {
	c0, c1, c2, c3 := p.Base+i, p.Counter[0], p.Counter[1], p.Counter[2]
	k0, k1 := p.Key[0], p.Key[1]
	for range 10 {
		p0 := uint64(philoxM0) * uint64(c0)
		p1 := uint64(philoxM1) * uint64(c2)
		c0, c1, c2, c3 = uint32(p1>>32)^c1^k0, uint32(p1), uint32(p0>>32)^c3^k1, uint32(p0)
		k0 += philoxW0
		k1 += philoxW1
	}
	return [4]uint32{c0, c1, c2, c3}
}

// Fill writes the first len(dst) words of the stream.
func (p *Philox) Fill(dst []uint32) {
	done := 0
	if level != 0 {
		done = philoxFast(dst, p)
	}
	p.fillGo(dst[done:], uint32(done/4))
}

func (p *Philox) fillGo(dst []uint32, from uint32) {
	for i := 0; i < len(dst); i += 4 {
		r := p.Block(from + uint32(i/4))
		copy(dst[i:], r[:])
	}
}
