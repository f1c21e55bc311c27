package ring

import (
	"fmt"
	"slices"
	"strings"

	"gradnic/codec"
	wire "gradnic/wire/ring"
)

// codecNames are the codecs that a ring may use: those whose messages have a fixed size, can be cut at any block, and give
// the same bits wherever they are encoded.
var codecNames = []string{"none", "bfp16", "bfp16-intel", "fp16", "bf16"}

// Codecs are the names that a request's Codec may have.
func Codecs() []string { return slices.Clone(codecNames) }

// cut is how a slice of one codec is cut into frames of one MTU.
type cut struct {
	codec    codec.Codec
	id       uint8
	plain    bool // payloads are little-endian float32
	card     bool // decode and encode finished slices at each hop, as the card does
	elements int  // of each frame but the last
	bytes    int  // payload of each of those
	frames   int  // of a slice
	slice    int  // elements of a slice
}

// newCut works out the cut. room is the payload of a message.
func newCut(c codec.Codec, slice, room int) (*cut, error) {
	info := c.Info()
	// The smallest multiple of a cache line whose messages, laid end to end, are the message of the whole.
	grain := 16
	for grain <= slice && 2*c.MaxEncoded(grain) != c.MaxEncoded(2*grain) {
		grain *= 2
	}
	k := &cut{codec: c, id: uint8(info.ID), plain: info.ID == codec.IDNone, card: info.ID == codec.IDIntel, slice: slice}
	k.elements = min(room/c.MaxEncoded(grain)*grain, slice)
	if k.elements < grain {
		return nil, fmt.Errorf("codec %s: its smallest message of %d bytes does not fit %d bytes of payload", info.Name, c.MaxEncoded(grain), room)
	}
	k.bytes = c.MaxEncoded(k.elements)
	k.frames = (slice + k.elements - 1) / k.elements
	return k, nil
}

// count is the elements of frame f of a slice.
func (k *cut) count(f int) int { return min(k.elements, k.slice-f*k.elements) }

// size is the payload of frame f.
func (k *cut) size(f int) int {
	if f < k.frames-1 {
		return k.bytes
	}
	return k.codec.MaxEncoded(k.count(f))
}

// total is the bytes of a slice on the wire, without headers.
func (k *cut) total() int { return (k.frames-1)*k.bytes + k.size(k.frames-1) }

// frame is the number of the frame at an offset in its slice, with so many elements and bytes; ok is false when the slice
// is not cut there.
func (k *cut) frame(offset, elements, payload int) (f int, ok bool) {
	f = offset / k.elements
	return f, f*k.elements == offset && f < k.frames && elements == k.count(f) && payload == k.size(f)
}

// cuts are those of all codecs, by the wire's codec id.
type cuts struct {
	byID [16]*cut
	most int // frames of a slice
	room int // bytes of a slice
}

func newCuts(slice, mtu int) (*cuts, error) {
	k := &cuts{}
	for _, name := range codecNames {
		c, err := codec.ByName(name)
		if err != nil {
			return nil, err
		}
		one, err := newCut(c, slice, wire.PayloadRoom(mtu))
		if err != nil {
			return nil, err
		}
		k.byID[one.id] = one
		k.most = max(k.most, one.frames)
		k.room = max(k.room, one.total())
	}
	return k, nil
}

// of finds the cut of a codec's name.
func (k *cuts) of(name string) (*cut, error) {
	if name == "" {
		name = codec.Default
	}
	if !slices.Contains(codecNames, name) {
		return nil, fmt.Errorf("ring: codec %q: there are %s", name, strings.Join(codecNames, ", "))
	}
	c, err := codec.ByName(name)
	if err != nil {
		return nil, fmt.Errorf("ring: %w", err)
	}
	return k.byID[c.Info().ID], nil
}

// get finds the cut of a wire id; nil when the ring does not use it.
func (k *cuts) get(id uint8) *cut {
	if int(id) < len(k.byID) {
		return k.byID[id]
	}
	return nil
}
