package accl_test

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	. "gradnic/wire/accl"
	"gradnic/wire/inet"
)

// message is the datagrams of one message.
func message(h Header, elements []byte) (out [][]byte) {
	h.Count = uint32(len(elements))
	for i := range Datagrams(len(elements)) {
		offset, size, length := Piece(len(elements), i)
		b := make([]byte, length)
		body := b
		if i == 0 {
			body = b[h.Put(b):]
		}
		copy(body, elements[offset:offset+size])
		out = append(out, b)
	}
	return out
}

func TestFaultNames(t *testing.T) {
	kebab := regexp.MustCompile(`^accl(-[a-z0-9]+)+$`)
	seen := map[string]bool{}
	for f := Fault(1); int(f) < NumFaults; f++ {
		if !kebab.MatchString(f.String()) || seen[f.String()] {
			t.Errorf("fault %d is %q", f, f)
		}
		seen[f.String()] = true
		if f.Ends() != (f > Behind) {
			t.Errorf("%v ends: %v", f, f.Ends())
		}
	}
	if OK.Ends() || OK.String() != "ok" || Fault(NumFaults).String() != "unknown-fault" {
		t.Error("the ends of the list")
	}
}

// TestHeaderRoundTrip: any header is read as it was written.
func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := Header{
			Count: rapid.Uint32().Draw(rt, "count"), Tag: rapid.Uint32().Draw(rt, "tag"), Src: rapid.Uint32().Draw(rt, "src"),
			Seq: rapid.Uint32().Draw(rt, "seq"), Stream: rapid.Uint32().Draw(rt, "stream"), Session: rapid.Uint16().Draw(rt, "session"),
			Type: MsgType(rapid.IntRange(0, 3).Draw(rt, "type")), Host: byte(rapid.IntRange(0, 1).Draw(rt, "host")), Address: rapid.Uint64().Draw(rt, "address"),
		}
		b := bytes.Repeat([]byte{0xff}, 80)
		if want.Put(b) != HeaderLen {
			rt.Fatal("length")
		}
		var got Header
		if f := ParseHeader(b, &got); f != OK || got != want {
			rt.Fatalf("%v %+v, want %+v", f, got, want)
		}
	})
}

// TestPieces: a message's datagrams carry all of it once, in whole words, as long as they may be until the last.
func TestPieces(t *testing.T) {
	for count := 1; count < 3*MaxDatagram; count++ {
		at := 0
		n := Datagrams(count)
		for i := range n {
			offset, size, length := Piece(count, i)
			header := 0
			if i == 0 {
				header = HeaderLen
			}
			if offset != at || size < 1 || length != header+Padded(size) || length > MaxDatagram || length%Word != 0 || (i < n-1) != (length == MaxDatagram && at+size < count) {
				t.Fatalf("%d bytes, datagram %d of %d: offset %d, %d bytes in %d", count, i, n, offset, size, length)
			}
			at += size
		}
		if at != count {
			t.Fatalf("%d bytes: %d are sent", count, at)
		}
	}
}

// TestReceiverFaults: each thing that can be wrong with a datagram has its name, and those that end the session do.
func TestReceiverFaults(t *testing.T) {
	const segment = 3 * MaxDatagram
	first := message(Header{Src: 1, Tag: TagAny}, bytes.Repeat([]byte{7}, 100))[0]
	two := message(Header{Src: 1, Tag: TagAny}, bytes.Repeat([]byte{7}, OneDatagram+MaxDatagram))
	second := func(seq uint32, n int) []byte {
		return message(Header{Src: 1, Tag: TagAny, Seq: seq}, bytes.Repeat([]byte{7}, n))[0]
	}
	set := func(b []byte, at int, v byte) []byte {
		b = bytes.Clone(b)
		b[at] = v
		return b
	}
	for _, c := range []struct {
		name   string
		before [][]byte
		bytes  []byte
		want   Fault
	}{
		{"right", nil, first, OK},
		{"nothing", nil, nil, Ragged},
		{"no whole words", nil, first[:100], Ragged},
		{"too long", nil, make([]byte, MaxDatagram+Word), TooLong},
		{"bits that are never set", nil, set(first, 63, 1), NotHeader},
		{"host", nil, set(first, 23, 2), NotHeader},
		{"message type", nil, set(first, 22, 9), NotHeader},
		{"rendezvous", nil, set(first, 22, 2), Rendezvous},
		{"another rank", nil, set(first, 8, 2), WrongRank},
		{"no elements", nil, set(first, 0, 0), Empty},
		{"elements only", nil, bytes.Repeat([]byte{7}, 128), NotHeader},
		{"over the segment", nil, message(Header{Src: 1}, make([]byte, segment+1))[0], OverSegment},
		{"one is missing", nil, second(1, 100), Ahead},
		{"wrapped behind", nil, second(0xffffffff, 100), Behind},
		{"doubled", [][]byte{first}, first, Behind},
		{"doubled, of several datagrams", two, two[0], WrongPiece},
		{"cut off", nil, first[:128], WrongPiece},
		{"header only", nil, first[:64], WrongPiece},
		{"to a stream", nil, set(first, 16, 9), ToStream},
		{"the rest is missing", two[:1], second(1, 100), HeaderFirst},
		{"the rest is missing, and the next is as long", two[:1], second(1, OneDatagram), HeaderFirst},
		{"the first comes twice", two[:1], two[0], HeaderFirst},
		{"an old one comes late", append([][]byte{first}, message(Header{Src: 1, Tag: TagAny, Seq: 1}, make([]byte, 8000))[:1]...), second(0, OneDatagram), HeaderFirst},
		{"the rest is too short", two[:1], make([]byte, 64), WrongPiece},
		{"after an end", [][]byte{set(first, 8, 2)}, first, OutOfStep},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReceiver(1, segment)
			for _, b := range c.before {
				r.Take(b)
			}
			p, f := r.Take(c.bytes)
			if f != c.want || (f == OK) != (p.Data != nil) {
				t.Fatalf("%v, want %v; %d bytes", f, c.want, len(p.Data))
			}
			if ended := r.Ended() != OK; ended != f.Ends() {
				t.Fatalf("ended: %v", r.Ended())
			}
			if _, f = r.Take(second(9, 9)); c.want.Ends() && f != OutOfStep {
				t.Fatalf("and then: %v", f)
			}
		})
	}
}

// TestStream: a message for a kernel stream is dropped whole, however many datagrams it has, and the session goes on.
func TestStream(t *testing.T) {
	r := NewReceiver(1, OneDatagram)
	for _, b := range message(Header{Src: 1, Tag: 3, Stream: 12, Seq: 77}, make([]byte, 10000)) {
		if _, f := r.Take(b); f != ToStream {
			t.Fatal(f)
		}
	}
	if p, f := r.Take(message(Header{Src: 1}, []byte("abc"))[0]); f != OK || string(p.Data) != "abc" || !p.Last {
		t.Fatalf("%v %+v", f, p)
	}
}

// TestReceiver: messages of any length come out as they went in.
func TestReceiver(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := NewReceiver(2, 1<<16)
		for seq := range uint32(rapid.IntRange(1, 5).Draw(rt, "messages")) {
			n := rapid.IntRange(1, 20000).Draw(rt, "bytes")
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i * 7)
			}
			got := make([]byte, n)
			ds := message(Header{Src: 2, Seq: seq, Tag: 5}, want)
			for i, b := range ds {
				p, f := r.Take(b)
				if f != OK || p.Last != (i == len(ds)-1) || p.Header.Tag != 5 || p.Header.Seq != seq {
					rt.Fatalf("%v %+v", f, p)
				}
				copy(got[p.Offset:], p.Data)
			}
			if !bytes.Equal(got, want) || r.Partial() != 0 || r.Next() != seq+1 {
				rt.Fatal("not what was sent")
			}
		}
	})
}

// TestPutFrame: what a network stack reads is what was meant.
func TestPutFrame(t *testing.T) {
	from := Endpoint{MAC: inet.MAC{2, 0, 0, 0, 0, 1}, IP: inet.Addr{10, 10, 10, 1}, Port: 5500}
	to := Endpoint{MAC: inet.MAC{2, 0, 0, 0, 0, 2}, IP: inet.Addr{10, 10, 10, 2}, Port: 5501}
	f := bytes.Repeat([]byte{0xee}, FrameLen)
	if n := PutFrame(f, &from, &to, MaxDatagram); n != 4138 {
		t.Fatalf("%d bytes", n)
	}
	var p inet.Packet
	if fault := inet.Parse(f, &p); fault != inet.OK || p.Src != from.MAC || p.Dst != to.MAC || p.SrcIP != from.IP || p.DstIP != to.IP ||
		p.SrcPort != 5500 || p.DstPort != 5501 || len(p.Payload) != MaxDatagram || inet.Checksum(f[14:34]) != 0 {
		t.Fatalf("%v %+v", fault, p)
	}
	if MTU != 4124 || binary.BigEndian.Uint16(f[40:]) != 0 || f[15] != 0 || binary.BigEndian.Uint32(f[18:]) != 0 {
		t.Fatalf("headers %x", f[:42])
	}
}

// FuzzReceiver: no datagrams, in any order, make a receiver panic, hand out more than a message has, or hand out what a
// fault was given for.
func FuzzReceiver(f *testing.F) {
	for _, r := range golden(f) {
		f.Add(r.Payload, uint16(len(r.Payload)))
	}
	long := bytes.Join(message(Header{Src: 1, Tag: TagAny}, make([]byte, 9000)), nil)
	f.Add(long, uint16(MaxDatagram))
	f.Add(append(bytes.Clone(long[:MaxDatagram]), long...), uint16(MaxDatagram))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		r := NewReceiver(1, 10000)
		have := 0
		for len(b) > 0 {
			n := min(int(cut)+1, len(b))
			p, fault := r.Take(b[:n])
			b = b[n:]
			if fault != OK {
				if p.Data != nil || p.Header != nil {
					t.Fatalf("%v and a part", fault)
				}
				if fault.Ends() != (r.Ended() != OK) {
					t.Fatalf("%v, ended %v", fault, r.Ended())
				}
				continue
			}
			if p.Offset == 0 {
				have = 0
			}
			if p.Offset != have || len(p.Data) == 0 {
				t.Fatalf("offset %d, want %d", p.Offset, have)
			}
			have += len(p.Data)
			if have > int(p.Header.Count) || have > 10000 || p.Last != (have == int(p.Header.Count)) {
				t.Fatalf("%d of %d bytes, last %v", have, p.Header.Count, p.Last)
			}
		}
	})
}
