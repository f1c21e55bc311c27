package wireshark

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/internal/acclcheck"
	"gradnic/internal/captures"
	"gradnic/wire/accl"
	"gradnic/wire/bump"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/ring"
)

var update = flag.Bool("update", false, "write testdata/captures again")

// The captures of testdata/captures are what the code makes now: every kind of message of every protocol.
func TestCaptures(t *testing.T) {
	for name, frames := range map[string][][]byte{
		"captures/native.pcap": nativeFrames(t), "captures/accl.pcap": acclFrames(t),
		"captures/ring.pcap": ringFrames(), "captures/bump.pcap": bumpFrames(t),
	} {
		b := pcap(t, frames)
		path, err := captures.Path(name)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, b) {
			t.Errorf("%s is not what the code makes: go test ./interop/wireshark -run TestCaptures -update", name)
		}
	}
}

// pcap is a capture file of frames.
func pcap(t *testing.T, frames [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		at := time.Unix(1_700_000_000, int64(i)*100_000).UTC()
		if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(f), Length: len(f)}, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func mac(i byte) inet.MAC { return inet.MAC{2, 0, 0, 0, 1, i} }
func ip(i byte) inet.Addr { return inet.Addr{10, 50, 0, i} }

// vectors are the frames of a JSON file of them.
func vectors(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []struct{ Frame string }
	if err := json.Unmarshal(b, &list); err != nil {
		t.Fatal(err)
	}
	for _, v := range list {
		f, err := hex.DecodeString(v.Frame)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, f)
	}
	return out
}

// nativeFrames are the conversation of docs/protocol.md, and what it has no need of: other types, flags, codecs, codes.
func nativeFrames(t *testing.T) (out [][]byte) {
	out = vectors(t, "../../testdata/native/vectors.json")
	nic := native.Endpoint{MAC: mac(0xfe), IP: ip(254), Port: native.Port}
	worker := native.Endpoint{MAC: mac(1), IP: ip(2), Port: 4001}
	group := native.Endpoint{MAC: native.GroupMAC(inet.Addr{239, 1, 2, 3}), IP: inet.Addr{239, 1, 2, 3}, Port: 4001}
	add := func(from, to native.Endpoint, h native.Header, payload []byte) {
		f := make([]byte, native.FrameLen(len(payload)))
		native.PutFrame(f, &from, &to, &h, len(payload))
		copy(f[native.ValuesOffset:], payload)
		out = append(out, f)
	}
	h := native.Header{Kind: native.Contribution, Job: 7, Rank: 1, Epoch: 0xdeadbeef, Round: 0xfffffffe, Slot: 8191, Collective: 12}
	for typ := native.Int32; typ <= native.BFP16; typ++ {
		h.Type, h.Elements = typ, 16
		payload := make([]byte, typ.Bytes(16))
		for i := range payload {
			payload[i] = byte(i * 37)
		}
		if typ == native.Float32 {
			for i := range 16 {
				binary.LittleEndian.PutUint32(payload[4*i:], math.Float32bits(float32(i)/3))
			}
		}
		add(worker, nic, h, payload)
	}
	h.Type, h.Codec = native.Float32, 3
	add(worker, nic, h, []byte{1, 2, 3, 4, 5})
	h.Kind, h.Rank, h.Codec = native.Result, 2, 0
	for _, f := range []native.Flags{native.FlagPartial, native.FlagSaturated, native.FlagNonFinite, native.FlagWrapped, native.FlagRelayed | native.FlagResend} {
		h.Flags = f
		add(nic, group, h, make([]byte, 64))
	}
	notice := func(n native.NoticeBody) {
		n.Workers, n.Elements, n.Slots, n.Op, n.Order, n.Policy = 9, 256, 512, 3, 1, 1
		b := make([]byte, n.Len())
		n.Put(b)
		add(nic, worker, native.Header{Kind: native.Notice, Type: native.Float32, Job: 7, Rank: 1, Epoch: 5, Round: 3, Slot: 2}, b)
	}
	notice(native.NoticeBody{Code: native.Ready, Life: 5, Nonce: 0xb1b1b1b1, Group: group.IP, GroupPort: 4001, Codec: 2, Result: 3, CodecParam: 0x10203, ResultParam: 0x20304050})
	notice(native.NoticeBody{Code: native.Collecting, Deadline: 30_000, Ranks: []byte{0x82, 1}, Codec: 4, CodecParam: 12})
	notice(native.NoticeBody{Code: native.Aborted, Ranks: []byte{1}})
	notice(native.NoticeBody{Code: native.OutOfStep, Ranks: []byte{2}})
	notice(native.NoticeBody{Code: native.Refused})
	add(worker, nic, native.Header{Kind: native.Leave, Job: 7, Rank: 1, Epoch: 5}, []byte{0xb1, 0xb1, 0xb1, 0xb1})
	h = native.Header{Kind: native.Report, Job: 7, Rank: 1, Epoch: 5, Round: 2, Slot: 3}
	add(worker, nic, h, report{Life: 5, Nonce: 9, Have: []byte{5, 0x80}}.body())
	h.Flags = native.FlagNoValues
	for _, f := range withoutValues {
		add(worker, nic, h, f.body())
	}
	h = native.Header{Kind: native.Contribution, Type: native.Float32, Job: 7, Rank: 1, Epoch: 5, Slot: 3, Elements: 16}
	add(worker, nic, h, nil)
	h.Flags = native.FlagNoValues
	add(worker, nic, h, nil)
	add(worker, nic, h, make([]byte, 64))
	h.Kind, h.Rank, h.Flags = native.Result, 2, 0
	add(nic, worker, h, nil)
	return append(out, taggedFrames(t, worker, nic)...)
}

// report is the body of a report.
type report native.ReportBody

func (r report) body() []byte {
	b := make([]byte, native.ReportLen+native.ReportSpanLen+len(r.Have))
	return b[:(*native.ReportBody)(&r).Put(b)]
}

// withoutValues are reports of workers that have results without values: the usual, nothing, and as far as it goes.
var withoutValues = []report{
	{Life: 5, Nonce: 9, NoValues: true, Back: 3, Ahead: 11, Have: []byte{7, 0x80}},
	{Life: 5, Nonce: 9, NoValues: true},
	{Life: 5, Nonce: 9, NoValues: true, Back: native.MaxSlots - 1, Ahead: 1, Have: []byte{1}},
}

// taggedFrames are one of each kind that ends with a counter and a tag.
func taggedFrames(t *testing.T, worker, nic native.Endpoint) (out [][]byte) {
	salt := native.Salt{0x18, 0x91, 2, 3, 4, 5, 6, 7, 0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7}
	auth, err := native.NewAuth(&native.Key{0x10, 0x11, 0x12}, &salt, 1)
	if err != nil {
		t.Fatal(err)
	}
	joins, notice, leave := report{Nonce: 9}.body(), make([]byte, native.NoticeLen), []byte{0xb1, 0xb1, 0xb1, 0xb1}
	without := withoutValues[0].body()
	(&native.NoticeBody{Code: native.Ready, Workers: 1, Elements: 4, Slots: 8, Life: 5, Nonce: 9}).Put(notice)
	for i, m := range []struct {
		kind    native.Kind
		payload []byte
		flags   native.Flags
	}{
		{native.Report, append(joins, salt[:]...), 0}, {native.Notice, notice, 0}, {native.Contribution, make([]byte, 16), 0},
		{native.Result, make([]byte, 16), 0}, {native.Supply, nil, 0}, {native.Leave, leave, 0},
		{native.Report, append(without, salt[:]...), native.FlagNoValues}, {native.Contribution, nil, native.FlagNoValues}, {native.Result, nil, 0},
	} {
		from, to, d := worker, nic, native.FromWorker
		if m.kind == native.Result || m.kind == native.Notice {
			from, to, d = nic, worker, native.FromNetwork
		}
		h := native.Header{Kind: m.kind, Flags: native.FlagTagged | m.flags, Job: 7, Rank: 1, Epoch: 5, Slot: 2, Elements: 4}
		f := make([]byte, native.FrameLen(len(m.payload)+native.TrailerLen))
		native.PutFrame(f, &from, &to, &h, len(m.payload)+native.TrailerLen)
		copy(f[native.ValuesOffset:], m.payload)
		message := f[native.ValuesOffset-native.HeaderLen:]
		auth.Seal(message[:native.HeaderLen+len(m.payload)+native.TrailerLen], d, 1<<42+uint64(i))
		out = append(out, f)
	}
	return out
}

// acclFrames are the all-reduce that the card's emulator sent, and messages of two ranks to a third, of several datagrams
// each, that come mixed.
func acclFrames(t *testing.T) (out [][]byte) {
	record, err := acclcheck.Record("../../wire/accl/testdata/allreduce17-w2.txt")
	if err != nil {
		t.Fatal(err)
	}
	end := func(rank int) accl.Endpoint {
		return accl.Endpoint{MAC: mac(byte(rank)), IP: inet.Addr{10, 10, 10, byte(rank + 1)}, Port: accl.BasePort + uint16(rank)}
	}
	add := func(from, to int, payload []byte) {
		f := make([]byte, accl.PayloadOffset+len(payload))
		a, b := end(from), end(to)
		accl.PutFrame(f, &a, &b, len(payload))
		copy(f[accl.PayloadOffset:], payload)
		out = append(out, f)
	}
	for _, d := range record {
		add(d.From, d.To, d.Payload)
	}
	counts := []int{10_000, accl.OneDatagram + 1}
	for piece := range 3 {
		for from, count := range counts {
			if piece >= accl.Datagrams(count) {
				continue
			}
			_, size, length := accl.Piece(count, piece)
			payload := make([]byte, length)
			data := payload
			if piece == 0 {
				h := accl.Header{
					Count: uint32(count), Tag: 0x1234, Src: uint32(from), Seq: 5, Session: 2, Host: uint8(from), Address: 0x321000 << 16,
				}
				data = payload[h.Put(payload):]
			}
			for i := range data[:size] {
				data[i] = byte(from + piece + i)
			}
			add(from, 2, payload)
		}
	}
	return out
}

func ringFrames() (out [][]byte) {
	end := func(node int) ring.Endpoint { return ring.Endpoint{MAC: mac(byte(node)), IP: ip(byte(node + 1))} }
	members := []ring.Member{{Node: 0, Boot: 0x1000000000000001}, {Node: 1, Boot: 77}, {Node: 2}}
	common := func(node int) ring.Common {
		return ring.Common{Ring: 3, Node: uint16(node), Generation: 4, Epoch: ring.Epoch(4, members)}
	}
	add := func(from, to int, message []byte) {
		f := make([]byte, inet.PayloadOffset+len(message))
		a, b := end(from), end(to)
		ring.PutFrame(f, &a, &b, len(message))
		copy(f[inet.PayloadOffset:], message)
		out = append(out, f)
	}
	b := make([]byte, 512)
	hello := ring.HelloHeader{Common: common(0), SliceElements: 256, MTU: 1500, Window: 8, Boot: members[0].Boot, Nodes: 3}
	add(0, 1, b[:hello.Put(b, members)])
	hello.Node, hello.Flags, hello.Boot = 1, ring.FlagFormed, 77
	add(1, 0, b[:hello.Put(b, members)])
	for step, flags := range []ring.Flags{0, ring.FlagResend, ring.FlagGather, ring.FlagGather | ring.FlagResend} {
		d := ring.DataHeader{
			Common: common(step % 3), Flags: flags, Codec: uint8(step), Step: uint8(step), Sequence: 0xffffffff, Request: 2, Block: 9,
			Length: 3000, Slice: uint16(step % 3), Offset: 64, Elements: 32,
		}
		n := d.Put(b, 68)
		for i := range 68 {
			b[n+i] = byte(i)
		}
		add(step%3, (step+1)%3, b[:n+68])
	}
	ack := ring.AckHeader{Common: common(1), Cumulative: 17, Reduce: 20, Gather: 18, WaitNode: ring.NoNode}
	add(1, 0, b[:ack.Put(b, 0)])
	ack = ring.AckHeader{Common: common(1), Flags: ring.FlagReply, Cumulative: 17, Reduce: 20, Gather: 18, WaitRequest: 2, WaitNode: 2, WaitHops: 1}
	n := ack.Put(b, 3)
	copy(b[n:], []byte{0x06, 0, 0x80})
	add(1, 0, b[:n+3])
	for r := ring.Silent; r <= ring.Superseded; r++ {
		notice := ring.NoticeHeader{Common: common(2), Reason: r, Request: uint32(r), Boot: 77, Failed: 1}
		add(2, 0, b[:notice.Put(b)])
	}
	return out
}

// bumpFrames are the example of docs/bump.md, and items that it does not have.
func bumpFrames(t *testing.T) (out [][]byte) {
	out = vectors(t, "../../wire/bump/testdata/frames.json")
	h := bump.Header{Dst: mac(1), Src: mac(2), Kind: bump.Hello, Boot: 0xabcdef01, Sequence: 7, Seed: 3}
	c := bump.Control{Longest: 9018, Codecs: 0x7fff, Station: ip(9)}
	add := func(h bump.Header, c bump.Control) {
		f := make([]byte, bump.ControlFrameLen)
		bump.PutControl(f, &h, &c)
		out = append(out, f)
	}
	add(h, c)
	c.To, c.Station = 0xabcdef01, inet.Addr{}
	h.Kind, h.Boot, h.Src, h.Dst = bump.Answer, 99, mac(1), mac(2)
	add(h, c)
	f := make([]byte, bump.BodyOffset, 1500)
	item := func(it bump.Item, raw, encoded []byte) {
		at := len(f)
		f = f[:at+it.HeadLen()]
		bump.PutItem(f[at:], &it)
		f = append(append(f, raw...), encoded...)
		bump.SetItemSize(f[at:], len(f)-at)
	}
	host := func(proto uint8, l4, payload int) []byte {
		b := make([]byte, inet.IPv4Len+l4)
		inet.PutIPv4(b, inet.IPv4{TTL: 64, Proto: proto, Src: ip(1), Dst: ip(2), PayloadLen: l4 + payload})
		if l4 == inet.UDPLen {
			inet.PutUDP(b[inet.IPv4Len:], inet.UDP{Src: 4000, Dst: 5000, PayloadLen: payload})
		} else {
			binary.BigEndian.PutUint16(b[inet.IPv4Len:], 4000)
			binary.BigEndian.PutUint16(b[inet.IPv4Len+2:], 5000)
			b[inet.IPv4Len+12], b[inet.IPv4Len+13] = byte(l4/4)<<4, 0x18
		}
		return b
	}
	item(bump.Item{Flow: 1, Sequence: 10, Codec: 3, Type: bump.Float32, BigEndian: true, Payload: 18, Offset: 2, Head: host(inet.ProtoUDP, inet.UDPLen, 18)}, []byte{1, 2}, []byte{3, 4, 5, 6, 7})
	item(bump.Item{Flow: 1, Sequence: 11, Codec: 3, Type: bump.Float32, BigEndian: true, Alike: true, Payload: 19, Offset: 2, ID: 0x4321}, []byte{1, 2, 9}, []byte{3, 4})
	item(bump.Item{Flow: 2, Sequence: 0, Codec: 1, Type: bump.BFloat16, Payload: 8, Head: host(6, 24, 8)}, nil, []byte{8})
	bump.Seal(f, &bump.Header{Dst: mac(1), Src: mac(2), Kind: bump.Data, Items: 3, Boot: 0xabcdef01, Sequence: 8, Seed: 0x55aa55aa})
	out = append(out, f)
	h.Kind = bump.Bye
	add(h, c)
	return out
}
