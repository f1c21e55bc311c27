package interop

import (
	"fmt"
	"strings"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
)

// maxExplained bounds how many frames one report shows.
const maxExplained = 3

// explain says what is missing and what came instead: by field, then byte by byte.
func (sc *scope) explain(missing []*built, got [][]byte) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d frames are missing, %d came that should not", len(missing), len(got))
	for i, w := range missing {
		if i == maxExplained {
			fmt.Fprintf(&b, "\n... and %d more missing", len(missing)-i)
			break
		}
		k := sc.nearest(w, got)
		if k < 0 {
			fmt.Fprintf(&b, "\nmissing (%s): %s", w.what, sc.describe(w.frame))
			continue
		}
		fmt.Fprintf(&b, "\ndiffers (%s):", w.what)
		sc.difference(&b, w, got[k])
		got = append(append([][]byte(nil), got[:k]...), got[k+1:]...)
	}
	for i, f := range got {
		if i == maxExplained {
			fmt.Fprintf(&b, "\n... and %d more that should not", len(got)-i)
			break
		}
		fmt.Fprintf(&b, "\nunexpected, %d bytes: %s\n%s", len(f), sc.describe(f), hexDump(f, nil, nil))
	}
	return b.String()
}

// nearest is the frame that is most like the one that is missing: to the same station, then with the fewest bytes
// that differ.
func (sc *scope) nearest(w *built, got [][]byte) int {
	best, least := -1, 1<<30
	for i, f := range got {
		if len(f) < 6 || len(w.frame) < 6 || string(f[:6]) != string(w.frame[:6]) {
			continue
		}
		d := 0
		for k := range w.frame {
			if k >= len(f) || (f[k]^w.frame[k])&w.mask[k] != 0 {
				d++
			}
		}
		if d < least {
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
	for name, p := range lower {
		for k := p.at; k < p.at+p.n && l.EtherType == 0; k++ {
			if bad(k) {
				fmt.Fprintf(b, "\n  %s: want %x, got %x", name, w.frame[p.at:p.at+p.n], got[p.at:p.at+p.n])
				break
			}
		}
	}
	if head := l.Base() + l.Header; len(got) >= head && len(w.frame) >= head {
		for i := range l.Fields {
			f := &l.Fields[i]
			x, y, m := f.Get(w.frame, l.Base()), f.Get(got, l.Base()), f.Get(w.mask, l.Base())
			if (x^y)&m != 0 {
				fmt.Fprintf(b, "\n  %s: want %s, got %s", f.Name, f.Text(x), f.Text(y))
			}
		}
		for k := head; k < len(w.frame); k++ {
			if bad(k) {
				at := head + (k-head)&^3
				fmt.Fprintf(b, "\n  payload from byte %d (word %d): want %x, got %x", at-head, (at-head)/4, w.frame[at:min(at+4, len(w.frame))], got[at:min(at+4, len(got))])
				break
			}
		}
	}
	fmt.Fprintf(b, "\nwant\n%sgot\n%s", hexDump(w.frame, got, w.mask), hexDump(got, w.frame, w.mask))
}

// describe is a frame in a line.
func (sc *scope) describe(frame []byte) string {
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
