package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/codec"
	"gradnic/internal/gradients"
)

// batch is how many datagrams a socket sends or takes in a call; a message to the kernel has segments of them, which it cuts
// (UDP_SEGMENT): a sender that costs less leaves more to the NICs.
const (
	batch    = 32
	segments = 16
	// stuck is how long nothing has to arrive until what is under way counts as lost.
	stuck = 100 * time.Millisecond
)

// window is the most datagrams under way, each of so many bytes on the link: enough to fill it, and fewer than its queue (20
// ms, at least 256 KiB) and half of a NIC's ring hold. Nothing is lost then, and no time goes into what would be.
func window(rate uint64, bytes int) int {
	queue := max(rate/8/50, 256<<10)
	return min(int(queue)*7/10/bytes, framesPerQueue/4)
}

// load is payloads of real gradients, and what the far host should get of each.
type load struct {
	payloads [][]byte
	restored [][]byte // by bfp16
}

func newLoad() (*load, error) {
	g, err := gradients.Load(0)
	if err != nil {
		return nil, err
	}
	c, err := codec.ByName("bfp16")
	if err != nil {
		return nil, err
	}
	l := &load{}
	encoded, decoded := make([]byte, c.MaxEncoded(elements)), make([]float32, elements)
	for ; len(g) >= elements; g = g[elements:] {
		n, err := c.Encode(encoded, g[:elements], nil)
		if err == nil {
			err = c.Decode(decoded, encoded[:n], nil)
		}
		if err != nil {
			return nil, fmt.Errorf("payload %d: %w", len(l.payloads), err)
		}
		l.payloads = append(l.payloads, payload(len(l.payloads), g[:elements]))
		l.restored = append(l.restored, payload(len(l.restored), decoded))
	}
	return l, nil
}

func payload(number int, values []float32) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(number))
	for _, v := range values {
		if b2, err := binary.Append(b, binary.LittleEndian, v); err == nil { // it has a fixed size
			b = b2
		}
	}
	return b
}

// sender sends the payloads over and over, as many at a time as the window allows.
type sender struct {
	conn *ipv4.PacketConn
	load *load
	to   *receiver
	next int
	msgs []ipv4.Message
	most int // under way
	sent uint64
	lost uint64
}

func newSender(conn *net.UDPConn, to *receiver, l *load, most int) (*sender, error) {
	s := &sender{conn: ipv4.NewPacketConn(conn), to: to, load: l, most: most, msgs: make([]ipv4.Message, batch/segments)}
	for i := range s.msgs {
		s.msgs[i].Buffers = make([][]byte, segments)
	}
	return s, setOption(conn, unix.SOL_UDP, unix.UDP_SEGMENT, prefix+4*elements)
}

// setOption sets an option of a socket.
func setOption(conn *net.UDPConn, level, option, value int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("socket option %d: %w", option, err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, value) }); err != nil {
		return fmt.Errorf("socket option %d: %w", option, err)
	}
	if set != nil {
		return fmt.Errorf("socket option %d: %w", option, set)
	}
	return nil
}

// send sends for a while.
func (s *sender) send(ctx context.Context, d time.Duration) error {
	start := time.Now()
	moved, before := start, uint64(0)
	for {
		now := time.Now()
		if now.Sub(start) >= d || ctx.Err() != nil {
			return ctx.Err()
		}
		arrived := s.to.datagrams.Load()
		if arrived != before {
			moved, before = now, arrived
		}
		underWay := int(s.sent - s.lost - arrived)
		if underWay < 0 { // what was given up came after all
			s.lost = s.sent - arrived
			underWay = 0
		}
		n := min((s.most-underWay)/segments, len(s.msgs))
		if n <= 0 {
			if now.Sub(moved) > stuck {
				s.lost += uint64(underWay)
			}
			time.Sleep(50 * time.Microsecond)
			continue
		}
		for i := range n {
			for k := range segments {
				s.msgs[i].Buffers[k] = s.load.payloads[s.next]
				s.next = (s.next + 1) % len(s.load.payloads)
			}
		}
		k, err := s.conn.WriteBatch(s.msgs[:n], 0)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		s.sent += uint64(k * segments)
	}
}

// receiver counts what a socket gets, until it is closed.
type receiver struct {
	datagrams, bytes, wrong atomic.Uint64
	done                    chan error
}

// newReceiver starts to take datagrams. Each must be one of the wanted. The kernel hands over what it has put together
// (UDP_GRO): all datagrams are of one length, so that they are told apart by it.
func newReceiver(conn *net.UDPConn, want [][]byte) (*receiver, error) {
	if err := setOption(conn, unix.SOL_UDP, unix.UDP_GRO, 1); err != nil {
		return nil, err
	}
	const length = prefix + 4*elements
	r := &receiver{done: make(chan error, 1)}
	p := ipv4.NewPacketConn(conn)
	msgs := make([]ipv4.Message, batch)
	for i := range msgs {
		msgs[i].Buffers = [][]byte{make([]byte, 1<<16)}
	}
	go func() {
		for {
			n, err := p.ReadBatch(msgs, 0)
			if err != nil {
				if errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
					err = nil
				}
				r.done <- err
				return
			}
			total, datagrams, wrong := 0, 0, 0
			for i := range msgs[:n] {
				for all := msgs[i].Buffers[0][:msgs[i].N]; len(all) > 0; {
					b := all[:min(length, len(all))]
					all = all[len(b):]
					total += len(b)
					datagrams++
					if k := number(b); k >= uint64(len(want)) || !bytes.Equal(b, want[k]) {
						wrong++
					}
				}
			}
			r.datagrams.Add(uint64(datagrams))
			r.bytes.Add(uint64(total))
			r.wrong.Add(uint64(wrong))
		}
	}()
	return r, nil
}

// number is a payload's among the payloads.
func number(b []byte) uint64 {
	if len(b) < prefix {
		return 1 << 63
	}
	return binary.LittleEndian.Uint64(b)
}
