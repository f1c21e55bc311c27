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

// span is a header with the 7 bytes before it, which are a frame's own, and what follows: the 8 bytes that end at any byte of
// the header are in it.
type span [7 + MaxRunning]byte

// window is where a header has a value: in the 8 bytes from a byte of its span on, so many bits from the right.
type window struct{ at, down uint8 }

// windowOf is the window that ends with the value.
func windowOf(offset, bit, width int) window {
	bytes := (bit + width + 7) / 8
	return window{uint8(offset + bytes - 1), uint8(8*bytes - bit - width)}
}

func (h *span) load(at uint8) uint64 {
	i := int(at & (MaxRunning - 1)) // in the span's bounds, as the compiler sees
	return binary.BigEndian.Uint64(h[i : i+8])
}

// words are a header's, from its end.
type words [cardWords]uint64

// run takes bits that need no look: the window's bytes, turned to their place in a word, and masked.
type run struct {
	at, word  uint8
	pre, turn uint8 // to the left, before and after the bytes are swapped; pre of those that are
	mask      uint64
}

// runs are all such bits of a header.
type runs struct{ straight, swapped []run }

// gather ORs the bits into the words.
func (r *runs) gather(w *words, h *span) {
	straight, swapped := r.straight, r.swapped
	for i := range straight {
		x := &straight[i]
		w[x.word&(cardWords-1)] |= bits.RotateLeft64(h.load(x.at), int(x.turn)) & x.mask
	}
	for i := range swapped {
		x := &swapped[i]
		b := bits.ReverseBytes64(bits.RotateLeft64(h.load(x.at), int(x.pre)))
		w[x.word&(cardWords-1)] |= bits.RotateLeft64(b, int(x.turn)) & x.mask
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

const cardWords = MaxRunning / 8

// same is a value that is the same in all frames of the card, in the window that ends with it.
type same struct {
	at         uint8
	want, mask uint64
}

// compiled is what Enter and Leave use.
type compiled struct {
	in, out  []move
	inRuns   runs
	outRuns  runs
	fixed    []same
	start    words // of own headers: what no field says
	template words // of answers: fixed values and replies
	ownLen   int   // bytes of the own header
	ownPort  uint16
	count    bool  // native: no field says how many elements mean something
	lengthIn *move // where requests say their payload's length; nil: nowhere
	length   *move // the same for answers
}

// compile makes moves of the fields.
func (l *Layout) compile() {
	c := &l.c
	c.ownLen, c.ownPort = l.Rules.headerLen(), native.Port
	if l.Rules == SwitchML {
		c.ownPort = switchml.PortBase
	}
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
			c.check(same{uint8(f.end - 1), f.onWire(*f.Fixed) << f.shift, f.mask << f.shift})
			reply = f.Fixed
		}
		if reply != nil {
			c.template.put(there, f.onWire(*reply))
		}
		if f.Meaning == Length { // own ones are counted
			c.lengthIn = &move{window: windowOf(f.Offset, f.Bit, f.Width), width: uint8(f.Width), mask: f.mask, how: f.way(false, nil)}
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

// split makes runs of the moves whose values fit in any case. One word's do not follow each other, so that none waits for the
// one before.
func split(moves []move) (rest []move, r runs) {
	var straight, swap [cardWords][]run
	for _, m := range moves {
		if m.how != plain && (m.how != swapped || m.mask > m.limit) {
			rest = append(rest, m)
			continue
		}
		x, of := run{at: m.at, turn: m.to.shift - m.down, mask: m.mask}, &straight
		if m.how == swapped { // the swapped value has the highest bits
			x.pre, x.turn, x.mask = -m.down&63, m.to.shift+m.width, bits.ReverseBytes64(m.mask)>>(64-m.width)
			of = &swap
		}
		x.turn &= 63
		low, high := x, x
		low.word, low.mask = m.to.word, x.mask<<m.to.shift
		of[low.word] = append(of[low.word], low)
		if m.to.over {
			high.word, high.mask = m.to.word+1, x.mask>>(64-m.to.shift)
			of[high.word] = append(of[high.word], high)
		}
	}
	return rest, runs{dealt(&straight), dealt(&swap)}
}

// dealt takes one run of each word in turn.
func dealt(of *[cardWords][]run) (all []run) {
	for more := true; more; {
		more = false
		for k := range of {
			if len(of[k]) > 0 {
				all, of[k], more = append(all, of[k][0]), of[k][1:], true
			}
		}
	}
	return all
}

// check adds a value that frames must have, in the window of the one before where it lies in that.
func (c *compiled) check(x same) {
	if n := len(c.fixed); n > 0 {
		last := &c.fixed[n-1]
		up := 8 * (int(x.at) - int(last.at))
		if up >= 0 && up < 64 && last.mask<<up>>up == last.mask {
			c.fixed[n-1] = same{x.at, last.want<<up | x.want, last.mask<<up | x.mask}
			return
		}
	}
	c.fixed = append(c.fixed, x)
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
	if 8*(int(b.at)-int(a.at))+int(a.down)-int(b.down) != width(b) || int(b.down)+total > 64 {
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

func (w *words) put(p place, v uint64) {
	w[p.word&(cardWords-1)] |= v << (p.shift & 63)
	if p.over {
		w[(p.word+1)&(cardWords-1)] |= v >> ((64 - p.shift) & 63)
	}
}
