package layout

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gradnic/wire/inet"
)

// edit is a shipped layout with a piece of its text replaced, which must be there.
func edit(t testing.TB, name, old, replacement string) string {
	t.Helper()
	text, err := Source(name)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %q", name, old)
	}
	return strings.Replace(string(text), old, replacement, 1)
}

// What a page cannot mean is refused with its line and what mends it.
func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ name, old, replacement, fails string }{
		{"switchml", "layout: switchml", "layout: a b", "f.yaml:3: layout: \"a b\" is no name: one word"},
		{"switchml", "rules: switchml", "rules: tofino", "f.yaml:5: rules: \"tofino\": legal are switchml, native"},
		{"switchml", "header: 10", "header: 0", "f.yaml:7: header: 0 bytes: legal are 1 to 64"},
		{"switchml", "header: 10", "headre: 10", `[7:1] unknown field "headre"`},
		{"switchml", "{udp: 0xBEE0-0xBEEF}", "{}", "f.yaml:6: encapsulation: write udp: PORT"},
		{"switchml", "{udp: 0xBEE0-0xBEEF}", "{udp: 1-99999}", `f.yaml:6: udp: "1-99999": one port from 1 to 65535`},
		{"switchml", "{udp: 0xBEE0-0xBEEF}", "{udp: 100-199}", "f.yaml:6: udp: 100 ports: rules switchml take 16"},
		{"switchml", "{udp: 0xBEE0-0xBEEF}", "{ethertype: 0x0800}", "f.yaml:6: ethertype: 0x0800: a number from 0x0600"},
		{"switchml", "offset: 2, width: 32", "offset: 8, width: 32", "f.yaml:13: field tsi ends at byte 12: there are 10"},
		{"switchml", "offset: 2, width: 32", "offset: 1, width: 32", "f.yaml:13: field tsi lies on field job, at byte 1"},
		{"switchml", "offset: 2, width: 32", "offset: 2, width: 0", "f.yaml:13: field tsi: 0 bits from bit 0: a field has 1 to 64"},
		{"switchml", "offset: 2, width: 32", "offset: 2, width: 65", "split it"},
		{"switchml", "offset: 2, width: 32", "offset: 2, width: 31, byte-order: little", "f.yaml:13: field tsi: little endian has whole bytes only"},
		{"switchml", "offset: 2, width: 32", "offset: 2, width: 32, byte-order: middle", `f.yaml:13: byte-order: "middle": legal are big and little`},
		{"switchml", "meaning: tag", "meaning: tga", `f.yaml:13: field tsi: meaning "tga": legal are kind, flags`},
		{"switchml", "meaning: tag", "meaning: epoch", "f.yaml:13: field tsi: rules switchml have no epoch: they know"},
		{"switchml", "meaning: tag", "meaning: job", "f.yaml:13: fields job and tsi both mean job"},
		{"switchml", "meaning: tag", "meaning: tag, fixed: 3", "f.yaml:13: field tsi has a meaning and a fixed value"},
		{"switchml", "meaning: tag", "meaning: tag, encoding: one-hot", "f.yaml:13: field tsi: one-hot is for meaning worker"},
		{"switchml", "meaning: tag", "meaning: tag, encoding: gray", `f.yaml:13: field tsi: encoding "gray": legal are number and one-hot`},
		{"switchml", "fixed: 1}", "fixed: 16}", "f.yaml:9: field message-type: fixed: 16 needs more than its 4 bits"},
		{"switchml", "name: tsi", "name: job", "f.yaml:13: field job is there twice"},
		{"switchml", "width: 14, meaning: slot", "width: 14", "no field means slot, which rules switchml need"},
		{"switchml", "type: int32", "type: float32", "payload: type float32: rules switchml sum int32"},
		{"inhouse", "contribution: 0,", "", "field op: contribution is missing: the rules need every kind"},
		{"inhouse", "contribution: 0", "contribution: 1", "field op: contribution and result are both 1"},
		{"inhouse", "contribution: 0", "contribution: 16", "field op: contribution: 16 needs more than its 4 bits"},
		{"inhouse", "float16: 3", "float8: 3", `field format: "float8": the rules know bfloat16`},
		{"inhouse", "    values: {int32: 1, float32: 2, float16: 3}\n", "", "field format: values are missing"},
		{"inhouse", "meaning: length,", "", "no field means length: behind Ethernet"},
		{"inhouse", "offset: 16, width: 32, meaning: epoch", "offset: 16, width: 16, meaning: epoch", "field life: 16 bits: rules native need 32 for epoch"},
		{"inhouse", "width: 8, meaning: job", "width: 8", "no field means job: say job: NUMBER"},
		{"inhouse", "header: 30", "header: 30\ntrailer: [{name: x, width: 8}]", "trailer: rules native have the payload last"},
		{"atp", "elements: 62", "elements: 0", "trailer: say where it starts"},
	} {
		_, err := Parse("f.yaml", []byte(edit(t, tt.name, tt.old, tt.replacement)))
		if err == nil || !strings.Contains(err.Error(), tt.fails) {
			t.Errorf("%s, %q for %q:\n got %v\nwant %s", tt.name, tt.replacement, tt.old, err, tt.fails)
		}
		if err != nil && !strings.Contains(err.Error(), "f.yaml") {
			t.Errorf("%v does not name the file", err)
		}
	}
	if _, err := Parse("f.yaml", make([]byte, MaxFile+1)); err == nil {
		t.Error("a page of a megabyte")
	}
}

func TestLoad(t *testing.T) {
	if _, err := Load("nothing"); err == nil || !strings.Contains(err.Error(), "accl, atp, inhouse, native, ring, switchml") {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	if _, err := Load(path); err == nil {
		t.Error("a file that there is not")
	}
	if err := os.WriteFile(path, []byte(edit(t, "inhouse", "\nlayout: inhouse", "\nlayout: mine")), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(path)
	if err != nil || l.Name != "mine" || l.File != path || l.Where() != "EtherType 0x88b5" {
		t.Errorf("%v", err)
	}
}

// A job whose one number stands in the page needs no field for it, and none for the type.
func TestDefaultsOfNative(t *testing.T) {
	text := edit(t, "inhouse", "width: 8, meaning: job", "width: 8")
	text = strings.Replace(text, "rules: native", "rules: native\njob: 7", 1)
	l, err := Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Carries(Limits{Workers: 2, Slots: 4, Payload: 64, Job: 7}); err != nil {
		t.Error(err)
	}
	if err := l.Carries(Limits{Workers: 2, Slots: 4, Payload: 64, Job: 8}); err == nil {
		t.Error("job 8")
	}
}

// No page, however odd, is a panic.
func FuzzParse(f *testing.F) {
	for _, name := range Shipped() {
		text, err := Source(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<12 { // the YAML reader's own time is not looked at here
			return
		}
		if l, err := Parse("f.yaml", text); err == nil {
			_ = l.Summary()
		}
	})
}

// Frames of strangers are read and written inside their buffer only, whatever is in them.
func FuzzFrames(f *testing.F) {
	var layouts []*Layout
	for _, name := range Shipped() {
		layouts = append(layouts, load(f, name))
	}
	for _, l := range layouts {
		b := make([]byte, 100)
		if l.EtherType != 0 {
			binary.BigEndian.PutUint16(b[12:], l.EtherType)
		} else {
			copy(b[12:], []byte{8, 0, 0x45, 0, 0, 86, 0, 0, 0, 0, 64, 17})
			binary.BigEndian.PutUint16(b[36:], l.FirstPort)
			binary.BigEndian.PutUint16(b[38:], 66)
		}
		f.Add(b, uint8(90))
	}
	f.Fuzz(func(t *testing.T, frame []byte, room uint8) {
		if len(frame) > 1<<12 {
			return
		}
		for _, l := range layouts {
			if d, f := l.Decode(frame); f == OK {
				_ = l.PayloadText(&d)
			}
			if l.Rules == ShowOnly {
				continue
			}
			const fence = 64
			buf := bytes.Repeat([]byte{0xa5}, fence+int(room)+len(frame)+int(room)%(MaxRunning+1)+fence)
			inside := buf[fence : len(buf)-fence : len(buf)-fence]
			copy(inside[room:], frame)
			check := func(what string, at, n int) {
				if at < 0 || n < 0 || at+n > len(inside) {
					t.Fatalf("%s: %d bytes at %d of %d", what, n, at, len(inside))
				}
				for i := range fence {
					if buf[i] != 0xa5 || buf[len(buf)-1-i] != 0xa5 {
						t.Fatalf("%s wrote outside its buffer", what)
					}
				}
			}
			at, n := int(room), len(frame)
			if l.Claims(frame) {
				var f Fault
				var p, parsed inet.Packet
				if at, n, f = l.Enter(inside, at, n, inet.Addr{}, &p); f != OK && (at != int(room) || n != len(frame)) {
					t.Fatalf("%v moved the frame", f)
				}
				check("enter", at, n)
				if f == OK {
					Lower(inside[at:at+n], &p)
					check("lower", at, n)
					if x := inet.Parse(inside[at:at+n], &parsed); x != inet.OK || !reflect.DeepEqual(p, parsed) {
						t.Fatalf("%v: entered as %+v, parsed as %+v", x, p, parsed)
					}
				}
			}
			at, n, _ = l.Leave(inside, at, n)
			check("leave", at, n)
		}
	})
}
