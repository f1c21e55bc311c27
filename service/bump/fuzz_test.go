package bump

import (
	"bytes"
	"math/rand/v2"
	"testing"

	wire "gradnic/wire/bump"
	"gradnic/wire/inet"
)

// FuzzFromWire gives an engine any frame from the wire, with a checksum made right so that what lies behind it is reached.
// Nothing panics, and every host frame that comes out is a well-formed one of the length that was asked for.
func FuzzFromWire(f *testing.F) {
	for _, rule := range []string{gradRule, "udp dport=9000 offset=8 type=float32 codec=topk", "udp dport=9000 offset=8 type=float16 order=big codec=thc",
		"udp dport=9000 offset=8 type=word16 codec=lossless", "udp dport=9000 offset=8 type=float32 codec=blockb16e8m4"} {
		if _, err := ParseRule(rule); err != nil {
			continue
		}
		p := newPair(f, rule)
		p.meet()
		r := rand.New(rand.NewPCG(1, 2))
		p.host(0, datagram(0, 1, 9000, 1, append(make([]byte, 8), gradient(r, 66, false)...)), datagram(0, 1, 9000, 2, append(make([]byte, 8), gradient(r, 67, false)...)))
		for _, b := range p.onWire[0] {
			f.Add(b, true)
		}
	}
	f.Add(make([]byte, 60), false)
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		e, out := alone(t)
		e.stations.learn(inet.MAC{2, 0, 0, 0, 0, 2})
		if mend && len(b) >= wire.BodyOffset {
			n := int(b[16])<<8 | int(b[17])
			if len(b) >= wire.BodyOffset+n {
				h := wire.Header{Dst: inet.MAC(b[:6]), Src: inet.MAC(b[6:12]), Kind: wire.Kind(b[14] & 15), Items: int(b[15]), Boot: 1, Seed: 3}
				wire.Seal(b[:wire.BodyOffset+n], &h)
			}
		}
		before := bytes.Clone(b)
		v, fault := e.FromWire(b, 1)
		if v == Refuse != (fault != wire.OK) {
			t.Fatalf("verdict %d with fault %v", v, fault)
		}
		if v == Pass && !bytes.Equal(b, before) {
			t.Fatal("a frame that passes was changed")
		}
		for _, o := range *out {
			if o[12] == 8 && o[13] == 6 {
				continue
			}
			if _, _, ok := wire.Head(o); !ok || len(o) > DefaultFrame {
				t.Fatalf("a host frame that is none: %x", o)
			}
		}
		e.Tick(2)
		e.Close(3)
	})
}

// FuzzFromHost: what the host sends is passed unchanged but for its transport checksum, or restored at the far end as it was
// but for the elements.
func FuzzFromHost(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	f.Add(datagram(0, 1, 9000, 1, append(make([]byte, 8), gradient(r, 66, false)...)))
	f.Add(datagram(0, 1, 9001, 1, append(make([]byte, 3), gradient(r, 66, true)...)))
	f.Add(segment(0, 1, 9000, 1, 2, gradient(r, 66, false)))
	rules := []string{gradRule, "udp dport=9001 offset=3 type=bfloat16 order=big codec=int8", "tcp dport=9000 codec=lossless"}
	p := newPair(f, rules...) // one for all: making engines takes most of the time
	p.meet()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= inet.EthernetLen {
			copy(b, hostMAC[1][:])
			copy(b[6:], hostMAC[0][:])
		}
		if len(b) > DefaultFrame || wire.IsBump(b) {
			return
		}
		p.onWire, p.toHost = [2][][]byte{}, [2][][]byte{}
		want := bytes.Clone(b)
		complete(want)
		p.host(0, b)
		p.carry(nil)
		if len(p.toHost[1]) != 1 {
			t.Fatalf("%d frames arrived", len(p.toHost[1]))
		}
		if why := near(want, p.toHost[1][0], ruleOf(p, want)); why != "" {
			t.Fatal(why)
		}
	})
}
