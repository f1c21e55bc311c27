package ring_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"

	"pgregory.net/rapid"

	"gradnic/codec"
	"gradnic/wire/inet"
	. "gradnic/wire/ring"
)

var update = flag.Bool("update", false, "write the vectors again")

const vectorsFile = "../../testdata/ring/vectors.json"

// vector is one frame of the conversation that docs/protocol.md tells.
type vector struct {
	Name  string `json:"name"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	Frame string `json:"frame"`
}

func end(i int) *Endpoint {
	return &Endpoint{MAC: inet.MAC{0x06, 0, 0, 0, 0, byte(i)}, IP: inet.Addr{10, 50, 0, byte(100 + i)}}
}

// conversation is a ring of three nodes, 0 to 2, from its forming to the death of node 2. Slices have 512 elements; node
// i's gradients are those of an arithmetic sequence.
func conversation(t testing.TB) (all []vector) {
	const slice = 512
	members := []Member{{0, 0x10}, {1, 0x11}, {2, 0x12}}
	epoch := Epoch(1, members)
	add := func(name string, from, to, n int, b []byte) {
		frame := make([]byte, inet.PayloadOffset+n)
		copy(frame[inet.PayloadOffset:], b[:n])
		if got := PutFrame(frame, end(from), end(to), n); got != len(frame) {
			t.Fatalf("%s: %d bytes of %d", name, got, len(frame))
		}
		all = append(all, vector{name, from, to, hex.EncodeToString(frame)})
	}
	b := make([]byte, 2048)
	alone := []Member{{0, 0x10}, {1, 0}, {2, 0}}
	h := HelloHeader{Common: Common{Ring: 7, Node: 0, Generation: 1}, SliceElements: slice, MTU: 1500, Window: 16, Boot: 0x10}
	add("hello of a node that knows only itself", 0, 1, h.Put(b, alone), b)
	h = HelloHeader{Common: Common{Ring: 7, Node: 1, Generation: 1, Epoch: epoch}, Flags: FlagFormed, SliceElements: slice, MTU: 1500, Window: 16, Boot: 0x11}
	add("hello of a node that knows all", 1, 0, h.Put(b, members), b)
	for _, name := range []string{"none", "bfp16", "bfp16-intel"} {
		c, err := codec.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		count := 512
		if name == "none" {
			count = 352
		}
		values := make([]float32, count)
		for i := range values {
			values[i] = float32(i-100) / 64
		}
		n, err := c.Encode(b[HeaderLen:], values, nil)
		if err != nil {
			t.Fatal(err)
		}
		d := DataHeader{Common: Common{7, 1, 1, epoch}, Codec: uint8(c.Info().ID), Length: 1000, Slice: 1, Elements: uint16(count)}
		d.Put(b, n)
		add("node 1 sends its own slice, "+name, 1, 0, HeaderLen+n, b)
		d.Flags, d.Step, d.Sequence, d.Slice, d.Block, d.Request = FlagGather|FlagResend, 2, 41, 0, 5, 3
		d.Put(b, n)
		add("node 1 sends a finished slice once more, "+name, 1, 0, HeaderLen+n, b)
	}
	a := AckHeader{Common: Common{7, 0, 1, epoch}, Cumulative: 40, Reduce: 20, Gather: 18, WaitNode: NoNode}
	copy(b[HeaderLen:], []byte{0x05, 0x80})
	a.Put(b, 2)
	add("acknowledgement of all below 40, and of 41, 43 and 56", 0, 1, HeaderLen+2, b)
	a = AckHeader{Common: Common{7, 0, 1, epoch}, Flags: FlagReply, Cumulative: 57, Reduce: 20, Gather: 18, WaitNode: 2, WaitRequest: 4, WaitHops: 1}
	a.Put(b, 0)
	add("acknowledgement: the host of node 2 is waited for", 0, 1, HeaderLen, b)
	n := NoticeHeader{Common: Common{7, 1, 1, epoch}, Reason: Silent, Request: 3, Boot: 0x12, Failed: 2, Origin: 1}
	add("notice: node 2 is silent", 1, 0, n.Put(b), b)
	return all
}

// TestVectors: the frames of testdata/ring are those that this package makes, and reads.
func TestVectors(t *testing.T) {
	got := conversation(t)
	if *update {
		b, err := json.MarshalIndent(got, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll("../../testdata/ring", 0o755); err != nil {
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
	if len(got) != len(want) || len(got) < 11 {
		t.Fatalf("%d frames, %d vectors", len(got), len(want))
	}
	for i, v := range want {
		if got[i] != v {
			t.Errorf("frame %d is %+v, want %+v", i, got[i], v)
		}
		frame, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		var p inet.Packet
		if f := inet.Parse(frame, &p); f != inet.OK || p.DstPort != Port || p.SrcPort != Port {
			t.Fatalf("%s: %v, %+v", v.Name, f, p)
		}
		if _, f := Validate(p.Payload); f != OK {
			t.Errorf("%s: %v", v.Name, f)
		}
	}
}

// TestFields: some bytes by hand, so that the layout is not only what the code says of itself.
func TestFields(t *testing.T) {
	b := make([]byte, HeaderLen+3)
	d := DataHeader{Common: Common{0x0102, 0x0304, 0x05060708, 0x090a0b0c}, Flags: FlagGather, Codec: 2, Step: 9, Sequence: 0x11121314,
		Request: 0x21222324, Block: 0x31323334, Length: 0x41424344, Slice: 0x0007, Offset: 0x6162, Elements: 0x7172}
	d.Put(b, 3)
	want := "11020209" + "0102" + "0304" + "05060708" + "090a0b0c" + "11121314" + "21222324" + "31323334" + "41424344" + "0007" + "6162" + "7172" + "0003"
	if got := hex.EncodeToString(b[:HeaderLen]); got != want {
		t.Errorf("data\n got %s\nwant %s", got, want)
	}
	v, f := Validate(b)
	if f != OK || v.Data() != d {
		t.Errorf("%v: %+v", f, v.Data())
	}
	n := NoticeHeader{Common: Common{1, 2, 3, 4}, Reason: Left, Request: 5, Boot: 0x0102030405060708, Failed: 6, Origin: 7}
	n.Put(b)
	want = "14000500" + "0001" + "0002" + "00000003" + "00000004" + "00000005" + "0102030405060708" + "00000000" + "0006" + "0007" + "0000" + "0000"
	if got := hex.EncodeToString(b[:HeaderLen]); got != want {
		t.Errorf("notice\n got %s\nwant %s", got, want)
	}
	// FNV-1a of 00000001, then 0000 0000 0000000000000010 for the one member.
	if got := Epoch(1, []Member{{0, 16}}); got != fnv(0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16) {
		t.Errorf("epoch %#x", got)
	}
}

func fnv(b ...byte) uint32 {
	h := uint32(2166136261)
	for _, x := range b {
		h = (h ^ uint32(x)) * 16777619
	}
	return h
}

// TestFlits: a slice of 8192 float32 in the card's format is 8704 bytes: 16 times 17 flits of 32 bytes, of which each
// seventeenth has the exponents. The flits of three groups are worked out here from the format's rules.
func TestFlits(t *testing.T) {
	const flits = 16 * 17
	c, err := codec.ByName("bfp16-intel")
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, 8192)
	for i := range values {
		values[i] = float32(math.Ldexp(float64(i%37-18), i/512-8))
	}
	out := make([]byte, c.MaxEncoded(len(values)))
	n, err := c.Encode(out, values, nil)
	if err != nil || n != flits*32 { // 8704
		t.Fatalf("%d bytes: %v", n, err)
	}
	for _, group := range []int{0, 7, 15} {
		g := out[group*544:]
		for block := range 32 {
			v := values[group*512+block*16:][:16]
			e := uint32(0)
			for _, x := range v {
				e = max(e, math.Float32bits(x)>>23&0xff)
			}
			if g[512+block] != byte(e) {
				t.Fatalf("group %d, block %d: exponent %d, want %d", group, block, g[512+block], e)
			}
			for i, x := range v {
				u := math.Float32bits(x)
				s := int32(0)
				if shift := e - u>>23&0xff; shift < 24 {
					s = int32((u&0x7fffff | 0x800000) >> shift)
				}
				if u>>31 != 0 {
					s = -s
				}
				if q := byte(s >> 17); g[block*16+i] != q {
					t.Fatalf("group %d, block %d, element %d: %#x, want %#x", group, block, i, g[block*16+i], q)
				}
			}
		}
	}
}

// TestRefused: each fault has a message that has it and no other.
func TestRefused(t *testing.T) {
	good := map[Kind][]byte{}
	for _, v := range conversation(t) {
		b, _ := hex.DecodeString(v.Frame)
		b = b[inet.PayloadOffset:]
		good[Kind(b[0]&15)] = b
	}
	set := func(k Kind, at int, v ...byte) []byte {
		b := bytes.Clone(good[k])
		copy(b[at:], v)
		return b
	}
	for i, c := range []struct {
		want Fault
		b    []byte
	}{
		{Short, good[Data][:39]},
		{BadVersion, set(Data, 0, 0x21)},
		{UnknownKind, set(Data, 0, 0x10)},
		{UnknownKind, set(Data, 0, 0x15)},
		{BadLength, good[Data][:len(good[Data])-1]},
		{BadLength, set(Data, 38, 0, 0)[:40]},
		{BadLength, append(set(Ack, 38, 0, 129)[:40], make([]byte, 129)...)},
		{BadLength, append(set(Notice, 38, 0, 1), 0)},
		{BadLength, append(set(Hello, 38, 0, 35)[:40], make([]byte, 35)...)},
		{Reserved, set(Data, 1, 0x04)},
		{Reserved, set(Ack, 3, 1)},
		{Reserved, set(Ack, 37, 1)},
		{Reserved, set(Hello, 35, 1)},
		{Reserved, set(Hello, 42, 1)},
		{Reserved, set(Notice, 31, 1)},
		{Reserved, set(Notice, 1, 1)},
		{BadRange, set(Data, 3, 126)},
		{BadRange, set(Data, 33, 64)},
		{BadRange, set(Data, 36, 0, 0)},
		{BadRange, set(Data, 6, 0xff, 0xff)},
		{BadRange, set(Data, 8, 0, 0, 0, 0)},
		{BadRange, set(Ack, 35, 65)},
		{BadRange, set(Hello, 33, 0)},
		{BadRange, set(Hello, 33, 65)},
		{BadRange, set(Hello, 24, 0, 0, 0, 0, 0, 0, 0, 0)},
		{BadRange, set(Notice, 2, 0)},
		{BadRange, set(Notice, 2, 7)},
		{BadRange, set(Notice, 34, 0xff, 0xff)},
	} {
		if v, got := Validate(c.b); got != c.want || v != nil {
			t.Errorf("case %d: %v, want %v", i, got, c.want)
		}
	}
}

// TestRoundTrip: what is put is read.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		b := make([]byte, 2000)
		common := Common{rapid.Uint16().Draw(r, "ring"), rapid.Uint16Max(NoNode-1).Draw(r, "node"), rapid.Uint32Min(1).Draw(r, "generation"), rapid.Uint32().Draw(r, "epoch")}
		a := AckHeader{Common: common, Flags: Flags(rapid.SampledFrom([]int{0, int(FlagReply)}).Draw(r, "flags")), Cumulative: rapid.Uint32().Draw(r, "cumulative"),
			Reduce: rapid.Uint32().Draw(r, "reduce"), Gather: rapid.Uint32().Draw(r, "gather"), WaitRequest: rapid.Uint32().Draw(r, "request"),
			WaitNode: rapid.Uint16().Draw(r, "wait"), WaitHops: rapid.Uint16Max(MaxNodes).Draw(r, "hops")}
		n := rapid.IntRange(0, SackBytes).Draw(r, "sack")
		a.Put(b, n)
		if v, f := Validate(b[:HeaderLen+n]); f != OK || v.Ack() != a || len(v.Payload()) != n {
			r.Fatalf("%v: %+v, want %+v", f, v.Ack(), a)
		}
		members := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Member {
			return Member{rapid.Uint16().Draw(r, "node"), rapid.Uint64().Draw(r, "boot")}
		}), 1, MaxNodes).Draw(r, "members")
		h := HelloHeader{Common: common, SliceElements: rapid.Uint32().Draw(r, "slice"), MTU: rapid.Uint16().Draw(r, "mtu"),
			Window: rapid.Uint16().Draw(r, "window"), Boot: rapid.Uint64Min(1).Draw(r, "boot")}
		n = h.Put(b, members)
		v, f := Validate(b[:n])
		if f != OK || v.Hello() != h {
			r.Fatalf("%v: %+v, want %+v", f, v.Hello(), h)
		}
		for i, m := range members {
			if v.Member(i) != m {
				r.Fatalf("member %d is %+v, want %+v", i, v.Member(i), m)
			}
		}
	})
}

func FuzzValidate(f *testing.F) {
	for _, v := range conversation(f) {
		b, _ := hex.DecodeString(v.Frame)
		f.Add(b[inet.PayloadOffset:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		v, fault := Validate(b)
		if fault != OK {
			if v != nil || int(fault) >= NumFaults {
				t.Fatalf("%v with a view", fault)
			}
			return
		}
		out := make([]byte, len(b))
		switch v.Kind() {
		case Data:
			h := v.Data()
			h.Put(out, len(v.Payload()))
			copy(out[HeaderLen:], v.Payload())
		case Ack:
			h := v.Ack()
			h.Put(out, len(v.Payload()))
			copy(out[HeaderLen:], v.Payload())
		case Hello:
			h := v.Hello()
			members := make([]Member, h.Nodes)
			for i := range members {
				members[i] = v.Member(i)
			}
			h.Put(out, members)
		case Notice:
			h := v.Notice()
			h.Put(out)
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("%x became %x", b, out)
		}
		if binary.BigEndian.Uint16(b[6:]) != v.Node() {
			t.Fatal("node")
		}
	})
}
