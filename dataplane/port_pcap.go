package dataplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"gradnic/xdp"
)

// PcapPort reads a capture (pcap or pcapng, Ethernet) as ingress, in its order and as fast as the lane takes it, and
// writes what the NIC transmits to another (pcap, nanoseconds). Several lanes share one reader: lane 0 has the
// ingress.
type PcapPort struct {
	// Name is the port's name.
	Name string
	// Read is the capture to read; empty is no ingress. Write is the capture to make; empty discards egress.
	Read, Write string

	once sync.Once
	done chan struct{}
	err  error
}

// Done is closed when the whole capture was given to the NIC (at once without one), or reading it failed.
func (p *PcapPort) Done() <-chan struct{} {
	p.once.Do(func() { p.done = make(chan struct{}) })
	return p.done
}

// Err tells, after Done is closed, why reading ended early; nil when it did not.
func (p *PcapPort) Err() error {
	select {
	case <-p.Done():
		return p.err
	default:
		return nil
	}
}

func (p *PcapPort) portName() string                  { return p.Name }
func (p *PcapPort) portKind() string                  { return "pcap" }
func (p *PcapPort) queueCount(lanes int) (int, error) { return lanes, nil }

// packetReader is what pcap's and pcapng's readers have in common.
type packetReader interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
	LinkType() layers.LinkType
}

// pcapShared is the files, shared by the port's queues.
type pcapShared struct {
	port   *PcapPort
	in     *os.File
	reader packetReader
	tooBig atomic.Uint64
	go_    atomic.Bool // ingress has started
	ended  atomic.Bool
	wake   func()

	mu     sync.Mutex // lanes write in turn
	out    *os.File
	buffer *bufio.Writer
	writer *pcapgo.Writer
	werr   error
}

func (p *PcapPort) open(e *environment) (*openPort, error) {
	s := &pcapShared{port: p, wake: func() { e.wake(0) }}
	if err := s.openFiles(); err != nil {
		return nil, errors.Join(err, s.close())
	}
	open := &openPort{
		attach: func() error { s.start(); return nil },
		detach: func() error { s.end(nil); return nil },
		close:  s.close,
		statistics: func() (KernelStatistics, error) {
			return KernelStatistics{RxDropped: s.tooBig.Load()}, nil
		},
	}
	area := e.umem.Bytes()
	for q := range e.cfg.Lanes {
		open.queues = append(open.queues, &pcapQueue{
			shared: s, area: area, first: q == 0, chunk: uint64(e.cfg.ChunkSize),
			room: e.umem.MaxFrame(), longest: e.longest, offset: uint64(e.umem.Headroom()),
			fill: newSPSC[uint64](e.cfg.FramesPerQueue), done: newSPSC[uint64](e.cfg.FramesPerQueue / 2),
		})
	}
	return open, nil
}

func (s *pcapShared) openFiles() (err error) {
	if name := s.port.Read; name != "" {
		if s.in, err = os.Open(name); err != nil {
			return err
		}
		if s.reader, err = newPacketReader(s.in); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if lt := s.reader.LinkType(); lt != layers.LinkTypeEthernet {
			return fmt.Errorf("read %s: link type %v, Ethernet is needed", name, lt)
		}
	}
	if name := s.port.Write; name != "" {
		if s.out, err = os.Create(name); err != nil {
			return err
		}
		s.buffer = bufio.NewWriterSize(s.out, 1<<16)
		s.writer = pcapgo.NewWriterNanos(s.buffer)
		if err := s.writer.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// newPacketReader tells pcap and pcapng apart by their first bytes.
func newPacketReader(f io.Reader) (packetReader, error) {
	b := bufio.NewReaderSize(f, 1<<16)
	magic, err := b.Peek(4)
	if err != nil {
		return nil, err
	}
	if string(magic) == "\x0a\x0d\x0d\x0a" {
		return pcapgo.NewNgReader(b, pcapgo.DefaultNgReaderOptions)
	}
	return pcapgo.NewReader(b)
}

func (s *pcapShared) start() {
	if s.reader == nil {
		s.end(nil)
		return
	}
	s.go_.Store(true)
	s.wake()
}

// end closes Done, once.
func (s *pcapShared) end(err error) {
	if s.ended.Swap(true) {
		return
	}
	done := s.port.Done()
	if err != nil && !errors.Is(err, io.EOF) {
		s.port.err = fmt.Errorf("read %s: %w", s.port.Read, err)
	}
	_ = done
	close(s.port.done)
}

func (s *pcapShared) close() error {
	s.end(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{s.werr}
	if s.buffer != nil {
		errs = append(errs, s.buffer.Flush())
		s.buffer, s.writer = nil, nil
	}
	for _, f := range []**os.File{&s.in, &s.out} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	return errors.Join(errs...)
}

func (s *pcapShared) write(frame []byte) {
	if s.writer == nil || s.werr != nil {
		return
	}
	ci := gopacket.CaptureInfo{Timestamp: time.Now(), CaptureLength: len(frame), Length: len(frame)}
	if err := s.writer.WritePacket(ci, frame); err != nil {
		s.werr = fmt.Errorf("write %s: %w", s.port.Write, err)
	}
}

// pcapQueue plays the kernel's part itself, on the lane's thread.
type pcapQueue struct {
	shared  *pcapShared
	area    []byte
	first   bool
	chunk   uint64
	room    int // bytes that a chunk takes
	longest int // longest frame
	offset  uint64
	ahead   []byte // a packet that was read and found no chunks yet
	whole   []byte // a frame of several chunks, for the writer
	fill    *spsc[uint64]
	done    *spsc[uint64]
}

func (q *pcapQueue) Fill(addrs []uint64) int   { return q.fill.push(addrs) }
func (q *pcapQueue) Complete(out []uint64) int { return q.done.pop(out) }
func (q *pcapQueue) Kick() error               { return nil }
func (q *pcapQueue) TxPending() int            { return 0 }
func (q *pcapQueue) WakeReceive() error        { return nil }
func (q *pcapQueue) FD() int                   { return -1 }

// Pending implements queue: there is always more until the capture ends.
func (q *pcapQueue) Pending() bool {
	return q.first && q.shared.go_.Load() && !q.shared.ended.Load() || !q.done.empty()
}

// Receive reads the next packets. One that is longer than a chunk, or was cut by the capture to nothing, is passed
// over and counted as the kernel would.
func (q *pcapQueue) Receive(out []Desc) int {
	s := q.shared
	if !q.first || !s.go_.Load() || s.ended.Load() {
		return 0
	}
	n := 0
	for n < len(out) && !q.fill.empty() {
		data := q.ahead
		if data == nil {
			var err error
			if data, _, err = s.reader.ZeroCopyReadPacketData(); err != nil {
				s.end(err)
				break
			}
		}
		if len(data) == 0 || len(data) > q.longest {
			s.tooBig.Add(1)
			continue
		}
		pieces := (len(data) + q.room - 1) / q.room
		if n+pieces > len(out) || q.fill.len() < pieces {
			q.ahead = data // good until the next read
			break
		}
		q.ahead = nil
		for ; len(data) > 0; n++ {
			var a [1]uint64
			q.fill.pop(a[:])
			addr := a[0]&^(q.chunk-1) + q.offset
			k := copy(q.area[addr:][:q.room], data)
			data = data[k:]
			out[n] = Desc{Addr: addr, Len: uint32(k), Options: xdp.PacketContinues}
		}
		out[n-1].Options = 0
	}
	return n
}

// Transmit writes the frames at once.
func (q *pcapQueue) Transmit(d []Desc) int {
	s := q.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, x := range d {
		if q.done.full() {
			break
		}
		piece := q.area[x.Addr : x.Addr+uint64(x.Len)]
		switch more := x.Options&xdp.PacketContinues != 0; {
		case more || len(q.whole) > 0:
			q.whole = append(q.whole, piece...)
			if !more {
				s.write(q.whole)
				q.whole = q.whole[:0]
			}
		default:
			s.write(piece)
		}
		q.done.push([]uint64{x.Addr})
		n++
	}
	return n
}
