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

// What rounding at random takes above the largest number of the elements' type is that number, and no infinity.
func TestFiniteStaysFinite(t *testing.T) {
	text := "udp dport=9000 offset=0 type=float16 codec=qsgd"
	p := newPair(t, text)
	p.meet()
	rule := mustRule(t, text)
	largest := bytes.Repeat([]byte{0xff, 0x7b, 0xff, 0xfb}, 256) // 65504 and its negative
	p.host(0, datagram(0, 4000, 9000, 1, largest))
	p.carry(nil)
	if p.e[0].Status().Counters.Compressed.Frames != 1 || len(p.toHost[1]) != 1 {
		t.Fatal("nothing was compressed")
	}
	ends := 0
	for i, v := range valuesOf(p.toHost[1][0][42:], &rule) {
		if v-v != 0 || (v < 0) != (i%2 == 1) {
			t.Fatalf("element %d is %v", i, v)
		}
		if v == maxFloat16 || v == -maxFloat16 {
			ends++
		}
	}
	if ends < 100 {
		t.Errorf("%d elements were rounded up: the case is not tried", ends)
	}
}

// The flow that was used longest ago makes room for a new one.
func TestOldestFlowMakesRoom(t *testing.T) {
	p := newPair(t, "udp offset=0 type=float32 codec=bfp16")
	key := flowKey{src: hostMAC[0], dst: hostMAC[1], srcIP: hostIP[0], dstIP: hostIP[1], srcPort: 1, dstPort: 1, proto: 17}
	set := key.hash() % flowSets
	same := []flowKey{key}
	for len(same) < flowWays+1 {
		if key.dstPort++; key.dstPort == 0 {
			key.srcPort++
		}
		if key.hash()%flowSets == set {
			same = append(same, key)
		}
	}
	for _, i := range []int{0, 1, 2, 3, 0, 2, 3, 4} {
		p.e[0].now++
		p.e[0].flowOf(&same[i]).sequence++
	}
	left := map[flowKey]uint32{}
	for _, f := range p.e[0].flows.sets[set] {
		left[f.key] = f.sequence
	}
	for i, want := range []uint32{2, 0, 2, 2, 1} {
		if left[same[i]] != want {
			t.Errorf("flow %d has counted %d frames, want %d", i, left[same[i]], want)
		}
	}
}
