package bump_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"hash/crc32"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	. "gradnic/wire/bump"
	"gradnic/wire/inet"
)

var update = flag.Bool("update", false, "write the golden frames again")

const vectorsFile = "testdata/frames.json"

var (
	macA, macB = inet.MAC{2, 0, 0, 0, 0, 1}, inet.MAC{2, 0, 0, 0, 0, 2}
	ipA, ipB   = inet.Addr{10, 70, 0, 1}, inet.Addr{10, 70, 0, 2}
)

// vector is a frame and what it says in words.
type vector struct {
	Name  string `json:"name"`
	Says  string `json:"says"`
	Frame string `json:"frame"`
}

// udpHead is the IPv4 and UDP headers of a datagram from A to B.
func udpHead(id uint16, payload int, sum uint16) []byte {
	b := make([]byte, UDPHead)
	inet.PutIPv4(b, inet.IPv4{ID: id, DontFragment: true, Proto: inet.ProtoUDP, Src: ipA, Dst: ipB, PayloadLen: inet.UDPLen + payload})
	inet.PutUDP(b[inet.IPv4Len:], inet.UDP{Src: 4000, Dst: 9000, PayloadLen: payload, Checksum: sum})
	return b
}

// body makes items: each Item's Raw and Encoded follow its headers.
func body(items ...Item) []byte {
	var b []byte
	for i := range items {
		it := &items[i]
		at := len(b)
		b = append(b, make([]byte, it.HeadLen())...)
		PutItem(b[at:], it)
		b = append(append(b, it.Raw...), it.Encoded...)
		SetItemSize(b[at:], len(b)-at)
	}
	return b
}

func frame(h Header, body []byte) []byte {
	b := make([]byte, BodyOffset+len(body))
	copy(b[BodyOffset:], body)
	Seal(b, &h)
	return b
}

func control(k Kind, seq uint32, c Control) []byte {
	b := make([]byte, ControlFrameLen)
	PutControl(b, &Header{Dst: macB, Src: macA, Kind: k, Boot: 0x11223344, Sequence: seq}, &c)
	return b
}

func vectors() []vector {
	one := Item{
		Flow: 3, Sequence: 7, Codec: 1, Type: Float32, Payload: 4 + 64, Offset: 4, Head: udpHead(0x0102, 68, 0xbeef),
		Raw: []byte{0xd0, 0xd1, 0xd2, 0xd3}, Encoded: append(bytes.Repeat([]byte{0x40}, 16), 127), // 16 x 1.0
	}
	two := one
	two.Sequence, two.ID, two.Alike, two.Payload = 8, 0x0103, true, 4+66
	two.Raw = append(bytes.Clone(one.Raw), 0xe0, 0xe1)
	big := Item{Flow: 9, Codec: 14, Type: Word16, BigEndian: true, Payload: 4, Head: udpHead(5, 4, 0), Encoded: []byte{1, 0x77, 1, 0x78}}
	hx := func(b []byte) string { return hex.EncodeToString(b) }
	data := Header{Dst: macB, Src: macA, Kind: Data, Boot: 0x11223344, Sequence: 5, Seed: 0xa5a5}
	data2, data1 := data, data
	data2.Items, data1.Items = 2, 1
	return []vector{
		{"hello", "is there a NIC before 02:00:00:00:00:02 (10.70.0.2)? The asking one decodes bfp16 (1) and lossless (14)",
			hx(control(Hello, 1, Control{Longest: 1514, Codecs: 1<<1 | 1<<14, Station: ipB}))},
		{"answer", "yes, to the hello of life 0x55667788", hx(control(Answer, 1, Control{To: 0x55667788, Longest: 9014, Codecs: 0x7ffe}))},
		{"bye", "the NIC before 02:00:00:00:00:01 goes away", hx(control(Bye, 0, Control{Longest: 1514, Codecs: 0x7ffe}))},
		{"two items", "a datagram of 4 bytes and 16 times 1.0 in bfp16; one with 2 bytes more and the next identification", hx(frame(data2, body(one, two)))},
		{"big endian", "4 bytes as big-endian words of 2, lossless, without a UDP checksum", hx(frame(data1, body(big)))},
	}
}

// TestGoldenFrames holds the frames of docs/bump.md: what is written is what is there.
func TestGoldenFrames(t *testing.T) {
	got := vectors()
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectorsFile, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	var want []vector
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	page, err := os.ReadFile("../../docs/bump.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(" ", "", "\n", "").Replace(string(page))
	for _, v := range want {
		f, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text, v.Frame) {
			t.Errorf("%s: docs/bump.md does not show the frame", v.Name)
		}
		// The checksum, computed another way.
		n := BodyOffset + int(binary.BigEndian.Uint16(f[16:]))
		sum := binary.BigEndian.Uint32(f[30:])
		c := bytes.Clone(f[:n])
		clear(c[30:34])
		if crc32.Checksum(c, crc32.MakeTable(crc32.Castagnoli)) != sum {
			t.Errorf("%s: the CRC is not that of the frame with 0 in its place", v.Name)
		}
		var h Header
		if _, fault := Open(f, &h); fault != OK {
			t.Errorf("%s: %v", v.Name, fault)
		}
	}
}

func TestControlRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Control{
			To: rapid.Uint32().Draw(t, "to"), Longest: int(rapid.Uint16().Draw(t, "longest")), Codecs: rapid.Uint64().Draw(t, "codecs"),
			Station: inet.Addr(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "station")),
		}
		k := rapid.SampledFrom([]Kind{Hello, Answer, Bye}).Draw(t, "kind")
		b := control(k, 9, want)
		var h Header
		var got Control
		body, f := Open(b, &h)
		if f != OK || h.Kind != k || h.Sequence != 9 || h.Dst != macB || h.Src != macA || ParseControl(body, &got) != OK || got != want {
			t.Fatalf("%v: %+v %+v", f, h, got)
		}
	})
}

// TestItemsRoundTrip: any items come back as they were put, the headers of those that are alike made anew.
func TestItemsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var items []Item
		var heads [][]byte
		for i := range rapid.IntRange(1, 10).Draw(t, "items") {
			it := Item{
				Flow: rapid.Uint16().Draw(t, "flow"), Sequence: rapid.Uint32().Draw(t, "sequence"), Codec: rapid.Byte().Draw(t, "codec"),
				Type: Type(rapid.IntRange(0, 4).Draw(t, "type")), BigEndian: rapid.Bool().Draw(t, "order"),
				Payload: rapid.IntRange(0, 300).Draw(t, "payload"), ID: rapid.Uint16().Draw(t, "id"),
				Encoded: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "encoded"),
			}
			head := udpHead(it.ID, it.Payload, 0xffff)
			if i > 0 && rapid.Bool().Draw(t, "alike") {
				it.Alike, it.Offset = true, items[i-1].Offset
				it.Payload = max(it.Payload, it.Offset)
				head = udpHead(it.ID, it.Payload, 0xffff)
				if !Alike(head, heads[i-1]) {
					t.Fatal("they are not alike")
				}
			} else {
				it.Offset = rapid.IntRange(0, it.Payload).Draw(t, "offset")
				it.Head = head
			}
			it.Raw = rapid.SliceOfN(rapid.Byte(), it.RawLen(), it.RawLen()).Draw(t, "raw")
			items, heads = append(items, it), append(heads, head)
		}
		b := frame(Header{Dst: macB, Src: macA, Kind: Data, Items: len(items), Boot: 1}, body(items...))
		b = append(b, 0, 0, 0) // a switch pads
		var h Header
		body, f := Open(b, &h)
		if f != OK {
			t.Fatal(f)
		}
		r := NewReader(body, &h)
		for i := range items {
			var it Item
			more, f := r.Next(&it)
			if !more || f != OK {
				t.Fatalf("item %d: %v %v", i, more, f)
			}
			var head [MaxHead]byte
			if n := PutHead(head[:], &it); !bytes.Equal(head[:n], heads[i]) {
				t.Fatalf("item %d: headers\n%x, want\n%x", i, head[:n], heads[i])
			}
			want := items[i]
			want.Head = it.Head
			if !bytes.Equal(it.Raw, want.Raw) || !bytes.Equal(it.Encoded, want.Encoded) {
				t.Fatalf("item %d: %+v, want %+v", i, it, want)
			}
			it.Raw, it.Encoded, want.Raw, want.Encoded = nil, nil, nil, nil
			if !reflect.DeepEqual(it, want) {
				t.Fatalf("item %d: %+v, want %+v", i, it, want)
			}
		}
		var it Item
		if more, f := r.Next(&it); more || f != OK {
			t.Fatalf("after the last: %v %v", more, f)
		}
	})
}

// TestDamageIsSeen: no change of one bit goes unnoticed, but in the padding.
func TestDamageIsSeen(t *testing.T) {
	for _, v := range vectors() {
		f, _ := hex.DecodeString(v.Frame)
		end := BodyOffset + int(binary.BigEndian.Uint16(f[16:]))
		for bit := range end * 8 {
			if bit/8 == 12 || bit/8 == 13 {
				continue // another EtherType is no frame of ours
			}
			f[bit/8] ^= 1 << (bit % 8)
			var h Header
			if _, fault := Open(f, &h); fault == OK {
				t.Errorf("%s: bit %d", v.Name, bit)
			}
			f[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestFrameFaults(t *testing.T) {
	good := func() []byte { f, _ := hex.DecodeString(vectors()[3].Frame); return f }
	hello := func() []byte { f, _ := hex.DecodeString(vectors()[0].Frame); return f }
	set := func(f []byte, at int, v ...byte) []byte { copy(f[at:], v); return f }
	for _, c := range []struct {
		name  string
		frame []byte
		want  Fault
	}{
		{"good", good(), OK},
		{"no header", good()[:33], Short},
		{"cut", good()[:len(good())-1], Short},
		{"version", set(good(), 14, 0x21), BadVersion},
		{"kind 0", set(good(), 14, 0x10), BadKind},
		{"kind 5", set(good(), 14, 0x15), BadKind},
		{"no life", set(good(), 18, 0, 0, 0, 0), BadKind},
		{"no items", set(good(), 15, 0), BadLength},
		{"a hello with items", set(hello(), 15, 1), BadLength},
		{"a short hello", set(hello(), 17, 19), BadLength},
		{"damaged", set(good(), len(good())-1, 9), BadChecksum},
	} {
		var h Header
		if _, f := Open(c.frame, &h); f != c.want {
			t.Errorf("%s: %v, want %v", c.name, f, c.want)
		}
	}
	var c Control
	if f := ParseControl(make([]byte, 19), &c); f != BadLength {
		t.Error(f)
	}
	if f := ParseControl(set(make([]byte, 20), 7, 1), &c); f != BadKind {
		t.Error(f)
	}
}

func TestItemFaults(t *testing.T) {
	it := func() Item {
		return Item{Codec: 1, Payload: 68, Offset: 4, Head: udpHead(1, 68, 9), Raw: make([]byte, 4), Encoded: make([]byte, 17)}
	}
	change := func(at int, v ...byte) []byte { b := body(it()); copy(b[at:], v); return b }
	sum := func(b []byte) []byte { inet.SetIPv4Checksum(b[14:]); return b }
	alike := it()
	alike.Alike = true
	for _, c := range []struct {
		name  string
		items int
		body  []byte
		want  Fault
	}{
		{"good", 1, body(it()), OK},
		{"one too few", 2, body(it()), BadLength},
		{"one too many", 1, body(it(), it()), BadLength},
		{"larger than the body", 1, change(3, 200), BadLength},
		{"smaller than its headers", 1, append(change(2, 0, 1)[:13], 0)[:13], BadItem},
		{"a reserved bit", 1, change(8, 0x10), BadItem},
		{"type", 1, change(8, 5), BadItem},
		{"alike to nothing", 1, body(alike), BadItem},
		{"offset behind the payload", 1, change(12, 0, 69), BadItem},
		{"payload not the header's", 1, change(11, 67), BadHeader},
		{"IPv6", 1, sum(change(14, 0x65)), BadHeader},
		{"fragment", 1, sum(change(20, 0x20)), BadHeader},
		{"header sum", 1, change(24, 1, 2), BadHeader},
		{"ICMP", 1, sum(change(23, 1)), BadHeader},
		{"TCP, short", 1, sum(change(23, 6)), BadHeader},
		{"UDP length", 1, change(38, 1), BadHeader},
		{"raw bytes missing", 1, func() []byte { b := body(it())[:14+28+3]; SetItemSize(b, len(b)); return b }(), BadItem},
	} {
		h := Header{Items: c.items}
		r := NewReader(c.body, &h)
		got := OK
		for more := true; more; {
			var i Item
			more, got = r.Next(&i)
		}
		if got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestNames: every fault, kind and type has a name of its own.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for f := range NumFaults {
		seen[Fault(f).String()] = true
	}
	if len(seen) != NumFaults || seen["unknown-fault"] || Fault(NumFaults).String() != "unknown-fault" {
		t.Errorf("%v", seen)
	}
	for _, n := range []string{"float32", "float16", "bfloat16", "word32", "word16"} {
		if typ, err := ParseType(n); err != nil || typ.String() != n {
			t.Errorf("type %s: %v, %v", n, typ, err)
		}
	}
	if _, err := ParseType("float64"); err == nil {
		t.Error("float64 is a type")
	}
	if Data.String() != "data" || Bye.String() != "bye" || Kind(9).String() != "kind 9" || Type(9).String() != "type 9" {
		t.Error("names of kinds")
	}
}

// FuzzOpen: any bytes are walked without a panic, and what is found lies within the frame and agrees with itself.
func FuzzOpen(f *testing.F) {
	for _, v := range vectors() {
		b, _ := hex.DecodeString(v.Frame)
		f.Add(b, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, mend bool) {
		if mend && len(b) >= BodyOffset {
			if n := BodyOffset + int(binary.BigEndian.Uint16(b[16:])); n <= len(b) {
				Seal(b[:n], &Header{Dst: macB, Src: macA, Kind: Kind(b[14] & 15), Items: int(b[15]), Boot: 1})
			}
		}
		var h Header
		body, fault := Open(b, &h)
		if fault != OK {
			return
		}
		if h.Kind != Data {
			var c Control
			ParseControl(body, &c)
			return
		}
		r := NewReader(body, &h)
		for n := 0; ; n++ {
			var it Item
			more, fault := r.Next(&it)
			if !more {
				if fault == OK && n != h.Items {
					t.Fatalf("%d items of %d", n, h.Items)
				}
				return
			}
			if len(it.Raw) != it.RawLen() || it.Offset > len(it.Raw) || it.Elements() < 0 || it.FrameLen() > 14+0xffff {
				t.Fatalf("%+v", it)
			}
			host := make([]byte, it.FrameLen())
			inet.PutEthernet(host, h.Dst, h.Src, inet.EtherTypeIPv4)
			PutHead(host[14:], &it)
			if head, payload, ok := Head(host); !ok || len(payload) != it.Payload || it.UDP() != (head[9] == inet.ProtoUDP) {
				t.Fatalf("not the headers of a host frame: %x", host[:14+len(it.Head)])
			}
		}
	})
}
