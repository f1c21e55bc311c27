package gen

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/bench/flow"
	"gradnic/wire/inet"
)

// RunUDP sends through UDP sockets of the kernel, one for each queue, 64 datagrams a system call. The kernel writes the
// headers, so the flow's addresses but for its destination do not count, all contributions come from one worker's
// address, and malformed frames, which a socket cannot send, are refused.
func RunUDP(ctx context.Context, o QueueOptions) (*Result, error) {
	if o.Flow.Malformed > 0 {
		return nil, errors.New("udp generator: malformed frames cannot be sent by a socket: take the kernel or the xdp generator")
	}
	return o.run(ctx, "udp", func(queue int, s *flow.Stream) (sender, error) { return openUDP(o.Flow, s) })
}

type udpSender struct {
	conn   *net.UDPConn
	batch  *ipv4.PacketConn
	stream *flow.Stream
	frames [burst][]byte
	msgs   [burst]ipv4.Message
}

func openUDP(o flow.Options, stream *flow.Stream) (*udpSender, error) {
	port := map[flow.Kind]int{flow.UDP: flow.UDPPort, flow.SwitchML: flow.SwitchMLPort, flow.Native: 0xBEF0, flow.ACCL: flow.ACCLPort + flow.MaxWorkers}[o.Kind]
	conn, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: o.ToIP[:], Port: port})
	if err != nil {
		return nil, err
	}
	s := &udpSender{conn: conn, batch: ipv4.NewPacketConn(conn), stream: stream}
	for i := range s.frames {
		s.frames[i] = make([]byte, stream.Longest())
		s.msgs[i].Buffers = make([][]byte, 1)
	}
	return s, nil
}

func (s *udpSender) send(n int) (int, error) {
	now := Monotonic()
	for i := range n {
		size := s.stream.Next(s.frames[i], now)
		s.msgs[i].Buffers[0] = s.frames[i][inet.PayloadOffset:size]
	}
	// What was made is sent: a full queue of the netdev is waited for.
	for sent := 0; sent < n; {
		k, err := s.batch.WriteBatch(s.msgs[sent:n], 0)
		if errors.Is(err, unix.ENOBUFS) || errors.Is(err, unix.ECONNREFUSED) {
			continue // the second is news of an earlier datagram: nobody listens there
		}
		if err != nil {
			return sent, fmt.Errorf("send datagrams: %w", err)
		}
		sent += k
	}
	return n, nil
}

func (s *udpSender) finish() error { return nil }

func (s *udpSender) close() error { return s.conn.Close() }
