package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gradnic/internal/captures"
	"gradnic/wire/inet"
	"gradnic/wire/native"
)

func load(t testing.TB, name string) *Layout {
	t.Helper()
	l, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestShipped(t *testing.T) {
	if fmt.Sprint(Shipped()) != "[accl atp inhouse native ring switchml]" {
		t.Fatalf("%v", Shipped())
	}
	for _, name := range Shipped() {
		l := load(t, name)
		if l.Name != name || len(l.Fields) == 0 {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// SwitchML as a layout: entering and leaving change nothing, in any recorded frame.
func TestSwitchMLIsItself(t *testing.T) {
	l := load(t, "switchml")
	for _, elements := range []int{64, 256} {
		steps, err := captures.Load(elements)
		if err != nil {
			t.Fatal(err)
		}
		for k, s := range steps {
			var p inet.Packet
			if inet.Parse(s.Frame, &p) != inet.OK {
				t.Fatal("capture")
			}
			buf := append(append(make([]byte, 100), s.Frame...), make([]byte, MaxRunning)...)
			if s.Request {
				var q inet.Packet
				at, n, f := l.Enter(buf, 100, len(s.Frame), captures.SwitchIP(), &q)
				if diff := cmp.Diff(p, q); diff != "" {
					t.Fatalf("%d: request %d parsed and entered: %s", elements, k, diff)
				}
				if f != OK || at != 100 || n != len(s.Frame) || !bytes.Equal(buf[at:at+n], s.Frame) {
					t.Fatalf("%d: request %d: %v, %d bytes at %d\n%x\n%x", elements, k, f, n, at, buf[at:at+n], s.Frame)
				}
				continue
			}
			at, n, ok := l.Leave(buf, 100, len(s.Frame))
			if !ok || at != 100 || n != len(s.Frame) || !bytes.Equal(buf[at:at+n], s.Frame) {
				t.Fatalf("%d: reply %d: %v, %d bytes at %d\n%x\n%x", elements, k, ok, n, at, buf[at:at+n], s.Frame)
			}
		}
	}
}

// The example's frames become native ones and come back.
func TestInhouse(t *testing.T) {
	l := load(t, "inhouse")
	card := bytes.Clone([]byte{
		6, 0, 0, 0, 0, 0xfe, 2, 0, 0, 0, 1, 1, 0x88, 0xb5,
		0x6c, 0x61, 0x20, 9, 0, 0, 0, 2, 7, 0x10, 3, 0, 0, 0, 0, 5, 0xaa, 0xbb, 0xcc, 0xdd, 0, 8, 0, 2, 0, 0, 0, 42, 0, 0xff,
		0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe,
	})
	card = append(card, make([]byte, 60-len(card)+3)...) // padding
	buf := append(append(make([]byte, 100), card...), make([]byte, MaxRunning)...)
	var p, parsed inet.Packet
	at, n, f := l.Enter(buf, 100, len(card), inet.Addr{10, 50, 0, 254}, &p)
	if f != OK || n != native.FrameLen(8) {
		t.Fatalf("%v %d", f, n)
	}
	Lower(buf[at:at+n], &p)
	if x := inet.Parse(buf[at:at+n], &parsed); x != inet.OK || cmp.Diff(p, parsed) != "" {
		t.Fatalf("%v %s", x, cmp.Diff(p, parsed))
	}
	v, x := native.Validate(p.Payload)
	if x != native.OK {
		t.Fatal(x)
	}
	want := native.Header{Kind: native.Contribution, Type: native.Int32, Job: 7, Rank: 1, Epoch: 0xaabbccdd, Round: 5, Slot: 3, Collective: 42, Elements: 2}
	if v.Header() != want || fmt.Sprintf("%x", v.Payload()) != "01000000feffffff" || p.SrcIP != (inet.Addr{127, 0, 1, 1}) || p.DstPort != native.Port {
		t.Fatalf("%+v %x %+v", v.Header(), v.Payload(), p)
	}
	answer := make([]byte, native.FrameLen(8)+MaxRunning)
	h := want
	h.Kind, h.Rank, h.Flags = native.Result, 2, native.FlagWrapped
	copy(answer[native.ValuesOffset:], v.Payload())
	native.PutFrame(answer, &native.Endpoint{MAC: p.Dst, IP: p.DstIP, Port: native.Port}, &native.Endpoint{MAC: p.Src, IP: p.SrcIP, Port: p.SrcPort}, &h, 8)
	at, n, ok := l.Leave(answer, 0, native.FrameLen(8))
	got := fmt.Sprintf("%x", answer[at:at+n])
	if !ok || got != "02000000010106000000"+"00fe88b5"+"6c612101"+"00000003"+"0710"+"0300"+"00000005"+"aabbccdd"+"0008"+"0002"+"0000002a"+"10ff"+"00000001fffffffe" {
		t.Fatalf("%v %s", ok, got)
	}
}

// ATP's frames are decoded by its page: every field from the table of its header, the values, and what follows them.
func TestATP(t *testing.T) {
	l := load(t, "atp")
	f := make([]byte, 308)
	copy(f, []byte{5, 4, 3, 2, 1, 7, 0x77, 0x77, 0x77, 0x77, 0x77, 1, 0x07, 0x00, 0x45, 0, 0, 0x54})
	h := f[34:] // behind 20 bytes of "IPv4"
	binary.BigEndian.PutUint32(h[0:], 1<<3)
	h[4], h[5] = 8, 0x80|0x08|0x04|0x01
	binary.BigEndian.PutUint16(h[6:], 2)
	binary.BigEndian.PutUint16(h[8:], 77)
	binary.BigEndian.PutUint16(h[10:], 500)
	binary.BigEndian.PutUint16(h[12:], 20500)
	for i := range 62 {
		binary.BigEndian.PutUint32(h[14+4*i:], uint32(int32(-i)))
	}
	binary.LittleEndian.PutUint64(h[262:], 0x1122334455667788)
	binary.BigEndian.PutUint32(h[270:], 248)
	d, fault := l.Decode(f)
	if fault != OK {
		t.Fatal(fault)
	}
	got := map[string]string{}
	for _, v := range append(d.Fields, d.Trailer...) {
		got[v.Field.Name] = v.Text
	}
	for name, want := range map[string]string{
		"bitmap": "0x8: worker 3", "num-worker": "8", "overflow": "1", "ps-index": "0", "data-index": "0", "ecn": "1", "resend": "1", "collision": "0", "ack": "1",
		"app-id": "2", "seq-num": "77", "agtr": "500", "agtr2": "20500", "key": "0x8877665544332211", "len-tensor": "0xf8",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if s := l.PayloadText(&d); s != "62 int32: 0 -1 -2 -3 -4 -5 ..." {
		t.Error(s)
	}
	if _, fault := l.Decode(f[:300]); fault != Short {
		t.Errorf("a frame that was cut: %v", fault)
	}
	if _, fault := l.Decode(make([]byte, 60)); fault != Foreign {
		t.Errorf("another EtherType: %v", fault)
	}
}
