package peers

import (
	"errors"
	"fmt"

	"gradnic/aggregation/kernel"
	"gradnic/bench/endpoint"
	"gradnic/xdp"
)

// Address of the virtual NIC that the bench's frames are for.
var (
	nicMAC = [6]byte{0x06, 0, 0, 0, 0, 0xfe}
	nicIP  = [4]byte{10, 50, 0, 254}
)

const nicPort = 0xBEE0

// What circulates is little, so that the copy of the softirq stays in its core's second-level cache: 512 chunks were the
// fastest of 512 to 4096 for frames of 1066 bytes. The fill ring is larger than that, since a frame is seen before its
// fill entry is free again.
const (
	ringChunks = 512
	ringFill   = 1024
)

// rings is gradnic's engine without its data plane: package xdp behind the real steering program.
type rings struct {
	loop
	end   *endpoint.Endpoint
	area  []byte
	sock  *xdp.Socket
	descs [64]xdp.Desc
	spare []uint64
	sum   Counts
}

func startRings(on Target) (Peer, error) {
	p, err := newRings(on)
	if err != nil {
		return nil, err
	}
	p.start(on.CPU, on.step(p.drop, p.reflect))
	return p, nil
}

func newRings(on Target) (*rings, error) {
	end, err := endpoint.Open(endpoint.Options{
		Socket: xdp.SocketOptions{IfIndex: on.IfIndex, Queue: on.Queue, FillSize: ringFill, RxSize: 2048, TxSize: 2048, CompletionSize: 2048},
		Chunks: ringChunks, Steer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("rings: %w", err)
	}
	// The NIC's own way: what is for its address and port.
	if err := errors.Join(end.Steering.SetAddress(nicMAC, nicIP), end.Steering.SetPorts([]uint16{nicPort}), end.Steering.SetWholePort(false)); err != nil {
		return nil, errors.Join(fmt.Errorf("rings: %w", err), end.Close())
	}
	p := &rings{end: end, area: end.UMEM.Bytes(), sock: end.Sockets[0], spare: end.Chunks(0, 0)}
	for p.refill() > 0 {
	}
	return p, nil
}

// refill gives spare chunks to the kernel, the last ones first since they are the ones in the cache, and returns how
// many it took.
func (p *rings) refill() int {
	n := min(len(p.spare), 256)
	took := p.sock.Fill(p.spare[len(p.spare)-n:])
	// Fill takes from the front: what it left moves down over what it took.
	rest := p.spare[len(p.spare)-n+took:]
	p.spare = append(p.spare[:len(p.spare)-n], rest...)
	return took
}

func (p *rings) drop() error {
	n := p.sock.Receive(p.descs[:])
	if n == 0 {
		return nil
	}
	p.sum.Received += uint64(n)
	p.sock.FillDescs(p.descs[:n])
	return nil
}

func (p *rings) reflect() error {
	// Room for what comes back is made first, so that a full transmit ring is the only reason to lose.
	if n := p.sock.Complete(p.spare[len(p.spare):cap(p.spare)]); n > 0 {
		p.spare = p.spare[:len(p.spare)+n]
	}
	if len(p.spare) >= 64 {
		p.refill()
	}
	n := p.sock.Receive(p.descs[:])
	if n == 0 {
		return p.sock.Kick()
	}
	p.sum.Received += uint64(n)
	// The kernel copies each frame when it sends it, and another core has written it: asked for together the lines come
	// at the price of few.
	for _, d := range p.descs[:n] {
		kernel.Prefetch(p.area[d.Addr : d.Addr+uint64(d.Len)])
	}
	for _, d := range p.descs[:n] {
		swapMACs(p.area[d.Addr : d.Addr+uint64(d.Len)])
	}
	sent := p.sock.Transmit(p.descs[:n])
	p.sum.Returned += uint64(sent)
	p.sum.Lost += uint64(n - sent)
	for _, d := range p.descs[sent:n] {
		p.spare = append(p.spare, d.Addr)
	}
	return p.sock.Kick()
}

func (p *rings) Stop() (Counts, error) {
	err := errors.Join(p.loop.end(), p.end.Close()) // in this order: the thread uses the rings
	return p.sum, err
}
