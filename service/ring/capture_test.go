package ring_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"gradnic/codec"
	"gradnic/dataplane"
	"gradnic/internal/ringlab"
	. "gradnic/service/ring"
	"gradnic/wire/inet"
	wire "gradnic/wire/ring"
)

// TestCapturedTraffic: the frames that four NICs post to their netdevs, as captured: for each node n and block 2(N-1)
// slices, n, n+1, ... modulo N, each of 8704 bytes in the card's format; and the node's own slice flit for flit.
func TestCapturedTraffic(t *testing.T) {
	const n, blocks = 4, 3
	l := lab(t, ringlab.Options{Nodes: n, Ring: func(c *Config) { c.DeadAfter = 5 * time.Second }})
	captures := make([]*dataplane.Capture, n)
	for i, node := range l.Nodes {
		var err error
		captures[i], err = node.NIC.Capture(dataplane.CaptureOptions{Stages: []dataplane.CaptureStage{dataplane.CaptureTransmit}})
		if err != nil {
			t.Fatal(err)
		}
	}
	in, _ := load(t, n, n*blocks*DefaultSlice)
	err := l.Each(func(i int, node *ringlab.Node) error {
		_, err := node.Ring.AllReduce(t.Context(), Request{Data: append([]float32(nil), in[i]...), Codec: "bfp16-intel"})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // what others still need is sent
	c, err := codec.ByName("bfp16-intel")
	if err != nil {
		t.Fatal(err)
	}
	type slice struct {
		step, index, elements int
		bytes                 []byte
	}
	for i, k := range captures {
		k.Close()
		if lost := k.Lost(); len(lost) > 0 {
			t.Fatalf("node %d: the capture lost %+v", i, lost)
		}
		var sent [blocks][]slice
		for {
			frames, err := k.Read(t.Context(), 1000)
			for _, f := range frames {
				var p inet.Packet
				if fault := inet.Parse(f.Data, &p); fault != inet.OK {
					t.Fatalf("node %d: %v", i, fault)
				}
				v, fault := wire.Validate(p.Payload)
				if fault != wire.OK {
					t.Fatalf("node %d: %v", i, fault)
				}
				if v.Kind() != wire.Data || v.Flags()&wire.FlagResend != 0 {
					continue
				}
				h := v.Data()
				if p.DstIP != ringlab.NICAddress((i+n-1)%n).IP || h.Request != 0 {
					t.Fatalf("node %d sends %+v to %v", i, h, p.DstIP)
				}
				s := &sent[h.Block]
				if len(*s) == 0 || (*s)[len(*s)-1].step != int(h.Step) {
					*s = append(*s, slice{step: int(h.Step), index: int(h.Slice)})
				}
				last := &(*s)[len(*s)-1]
				if last.elements != int(h.Offset) {
					t.Fatalf("node %d, block %d, step %d: offset %d after %d elements", i, h.Block, h.Step, h.Offset, last.elements)
				}
				last.elements += int(h.Elements)
				last.bytes = append(last.bytes, v.Payload()...)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for b := range blocks {
			if len(sent[b]) != 2*(n-1) {
				t.Fatalf("node %d sent %d slices of block %d, want %d", i, len(sent[b]), b, 2*(n-1))
			}
			for step, s := range sent[b] {
				if s.step != step || s.index != (i+step)%n || s.elements != DefaultSlice || len(s.bytes) != 8704 {
					t.Fatalf("node %d, block %d, send %d: step %d, slice %d, %d elements, %d bytes", i, b, step, s.step, s.index, s.elements, len(s.bytes))
				}
			}
			own := make([]byte, 8704)
			if _, err := c.Encode(own, in[i][(b*n+i)*DefaultSlice:][:DefaultSlice], nil); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(sent[b][0].bytes, own) {
				t.Fatalf("node %d, block %d: its own slice is not the card's flits", i, b)
			}
		}
	}
}
