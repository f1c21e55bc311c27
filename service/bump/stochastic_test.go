package bump

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Each frame of a flow has random numbers of its own, and the far end draws the same: thc's signs are among them, without
// which nothing of the values comes back. Its bound is so wide that only the error's energy tells.
func TestEachFrameHasItsOwnRandomNumbers(t *testing.T) {
	for _, name := range []string{"qsgd", "thc"} {
		text := "udp dport=9000 offset=0 type=float32 codec=" + name
		p := newPair(t, text)
		p.meet()
		rule := mustRule(t, text)
		sent := datagram(0, 4000, 9000, 1, gradient(rand.New(rand.NewPCG(1, 3)), 360, false))
		for range 3 {
			p.host(0, sent)
			p.carry(nil)
		}
		if n := p.e[0].Status().Counters.Compressed.Frames; n != 3 || len(p.toHost[1]) != 3 {
			t.Fatalf("%s: %d frames compressed, %d arrived", name, n, len(p.toHost[1]))
		}
		want := valuesOf(sent[42:], &rule)
		for i, f := range p.toHost[1] {
			off, energy := 0.0, 0.0
			for k, v := range valuesOf(f[42:], &rule) {
				d := float64(v - want[k])
				off, energy = off+d*d, energy+float64(want[k])*float64(want[k])
			}
			if off > 0.1*energy {
				t.Errorf("%s: frame %d: the error has %.2f of the values' energy", name, i, off/energy)
			}
			if i > 0 && bytes.Equal(f[42:], p.toHost[1][i-1][42:]) {
				t.Errorf("%s: frames %d and %d were rounded by the same random numbers", name, i-1, i)
			}
		}
	}
}
