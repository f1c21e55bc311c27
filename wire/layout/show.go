package layout

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"gradnic/wire/inet"
	"gradnic/wire/native"
)

// Value is one field of a frame.
type Value struct {
	Field *Field
	Raw   uint64
	// Text is the value in the layout's words, and in the rules' where they differ.
	Text string
}

// Decoded is a frame in its fields.
type Decoded struct {
	Fields []Value
	// Payload is what follows the header, without padding as far as the layout tells; Trailer the fields behind it.
	Payload []byte
	Trailer []Value
}

// Decode reads all fields of a frame. A fixed field with another value is BadFixed, and the fields are there all the same.
func (l *Layout) Decode(frame []byte) (d Decoded, f Fault) {
	if !l.Claims(frame) {
		return d, Foreign
	}
	end := len(frame)
	if l.EtherType == 0 {
		var p inet.Packet
		if inet.Parse(frame, &p) != inet.OK {
			return d, Foreign
		}
		end = inet.PayloadOffset + len(p.Payload)
	}
	at := l.base + l.Header
	if end < at {
		return d, Short
	}
	for i := range l.Fields {
		x := &l.Fields[i]
		v := x.Get(frame, l.base)
		d.Fields = append(d.Fields, Value{x, v, x.text(v)})
		if x.Fixed != nil && v != *x.Fixed {
			f = BadFixed
		}
		if x.Meaning == Length {
			if int(v) > end-at {
				return d, BadLength
			}
			end = at + int(v)
		}
	}
	d.Payload = frame[at:end]
	if l.Payload.Elements > 0 && l.size > 0 {
		n := l.size * l.Payload.Elements
		if len(d.Payload) < n+l.trail {
			return d, Short
		}
		for i := range l.Trailer {
			x := &l.Trailer[i]
			v := x.Get(frame, at+n)
			d.Trailer = append(d.Trailer, Value{x, v, x.text(v)})
		}
		d.Payload = d.Payload[:n]
	}
	return d, f
}

// text is a value for people.
func (f *Field) text(v uint64) string {
	s := f.Text(v)
	switch {
	case f.Fixed != nil && v != *f.Fixed:
		return fmt.Sprintf("%s, not %s", s, f.Text(*f.Fixed))
	case f.OneHot:
		var ranks []string
		for r := range f.Width {
			if v>>r&1 == 1 {
				ranks = append(ranks, fmt.Sprint(r))
			}
		}
		return fmt.Sprintf("0x%x: worker %s", v, strings.Join(ranks, ","))
	case f.Meaning == Exponent0 || f.Meaning == Exponent1:
		return fmt.Sprint(int8(v))
	}
	return s
}

// element type of a decoded frame's payload: the header's, or the layout's.
func (l *Layout) elementType(d *Decoded) (native.Type, bool) {
	for _, v := range d.Fields {
		if v.Field.Meaning == Kind && v.Field.forward != nil {
			if k := v.Field.forward[v.Raw]; k < 0 || !carriesValues(native.Kind(k)) {
				return 0, false
			}
		}
	}
	for _, v := range d.Fields {
		if v.Field.Meaning != Type {
			continue
		}
		if v.Field.forward != nil {
			t := v.Field.forward[v.Raw]
			return native.Type(max(t, 0)), t >= 0
		}
	}
	return native.Type(l.typ), l.size > 0
}

// PayloadText is the payload for people: how many elements, and the first of them.
func (l *Layout) PayloadText(d *Decoded) string {
	t, ok := l.elementType(d)
	size := t.Size()
	if !ok || size == 0 || len(d.Payload) < size {
		if len(d.Payload) == 0 {
			return "none"
		}
		return fmt.Sprintf("%d bytes: %x%s", len(d.Payload), d.Payload[:min(16, len(d.Payload))], more(len(d.Payload) > 16))
	}
	n := len(d.Payload) / size
	var words []string
	for i := range min(n, 6) {
		words = append(words, elementText(t, d.Payload[i*size:(i+1)*size], l.Payload.Little))
	}
	return fmt.Sprintf("%d %v: %s%s", n, t, strings.Join(words, " "), more(n > 6))
}

func more(yes bool) string {
	if yes {
		return " ..."
	}
	return ""
}

func elementText(t native.Type, b []byte, little bool) string {
	var w [8]byte
	for i := range b {
		if little {
			w[8-len(b)+i] = b[len(b)-1-i]
		} else {
			w[8-len(b)+i] = b[i]
		}
	}
	v := binary.BigEndian.Uint64(w[:])
	switch t {
	case native.Int8:
		return fmt.Sprint(int8(v))
	case native.Int32:
		return fmt.Sprint(int32(v))
	case native.Int64:
		return fmt.Sprint(int64(v))
	case native.Float32:
		return fmt.Sprint(math.Float32frombits(uint32(v)))
	case native.Float64:
		return fmt.Sprint(math.Float64frombits(v))
	}
	return fmt.Sprintf("0x%04x", v)
}

// Summary is the layout as a table.
func (l *Layout) Summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "layout %s: %s\nrules %s, %s, header of %d bytes at byte %d of a frame\n", l.Name, l.About, l.Rules, l.Where(), l.Header, l.base)
	width := 0
	for i := range l.Fields {
		width = max(width, len(l.Fields[i].Name))
	}
	for i := range l.Fields {
		f := &l.Fields[i]
		place := fmt.Sprintf("%d", f.Offset)
		if f.Bit > 0 || f.Width%8 != 0 {
			place = fmt.Sprintf("%d.%d", f.Offset, f.Bit)
		}
		what := f.Meaning.String()
		switch {
		case f.Fixed != nil:
			what = fmt.Sprintf("always 0x%x", *f.Fixed)
		case f.Reply != nil:
			what = strings.TrimSpace(fmt.Sprintf("%s, 0x%x in answers", what, *f.Reply))
		case f.Meaning == None:
			what = "-"
		}
		if f.OneHot {
			what += ", a bit for each"
		}
		if f.Little {
			what += ", little endian"
		}
		line := fmt.Sprintf("  %-6s %2d bits  %-*s  %-12s  %s", place, f.Width, width, f.Name, what, f.About)
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	return b.String()
}
