package endpoint

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/xdp"
)

// Each socket's chunks are its own, and none is left out.
func TestChunks(t *testing.T) {
	e := &Endpoint{chunks: 4, chunk: 2048}
	if got := e.Chunks(0, 0); !slices.Equal(got, []uint64{0, 2048, 4096, 6144}) {
		t.Errorf("socket 0: %v", got)
	}
	if got := e.Chunks(2, 1); !slices.Equal(got, []uint64{18432, 20480, 22528}) {
		t.Errorf("socket 2 from its second: %v", got)
	}
	if got := e.Chunks(1, 4); len(got) != 0 {
		t.Errorf("from the end: %v", got)
	}
}

// ends is a veth pair with two queues.
func ends(t *testing.T) (a, b *netlab.NS, ia, ib int) {
	t.Helper()
	netlabtest.NeedRoot(t)
	lab := netlabtest.New(t, "gnend")
	a, b = netlabtest.Namespace(t, lab, "a"), netlabtest.Namespace(t, lab, "b")
	netlabtest.Veth(t, lab, netlab.End{NS: a, Name: "a0", Queues: 2}, netlab.End{NS: b, Name: "b0", Queues: 2})
	var err error
	if ia, _, err = a.Interface("a0"); err != nil {
		t.Fatal(err)
	}
	if ib, _, err = b.Interface("b0"); err != nil {
		t.Fatal(err)
	}
	return a, b, ia, ib
}

func open(ns *netlab.NS, o Options) (e *Endpoint, err error) {
	err = ns.Do(func() (err error) { e, err = Open(o); return })
	return e, err
}

// What both sockets of one end send comes to the other's sockets, byte for byte; after Close the queues are free for the next.
func TestTwoQueues(t *testing.T) {
	a, b, ia, ib := ends(t)
	frame := bytes.Repeat([]byte{0x02, 7, 9}, 33)
	for round := range 2 {
		in, err := open(a, Options{Socket: xdp.SocketOptions{IfIndex: ia}, Queues: 2, Chunks: 64, Steer: true})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if in.Steering == nil || len(in.Sockets) != 2 || in.Sockets[1].Queue() != 1 {
			t.Errorf("%d sockets, steering %v", len(in.Sockets), in.Steering)
		}
		for i := range in.Sockets {
			if err := in.Fill(i, 0); err != nil {
				t.Error(err)
			}
		}
		out, err := open(b, Options{Socket: xdp.SocketOptions{IfIndex: ib}, Queues: 2, Chunks: 16})
		if err != nil {
			t.Fatal(err)
		}
		if out.Steering != nil {
			t.Error("an end that does not steer has a program")
		}
		const each = 10
		for i, s := range out.Sockets {
			var d []xdp.Desc
			for _, addr := range out.Chunks(i, 0)[:each] {
				copy(out.UMEM.Bytes()[addr:], frame)
				d = append(d, xdp.Desc{Addr: addr, Len: uint32(len(frame))})
			}
			if n := s.Transmit(d); n != each {
				t.Fatalf("queue %d takes %d of %d frames", i, n, each)
			}
			if err := s.Kick(); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		for deadline := time.Now().Add(10 * time.Second); got < 2*each && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			for i, s := range in.Sockets {
				var d [32]xdp.Desc
				for _, q := range d[:s.Receive(d[:])] {
					// Its chunk is one of the socket's own.
					if chunk := q.Addr / 2048; chunk/64 != uint64(i) || !bytes.Equal(in.UMEM.Bytes()[q.Addr:q.Addr+uint64(q.Len)], frame) {
						t.Errorf("queue %d got %d bytes in chunk %d", i, q.Len, chunk)
					}
					got++
				}
			}
		}
		if got != 2*each {
			t.Errorf("round %d: %d of %d frames", round, got, 2*each)
		}
		for _, e := range []*Endpoint{in, out} {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// What cannot be opened says where, and leaves nothing behind: the same netdev opens right after.
func TestHalfOpen(t *testing.T) {
	a, _, ia, _ := ends(t)
	good := Options{Socket: xdp.SocketOptions{IfIndex: ia}, Queues: 2, Chunks: 64, Steer: true}
	for _, tt := range []struct {
		name string
		bad  func(*Options)
		want string
	}{
		{"more queues than there are", func(o *Options) { o.Queues = 3 }, "queue 2"},
		{"no such netdev", func(o *Options) { o.Socket.IfIndex = 1 << 20 }, "queue 0"},
		{"chunks of no size", func(o *Options) { o.Chunk = 1000 }, "chunk"},
	} {
		o := good
		tt.bad(&o)
		if e, err := open(a, o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
			if e != nil {
				e.Close()
			}
		}
	}
	e, err := open(a, good)
	if err != nil {
		t.Fatal(err)
	}
	// A second one finds the queues taken, and does not take them away.
	if second, err := open(a, good); err == nil {
		t.Error("a netdev was opened twice")
		second.Close()
	}
	// Nothing arrives, so the fill ring becomes full, and says so.
	var full error
	for n := 0; n < 64 && full == nil; n++ {
		full = e.Fill(0, 0)
	}
	if full == nil || !strings.Contains(full.Error(), "fill ring") {
		t.Errorf("a full fill ring: %v", full)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
