package accl_test

import (
	"bytes"
	"os"
	"testing"

	wire "gradnic/wire/accl"
	. "gradnic/worker/accl"
)

// FuzzEngine: whatever peers send, in whatever order, no call panics, writes outside its Dst, or stays without an end once
// time has passed.
func FuzzEngine(f *testing.F) {
	for _, p := range golden(f) {
		f.Add(byte(8), byte(1), uint16(17), uint16(127), p.Payload)
	}
	record, err := os.ReadFile("../../wire/accl/testdata/allreduce17-w2.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(byte(3), byte(1), uint16(300), uint16(4095), bytes.Repeat(record, 8))
	f.Fuzz(func(t *testing.T, collective, kind byte, count, cut uint16, b []byte) {
		cs := Collectives()
		c := Call{Collective: cs[int(collective)%len(cs)], Type: Types()[int(kind)%5], Op: Op(kind >> 4 & 1), Count: int(count) % 3000}
		c.Half = c.Type == Float32 && kind&0x80 != 0
		if c.Collective == Send || c.Collective == Recv {
			c.Root = 1
		}
		cfg := memConfig(3, 0)
		cfg.Buffers = 4
		src, dst := c.Lengths(0, 3)
		const guard = 64
		room := bytes.Repeat([]byte{0xa5}, guard+dst+guard)
		c.Src, c.Dst = make([]byte, src), room[guard:guard+dst:guard+dst]
		r, err := NewResponder(cfg, c)
		if err != nil {
			t.Fatal(err)
		}
		r.Start()
		for from := 1; len(b) > 0; from = 3 - from {
			n := min(int(cut)+1, len(b))
			ds, _ := r.Datagram(from, b[:n])
			for _, d := range ds {
				if d.To != 1 && d.To != 2 || len(d.Payload)%wire.Word != 0 || len(d.Payload) > wire.MaxDatagram {
					t.Fatalf("a datagram of %d bytes to rank %d", len(d.Payload), d.To)
				}
			}
			b = b[n:]
		}
		r.Pass(DefaultTimeout)
		if !r.Done() {
			t.Fatal("no end")
		}
		for _, v := range append(room[:guard:guard], room[guard+dst:]...) {
			if v != 0xa5 {
				t.Fatal("wrote outside of Dst")
			}
		}
	})
}
