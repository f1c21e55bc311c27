package datagram

import (
	"sync"
	"sync/atomic"
	"time"
)

// Beside is a Transport for a worker whose results go to a multicast group: it waits for those, and takes the few that
// are for this worker alone, asked for again, as they come. It sends by the worker's own socket.
type Beside struct {
	own, group Transport
	closing    atomic.Bool
	done       chan struct{} // the reader of own has ended

	mu   sync.Mutex
	came [][]byte // payloads of own, copied
	err  error    // that ended the reader
	got  [][]byte // that Recv returned last
}

// besideMost bounds what waits to be taken; what comes beyond is lost, and asked for again.
const besideMost = 4 * Burst

// NewBeside takes two transports over: own, which reaches the NIC, and group, which hears what goes to the group.
func NewBeside(own, group Transport) *Beside {
	b := &Beside{own: own, group: group, done: make(chan struct{})}
	go b.read()
	return b
}

// read brings what own receives to Recv.
func (b *Beside) read() {
	defer close(b.done)
	for !b.closing.Load() {
		got, err := b.own.Recv(time.Now().Add(time.Minute))
		if len(got) == 0 && err == nil {
			continue
		}
		b.mu.Lock()
		for _, p := range got {
			if len(b.came) < besideMost {
				b.came = append(b.came, append([]byte(nil), p...))
			}
		}
		b.err = err
		b.mu.Unlock()
		b.group.Wake()
		if err != nil {
			return
		}
	}
}

// Send implements Transport.
func (b *Beside) Send(frames [][]byte) error { return b.own.Send(frames) }

// Recv implements Transport.
func (b *Beside) Recv(until time.Time) ([][]byte, error) {
	if got, err := b.take(); len(got) > 0 || err != nil {
		return got, err
	}
	if got, err := b.group.Recv(until); len(got) > 0 || err != nil {
		return got, err
	}
	return b.take()
}

// take is what the reader has brought.
func (b *Beside) take() ([][]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.came), Burst)
	if n == 0 {
		return nil, b.err
	}
	b.got = append(b.got[:0], b.came[:n]...)
	b.came = append(b.came[:0], b.came[n:]...)
	return b.got, nil
}

// Wake implements Transport.
func (b *Beside) Wake() { b.group.Wake() }

// Faults implements Transport.
func (b *Beside) Faults() Faults {
	f, g := b.own.Faults(), b.group.Faults()
	f.Foreign, f.Socket = f.Foreign+g.Foreign, f.Socket+g.Socket
	if f.Last == nil {
		f.Last = g.Last
	}
	return f
}

// Close implements Transport; both are closed.
func (b *Beside) Close() error {
	b.closing.Store(true)
	b.own.Wake()
	err := b.own.Close()
	<-b.done
	if e := b.group.Close(); err == nil {
		err = e
	}
	return err
}
