package interop

import (
	"fmt"
	"slices"
	"strings"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
)

// maxExplained bounds how many frames one report shows.
const maxExplained = 3

// explain says what is missing and what came instead: by field, then byte by byte.
func (sc *scope) explain(missing []*built, got [][]byte) string {
	var b strings.Builder
	are := "frames are"
	if len(missing) == 1 {
		are = "frame is"
	}
	fmt.Fprintf(&b, "%d %s missing, %d came that should not", len(missing), are, len(got))
	for i, w := range missing {
		if i == maxExplained {
			fmt.Fprintf(&b, "\n... and %d more missing", len(missing)-i)
			break
		}
		k := sc.nearest(w, got)
		if k < 0 {
			fmt.Fprintf(&b, "\nmissing (%s): %s", w.what, sc.describe(w.frame, w.body))
			continue
		}
		fmt.Fprintf(&b, "\ndiffers (%s):", w.what)
		sc.difference(&b, w, got[k])
		b.WriteString(sc.past.copyOf(got[k]))
		got = append(append([][]byte(nil), got[:k]...), got[k+1:]...)
	}
	for i, f := range got {
		if i == maxExplained {
			fmt.Fprintf(&b, "\n... and %d more that should not", len(got)-i)
			break
		}
		fmt.Fprintf(&b, "\nunexpected, %d bytes: %s\n%s%s", len(f), sc.describe(f, sc.bodyOf(f)), hexDump(f, nil, nil), sc.past.copyOf(f))
	}
	return b.String()
}

// nearest is the frame that is most like the one that is missing, with the fewest bytes that differ: any one to the same
// station, or one that only has gone to another station, or differs little otherwise.
func (sc *scope) nearest(w *built, got [][]byte) int {
	const little = 16 // bytes
	best, least := -1, 1<<30
	for i, f := range got {
		if len(f) < inet.EthernetLen || len(w.frame) < inet.EthernetLen {
			continue
		}
		d := max(0, len(f)-len(w.frame))
		for k := range w.frame {
			if k >= len(f) || (f[k]^w.frame[k])&w.mask[k] != 0 {
				d++
			}
		}
		if d < least && (d <= little || string(f[:6]) == string(w.frame[:6])) {
			best, least = i, d
		}
	}
	return best
}

// difference writes the fields that differ, and a dump of both frames.
func (sc *scope) difference(b *strings.Builder, w *built, got []byte) {
	if len(got) != len(w.frame) {
		fmt.Fprintf(b, "\n  length: want %d, got %d", len(w.frame), len(got))
	}
	l := sc.s.layout
	bad := func(k int) bool { return k < len(got) && k < len(w.frame) && (got[k]^w.frame[k])&w.mask[k] != 0 }
	for _, p := range lowerParts {
		if p.at+p.n > min(len(w.frame), len(got)) || p.at >= inet.EthernetLen && !isIPv4(w.frame) {
			break
		}
		if slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5}[:p.n], func(k int) bool { return bad(p.at + k) }) {
			fmt.Fprintf(b, "\n  %s: want %s, got %s", p.name, p.text(w.frame), p.text(got))
		}
	}
	if head := l.Base() + l.Header; len(got) >= head && len(w.frame) >= head {
		fields := func(all []*layout.Field, base int) {
			for _, f := range all {
				if min(len(got), len(w.frame)) < base+f.Offset+(f.Width+7)/8 {
					continue
				}
				x, y, m := f.Get(w.frame, base), f.Get(got, base), f.Get(w.mask, base)
				if (x^y)&m != 0 {
					fmt.Fprintf(b, "\n  %s: want %s, got %s", f.Name, f.Text(x), f.Text(y))
				}
			}
		}
		for i := range l.Fields {
			fields([]*layout.Field{&l.Fields[i]}, l.Base())
		}
		fields(sc.s.bodies[w.body], head)
		head += sc.s.bodyLen(w.body)
		for k := head; k < len(w.frame); k++ {
			if bad(k) {
				at := head + (k-head)&^3
				fmt.Fprintf(b, "\n  payload from byte %d (word %d): want %x, got %x", at-head, (at-head)/4, w.frame[at:min(at+4, len(w.frame))], got[at:min(at+4, len(got))])
				break
			}
		}
	}
	type place struct {
		name  string
		value uint64
	}
	first := map[string]place{} // of a value that is the card's, and the same everywhere
	for _, u := range w.free {
		if len(got) < u.base+u.field.Offset+(u.field.Width+7)/8 {
			continue
		}
		v := u.field.Get(got, u.base)
		if p, ok := first[u.name]; !ok {
			first[u.name] = place{u.field.Name, v}
		} else if p.value != v {
			fmt.Fprintf(b, "\n  %s: want what %s is, %s, got %s", u.field.Name, p.name, u.field.Text(p.value), u.field.Text(v))
		}
	}
	fmt.Fprintf(b, "\nwant\n%sgot\n%s", hexDump(w.frame, got, w.mask), hexDump(got, w.frame, w.mask))
}

func isIPv4(frame []byte) bool {
	return len(frame) >= inet.EthernetLen && frame[12] == 0x08 && frame[13] == 0
}

// bodyOf is the name of the body of a frame that came: what its kind is called, when there is such a body.
func (sc *scope) bodyOf(frame []byte) string {
	l := sc.s.layout
	for i := range l.Fields {
		if f := &l.Fields[i]; f.Meaning == layout.Kind && len(frame) >= l.Base()+l.Header {
			return f.Text(f.Get(frame, l.Base()))
		}
	}
	return ""
}

// describe is a frame in a line; body is the name of its body.
func (sc *scope) describe(frame []byte, body string) string {
	l := sc.s.layout
	var p inet.Packet
	if !l.Claims(frame) && inet.Parse(frame, &p) != inet.OK || len(frame) < l.Base()+l.Header {
		return "no frame of the protocol"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v > %v", inet.MAC(frame[6:12]), inet.MAC(frame[:6]))
	for i := range l.Fields {
		if f := &l.Fields[i]; f.Fixed == nil && f.Meaning != layout.None {
			fmt.Fprintf(&b, " %s=%s", f.Name, f.Text(f.Get(frame, l.Base())))
		}
	}
	if base := l.Base() + l.Header; len(frame) >= base+sc.s.bodyLen(body) {
		for _, f := range sc.s.bodies[body] {
			fmt.Fprintf(&b, " %s=%s", f.Name, f.Text(f.Get(frame, base)))
		}
	}
	return b.String()
}

// hexDump writes a frame in lines of 16 bytes. Bytes that differ from other are marked in a line below; a dump of more
// lines leaves out those that are alike.
func hexDump(b, other, mask []byte) string {
	const whole = 8 // lines that are shown whether they differ or not
	var out strings.Builder
	skipped := 0
	for at := 0; at < len(b); at += 16 {
		line := b[at:min(at+16, len(b))]
		marks, any := make([]byte, 0, 64), false
		for k := range line {
			i := at + k
			bad := other != nil && (i >= len(other) || i < len(mask) && (b[i]^other[i])&mask[i] != 0)
			any = any || bad
			if bad {
				marks = append(marks, "^^ "...)
			} else {
				marks = append(marks, "   "...)
			}
		}
		if at/16 >= whole && !any {
			skipped++
			continue
		}
		fmt.Fprintf(&out, "  %04x  % x\n", at, line)
		if any {
			fmt.Fprintf(&out, "        %s\n", strings.TrimRight(string(marks), " "))
		}
	}
	if skipped > 0 {
		fmt.Fprintf(&out, "        (%d lines that are alike)\n", skipped)
	}
	return out.String()
}
