package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/ipv4"

	"gradnic/bench/endpoint"
	"gradnic/bench/flow"
	"gradnic/bench/gen"
	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/xdp"
)

// Options say what is received.
type Options struct {
	Flow    flow.Kind
	Queues  int  // of the netdev, from queue 0 on, or sockets; 0 means 1
	StampAt int  // where in a frame the stamp is; 0: where the flow has it
	Latency bool // keep the time from stamp to receipt
	CPUs    []int
	Longest int           // bytes of the longest frame that may come; 0 means 1514. Above 3840 in pieces
	Slowed  time.Duration // how long each batch is dawdled over: a device that cannot keep up, for tests
}

// Sink receives until Stop.
type Sink struct {
	accounts []*Account
	end      *endpoint.Endpoint
	conns    []*net.UDPConn
	stop     context.CancelFunc
	wg       sync.WaitGroup
	errs     []error
}

const (
	sinkChunks = 2048
	sinkChunk  = 4096
)

func newSink(o *Options) *Sink {
	if o.Queues == 0 {
		o.Queues = 1
	}
	s := &Sink{errs: make([]error, o.Queues)}
	for range o.Queues {
		s.accounts = append(s.accounts, newAccount(o))
	}
	return s
}

// StartXDP receives every frame of a netdev over AF_XDP; the calling thread is in its namespace.
func StartXDP(ctx context.Context, ifindex int, o Options) (*Sink, error) {
	s := newSink(&o)
	var err error
	s.end, err = endpoint.Open(endpoint.Options{
		Socket: xdp.SocketOptions{IfIndex: ifindex, FillSize: 2 * sinkChunks, TxSize: xdp.NoRing, CompletionSize: 64, MultiBuffer: o.Longest > sinkChunk-xdp.KernelHeadroom},
		Queues: o.Queues, Chunks: sinkChunks, Chunk: sinkChunk, Steer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	for i := range o.Queues {
		if err := s.end.Fill(i, 0); err != nil {
			return nil, errors.Join(fmt.Errorf("sink: queue %d: %w", i, err), s.end.Close())
		}
	}
	s.start(ctx, o, func(ctx context.Context, i int) error { return s.receiveXDP(ctx, i, o) })
	return s, nil
}

// StartUDP receives at the flow's port through UDP sockets that share it.
func StartUDP(ctx context.Context, address string, o Options) (*Sink, error) {
	s := newSink(&o)
	port := map[flow.Kind]int{flow.UDP: flow.UDPPort, flow.SwitchML: flow.SwitchMLPort, flow.Native: native.Port, flow.ACCL: flow.ACCLPort + flow.MaxWorkers}[o.Flow]
	lc := net.ListenConfig{Control: reusePort}
	for range o.Queues {
		c, err := lc.ListenPacket(ctx, "udp4", net.JoinHostPort(address, fmt.Sprint(port)))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sink: %w", err), s.close())
		}
		conn := c.(*net.UDPConn)
		s.conns = append(s.conns, conn)
		if err := conn.SetReadBuffer(8 << 20); err != nil {
			return nil, errors.Join(fmt.Errorf("sink: receive buffer: %w", err), s.close())
		}
	}
	s.start(ctx, o, func(ctx context.Context, i int) error { return s.receiveUDP(ctx, i, o) })
	return s, nil
}

func (s *Sink) start(ctx context.Context, o Options, receive func(context.Context, int) error) {
	ctx, s.stop = context.WithCancel(ctx)
	for i := range o.Queues {
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			runtime.LockOSThread() // for good when pinned: the thread ends with the goroutine
			if len(o.CPUs) > 0 {
				if _, err := gen.Pin(o.CPUs[i%len(o.CPUs)]); err != nil {
					s.errs[i] = err
					return
				}
			} else {
				defer runtime.UnlockOSThread()
			}
			s.errs[i] = receive(ctx, i)
		}()
	}
}

func (s *Sink) receiveXDP(ctx context.Context, i int, o Options) error {
	var (
		sock  = s.end.Sockets[i]
		a     = s.accounts[i]
		descs [64]xdp.Desc
		chain []byte // the pieces so far of a frame larger than a chunk
		over  time.Time
	)
	for {
		n := sock.Receive(descs[:])
		if ctx.Err() != nil && time.Now().After(s.patience(&over)) {
			return nil // somebody sends on for ever
		}
		if n == 0 {
			// What was sent before the end may still be on its way through a softirq that waits for its CPU.
			stopping, wait := ctx.Err() != nil, 20*time.Millisecond
			if stopping {
				wait = 200 * time.Millisecond
			}
			came, err := sock.Wait(wait)
			if err != nil {
				return fmt.Errorf("sink: queue %d: %w", i, err)
			}
			if stopping && !came {
				return nil
			}
			continue
		}
		now := gen.Monotonic()
		for _, d := range descs[:n] {
			piece := s.end.UMEM.Frame(d)
			if d.Options&xdp.PacketContinues != 0 {
				chain = append(chain, piece...)
				continue
			}
			if len(chain) > 0 {
				piece = append(chain, piece...)
				chain = piece[:0]
			}
			a.Observe(piece, now)
		}
		// The fill ring has room for all chunks twice: what the kernel has not taken yet is in it beside.
		for left := descs[:n]; len(left) > 0; {
			left = left[sock.FillDescs(left):]
		}
		if o.Slowed > 0 {
			time.Sleep(o.Slowed)
		}
	}
}

// patience is until when a thread that was told to stop goes on with what is there.
func (s *Sink) patience(over *time.Time) time.Time {
	if over.IsZero() {
		*over = time.Now().Add(2 * time.Second)
	}
	return *over
}

func (s *Sink) receiveUDP(ctx context.Context, i int, o Options) error {
	batch := ipv4.NewPacketConn(s.conns[i])
	msgs := make([]ipv4.Message, 64)
	for k := range msgs {
		msgs[k].Buffers = [][]byte{make([]byte, flow.LongestFrame)}
	}
	var over time.Time
	for {
		// A thread that did not get its CPU before the deadline is told so although datagrams wait: at the end it takes its
		// time.
		stopping, wait := ctx.Err() != nil, 20*time.Millisecond
		if stopping {
			wait = 200 * time.Millisecond
		}
		if err := s.conns[i].SetReadDeadline(time.Now().Add(wait)); err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		n, err := batch.ReadBatch(msgs, 0)
		if stopping && (err != nil || time.Now().After(s.patience(&over))) {
			return nil
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return fmt.Errorf("sink: receive: %w", err)
		}
		now := gen.Monotonic()
		for _, m := range msgs[:n] {
			s.accounts[i].payload(m.Buffers[0][:m.N], inet.PayloadOffset+m.N, now)
		}
		if o.Slowed > 0 {
			time.Sleep(o.Slowed)
		}
	}
}

// Stop takes what is still in the rings, ends the threads and says what came.
func (s *Sink) Stop() (*Summary, error) {
	time.Sleep(20 * time.Millisecond) // what is on its way through the kernel
	s.stop()
	s.wg.Wait()
	sum, err := Sum(s.accounts)
	return sum, errors.Join(append(s.errs, err, s.close())...)
}

func (s *Sink) close() error {
	var errs []error
	if s.end != nil {
		errs = append(errs, s.end.Close())
	}
	for _, c := range s.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
