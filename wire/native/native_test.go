package native_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"gradnic/wire/inet"
	. "gradnic/wire/native"
)

var update = flag.Bool("update", false, "write the vectors again")

// The frames of both conversations of docs/protocol.md.
const (
	vectorsFile = "../../testdata/native/vectors.json"
	codecsFile  = "../../testdata/native/codec.json"
)

// vector is one frame of the conversation that docs/protocol.md tells.
type vector struct {
	Name  string `json:"name"`
	From  string `json:"from"` // worker or network
	Rank  int    `json:"rank"` // of the worker that sends or gets it
	Frame string `json:"frame"`
}

var (
	nicEnd  = Endpoint{MAC: inet.MAC{0x06, 0, 0, 0, 0, 0xfe}, IP: inet.Addr{10, 50, 0, 254}, Port: Port}
	workers = []Endpoint{
		{MAC: inet.MAC{2, 0, 0, 0, 1, 0}, IP: inet.Addr{10, 50, 0, 1}, Port: 4000},
		{MAC: inet.MAC{2, 0, 0, 0, 1, 1}, IP: inet.Addr{10, 50, 0, 2}, Port: 4001},
	}
)

// Two workers, 4 elements of int32, 8 slots; the network loses its memory after rank 0 got a result and rank 1 did not.
const (
	epoch1 = 0x11111111
	epoch2 = 0x22222222
)

func int32s(v ...int32) []byte {
	var b []byte
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return b
}

type vectors []vector

func (out *vectors) add(name string, rank int, h Header, payload []byte) {
	from, to, who := &workers[rank], &nicEnd, "worker"
	if h.Kind.FromNetwork() {
		from, to, who = to, from, "network"
	}
	f := make([]byte, FrameLen(len(payload)))
	copy(f[ValuesOffset:], payload)
	PutFrame(f, from, to, &h, len(payload))
	*out = append(*out, vector{Name: name, From: who, Rank: rank, Frame: hex.EncodeToString(f)})
}

func report(r ReportBody) []byte {
	b := make([]byte, 64)
	return b[:r.Put(b)]
}

// codecConversation is two workers that send 2 of 16 elements of float32 by top-k and get results as bfp16.
func codecConversation() (out vectors) {
	topk := func(i, j uint32, x, y float32) []byte {
		b := int32s(2, int32(i), int32(j))
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, math.Float32bits(x)), math.Float32bits(y))
	}
	n := NoticeBody{
		Code: Ready, Workers: 2, Elements: 16, Slots: 8, Deadline: 2000, Life: epoch1, Nonce: 0xb1b1b1b1, Codec: 11, Result: 1, CodecParam: 2,
	}
	ready := make([]byte, n.Len())
	n.Put(ready)
	n.Code, n.Life, n.Nonce, n.Ranks = Waiting, 0, 0xa0a0a0a0, []byte{2}
	waiting := make([]byte, n.Len())
	n.Put(waiting)
	n.Code, n.Life, n.Nonce, n.Ranks = Ready, epoch1, 0, nil
	go0 := make([]byte, n.Len())
	n.Put(go0)
	sum := make([]byte, 17) // 1, -1.5 and 4 in steps of 2^(129-133)
	sum[0], sum[3], sum[7], sum[16] = 16, 0xe8, 64, 129

	out.add("codecs: rank 0 joins", 0, Header{Kind: Report, Job: 1}, report(ReportBody{Nonce: 0xa0a0a0a0}))
	out.add("codecs: wait for rank 1", 0, Header{Kind: Notice, Type: Float32, Job: 1, Epoch: epoch1}, waiting)
	out.add("codecs: rank 1 joins", 1, Header{Kind: Report, Job: 1, Rank: 1}, report(ReportBody{Nonce: 0xb1b1b1b1}))
	out.add("codecs: go, to rank 0", 0, Header{Kind: Notice, Type: Float32, Job: 1, Epoch: epoch1}, go0)
	out.add("codecs: go, to rank 1", 1, Header{Kind: Notice, Type: Float32, Job: 1, Rank: 1, Epoch: epoch1}, ready)
	c := Header{Kind: Contribution, Type: Float32, Codec: 11, Job: 1, Epoch: epoch1, Elements: 16}
	out.add("codecs: rank 0 sends 1 of element 0 and -2 of element 3", 0, c, topk(0, 3, 1, -2))
	c.Rank = 1
	out.add("codecs: rank 1 sends 0.5 of element 3 and 4 of element 7", 1, c, topk(3, 7, 0.5, 4))
	r := Header{Kind: Result, Type: Float32, Codec: 1, Job: 1, Rank: 2, Epoch: epoch1, Elements: 16}
	out.add("codecs: the result, to rank 0", 0, r, sum)
	out.add("codecs: the result, to rank 1", 1, r, sum)
	return out
}

func conversation() vectors {
	var out vectors
	add := out.add
	notice := func(n NoticeBody) []byte {
		n.Workers, n.Elements, n.Slots, n.Deadline = 2, 4, 8, 2000
		b := make([]byte, 64)
		return b[:n.Put(b)]
	}
	nonce := []uint32{0xa0a0a0a0, 0xb1b1b1b1}

	add("rank 0 joins", 0, Header{Kind: Report, Job: 1}, report(ReportBody{Nonce: nonce[0]}))
	add("wait for rank 1", 0, Header{Kind: Notice, Job: 1, Epoch: epoch1}, notice(NoticeBody{Code: Waiting, Nonce: nonce[0], Ranks: []byte{2}}))
	add("rank 1 joins", 1, Header{Kind: Report, Job: 1, Rank: 1}, report(ReportBody{Nonce: nonce[1]}))
	add("go, to rank 0", 0, Header{Kind: Notice, Job: 1, Epoch: epoch1}, notice(NoticeBody{Code: Ready, Life: epoch1}))
	add("go, to rank 1", 1, Header{Kind: Notice, Job: 1, Rank: 1, Epoch: epoch1}, notice(NoticeBody{Code: Ready, Life: epoch1, Nonce: nonce[1]}))
	c := Header{Kind: Contribution, Job: 1, Epoch: epoch1, Slot: 0, Round: 0, Collective: 0, Elements: 3}
	add("rank 0 contributes", 0, c, int32s(1, -2, 3, 0))
	c.Rank = 1
	add("rank 1 contributes", 1, c, int32s(10, 20, 30, 0))
	r := Header{Kind: Result, Job: 1, Rank: 2, Epoch: epoch1, Elements: 3}
	add("the result, to rank 0", 0, r, int32s(11, 18, 33, 0))
	add("the result, to rank 1, which it does not reach", 1, r, int32s(11, 18, 33, 0))
	c.Flags = FlagResend
	add("after the network was started again, rank 1 sends again", 1, c, int32s(10, 20, 30, 0))
	add("another epoch", 1, Header{Kind: Notice, Job: 1, Rank: 1, Epoch: epoch2}, notice(NoticeBody{Code: Waiting, Ranks: []byte{3}}))
	add("rank 1 reports that it has nothing", 1, Header{Kind: Report, Job: 1, Rank: 1, Epoch: epoch2}, report(ReportBody{Life: epoch1, Nonce: nonce[1]}))
	add("wait for rank 0", 1, Header{Kind: Notice, Job: 1, Rank: 1, Epoch: epoch2}, notice(NoticeBody{Code: Waiting, Nonce: nonce[1], Ranks: []byte{1}}))
	add("rank 0 reports that it has chunk 0", 0, Header{Kind: Report, Job: 1, Epoch: epoch2, Slot: 1}, report(ReportBody{Life: epoch1, Nonce: nonce[0]}))
	add("go, to rank 0, nonce", 0, Header{Kind: Notice, Job: 1, Epoch: epoch2}, notice(NoticeBody{Code: Ready, Life: epoch1, Nonce: nonce[0]}))
	add("go on, to rank 1", 1, Header{Kind: Notice, Job: 1, Rank: 1, Epoch: epoch2}, notice(NoticeBody{Code: Ready, Life: epoch1}))
	c.Epoch = epoch2
	add("rank 1 sends once more", 1, c, int32s(10, 20, 30, 0))
	add("rank 0 is asked", 0, Header{Kind: Ask, Job: 1, Rank: 0, Epoch: epoch2}, nil)
	add("rank 0 supplies", 0, Header{Kind: Supply, Job: 1, Epoch: epoch2, Elements: 3}, int32s(11, 18, 33, 0))
	r.Epoch, r.Flags = epoch2, FlagRelayed
	add("the result, relayed to rank 1", 1, r, int32s(11, 18, 33, 0))
	return out
}

func TestVectors(t *testing.T) {
	checkVectors(t, vectorsFile, conversation())
	checkVectors(t, codecsFile, codecConversation())
}

func checkVectors(t *testing.T, file string, got vectors) {
	t.Helper()
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var want vectors
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("the frames are not those of %s (go test -run Vectors -update writes them)", file)
	}
	page, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), "")
	for _, v := range want {
		frame, _ := hex.DecodeString(v.Frame)
		var p inet.Packet
		if f := inet.Parse(frame, &p); f != inet.OK {
			t.Fatalf("%s: %v", v.Name, f)
		}
		if inet.Checksum(frame[14:34]) != 0 {
			t.Errorf("%s: IPv4 checksum", v.Name)
		}
		m, f := Validate(p.Payload)
		if f != OK {
			t.Fatalf("%s: %v", v.Name, f)
		}
		if m.Kind().FromNetwork() != (v.From == "network") {
			t.Errorf("%s: %v from the %s", v.Name, m.Kind(), v.From)
		}
		if !strings.Contains(text, hex.EncodeToString(p.Payload)) {
			t.Errorf("docs/protocol.md does not have %q: %s", v.Name, hex.Dump(p.Payload))
		}
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Header{
			Kind:  rapid.SampledFrom([]Kind{Contribution, Report, Supply, Leave, Result, Notice, Ask}).Draw(t, "kind"),
			Flags: Flags(rapid.IntRange(0, 63).Draw(t, "flags")), Type: Type(rapid.IntRange(0, 7).Draw(t, "type")),
			Job: rapid.Uint16().Draw(t, "job"), Rank: rapid.Uint16().Draw(t, "rank"), Epoch: rapid.Uint32().Draw(t, "epoch"),
			Round: rapid.Uint32().Draw(t, "round"), Slot: rapid.Uint32().Draw(t, "slot"),
			Collective: rapid.Uint32().Draw(t, "collective"), Elements: rapid.Uint16().Draw(t, "elements"),
		}
		payload := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "payload")
		b := bytes.Repeat([]byte{0xa5}, HeaderLen)
		h.Put(b, len(payload))
		b = append(b, payload...)
		v, f := Validate(b)
		if f != OK {
			t.Fatalf("%v of %+v", f, h)
		}
		if v.Header() != h || !bytes.Equal(v.Payload(), payload) {
			t.Fatalf("%+v became %+v", h, v.Header())
		}
	})
}

func TestValidateRefuses(t *testing.T) {
	good := func() []byte {
		b := make([]byte, HeaderLen+8)
		(&Header{Kind: Contribution}).Put(b, 8)
		return b
	}
	for _, c := range []struct {
		want   Fault
		change func(b []byte) []byte
	}{
		{OK, func(b []byte) []byte { return b }},
		{Short, func(b []byte) []byte { return b[:31] }},
		{Short, func([]byte) []byte { return nil }},
		{BadVersion, func(b []byte) []byte { b[0] = 0x21; return b }},
		{UnknownKind, func(b []byte) []byte { b[0] = 0x10; return b }},
		{UnknownKind, func(b []byte) []byte { b[0] = 0x1f; return b }},
		{BadLength, func(b []byte) []byte { return b[:39] }},
		{BadLength, func(b []byte) []byte { return append(b, 0) }},
		{BadLength, func(b []byte) []byte { b[26] = 0xff; return b }},
		{Reserved, func(b []byte) []byte { b[28] = 1; return b }},
		{Reserved, func(b []byte) []byte { b[31] = 1; return b }},
		{Reserved, func(b []byte) []byte { b[1] = 0x80; return b }},
		{BadType, func(b []byte) []byte { b[2] = 8; return b }},
		{UnknownFormat, func(b []byte) []byte { b[2], b[3] = byte(Int32), 1; return b }},
		{UnknownFormat, func(b []byte) []byte { b[2], b[3] = byte(Float32), MaxCodec+1; return b }},
		{UnknownFormat, func(b []byte) []byte { b[0], b[2], b[3] = Version<<4|byte(Notice), byte(Float32), 1; return b }},
		{BadLength, func(b []byte) []byte { b[1] = byte(FlagTagged); return b }},
	} {
		if v, got := Validate(c.change(good())); got != c.want || (v != nil) != (got == OK) {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	names := map[string]bool{}
	for f := range Fault(NumFaults) {
		names[f.String()] = true
	}
	if len(names) != NumFaults || names["unknown-fault"] {
		t.Errorf("faults %v", names)
	}
}

func TestBodies(t *testing.T) {
	n := NoticeBody{
		Code: Aborted, Op: 1, Order: 1, Policy: 1, Workers: 1024, Elements: 360, Slots: 8192, Life: 7, Group: [4]byte{239, 1, 2, 3},
		GroupPort: 9, Deadline: 2000, Nonce: 8, Ranks: bytes.Repeat([]byte{0x55}, 128),
	}
	b := make([]byte, NoticeLen+128)
	if k := n.Put(b); k != len(b) {
		t.Fatalf("%d bytes", k)
	}
	if got, ok := ParseNotice(b); !ok || !reflect.DeepEqual(got, n) {
		t.Errorf("%+v became %+v", n, got)
	}
	r := ReportBody{Life: 1, Nonce: 2, Have: bytes.Repeat([]byte{0xff}, MaxSlots/8)}
	b = make([]byte, ReportLen+MaxSlots/8)
	if k := r.Put(b); k != len(b) {
		t.Fatalf("%d bytes", k)
	}
	if got, ok := ParseReport(b, 0); !ok || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v became %+v", r, got)
	}
	if FrameLen(len(b)) > inet.EthernetLen+1500 {
		t.Errorf("a full report does not fit in an Ethernet frame")
	}
	r = ReportBody{Life: 1, Nonce: 2, NoValues: true, Back: MaxSlots - 5, Ahead: 5, Have: bytes.Repeat([]byte{0xff}, MaxSlots/8)}
	b = make([]byte, ReportLen+ReportSpanLen+MaxSlots/8)
	if k := r.Put(b); k != len(b) {
		t.Fatalf("%d bytes", k)
	}
	if got, ok := ParseReport(b, FlagNoValues); !ok || !reflect.DeepEqual(got, r) {
		t.Errorf("%+v became %+v", r, got)
	}
	r.Ahead++
	r.Put(b)
	if _, ok := ParseReport(b, FlagNoValues); ok {
		t.Error("a report of more chunks than there are slots accepted")
	}
	for _, n := range []int{ReportLen, ReportLen + ReportSpanLen - 1, ReportLen + ReportSpanLen + MaxSlots/8 + 1} {
		if _, ok := ParseReport(make([]byte, n), FlagNoValues); ok {
			t.Errorf("report of %d bytes accepted", n)
		}
	}
	for _, n := range []int{0, ReportLen - 1, ReportLen + MaxSlots/8 + 1} {
		if _, ok := ParseReport(make([]byte, n), 0); ok {
			t.Errorf("report of %d bytes accepted", n)
		}
	}
	for _, n := range []int{0, NoticeLen - 1, NoticeLen + MaxWorkers/8 + 1} {
		if _, ok := ParseNotice(make([]byte, n)); ok {
			t.Errorf("notice of %d bytes accepted", n)
		}
	}
	if got := Bits([]byte{0x81, 0x01}, 9); !reflect.DeepEqual(got, []int{0, 7, 8}) || Bit([]byte{1}, 8) || Bit(nil, -1) {
		t.Errorf("bits %v", got)
	}
}

// A template gives what PutFrame gives, for stations and for groups.
func TestTemplateEqualsPutFrame(t *testing.T) {
	h := Header{Kind: Result, Type: Float32, Job: 3, Rank: 8, Epoch: 9, Round: 10, Slot: 11, Collective: 12, Elements: 64}
	tmpl := NewTemplate(&nicEnd, &h, 256)
	for ip := uint32(0); ip < 1<<14; ip++ {
		to := Endpoint{MAC: inet.MACFromUint64(uint64(ip) * 0x10001 * 7919), IP: inet.AddrFromUint32(ip * 262139), Port: uint16(ip)}
		want, got := make([]byte, ValuesOffset), make([]byte, ValuesOffset)
		PutFrame(want, &nicEnd, &to, &h, 256)
		tmpl.Put(got, to.MAC, to.IP, to.Port)
		if !bytes.Equal(got, want) || inet.Checksum(got[14:34]) != 0 {
			t.Fatalf("%v\n got %x\nwant %x", to, got, want)
		}
	}
	if m := GroupMAC(inet.Addr{239, 129, 2, 3}); m != (inet.MAC{1, 0, 0x5e, 1, 2, 3}) {
		t.Errorf("group address %v", m)
	}
}

func FuzzValidate(f *testing.F) {
	for _, v := range conversation() {
		b, _ := hex.DecodeString(v.Frame)
		f.Add(b[inet.PayloadOffset:])
	}
	for _, r := range []ReportBody{{Life: 1, Nonce: 2, NoValues: true, Back: 3, Ahead: 9, Have: []byte{7}}, {Nonce: 2, NoValues: true, Back: MaxSlots, Ahead: 1}} {
		body := report(r)
		b := make([]byte, HeaderLen, HeaderLen+len(body))
		(&Header{Kind: Report, Flags: FlagNoValues}).Put(b, len(body))
		f.Add(append(b, body...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:len(b):len(b)]
		v, fault := Validate(b)
		if fault != OK {
			if v != nil {
				t.Fatal("a view with a fault")
			}
			return
		}
		h := v.Header()
		out := make([]byte, HeaderLen)
		h.Put(out, len(v.Payload()))
		if !bytes.Equal(out, b[:HeaderLen]) {
			t.Fatalf("%x became %x", b[:HeaderLen], out)
		}
		if r, ok := ParseReport(v.Payload(), v.Flags()); ok {
			again := make([]byte, len(v.Payload()))
			if n := r.Put(again); n != len(again) || !bytes.Equal(again, v.Payload()) {
				t.Fatalf("report %x became %x", v.Payload(), again[:n])
			}
		}
		if n, ok := ParseNotice(v.Payload()); ok {
			again := make([]byte, len(v.Payload()))
			if k := n.Put(again); k != len(again) {
				t.Fatalf("notice of %d bytes became %d", len(again), k)
			}
			if back, ok := ParseNotice(again); !ok || !reflect.DeepEqual(back, n) {
				t.Fatalf("notice %+v became %+v", n, back)
			}
		}
	})
}
