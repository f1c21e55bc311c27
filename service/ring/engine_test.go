package ring

import (
	"fmt"
	"testing"

	wire "gradnic/wire/ring"
)

const second = int64(1e9)

// TestSum: rings of many sizes, all codecs, lengths around slices and blocks, two requests at once.
func TestSum(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 6, 7, 64} {
		for _, name := range codecNames {
			for _, length := range []int{0, 1, 511, 512, 513, 512*n - 1, 512*n + 1, 512*n*5 + 77} {
				if n == 64 && (length != 512*n-1 || name == "fp16" || name == "bf16") || n == 7 && name != "bfp16" {
					continue // they take long
				}
				t.Run(fmt.Sprintf("%d/%s/%d", n, name, length), func(t *testing.T) {
					w := newNetwork(t, 1)
					nodes := w.ringOf(n, nil)
					jobs := []*job{w.job(n, length, name), w.job(n, 700, name)}
					for i, node := range nodes {
						for _, j := range jobs {
							j.submit(t, node, i)
						}
					}
					if !w.until(10*second, func() bool { return jobs[0].over() && jobs[1].over() }) {
						t.Fatalf("not done after %d ns, %d messages: %+v", w.now, w.sent, nodes[0].Status())
					}
					for _, j := range jobs {
						if n > 1 {
							j.check(t, 512)
						} else if err := equal(j.data[0], j.in[0]); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// TestOrder: what the page of the card says of the traffic, on the messages of a ring: per node and block 2(N-1) slices,
// n, n+1, ... modulo N, N-1 of each half; and no message twice.
func TestOrder(t *testing.T) {
	for _, n := range []int{2, 3, 4, 6} {
		for _, name := range []string{"none", "bfp16", "bfp16-intel"} {
			w := newNetwork(t, 1)
			w.rate = 0.025
			const slice, blocks = DefaultSlice, 7
			nodes := w.ringOf(n, func(c *Config) { c.SliceElements = slice })
			type key struct {
				node  uint16
				block uint32
			}
			type part struct {
				step, slice uint8
				bytes       int
				elements    int
			}
			seen := map[key][]part{}
			w.watch = func(from, to uint16, b []byte) {
				v, fault := wire.Validate(b)
				if fault != wire.OK {
					t.Fatalf("node %d sent %v", from, fault)
				}
				if v.Kind() != wire.Data {
					return
				}
				h := v.Data()
				if int(to) != (int(from)+n-1)%n {
					t.Fatalf("node %d of %d sent to %d", from, n, to)
				}
				if h.Flags&wire.FlagResend != 0 || (h.Flags&wire.FlagGather != 0) != (int(h.Step) >= n-1) {
					t.Fatalf("flags %x of step %d", h.Flags, h.Step)
				}
				k := key{from, h.Block}
				p := seen[k]
				if len(p) == 0 || p[len(p)-1].step != h.Step {
					if h.Offset != 0 {
						t.Fatalf("node %d, block %d, step %d begins at %d", from, h.Block, h.Step, h.Offset)
					}
					p = append(p, part{step: h.Step, slice: uint8(h.Slice)})
				}
				last := &p[len(p)-1]
				if int(h.Offset) != last.elements {
					t.Fatalf("node %d, block %d, step %d: offset %d after %d elements", from, h.Block, h.Step, h.Offset, last.elements)
				}
				last.elements += int(h.Elements)
				last.bytes += len(v.Payload())
				seen[k] = p
			}
			j := w.job(n, slice*n*blocks, name)
			j.submitAll(t, nodes)
			if !w.until(60*second, j.over) {
				t.Fatalf("%d nodes, %s: not done", n, name)
			}
			j.check(t, slice)
			bytes := map[string]int{"none": 32768, "bfp16": 8704, "bfp16-intel": 8704}[name]
			for i := range uint16(n) {
				for b := range uint32(blocks) {
					p := seen[key{i, b}]
					if len(p) != 2*(n-1) {
						t.Fatalf("%d nodes, %s: node %d sent %d slices of block %d, want %d", n, name, i, len(p), b, 2*(n-1))
					}
					for k, x := range p {
						if int(x.step) != k || int(x.slice) != (int(i)+k)%n || x.bytes != bytes || x.elements != slice {
							t.Fatalf("%d nodes, %s: node %d, block %d, send %d is %+v", n, name, i, b, k, x)
						}
					}
				}
			}
			if c := nodes[0].eng.counters; c.Resends != 0 || c.Timeouts != 0 {
				t.Errorf("%d nodes, %s: %+v", n, name, c)
			}
		}
	}
}
