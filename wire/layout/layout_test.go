package layout

import (
	"bytes"
	"fmt"
	"testing"

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
	if fmt.Sprint(Shipped()) != "[accl atp inhouse native switchml]" {
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
			buf := append(make([]byte, 100), s.Frame...)
			if s.Request {
				at, n, f := l.Enter(buf, 100, len(s.Frame), captures.SwitchIP())
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
	buf := append(make([]byte, 100), card...)
	at, n, f := l.Enter(buf, 100, len(card), inet.Addr{10, 50, 0, 254})
	if f != OK || n != native.FrameLen(8) {
		t.Fatalf("%v %d", f, n)
	}
	var p inet.Packet
	if x := inet.Parse(buf[at:at+n], &p); x != inet.OK {
		t.Fatal(x)
	}
	v, x := native.Validate(p.Payload)
	if x != native.OK {
		t.Fatal(x)
	}
	want := native.Header{Kind: native.Contribution, Type: native.Int32, Job: 7, Rank: 1, Epoch: 0xaabbccdd, Round: 5, Slot: 3, Collective: 42, Elements: 2}
	if v.Header() != want || fmt.Sprintf("%x", v.Payload()) != "01000000feffffff" || p.SrcIP != (inet.Addr{127, 0, 1, 1}) || p.DstPort != native.Port {
		t.Fatalf("%+v %x %+v", v.Header(), v.Payload(), p)
	}
	answer := make([]byte, native.FrameLen(8))
	h := want
	h.Kind, h.Rank, h.Flags = native.Result, 2, native.FlagWrapped
	copy(answer[native.ValuesOffset:], v.Payload())
	native.PutFrame(answer, &native.Endpoint{MAC: p.Dst, IP: p.DstIP, Port: native.Port}, &native.Endpoint{MAC: p.Src, IP: p.SrcIP, Port: p.SrcPort}, &h, 8)
	at, n, ok := l.Leave(answer, 0, len(answer))
	got := fmt.Sprintf("%x", answer[at:at+n])
	if !ok || got != "02000000010106000000"+"00fe88b5"+"6c612101"+"00000003"+"0710"+"0300"+"00000005"+"aabbccdd"+"0008"+"0002"+"0000002a"+"10ff"+"00000001fffffffe" {
		t.Fatalf("%v %s", ok, got)
	}
}
