package layout

import (
	"encoding/binary"
	"math/bits"

	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// move takes one value, which must be looked at, from a header into the words of another.
type move struct {
	window
	to    place
	how   way
	width uint8
	mask  uint64
	limit uint64  // the largest value that the other header has
	table []int16 // way table: the other header's value, -1 for none
}

// window is where a header has a value: in the 8 bytes that end at a byte of it, so many bits from the right. What lies
// before a header is a frame's own, so that the bytes are always there.
type window struct {
	end  int16
	down uint8
}

func windowOf(offset, bit, width int) window {
	bytes := (bit + width + 7) / 8
	return window{int16(offset + bytes), uint8(8*bytes - bit - width)}
}

// run takes bits that need no look: the window's bytes, turned to their place, and masked.
type run struct {
	end       int16
	pre, turn uint8 // to the left, before and after the bytes are swapped
	swap      bool
	mask      uint64
}

// runs make a header: those of each of its words, one after the other.
type runs struct {
	all  []run
	upTo [cardWords]uint8 // of a word, the end of its runs
}

// gather ORs the bits into words, from a header that starts 8 bytes behind src's start.
func (r *runs) gather(words []uint64, src []byte) {
	all, from := r.all, 0
	for k := range words {
		upTo := int(r.upTo[k&(cardWords-1)])
		v := words[k]
		for i := range all[from:upTo] {
			x := &all[from+i]
			b := binary.BigEndian.Uint64(src[x.end:])
			if x.swap {
				b = bits.ReverseBytes64(bits.RotateLeft64(b, int(x.pre)))
			}
			v |= bits.RotateLeft64(b, int(x.turn)) & x.mask
		}
		words[k] = v
		from = upTo
	}
}

// way is what is done to a value on its way.
type way uint8

const (
	plain   way = iota
	checked     // it may be greater than limit
	swapped     // little endian
	looked      // by table
	oneHot      // a bit for each worker
)

// place is where the least significant bit of a value lies in the words of a header. Words are of 64 bits and counted from
// the header's end, so that the first ones never lie on what follows the header.
type place struct {
	word, shift uint8
	over        bool // it goes on in the next word
}

func placeOf(header, offset, bit, width int) place {
	end := 8*(header-offset) - bit - width
	return place{uint8(end / 64), uint8(end % 64), end%64+width > 64}
}

// own says where the rules' own headers have their values: wire/switchml, wire/native.
var own = map[Rules]map[Meaning]struct{ offset, bit, width int }{
	SwitchML: {Size: {0, 5, 3}, Job: {1, 0, 8}, Tag: {2, 0, 32}, Version: {6, 0, 1}, Slot: {6, 2, 14}, Exponent0: {8, 0, 8}, Exponent1: {9, 0, 8}},
	Native: {
		Kind: {0, 4, 4}, Flags: {1, 0, 8}, Type: {2, 0, 8}, Codec: {3, 0, 8}, Job: {4, 0, 16}, Worker: {6, 0, 16}, Epoch: {8, 0, 32}, Round: {12, 0, 32},
		Slot: {16, 0, 32}, Tag: {20, 0, 32}, Count: {24, 0, 16}, Length: {26, 0, 16}, Plane: {28, 0, 8},
	},
}

const (
	ownWords  = native.HeaderLen / 8
	cardWords = MaxRunning / 8
)

// same is a value that is the same in all frames of the card, in the 8 bytes that end where it ends.
type same struct {
	end        int
	want, mask uint64
}

// compiled is what Enter and Leave use.
type compiled struct {
	in, out  []move
	inRuns   runs
	outRuns  runs
	fixed    []same
	start    [ownWords]uint64  // of own headers: what no field says
	template [cardWords]uint64 // of answers: fixed values and replies
	ownLen   int               // bytes of the own header
	ownWords int
	words    int // of the card's header
	ownPort  uint16
	count    bool  // native: no field says how many elements mean something
	length   *move // where answers say their payload's length; nil: nowhere
}

// compile makes moves of the fields.
func (l *Layout) compile() {
	c := &l.c
	c.ownLen, c.ownPort = l.Rules.headerLen(), native.Port
	if l.Rules == SwitchML {
		c.ownPort = switchml.PortBase
	}
	c.ownWords, c.words = (c.ownLen+7)/8, (l.Header+7)/8
	l.swap = l.Payload.Little != (l.Rules == Native)
	constant := func(offset, bit, width int, v uint64) {
		p := placeOf(c.ownLen, offset, bit, width)
		c.start[p.word] |= v << p.shift
	}
	constant(0, 0, 4, 1) // SwitchML's message type, and the native version
	if l.Rules == Native && l.by[Type] == nil {
		constant(2, 0, 8, l.typ)
	}
	if l.Rules == Native && l.by[Job] == nil {
		constant(4, 0, 16, l.job)
	}
	c.count = l.Rules == Native && l.by[Count] == nil
	for i := range l.Fields {
		f := &l.Fields[i]
		there := placeOf(l.Header, f.Offset, f.Bit, f.Width)
		reply := f.Reply
		if f.Fixed != nil {
			c.fixed = append(c.fixed, same{f.end, f.onWire(*f.Fixed) << f.shift, f.mask << f.shift})
			reply = f.Fixed
		}
		if reply != nil {
			c.put(c.template[:], there, f.onWire(*reply))
		}
		if f.Meaning == Length { // it is counted on the way in
			if reply == nil {
				c.length = &move{to: there, width: uint8(f.Width), mask: f.mask, limit: f.mask, how: f.way(true, nil)}
			}
			continue
		}
		o, ok := own[l.Rules][f.Meaning]
		if !ok {
			continue
		}
		here := placeOf(c.ownLen, o.offset, o.bit, o.width)
		c.in = append(c.in, move{
			window: windowOf(f.Offset, f.Bit, f.Width), to: here, width: uint8(f.Width),
			mask: f.mask, limit: f.limit, table: f.forward, how: f.way(f.mask > f.limit, f.forward),
		})
		if reply == nil {
			most := ^uint64(0) >> (64 - o.width)
			m := move{
				window: windowOf(o.offset, o.bit, o.width), to: there, width: uint8(f.Width),
				mask: most, limit: f.mask, table: f.back, how: f.way(most > f.mask, f.back),
			}
			if f.Meaning == Flags { // those that the card has bits for
				m.mask, m.how = most&f.mask, plain
			}
			c.out = append(c.out, m)
		}
	}
	c.in, c.inRuns = split(merged(c.in))
	c.out, c.outRuns = split(merged(c.out))
}

// split makes runs of the moves whose values fit in any case.
func split(moves []move) (rest []move, r runs) {
	var of [cardWords][]run
	for _, m := range moves {
		if m.how != plain && (m.how != swapped || m.mask > m.limit) {
			rest = append(rest, m)
			continue
		}
		x := run{end: m.end, turn: m.to.shift - m.down, mask: m.mask}
		if x.swap = m.how == swapped; x.swap {
			// The swapped value has the highest bits.
			x.pre, x.turn, x.mask = -m.down, m.to.shift+m.width, bits.ReverseBytes64(m.mask)>>(64-m.width)
		}
		x.pre, x.turn = x.pre&63, x.turn&63
		low, high := x, x
		low.mask <<= m.to.shift
		of[m.to.word] = append(of[m.to.word], low)
		if m.to.over {
			high.mask >>= 64 - m.to.shift
			of[m.to.word+1] = append(of[m.to.word+1], high)
		}
	}
	for k := range of {
		r.all = append(r.all, of[k]...)
		r.upTo[k] = uint8(len(r.all))
	}
	return rest, r
}

// merged joins moves of values that lie side by side in both headers.
func merged(moves []move) (out []move) {
	for _, m := range moves {
		if n := len(out); n > 0 && m.how == plain && out[n-1].how == plain {
			if j, ok := out[n-1].join(&m); ok {
				out[n-1] = j
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// join is the move of both values when b follows a in both headers.
func (a *move) join(b *move) (j move, ok bool) {
	width := func(m *move) int { return bits.Len64(m.mask) }
	total := width(a) + width(b)
	bit := func(p place) int { return 64*int(p.word) + int(p.shift) }
	if total > 64 || a.mask&(a.mask+1) != 0 || b.mask&(b.mask+1) != 0 || bit(b.to)+width(b) != bit(a.to) {
		return j, false
	}
	// The window ends with the later value; the earlier one begins in the same 8 bytes.
	if 8*(int(b.end)-int(a.end))+int(a.down)-int(b.down) != width(b) || int(b.down)+total > 64 {
		return j, false
	}
	j = *b
	j.mask = ^uint64(0) >> (64 - total)
	j.to.over = int(j.to.shift)+total > 64
	return j, true
}

func (f *Field) way(check bool, table []int16) way {
	switch {
	case table != nil:
		return looked
	case f.OneHot:
		return oneHot
	case f.Little && f.Width > 8:
		return swapped
	case check:
		return checked
	}
	return plain
}

// onWire is a value in the field's byte order.
func (f *Field) onWire(v uint64) uint64 {
	if f.Little {
		return bits.ReverseBytes64(v) >> (64 - uint(f.Width))
	}
	return v
}

func (c *compiled) put(words []uint64, p place, v uint64) {
	words[p.word] |= v << p.shift
	if p.over {
		words[p.word+1] |= v >> (64 - p.shift)
	}
}
