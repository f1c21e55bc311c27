package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
)

// scrambled is a layout of rules with the fields of names in an order, at bits and byte orders of a generator's choice.
func scrambled(t *rapid.T, name string) *Layout {
	src, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	var fields []Field
	for _, f := range src.Fields {
		if f.Meaning != None {
			fields = append(fields, f)
		}
	}
	if src.Rules == SwitchML && rapid.Bool().Draw(t, "length") {
		fields = append(fields, Field{Meaning: Length, Width: 16})
	}
	fields = rapid.Permutation(fields).Draw(t, "order")
	fmt.Fprintf(&b, "  - {name: magic, offset: 0, width: 8, fixed: 0x5A}\n")
	bit := 8
	for i, f := range fields {
		bit += rapid.IntRange(0, 9).Draw(t, "gap")
		width := f.Width
		little := f.Width%8 == 0 && len(f.Values) == 0 && rapid.Bool().Draw(t, "little")
		if little {
			bit = (bit + 7) &^ 7
		}
		if bit%8+width > 64 {
			bit = (bit + 7) &^ 7
		}
		fmt.Fprintf(&b, "  - {name: f%d, offset: %d, bit: %d, width: %d, meaning: %s", i, bit/8, bit%8, width, f.Meaning)
		if little {
			b.WriteString(", byte-order: little")
		}
		if len(f.Values) > 0 {
			var words []string
			for w, v := range f.Values {
				words = append(words, fmt.Sprintf("%s: %d", w, uint64(1)<<width-1-v)) // other numbers than the rules'
			}
			fmt.Fprintf(&b, ", values: {%s}", strings.Join(words, ", "))
		}
		b.WriteString("}\n")
		bit += width
	}
	header := min((bit+7)/8+rapid.IntRange(0, 5).Draw(t, "rest"), MaxRunning)
	capsule := rapid.SampledFrom([]string{"udp: 7000", "ethertype: 0x88B6"}).Draw(t, "capsule")
	order := rapid.SampledFrom([]string{"big", "little"}).Draw(t, "values")
	page := fmt.Sprintf("layout: x\nrules: %s\nencapsulation: {%s}\nheader: %d\nfields:\n%spayload: {byte-order: %s}\n", src.Rules, capsule, header, b.String(), order)
	l, err := Parse("x.yaml", []byte(page))
	if err != nil {
		t.Fatalf("%v\n%s", err, page)
	}
	return l
}

// Whatever the header looks like: what leaves as a card's frame and enters again is the rules' frame, and each field of the
// card's frame, read on its own, has the value that the rules had.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"switchml", "native"}).Draw(t, "rules")
		l := scrambled(t, name)
		nic := native.Endpoint{MAC: inet.MAC{6, 0, 0, 0, 0, 1}, IP: inet.Addr{10, 0, 0, 9}}
		worker := native.Endpoint{MAC: inet.MAC{2, 0, 0, 0, 0, 7}, IP: inet.Addr{10, 0, 0, 1}, Port: 4000}
		if l.EtherType != 0 {
			worker.IP = StationIP(worker.MAC)
		}
		var own []byte
		u32 := rapid.Uint32()
		if name == "switchml" {
			elements := rapid.SampledFrom([]int{64, 256}).Draw(t, "elements")
			own = make([]byte, switchml.FrameLen(elements))
			r := switchml.Request{Worker: switchml.Endpoint(worker), Switch: switchml.Endpoint{MAC: nic.MAC, IP: nic.IP, Port: switchml.PortBase}, Elements: elements,
				Job: uint8(u32.Draw(t, "job")), PoolIndex: switchml.PoolIndexOf(int(u32.Draw(t, "set")), int(u32.Draw(t, "slot"))), E0: int8(u32.Draw(t, "e0")), E1: int8(u32.Draw(t, "e1"))}
			binary.BigEndian.PutUint32(r.TSI[:], u32.Draw(t, "tsi"))
			switchml.PutRequest(own, r)
			copy(own[switchml.ValuesOffset:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "values"))
		} else {
			kinds := []native.Kind{native.Contribution, native.Report, native.Supply, native.Leave, native.Ask, native.Notice, native.Result}
			h := native.Header{
				Kind: rapid.SampledFrom(kinds).Draw(t, "kind"), Flags: native.Flags(u32.Draw(t, "flags")), Type: native.Type(u32.Draw(t, "type") % 7),
				Job: uint16(u32.Draw(t, "job")), Rank: uint16(u32.Draw(t, "rank")), Epoch: u32.Draw(t, "epoch"), Round: u32.Draw(t, "round"),
				Slot: u32.Draw(t, "slot"), Collective: u32.Draw(t, "call"), Elements: uint16(u32.Draw(t, "count")),
			}
			payload := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "payload")
			own = append(make([]byte, native.ValuesOffset), payload...)
			native.PutFrame(own, &worker, &native.Endpoint{MAC: nic.MAC, IP: nic.IP, Port: native.Port}, &h, len(payload))
		}
		at := rapid.IntRange(0, 80).Draw(t, "at")
		buf := make([]byte, 4096)
		copy(buf[at:], own)
		cardAt, n, ok := l.Leave(buf, at, len(own))
		if !ok {
			t.Fatal("it does not leave")
		}
		card := bytes.Clone(buf[cardAt : cardAt+n])
		if l.EtherType == 0 { // Leave is for answers: their source port is the NIC's
			binary.BigEndian.PutUint16(card[36:], l.FirstPort)
		}
		d, f := l.Decode(card)
		if f != OK || !l.Claims(card) {
			t.Fatalf("%v\n%x", f, card)
		}
		values := map[Meaning]uint64{}
		for _, v := range d.Fields {
			x := v.Raw
			if v.Field.forward != nil {
				x = uint64(v.Field.forward[x])
			}
			values[v.Field.Meaning] = x
		}
		src, _ := Load(name)
		for i := range src.Fields {
			f := &src.Fields[i]
			if want := f.Get(own, 42); f.Meaning != None && values[f.Meaning] != want {
				t.Fatalf("%v is %#x, was %#x", f.Meaning, values[f.Meaning], want)
			}
		}
		buf = make([]byte, 4096)
		copy(buf[200:], card)
		var p, parsed inet.Packet
		back, m, f := l.Enter(buf, 200, len(card), nic.IP, &p)
		if f != OK {
			t.Fatalf("enter: %v", f)
		}
		Lower(buf[back:back+m], &p)
		if x := inet.Parse(buf[back:back+m], &parsed); x != inet.OK || cmp.Diff(p, parsed) != "" {
			t.Fatalf("%v: entered and parsed: %s", x, cmp.Diff(p, parsed))
		}
		got := bytes.Clone(buf[back : back+m])
		if len(got) != len(own) {
			t.Fatalf("%d bytes, were %d", len(got), len(own))
		}
		// Of the headers below only what matters is the same; checksums and ports of one's own are not looked at.
		if !bytes.Equal(got[42:], own[42:]) || !bytes.Equal(got[:12], own[:12]) || !bytes.Equal(got[26:34], own[26:34]) || !bytes.Equal(got[36:40], own[36:40]) || !bytes.Equal(got[16:18], own[16:18]) {
			t.Fatalf("was %x\n is %x", own, got)
		}
	})
}

// A template's headers are what Leave makes of a reply.
func TestTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := scrambled(t, "switchml")
		u32 := rapid.Uint32()
		r := switchml.Reply{
			Switch:   switchml.Endpoint{MAC: inet.MAC{6, 9}, IP: inet.Addr{10, 0, 0, 9}, Port: switchml.PortBase},
			Elements: rapid.SampledFrom([]int{64, 256}).Draw(t, "elements"),
			Worker:   switchml.Endpoint{MAC: inet.MAC{2, 9, 9}, IP: inet.Addr{172, 16, rapid.Byte().Draw(t, "ip"), 255}, Port: uint16(u32.Draw(t, "port"))},
			Job:      uint8(u32.Draw(t, "job")), PoolIndex: uint16(u32.Draw(t, "pool")), E0: int8(u32.Draw(t, "e0")), E1: int8(u32.Draw(t, "e1")),
		}
		binary.BigEndian.PutUint32(r.TSI[:], u32.Draw(t, "tsi"))
		buf := make([]byte, 2000)
		n := switchml.PutReply(buf[100:], r)
		for i := switchml.ValuesOffset; i < n; i++ {
			buf[100+i] = byte(i)
		}
		values := bytes.Clone(buf[100+switchml.ValuesOffset : 100+n])
		at, n, ok := l.Leave(buf, 100, n)
		x, ok2 := l.NewTemplate(&r)
		if !ok || !ok2 || x.Len()+len(values) != n {
			t.Fatalf("%v %v, %d and %d bytes of %d", ok, ok2, x.Len(), len(values), n)
		}
		l.Order(values, 4)
		got := make([]byte, n)
		x.Put(got, r.Worker.MAC, r.Worker.IP, r.Worker.Port, values)
		if !bytes.Equal(got, buf[at:at+n]) {
			t.Fatalf("\n%x\n%x", got, buf[at:at+n])
		}
	})
}

// The same for the results of the native rules, to a worker and to a multicast group.
func TestResultTemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := scrambled(t, "native")
		u32 := rapid.Uint32()
		values := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "values")
		h := native.Header{
			Kind: native.Result, Flags: native.Flags(u32.Draw(t, "flags")), Type: native.Type(u32.Draw(t, "type") % 7), Job: uint16(u32.Draw(t, "job")),
			Rank: uint16(u32.Draw(t, "rank")), Epoch: u32.Draw(t, "epoch"), Round: u32.Draw(t, "round"), Slot: u32.Draw(t, "slot"),
			Collective: u32.Draw(t, "call"), Elements: uint16(u32.Draw(t, "count")),
		}
		from := native.Endpoint{MAC: inet.MAC{6, 9}, IP: inet.Addr{10, 0, 0, 9}, Port: native.Port}
		to := native.Endpoint{MAC: inet.MAC{2, 9, 9}, IP: inet.Addr{172, 16, rapid.Byte().Draw(t, "ip"), 255}, Port: uint16(u32.Draw(t, "port"))}
		if rapid.Bool().Draw(t, "multicast") {
			to.MAC[0] = 1
		}
		buf := make([]byte, 500)
		n := native.PutFrame(buf[100:], &from, &to, &h, len(values))
		copy(buf[100+native.ValuesOffset:], values)
		at, n, ok := l.Leave(buf, 100, n)
		x, ok2 := l.NewResult(&from, &h, len(values))
		if !ok || !ok2 || x.Len()+len(values) != n {
			t.Fatalf("%v %v, %d and %d bytes of %d", ok, ok2, x.Len(), len(values), n)
		}
		l.Order(values, h.Type.Size())
		got := make([]byte, n)
		x.Put(got, to.MAC, to.IP, to.Port, values)
		inPlace := append(make([]byte, x.Len()), values...)
		x.PutHeaders(inPlace, to.MAC, to.IP, to.Port)
		if !bytes.Equal(got, buf[at:at+n]) || !bytes.Equal(inPlace, got) {
			t.Fatalf("\n%x\n%x\n%x", got, inPlace, buf[at:at+n])
		}
	})
}

// Enter says what is wrong, and leaves the frame alone.
func TestEnterFaults(t *testing.T) {
	l := load(t, "switchml")
	own := make([]byte, switchml.FrameLen(64))
	switchml.PutRequest(own, switchml.Request{Switch: switchml.Endpoint{Port: switchml.PortBase}, Elements: 64})
	for _, tt := range []struct {
		change func([]byte) []byte
		at     int
		want   Fault
	}{
		{func(b []byte) []byte { return b }, 100, OK},
		{func(b []byte) []byte { b[42] = 0x21; return b }, 100, BadFixed},
		{func(b []byte) []byte { return b[:100] }, 100, Foreign},
		{func(b []byte) []byte { b[20] = 0x20; return b }, 100, Foreign},
		{func(b []byte) []byte { b[39] = 4; b[38] = 0; return b }, 100, Foreign},
		{func(b []byte) []byte { b[38], b[39] = 0, 12; return b }, 100, Short},
	} {
		f := tt.change(bytes.Clone(own))
		buf := append(append(make([]byte, tt.at), f...), make([]byte, MaxRunning)...)
		before := bytes.Clone(buf)
		if _, _, got := l.Enter(buf, tt.at, len(f), inet.Addr{}, new(inet.Packet)); got != tt.want || got != OK && !bytes.Equal(buf, before) {
			t.Errorf("%v, want %v", got, tt.want)
		}
	}
	x := load(t, "inhouse")
	card := make([]byte, 60)
	copy(card[12:], []byte{0x88, 0xb5, 0x6c, 0x61, 0x20, 0, 0, 0, 0, 1, 7, 0x10})
	card[43] = 0xff
	for _, room := range []struct{ before, behind int }{{0, MaxRunning}, {100, 0}} {
		buf := append(append(make([]byte, room.before), card...), make([]byte, room.behind)...)
		if _, _, got := x.Enter(buf, room.before, len(card), inet.Addr{}, new(inet.Packet)); got != NoRoom {
			t.Errorf("%+v: %v, want %v", room, got, NoRoom)
		}
	}
	for _, tt := range []struct {
		at    int
		value byte
		want  Fault
	}{{21, 3, BadValue}, {16, 0x27, BadValue}, {23, 0xf0, BadValue}, {35, 200, BadLength}, {15, 0, BadFixed}} {
		buf := append(append(make([]byte, 100), card...), make([]byte, MaxRunning)...)
		buf[100+tt.at] = tt.value
		if _, _, got := x.Enter(buf, 100, len(card), inet.Addr{}, new(inet.Packet)); got != tt.want {
			t.Errorf("byte %d: %v, want %v", tt.at, got, tt.want)
		}
	}
	for f := range Fault(NumFaults) {
		if f.String() == "unknown-fault" {
			t.Errorf("fault %d has no name", f)
		}
	}
}

// BenchmarkEnter is the cost of a frame that comes in, values in the rules' byte order, with what it takes to write its header
// anew.
func BenchmarkEnter(b *testing.B) {
	for _, name := range []string{"switchml", "native", "inhouse"} {
		b.Run(name, func(b *testing.B) {
			l := load(b, name)
			l.swap = false
			own := make([]byte, 2000)
			n := switchml.FrameLen(64)
			if l.Rules == SwitchML {
				switchml.PutRequest(own[100:], switchml.Request{Switch: switchml.Endpoint{Port: switchml.PortBase}, Elements: 64})
			} else {
				h := native.Header{Kind: native.Contribution, Slot: 5, Elements: 64}
				n = native.PutFrame(own[100:], &native.Endpoint{}, &native.Endpoint{Port: native.Port}, &h, 256)
			}
			at, n, ok := l.Leave(own, 100, n)
			if !ok {
				b.Fatal("it does not leave")
			}
			if l.EtherType == 0 {
				binary.BigEndian.PutUint16(own[at+36:], l.FirstPort)
			}
			buf := bytes.Clone(own)
			var p inet.Packet
			for b.Loop() {
				copy(buf[at:at+80], own[at:])
				if !l.Claims(buf[at : at+n]) {
					b.Fatal("it is no frame of the layout")
				}
				if _, _, f := l.Enter(buf, at, n, inet.Addr{}, &p); f != OK {
					b.Fatal(f)
				}
			}
		})
	}
}
