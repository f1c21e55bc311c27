package interop

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// spoiled is a card whose frames are changed on their way to the kit.
type spoiled struct {
	Target
	change func(frame []byte) [][]byte
}

func (s spoiled) Collect(want int) (out [][]byte, err error) {
	got, err := s.Target.Collect(want)
	for _, f := range got {
		out = append(out, s.change(f)...)
	}
	return out, err
}

// A report names what is wrong with a card's frames, in whatever header it is, and tells a copy from another frame.
func TestExplain(t *testing.T) {
	flip := func(at int, bits byte) func([]byte) [][]byte {
		return func(f []byte) [][]byte {
			f[at] ^= bits
			return [][]byte{f}
		}
	}
	for name, x := range map[string]struct {
		suite, only string
		change      func([]byte) [][]byte
		says        []string
	}{
		"the other worker's station": {"switchml", "sum", flip(5, 1), []string{
			"2 frames are missing, 2 came", "ether.dst: want 02:00:00:00:01:00, got 02:00:00:00:01:01"}},
		"the other worker's address": {"switchml", "sum", flip(33, 3), []string{"ip.dst: want 10.50.0.1, got 10.50.0.2"}},
		"from another address":       {"switchml", "sum", flip(29, 1), []string{"ip.src: want 10.50.0.254, got 10.50.0.255"}},
		"length of the datagram":     {"switchml", "sum", flip(39, 4), []string{"udp.length: want 0112, got 0116"}},
		"length of the packet":       {"switchml", "sum", flip(17, 8), []string{"ip.length: want 0126, got 012e"}},
		"EtherType":                  {"switchml", "sum", flip(13, 6), []string{"ether.type: want 0800, got 0806"}},
		"twice": {"switchml", "sum", func(f []byte) [][]byte { return [][]byte{f, bytes.Clone(f)} }, []string{
			"0 frames are missing, 2 came", "the same bytes came 0s before, in this case: 2 times in all"}},
		"a notice's body": {"native", "ready", flip(79, 1), []string{"1 frame is missing, 1 came", "notice.workers: want 2, got 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := load(t, x.suite), options(t, 64)
			o.Only = []string{x.only}
			m, err := OpenTarget(context.Background(), "mem", &o, s)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			r, err := Run(context.Background(), s, spoiled{m, x.change}, "mem", o)
			if err != nil || r.Results[0].Verdict != Failed {
				t.Fatalf("%v: %+v", err, r.Results)
			}
			for _, words := range x.says {
				if !strings.Contains(r.Results[0].Detail, words) {
					t.Errorf("%q is not in\n%s", words, r.Results[0].Detail)
				}
			}
		})
	}
}

// A frame that comes late, in another case than its own, is said to be a copy, and of which case.
func TestExplainStale(t *testing.T) {
	s, o := load(t, "switchml"), options(t, 64)
	o.Only = []string{"sum", "first-is-silent"}
	m, err := OpenTarget(context.Background(), "mem", &o, s)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var old []byte
	n := 0
	r, err := Run(context.Background(), s, spoiled{m, func(f []byte) [][]byte {
		if n++; n == 4 { // the second one of the first case, after two that wash the slot
			old = bytes.Clone(f)
		}
		if n == 7 {
			return [][]byte{f, old}
		}
		return [][]byte{f}
	}}, "mem", o)
	if err != nil || r.Results[1].Verdict != Failed || !strings.Contains(r.Results[1].Detail, "before, in case sum: 2 times in all\n") {
		t.Fatalf("%v: %+v", err, r.Results)
	}
}

// A value that is the card's to choose, and the same in two places of a frame, is named when it is not.
func TestExplainChosenValue(t *testing.T) {
	s := load(t, "ring")
	sc := scope{s: s}
	base := s.layout.Base()
	frame := make([]byte, base+40)
	w := built{frame: frame, mask: make([]byte, len(frame)), free: []unbound{{"boot", s.layout.Field("generation"), base}, {"boot", s.layout.Field("epoch"), base}}}
	got := bytes.Clone(frame)
	got[base+8+3], got[base+12+3] = 7, 9
	if w.matches(got) {
		t.Fatal("7 is 9")
	}
	var b strings.Builder
	sc.difference(&b, &w, got)
	if !strings.Contains(b.String(), "epoch: want what generation is, 0x7, got 0x9\n") {
		t.Errorf("%s", b.String())
	}
}
