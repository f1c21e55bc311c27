// Package endpoint opens what the bench's own AF_XDP programs need of one netdev (memory, sockets, the steering program)
// and closes it in the right order.
package endpoint

import (
	"errors"
	"fmt"

	"gradnic/xdp"
)

// Options describe an end.
type Options struct {
	Socket xdp.SocketOptions // of every queue; its Queue is the first one
	Queues int               // 0 means 1
	Chunks int               // of each queue
	Chunk  int               // bytes of one; 0 means 2048
	// Steer attaches the steering program in native mode, for all frames of the netdev; the caller may narrow that
	// down. Without it nothing is received.
	Steer bool
}

// Endpoint is an open end. Chunks i*Chunks to (i+1)*Chunks-1 of the UMEM are those of Sockets[i].
type Endpoint struct {
	UMEM     *xdp.UMEM
	Sockets  []*xdp.Socket
	Steering *xdp.Steering // nil without Steer
	chunks   int
	chunk    int
}

// Open opens the end; the calling thread is in the netdev's namespace. What failed half-way is closed.
func Open(o Options) (_ *Endpoint, err error) {
	if o.Queues == 0 {
		o.Queues = 1
	}
	if o.Chunk == 0 {
		o.Chunk = 2048
	}
	e := &Endpoint{chunks: o.Chunks, chunk: o.Chunk}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	if e.UMEM, err = xdp.NewUMEM(xdp.UMEMOptions{Chunks: o.Chunks * o.Queues, ChunkSize: o.Chunk}); err != nil {
		return nil, err
	}
	first := o.Socket.Queue
	for i := range o.Queues {
		o.Socket.Queue = first + i
		s, err := e.UMEM.Open(o.Socket)
		if err != nil {
			return nil, fmt.Errorf("queue %d: %w", o.Socket.Queue, err)
		}
		e.Sockets = append(e.Sockets, s)
	}
	if !o.Steer {
		return e, nil
	}
	e.Steering, err = xdp.Attach(xdp.AttachOptions{IfIndex: o.Socket.IfIndex, Mode: xdp.Native, MultiBuffer: o.Socket.MultiBuffer})
	if err != nil {
		return nil, err
	}
	if err := e.Steering.SetWholePort(true); err != nil {
		return nil, err
	}
	for i, s := range e.Sockets {
		if err := e.Steering.Bind(first+i, s); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Chunks are the addresses of the chunks of a socket, from the from-th on.
func (e *Endpoint) Chunks(socket, from int) []uint64 {
	addrs := make([]uint64, 0, e.chunks-from)
	for i := from; i < e.chunks; i++ {
		addrs = append(addrs, uint64(socket*e.chunks+i)*uint64(e.chunk))
	}
	return addrs
}

// Fill gives the chunks of a socket, from the from-th on, to the kernel to receive into.
func (e *Endpoint) Fill(socket, from int) error {
	addrs := e.Chunks(socket, from)
	if n := e.Sockets[socket].Fill(addrs); n != len(addrs) {
		return fmt.Errorf("the fill ring took %d of %d chunks", n, len(addrs))
	}
	return nil
}

// Close takes the program off the netdev, then closes the sockets, then frees the memory.
func (e *Endpoint) Close() error {
	var errs []error
	if e.Steering != nil {
		errs = append(errs, e.Steering.Close())
	}
	for _, s := range e.Sockets {
		errs = append(errs, s.Close())
	}
	if e.UMEM != nil {
		errs = append(errs, e.UMEM.Close())
	}
	return errors.Join(errs...)
}
