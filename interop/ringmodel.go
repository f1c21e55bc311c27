package interop

import (
	"fmt"
	"slices"

	"gradnic/codec"
)

// What the ring suite's card and its peers have in common; docs/protocol.md has the rules, and this is them once more in
// arithmetic, without service/ring.
const (
	ringSlice = 8192           // elements of a slice
	ringRoom  = 1500 - 28 - 40 // bytes of payload of a message on a link of 1500
)

// ringModel is what each node of a ring sends. Node n's element i is (i*(1+n%2)+n)%3 - 1, which is what `gradnic ring` fills
// its arrays with.
type ringModel struct {
	codec codec.Codec
	nodes int
	each  int // elements of a frame, but a slice's last
}

func newRingModel(c *Call) (*ringModel, error) {
	k, err := codec.ByName(c.Codec)
	if err != nil {
		return nil, err
	}
	if c.Nodes < 2 || c.Nodes > 3 {
		return nil, fmt.Errorf("a ring of %d nodes: 2 or 3", c.Nodes)
	}
	m := &ringModel{codec: k, nodes: c.Nodes}
	grain := 16
	if m.card() {
		grain = 512
	}
	if !slices.Contains([]string{"none", "bfp16", "bfp16-intel", "fp16", "bf16"}, c.Codec) {
		return nil, fmt.Errorf("codec %s: a ring has none, bfp16, bfp16-intel, fp16 and bf16", c.Codec)
	}
	m.each = ringRoom / k.MaxEncoded(grain) * grain
	return m, nil
}

// card is true for the card's own format, which each hop decodes and encodes anew.
func (m *ringModel) card() bool { return m.codec.Info().ID == codec.IDIntel }

// frames is how many frames a slice has, and count how many elements frame f has.
func (m *ringModel) frames() int     { return (ringSlice + m.each - 1) / m.each }
func (m *ringModel) count(f int) int { return min(m.each, ringSlice-f*m.each) }

// own are node n's values of a slice of a request's block; past the request's end are zeros.
func (m *ringModel) own(n, block, slice, length int) []float32 {
	v := make([]float32, ringSlice)
	first := (block*m.nodes + slice) * ringSlice
	for j := range v {
		if i := first + j; i < length {
			v[j] = float32((i*(1+n%2)+n)%3 - 1)
		}
	}
	return v
}

// encode is a slice in frames.
func (m *ringModel) encode(v []float32) ([][]byte, error) {
	out := make([][]byte, m.frames())
	for f := range out {
		n := m.count(f)
		out[f] = make([]byte, m.codec.MaxEncoded(n))
		k, err := m.codec.Encode(out[f], v[f*m.each:f*m.each+n], nil)
		if err != nil {
			return nil, fmt.Errorf("frame %d of a slice: %w", f, err)
		}
		out[f] = out[f][:k]
	}
	return out, nil
}

// decode is what a receiver has of a slice.
func (m *ringModel) decode(frames [][]byte) ([]float32, error) {
	v := make([]float32, ringSlice)
	for f, b := range frames {
		if err := m.codec.Decode(v[f*m.each:f*m.each+m.count(f)], b, nil); err != nil {
			return nil, fmt.Errorf("frame %d of a slice: %w", f, err)
		}
	}
	return v, nil
}

// message is what node n sends in step k of a block, in frames, and the values before they were encoded. The slice is n+k.
// Node n+k has sent its own, each node after it received + its own; the last sum is complete, and goes round.
func (m *ringModel) message(n, k, block, length int) (frames [][]byte, values []float32, err error) {
	slice := (n + k) % m.nodes
	values = m.own(slice, block, slice, length)
	for hop := 0; ; hop++ {
		if frames, err = m.encode(values); err != nil || hop == k {
			return frames, values, err
		}
		received, err := m.decode(frames)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case hop+1 < m.nodes:
			mine := m.own((slice-hop-1+m.nodes)%m.nodes, block, slice, length)
			for i := range received {
				received[i] += mine[i]
			}
			values = received
		case m.card():
			values = received
		}
	}
}

// result is what node 0's host is given for a request.
func (m *ringModel) result(length int) ([]float32, error) {
	var out []float32
	for block := 0; block*m.nodes*ringSlice < length; block++ {
		for slice := range m.nodes {
			// Node 0 finishes the slice before its own; the others come from node 1.
			n, k := 0, m.nodes-1
			if slice != m.nodes-1 {
				n, k = 1, m.nodes+slice-1
			}
			frames, values, err := m.message(n, k, block, length)
			if err == nil && !(n == 0 && m.card()) {
				values, err = m.decode(frames)
			}
			if err != nil {
				return nil, err
			}
			out = append(out, values...)
		}
	}
	return out[:length], nil
}
