package switchml_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"gradnic/internal/captures"
	"gradnic/wire/inet"
	. "gradnic/wire/switchml"
)

// Every recorded frame, parsed and built again from its fields, is the same to
// the byte: requests as the client leaves them for its card, replies as the
// switch sends them.
func TestCapturedFramesRebuilt(t *testing.T) {
	for _, elements := range []int{64, 256} {
		t.Run(fmt.Sprint(elements), func(t *testing.T) {
			steps, err := captures.Load(elements)
			if err != nil {
				t.Fatal(err)
			}
			var requests, replies int
			for k, s := range steps {
				var p inet.Packet
				if f := inet.Parse(s.Frame, &p); f != inet.OK {
					t.Fatalf("frame %d: %v", k, f)
				}
				v, f := Validate(p.Payload)
				if f != OK {
					t.Fatalf("frame %d: %v", k, f)
				}
				if v.Elements() != elements {
					t.Fatalf("frame %d: %d elements", k, v.Elements())
				}
				from := Endpoint{MAC: p.Src, IP: p.SrcIP, Port: p.SrcPort}
				to := Endpoint{MAC: p.Dst, IP: p.DstIP, Port: p.DstPort}
				e0, e1 := v.Exponents()
				// Bytes that the builder forgets must show.
				got := bytes.Repeat([]byte{0xa5}, len(s.Frame))
				copy(got[ValuesOffset:], v.Values())
				var n int
				if s.Request {
					requests++
					if !IsPort(p.DstPort) || p.Src != captures.WorkerMAC(s.Worker) || p.SrcIP != captures.WorkerIP(s.Worker) {
						t.Fatalf("frame %d is not a request of worker %d: %+v", k, s.Worker, p)
					}
					n = PutRequest(got, Request{
						Worker: from, Switch: to, Elements: elements, TTL: p.TTL, Job: v.Job(), TSI: v.TSI(),
						PoolIndex: v.PoolIndex(), E0: e0, E1: e1, Offload: true,
					})
				} else {
					replies++
					if p.Src != captures.SwitchMAC() || p.SrcIP != captures.SwitchIP() {
						t.Fatalf("frame %d is not the switch's: %+v", k, p)
					}
					n = PutReply(got, Reply{
						Switch: from, Worker: to, Elements: elements, Job: v.Job(), TSI: v.TSI(),
						PoolIndex: v.PoolIndex(), E0: e0, E1: e1,
					})
				}
				if n != len(s.Frame) || !bytes.Equal(got, s.Frame) {
					t.Fatalf("frame %d (request: %v), %d bytes of %d\n got %x\nwant %x", k, s.Request, n, len(s.Frame), got, s.Frame)
				}
			}
			if requests == 0 || replies == 0 || requests+replies != len(steps) {
				t.Errorf("%d requests and %d replies of %d frames", requests, replies, len(steps))
			}
		})
	}
}

func TestBuildersRefuse(t *testing.T) {
	for _, elements := range []int{-1, 0, 1, 32, 63, 65, 128, 255, 257, 512, 1 << 40} {
		frame := bytes.Repeat([]byte{7}, 4096)
		if n := PutRequest(frame, Request{Elements: elements}); n != 0 {
			t.Errorf("request with %d elements: %d", elements, n)
		}
		if n := PutReply(frame, Reply{Elements: elements}); n != 0 {
			t.Errorf("reply with %d elements: %d", elements, n)
		}
		if _, ok := NewReplyTemplate(Reply{Elements: elements}); ok {
			t.Errorf("template with %d elements", elements)
		}
		if !bytes.Equal(frame, bytes.Repeat([]byte{7}, 4096)) {
			t.Errorf("%d elements: the frame was written to", elements)
		}
	}
	for n := range 308 {
		if PutRequest(make([]byte, n), Request{Elements: 64}) != 0 || PutReply(make([]byte, n), Reply{Elements: 64}) != 0 {
			t.Fatalf("a frame of %d bytes was taken for 308", n)
		}
	}
}

// The default request has the client's TTL, a right IPv4 checksum and no UDP checksum.
func TestRequestDefaults(t *testing.T) {
	b := bytes.Repeat([]byte{0xff}, 308)
	r := Request{
		Worker:   Endpoint{MAC: captures.WorkerMAC(0), IP: captures.WorkerIP(0), Port: 4000},
		Switch:   Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: PortBase},
		Elements: 64,
	}
	if n := PutRequest(b, r); n != 308 {
		t.Fatalf("length %d", n)
	}
	if b[22] != 128 || inet.Checksum(b[14:34]) != 0 || binary.BigEndian.Uint16(b[40:]) != 0 {
		t.Errorf("headers %x", b[:52])
	}
	if b[52] != 0xff {
		t.Error("the values were written to")
	}
}

func TestReplyClearsBit14(t *testing.T) {
	b := make([]byte, 308)
	PutReply(b, Reply{Elements: 64, PoolIndex: 0xffff})
	if got := binary.BigEndian.Uint16(b[48:]); got != 0xbfff {
		t.Errorf("pool index %#x", got)
	}
}

// A template gives what PutReply gives.
func TestTemplateEqualsPutReply(t *testing.T) {
	for _, elements := range []int{64, 256} {
		r := Reply{
			Switch:   Endpoint{MAC: captures.SwitchMAC(), IP: captures.SwitchIP(), Port: PortBase + 3},
			Worker:   Endpoint{MAC: inet.Broadcast, IP: inet.Addr{1, 2, 3, 4}, Port: 1},
			Elements: elements, Job: 3, TSI: [4]byte{9, 8, 7, 6}, PoolIndex: 0xffff, E0: -128, E1: 127,
		}
		tmpl, ok := NewReplyTemplate(r)
		if !ok {
			t.Fatal("refused")
		}
		for ip := uint32(0); ip < 1<<16; ip++ {
			r.Worker = Endpoint{MAC: inet.MACFromUint64(uint64(ip) * 7919), IP: inet.AddrFromUint32(ip * 65521), Port: uint16(ip)}
			want, got := make([]byte, FrameLen(elements)), make([]byte, ValuesOffset)
			PutReply(want, r)
			tmpl.Put(got, r.Worker.MAC, r.Worker.IP, r.Worker.Port)
			if !bytes.Equal(got, want[:ValuesOffset]) {
				t.Fatalf("%v\n got %x\nwant %x", r.Worker, got, want[:ValuesOffset])
			}
			if c := inet.Checksum(got[14:34]); c != 0 {
				t.Fatalf("IPv4 header for %v sums to %#x", r.Worker.IP, c)
			}
		}
	}
}

func BenchmarkPutReply(b *testing.B) {
	f := make([]byte, 308)
	r := Reply{Elements: 64}
	for b.Loop() {
		PutReply(f, r)
	}
}

func BenchmarkTemplatePut(b *testing.B) {
	f := make([]byte, 308)
	t, _ := NewReplyTemplate(Reply{Elements: 64})
	for b.Loop() {
		t.Put(f, inet.MAC{}, inet.Addr{}, 4000)
	}
}
