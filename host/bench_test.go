package host

import (
	"fmt"
	"testing"

	"gradnic/host/nic"
	"gradnic/service/ring"
)

// BenchmarkAllReduce is what the way through shared memory costs: a ring of one node, which only copies, from the NIC's own
// process, from memory of the arena, and from other memory.
func BenchmarkAllReduce(b *testing.B) {
	r := newRig(b, 1, nic.Options{}, nil)
	c := r.dialOne(0, Options{})
	for _, n := range []int{256, 1 << 20} {
		inside, err := c.Alloc(n)
		if err != nil {
			b.Fatal(err)
		}
		outside := make([]float32, n)
		for name, f := range map[string]func() error{
			"in-process": func() error {
				_, err := r.ring.Nodes[0].Ring.AllReduce(b.Context(), ring.Request{Data: outside, Codec: "none"})
				return err
			},
			"arena": func() error {
				_, err := c.AllReduce(b.Context(), Request{Data: inside, Codec: "none"})
				return err
			},
			"copied": func() error {
				_, err := c.AllReduce(b.Context(), Request{Data: outside, Codec: "none"})
				return err
			},
		} {
			b.Run(fmt.Sprintf("%s/%dKiB", name, n/256), func(b *testing.B) {
				b.SetBytes(int64(4 * n))
				for b.Loop() {
					if err := f(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if err := c.Free(inside); err != nil {
			b.Fatal(err)
		}
	}
}
