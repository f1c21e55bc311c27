package collective

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// The parameter server is what one writes without a NIC that sums: workers send chunks of their arrays as UDP datagrams to
// one host, which adds them and sends the sum back to each. It is a fair one: datagrams in batches of 64 a system call, a
// window of chunks in flight, no copy but those of the kernel.
const (
	serverPort   = 7000
	serverHeader = 12 // round, chunk, rank: 32 bits each, little endian
	serverWindow = 256
	serverAgain  = 30 * time.Millisecond
)

// serverRound is the sums of one all-reduce.
type serverRound struct {
	number uint32
	sums   map[uint32]*serverChunk
}

type serverChunk struct {
	values []float32
	seen   uint64 // ranks
	count  int
}

// server adds up what arrives, until its socket is closed.
type server struct {
	conn    *net.UDPConn
	workers int
	rounds  [2]serverRound // the current one and the one before, whose last results may have to be sent again
	peers   []*net.UDPAddr
	done    chan error
}

func startServer(conn *net.UDPConn, workers int) *server {
	s := &server{conn: conn, workers: workers, peers: make([]*net.UDPAddr, workers), done: make(chan error, 1)}
	go func() { s.done <- s.run() }()
	return s
}

func (s *server) close() error {
	err := s.conn.Close()
	return errors.Join(err, <-s.done)
}

func (s *server) run() error {
	var (
		batch = ipv4.NewPacketConn(s.conn)
		in    = newMessages(64)
		out   = newMessages(64 * s.workers)
	)
	for {
		n, err := batch.ReadBatch(in, 0)
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("parameter server: receive: %w", err)
		}
		ready := 0
		for i := range in[:n] {
			ready = s.take(in[i].Buffers[0][:in[i].N], in[i].Addr.(*net.UDPAddr), out, ready)
		}
		if err := writeAll(batch, out[:ready]); err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("parameter server: send: %w", err)
		}
	}
}

// take adds one datagram's values, and puts into out what is to be sent for it.
func (s *server) take(b []byte, from *net.UDPAddr, out []ipv4.Message, ready int) int {
	if len(b) < serverHeader {
		return ready
	}
	number, chunk, rank := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint32(b[8:]))
	if rank >= s.workers {
		return ready
	}
	s.peers[rank] = from
	r := &s.rounds[number%2]
	if r.number != number || r.sums == nil {
		if number < r.number {
			return ready
		}
		*r = serverRound{number: number, sums: map[uint32]*serverChunk{}}
	}
	values := b[serverHeader:]
	c := r.sums[chunk]
	if c == nil {
		c = &serverChunk{values: make([]float32, len(values)/4)}
		r.sums[chunk] = c
	}
	put := func(to *net.UDPAddr) {
		m := &out[ready]
		m.Addr = to
		m.Buffers[0] = m.Buffers[0][:serverHeader+4*len(c.values)]
		copy(m.Buffers[0], b[:serverHeader])
		for i, v := range c.values {
			binary.LittleEndian.PutUint32(m.Buffers[0][serverHeader+4*i:], math.Float32bits(v))
		}
		ready++
	}
	if c.seen&(1<<rank) != 0 {
		if c.count == s.workers { // its result was lost
			put(from)
		}
		return ready
	}
	for i := range c.values {
		c.values[i] += math.Float32frombits(binary.LittleEndian.Uint32(values[4*i:]))
	}
	c.seen |= 1 << rank
	if c.count++; c.count == s.workers {
		for _, to := range s.peers {
			put(to)
		}
	}
	return ready
}

func newMessages(n int) []ipv4.Message {
	m := make([]ipv4.Message, n)
	for i := range m {
		m[i].Buffers = [][]byte{make([]byte, 9000)}
	}
	return m
}

func writeAll(c *ipv4.PacketConn, m []ipv4.Message) error {
	for len(m) > 0 {
		n, err := c.WriteBatch(m[:min(64, len(m))], 0)
		if err != nil {
			return err
		}
		m = m[n:]
	}
	return nil
}

// client is one worker of a parameter server.
type client struct {
	conn  *net.UDPConn // connected
	batch *ipv4.PacketConn
	rank  int
	per   int // float32 of a datagram
	round uint32
	in    []ipv4.Message
	out   []ipv4.Message
}

func newClient(conn *net.UDPConn, rank, mtu int) *client {
	return &client{conn: conn, batch: ipv4.NewPacketConn(conn), rank: rank, per: (mtu - 28 - serverHeader) / 4, in: newMessages(64), out: newMessages(64)}
}

// allReduce sums src over all clients into dst, which may be src.
func (c *client) allReduce(ctx context.Context, dst, src []float32) error {
	c.round++
	chunks := (len(src) + c.per - 1) / c.per
	var (
		have = make([]bool, chunks)
		sent = make([]time.Time, chunks)
		next int // chunk to be sent first
		base int // all before are there
		left = chunks
	)
	for left > 0 {
		now := time.Now()
		n := 0
		for k := base; k < next && n < len(c.out); k++ { // what has waited for too long
			if !have[k] && now.Sub(sent[k]) > serverAgain {
				c.put(n, k, src)
				sent[k] = now
				n++
			}
		}
		for ; next < min(chunks, base+serverWindow) && n < len(c.out); next++ {
			c.put(n, next, src)
			sent[next] = now
			n++
		}
		if err := writeAll(c.batch, c.out[:n]); err != nil {
			return fmt.Errorf("parameter server's worker %d: send: %w", c.rank, err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.conn.SetReadDeadline(now.Add(serverAgain)); err != nil {
			return fmt.Errorf("parameter server's worker %d: %w", c.rank, err)
		}
		got, err := c.batch.ReadBatch(c.in, 0)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("parameter server's worker %d: receive: %w", c.rank, err)
		}
		for i := range c.in[:got] {
			b := c.in[i].Buffers[0][:c.in[i].N]
			if len(b) < serverHeader || binary.LittleEndian.Uint32(b) != c.round {
				continue
			}
			k := int(binary.LittleEndian.Uint32(b[4:]))
			if k >= chunks || have[k] {
				continue
			}
			part := dst[k*c.per : min((k+1)*c.per, len(dst))]
			for x := range part {
				part[x] = math.Float32frombits(binary.LittleEndian.Uint32(b[serverHeader+4*x:]))
			}
			have[k] = true
			left--
		}
		for base < chunks && have[base] {
			base++
		}
	}
	return nil
}

// put writes the datagram of a chunk.
func (c *client) put(slot, chunk int, src []float32) {
	part := src[chunk*c.per : min((chunk+1)*c.per, len(src))]
	b := c.out[slot].Buffers[0][:serverHeader+4*len(part)]
	c.out[slot].Buffers[0] = b
	binary.LittleEndian.PutUint32(b, c.round)
	binary.LittleEndian.PutUint32(b[4:], uint32(chunk))
	binary.LittleEndian.PutUint32(b[8:], uint32(c.rank))
	for i, v := range part {
		binary.LittleEndian.PutUint32(b[serverHeader+4*i:], math.Float32bits(v))
	}
}

// parameterServer is a transport of the table: the star's centre is a switch, at which the server is.
type parameterServer struct {
	star    *star
	server  *server
	clients []*client
}

func startParameterServer(ctx context.Context, s *star) (_ *parameterServer, err error) {
	p := &parameterServer{star: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := s.bridge(); err != nil {
		return nil, err
	}
	if err := s.switchAddress(); err != nil {
		return nil, err
	}
	to := &net.UDPAddr{IP: nicIP[:], Port: serverPort}
	err = s.centre.Do(func() error {
		conn, err := net.ListenUDP("udp4", to)
		if err != nil {
			return err
		}
		p.server = startServer(conn, len(s.workers))
		return errors.Join(conn.SetReadBuffer(8<<20), conn.SetWriteBuffer(8<<20))
	})
	if err != nil {
		return nil, fmt.Errorf("parameter server: %w", err)
	}
	for i, ns := range s.workers {
		err := ns.Do(func() error {
			conn, err := net.DialUDP("udp4", nil, to)
			if err != nil {
				return err
			}
			p.clients = append(p.clients, newClient(conn, i, s.link.MTU))
			return errors.Join(conn.SetReadBuffer(4<<20), conn.SetWriteBuffer(4<<20))
		})
		if err != nil {
			return nil, fmt.Errorf("parameter server's worker %d: %w", i, err)
		}
	}
	return p, nil
}

func (p *parameterServer) reduce(ctx context.Context, n int, inPlace bool) (time.Duration, int64, error) {
	gate := make(chan struct{})
	var once sync.Once
	ready := make(chan struct{}, len(p.clients))
	return reduceAll(len(p.clients), n, inPlace, exact, func(rank int, dst, src []float32) (time.Duration, error) {
		// All begin together: the last one opens the gate.
		ready <- struct{}{}
		if len(ready) == cap(ready) {
			once.Do(func() { close(gate) })
		}
		<-gate
		begin := time.Now()
		err := p.clients[rank].allReduce(ctx, dst, src)
		return time.Since(begin), err
	})
}

func (p *parameterServer) close() error {
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.conn.Close())
	}
	if p.server != nil {
		errs = append(errs, p.server.close())
	}
	return errors.Join(errs...)
}
