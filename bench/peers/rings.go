package peers

import (
	"errors"
	"fmt"

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
	umem  *xdp.UMEM
	area  []byte
	sock  *xdp.Socket
	steer *xdp.Steering
	descs [64]xdp.Desc
	spare []uint64
	sum   Counts
}

func startRings(on Target) (_ Peer, err error) {
	p := &rings{}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("rings: %w", err), p.release())
		}
	}()
	if p.umem, err = xdp.NewUMEM(xdp.UMEMOptions{Chunks: ringChunks, ChunkSize: 2048}); err != nil {
		return nil, err
	}
	p.area = p.umem.Bytes()
	if p.sock, err = p.umem.Open(xdp.SocketOptions{
		IfIndex: on.IfIndex, Queue: on.Queue, FillSize: ringFill, RxSize: 2048, TxSize: 2048, CompletionSize: 2048,
	}); err != nil {
		return nil, err
	}
	if p.steer, err = xdp.Attach(xdp.AttachOptions{IfIndex: on.IfIndex, Mode: xdp.Native}); err != nil {
		return nil, err
	}
	if err = errors.Join(p.steer.SetAddress(nicMAC, nicIP), p.steer.SetPorts([]uint16{nicPort}), p.steer.Bind(on.Queue, p.sock)); err != nil {
		return nil, err
	}
	p.spare = make([]uint64, 0, ringChunks)
	for i := range uint64(ringChunks) {
		p.spare = append(p.spare, i*2048)
	}
	for p.refill() > 0 {
	}
	step := p.drop
	if on.Task == Reflect {
		step = p.reflect
	}
	p.start(on.CPU, step)
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

func (p *rings) release() error {
	var errs []error
	if p.steer != nil {
		errs = append(errs, p.steer.Close())
	}
	if p.sock != nil {
		errs = append(errs, p.sock.Close())
	}
	if p.umem != nil {
		errs = append(errs, p.umem.Close())
	}
	return errors.Join(errs...)
}

func (p *rings) Stop() (Counts, error) {
	err := errors.Join(p.end(), p.release())
	return p.sum, err
}
