package gen

import (
	"context"
	"fmt"
	"time"

	"gradnic/bench/endpoint"
	"gradnic/bench/flow"
	"gradnic/xdp"
)

// RunXDP sends from the transmit rings of AF_XDP sockets, one for each queue of the netdev, each with a thread of its
// own. The caller is in the netdev's namespace. Frames larger than a chunk leave in pieces (Linux 6.6).
func RunXDP(ctx context.Context, ifindex int, o QueueOptions) (*Result, error) {
	return o.run(ctx, "xdp", func(queue int, s *flow.Stream) (sender, error) { return openXDP(ifindex, queue, s) })
}

const (
	xdpRing  = 512
	xdpChunk = 4096
)

// xdpSender owns the chunks of its ring: frame i of the ring's many uses chunks of its own, so nothing is written that
// the kernel may still read.
type xdpSender struct {
	end    *endpoint.Endpoint
	sock   *xdp.Socket
	area   []byte
	stream *flow.Stream
	pieces int // chunks that the longest frame takes
	frame  []byte
	free   []uint64
	descs  []xdp.Desc
	done   [xdpRing]uint64
}

func openXDP(ifindex, queue int, stream *flow.Stream) (*xdpSender, error) {
	pieces := (stream.Longest() + xdpChunk - 1) / xdpChunk
	end, err := endpoint.Open(endpoint.Options{
		Socket: xdp.SocketOptions{IfIndex: ifindex, Queue: queue, RxSize: xdp.NoRing, TxSize: xdpRing, CompletionSize: xdpRing, MultiBuffer: pieces > 1},
		Chunks: xdpRing, Chunk: xdpChunk,
	})
	if err != nil {
		return nil, err
	}
	return &xdpSender{
		end: end, sock: end.Sockets[0], area: end.UMEM.Bytes(), stream: stream, pieces: pieces, frame: make([]byte, stream.Longest()),
		free: end.Chunks(0, 0), descs: make([]xdp.Desc, 0, burst*pieces),
	}, nil
}

func (s *xdpSender) send(n int) (int, error) {
	s.reap()
	now := Monotonic()
	s.descs = s.descs[:0]
	sent := 0
	for sent < n && len(s.free) >= s.pieces {
		s.put(now)
		sent++
	}
	// There is room for every chunk of the UMEM in the ring.
	if took := s.sock.Transmit(s.descs); took != len(s.descs) {
		return sent, fmt.Errorf("the transmit ring took %d of %d", took, len(s.descs))
	}
	return sent, s.sock.Kick()
}

// put makes one frame, in one chunk or in several.
func (s *xdpSender) put(now uint64) {
	if s.pieces == 1 {
		a := s.take()
		n := s.stream.Next(s.area[a:a+xdpChunk], now)
		s.descs = append(s.descs, xdp.Desc{Addr: a, Len: uint32(n)})
		return
	}
	rest := s.frame[:s.stream.Next(s.frame, now)]
	for len(rest) > 0 {
		a := s.take()
		n := copy(s.area[a:a+xdpChunk], rest)
		rest = rest[n:]
		d := xdp.Desc{Addr: a, Len: uint32(n)}
		if len(rest) > 0 {
			d.Options = xdp.PacketContinues
		}
		s.descs = append(s.descs, d)
	}
}

func (s *xdpSender) take() uint64 {
	a := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return a
}

func (s *xdpSender) reap() {
	for _, a := range s.done[:s.sock.Complete(s.done[:])] {
		s.free = append(s.free, a&^(xdpChunk-1))
	}
}

func (s *xdpSender) finish() error {
	for end := time.Now().Add(time.Second); len(s.free) < xdpRing; time.Sleep(100 * time.Microsecond) {
		if time.Now().After(end) {
			return fmt.Errorf("%d frames were not sent within a second", xdpRing-len(s.free))
		}
		if err := s.sock.Kick(); err != nil {
			return err
		}
		s.reap()
	}
	return nil
}

func (s *xdpSender) close() error { return s.end.Close() }
