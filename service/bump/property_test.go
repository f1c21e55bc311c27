package bump

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// TestWhatArrivesIsWhatWasSent sends frames of many flows both ways over a wire that loses, doubles, reorders and damages
// them, with restarts of either end. What a host gets is always a frame that the other one sent: exact but for what its
// rule's codec may change, and within that one's bound.
func TestWhatArrivesIsWhatWasSent(t *testing.T) {
	rules := []string{
		"udp dport=9000 offset=16 type=float32 codec=bfp16",
		"udp dport=9001 offset=16 type=float32 order=big codec=mxfp8-e4m3",
		"udp dport=9002 offset=16 type=bfloat16 codec=qsgd",
		"udp dport=9003 offset=17 type=float32 codec=thc",
		"udp dport=9004 offset=16 type=word16 order=big codec=lossless",
		"tcp dport=9005 codec=lossless",
		"udp dport=9006 codec=raw",
	}
	compressed := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t, rules...)
		for side := range 2 {
			p.o[side].WireFrame = rapid.SampledFrom([]int{300, 900, 1514}).Draw(t, "wire frame")
			p.o[side].Hold = rapid.SampledFrom([]time.Duration{0, 8 * time.Millisecond}).Draw(t, "hold")
			p.start(side)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		loss := rapid.Float64Range(0, 0.4).Draw(t, "loss")
		double := rapid.Float64Range(0, 0.2).Draw(t, "double")
		damage := rapid.Float64Range(0, 0.1).Draw(t, "damage")
		shuffle := rapid.Float64Range(0, 0.5).Draw(t, "shuffle")
		damaged := map[string]bool{} // frames that are no item: nothing protects them but their own checksum
		way := func(_ int, frames [][]byte) (out [][]byte) {
			for _, f := range frames {
				if r.Float64() < loss {
					continue
				}
				if r.Float64() < damage {
					f = bytes.Clone(f)
					f[r.IntN(len(f))] ^= 1 << r.IntN(8)
					damaged[string(f)] = true
				}
				out = append(out, f)
				if r.Float64() < double {
					out = append(out, f)
				}
			}
			if r.Float64() < shuffle {
				r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			}
			return out
		}
		p.meetLossy()
		sent := [2]map[uint64][]byte{{}, {}}
		var tag uint64
		for range rapid.IntRange(3, 12).Draw(t, "batches") {
			for side := range 2 {
				var batch [][]byte
				for range r.IntN(40) {
					tag++
					f := anyFrame(r, side, tag)
					sent[side][tag] = f
					batch = append(batch, f)
				}
				p.host(side, batch...)
			}
			if rapid.IntRange(0, 5).Draw(t, "restart") == 0 {
				p.start(rapid.IntRange(0, 1).Draw(t, "of"))
			}
			p.pass(5*time.Millisecond, way)
		}
		p.pass(20*time.Millisecond, way)
		for side := range 2 {
			for _, got := range p.toHost[1-side] {
				if wire.IsBump(got) || got[12] == 8 && got[13] == 6 || damaged[string(got)] {
					continue
				}
				f := sent[side][tagOf(got)]
				if f == nil {
					t.Fatalf("to host %d: a frame that nobody sent: %x", 1-side, got)
				}
				if why := near(f, got, ruleOf(p, f)); why != "" {
					t.Fatalf("to host %d: %s", 1-side, why)
				}
			}
		}
		compressed += p.e[0].count.Compressed.Frames + p.e[1].count.Compressed.Frames
	})
	if compressed < 1000 {
		t.Errorf("only %d frames were compressed: the test tests little", compressed)
	}
}

// meetLossy has both ends know each other, over a wire that works for that long.
func (p *pair) meetLossy() {
	for side := range 2 {
		p.host(side, arpFrom(side))
		p.e[side].touch(p.e[side].pathOf(hostMAC[side], hostMAC[1-side]), hostIP[1-side])
	}
	p.pass(10*time.Millisecond, nil)
}

// anyFrame is a frame of some rule, or none, with a tag that no codec changes.
func anyFrame(r *rand.Rand, side int, tag uint64) []byte {
	port := uint16(9000 + r.IntN(8))
	sport := uint16(1 + r.IntN(3))
	elements := gradient(r, r.IntN(360), port == 9001)
	if r.IntN(8) == 0 {
		for i := range elements {
			elements[i] = byte(r.Uint32())
		}
	}
	if port == 9005 {
		payload := slices.Concat(make([]byte, 8), elements)
		binary.BigEndian.PutUint64(payload, tag)
		return segment(side, sport, port, uint16(tag), uint32(tag)*1448, payload)
	}
	payload := append(make([]byte, 17), elements...)
	binary.BigEndian.PutUint64(payload, tag)
	f := datagram(side, sport, port, uint16(tag), payload)
	if r.IntN(10) == 0 {
		f[40], f[41] = 0, 0 // without a checksum
	}
	return f
}

func tagOf(f []byte) uint64 {
	at := inet.PayloadOffset
	if f[23] == protoTCP {
		at = inet.L4Offset + 32
	}
	if len(f) < at+8 {
		return 0
	}
	return binary.BigEndian.Uint64(f[at:])
}

func ruleOf(p *pair, f []byte) *Rule {
	head, _, ok := wire.Head(f)
	if !ok {
		return nil
	}
	var k flowKey
	keyOf(f, head, &k)
	for i := range p.e[0].rules {
		if p.e[0].rules[i].matches(&k) {
			return &p.e[0].rules[i].Rule
		}
	}
	return nil
}
