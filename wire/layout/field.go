package layout

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Meaning is what a field is to the rules.
type Meaning uint8

// The meanings. Which of them a state machine has, and needs, is in its table in rules.go.
const (
	None      Meaning = iota // nothing to the rules: 0, or what reply says, in answers
	Kind                     // native: what the message is
	Flags                    // native: flag bits
	Type                     // native: element type
	Codec                    // native: codec, 0
	Job                      // number of the job
	Worker                   // native: rank of the worker, or a bit for each; in a result the contributions in it
	Epoch                    // native: one life of the job's memory
	Round                    // native: number of this use of the slot
	Slot                     // index of the slot
	Version                  // switchml: which of the slot's two sets, 0 or 1
	Tag                      // 32 bits that the network only echoes: SwitchML's tsi, the native collective
	Count                    // native: elements that mean something
	Length                   // bytes of payload
	Size                     // switchml: size code
	Exponent0                // switchml: first exponent
	Exponent1                // switchml: second exponent
	Plane                    // native: reserved, 0

	// NumMeanings is the number of meanings, None included.
	NumMeanings
)

var meaningNames = [NumMeanings]string{
	"", "kind", "flags", "type", "codec", "job", "worker", "epoch", "round", "slot", "version", "tag", "count",
	"length", "size", "exponent0", "exponent1", "plane",
}

// String is the word that a file uses.
func (m Meaning) String() string {
	if m < NumMeanings {
		return meaningNames[m]
	}
	return fmt.Sprintf("meaning(%d)", uint8(m))
}

// Field is one field of a header.
type Field struct {
	Name string
	// Offset is the byte of the header in which the field starts, and Bit the bit of that byte, 0 the most
	// significant. Width is in bits, Bit+Width at most 64.
	Offset, Bit, Width int
	// Little is true for little endian, which has whole bytes only.
	Little  bool
	Meaning Meaning
	// Fixed is what requests must carry and answers do, nil when it may be anything. Reply, if set, is what answers
	// carry whatever the rules say.
	Fixed, Reply *uint64
	// Values are the card's words for the numbers of the field.
	Values map[string]uint64
	// OneHot is true when a worker is a bit, 1<<rank.
	OneHot bool
	About  string

	end     int // of the 8 bytes that are loaded, counted from the header's start
	shift   uint
	mask    uint64
	limit   uint64  // the largest value that the rules have
	forward []int16 // by the card's value: the rules', -1 for none; nil: the same
	back    []int16 // by the rules' value: the card's
}

// compile prepares Get and Put. The window of 8 bytes ends with the field: what lies before a header is a frame's own
// Ethernet header, so that it never reaches outside the frame.
func (f *Field) compile() {
	bytes := (f.Bit + f.Width + 7) / 8
	f.end = f.Offset + bytes
	f.shift = uint(8*bytes - f.Bit - f.Width)
	f.mask = ^uint64(0) >> (64 - f.Width)
}

// bytes is how many bytes the field touches.
func (f *Field) bytes() int { return (f.Bit + f.Width + 7) / 8 }

// Get reads the field of a frame whose header starts at base, 8 or more.
func (f *Field) Get(frame []byte, base int) uint64 {
	at := base + f.end
	v := binary.BigEndian.Uint64(frame[at-8:at]) >> f.shift & f.mask
	if f.Little {
		v = bits.ReverseBytes64(v) >> (64 - uint(f.Width))
	}
	return v
}

// Put writes the low bits of v into the field and leaves those beside it.
func (f *Field) Put(frame []byte, base int, v uint64) {
	if f.Little {
		v = bits.ReverseBytes64(v) >> (64 - uint(f.Width))
	}
	at := base + f.end
	w := frame[at-8 : at]
	old := binary.BigEndian.Uint64(w)
	binary.BigEndian.PutUint64(w, old&^(f.mask<<f.shift)|(v&f.mask)<<f.shift)
}

// Text is a value in words where the layout has some, else a number.
func (f *Field) Text(v uint64) string {
	for name, x := range f.Values {
		if x == v {
			return name
		}
	}
	if f.Width > 16 {
		return fmt.Sprintf("0x%x", v)
	}
	return fmt.Sprint(v)
}

// Number reads a value of the field: one of its words, or a number.
func (f *Field) Number(s string) (uint64, error) {
	if v, ok := f.Values[s]; ok {
		return v, nil
	}
	var v uint64
	if _, err := fmt.Sscanf(s, "%v", &v); err != nil || v&^f.mask != 0 {
		return 0, fmt.Errorf("field %s: %q: a number of %d bits%s", f.Name, s, f.Width, f.words())
	}
	return v, nil
}

func (f *Field) words() string {
	if len(f.Values) == 0 {
		return ""
	}
	var names []string
	for n := range f.Values {
		names = append(names, n)
	}
	slices.Sort(names)
	return ", or one of " + strings.Join(names, ", ")
}

// NewField is a field of its own, big endian, of whole or part bytes from an offset on; for payloads that have fields
// too.
func NewField(name string, offset, width int) (*Field, error) {
	if name == "" || offset < 0 || width < 1 || width > 64 {
		return nil, fmt.Errorf("field %q: offset %d, width %d: an offset from 0 and 1 to 64 bits", name, offset, width)
	}
	f := &Field{Name: name, Offset: offset, Width: width}
	f.compile()
	return f, nil
}
