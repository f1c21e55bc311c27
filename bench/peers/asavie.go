package peers

import (
	"errors"
	"fmt"
	"time"

	"github.com/asavie/xdp"
)

type asavie struct {
	loop
	prog *xdp.Program
	sock *xdp.Socket
	on   Target
	sum  Counts
}

// startAsavie starts a receiver on the asavie/xdp library.
//
// Its documented loop searches the list of free frames for each refill; this one hands back the descriptors it just
// received, which is the library's fastest way to receive. When it reflects, frames come back only through that
// search, since Complete does not tell which frames were completed. It leaves its rings mapped when it closes, so the
// queue is free only when the process ends.
func startAsavie(on Target) (Peer, error) {
	opts := &xdp.SocketOptions{
		NumFrames: 4096, FrameSize: 2048,
		FillRingNumDescs: 4096, RxRingNumDescs: 2048,
		TxRingNumDescs: 2048, CompletionRingNumDescs: 2048,
	}
	if on.Task == Reflect {
		// A short list of frames keeps its linear search short.
		opts.NumFrames, opts.FillRingNumDescs, opts.RxRingNumDescs = 1024, 512, 512
		opts.TxRingNumDescs, opts.CompletionRingNumDescs = 512, 512
	}
	p, err := openAsavie(on, opts)
	if err != nil {
		return nil, err
	}
	p.start(on.CPU, on.step(p.drop, p.reflect))
	return p, nil
}

// startAsavieExample starts a receiver on the asavie/xdp library as its README and its example l2fwd use it: default
// options, fill what is free, poll, receive; to reflect, transmit what there is room for and lose the rest. Unlike the
// example it sends frames back without a copy, since it has one socket.
func startAsavieExample(on Target) (Peer, error) {
	p, err := openAsavie(on, nil)
	if err != nil {
		return nil, err
	}
	p.start(on.CPU, p.example)
	return p, nil
}

// openAsavie opens a queue; nil options are the library's own.
func openAsavie(on Target, opts *xdp.SocketOptions) (*asavie, error) {
	p := &asavie{on: on}
	var err error
	if p.prog, err = xdp.NewProgram(on.Queue + 1); err != nil {
		return nil, fmt.Errorf("asavie: load its program: %w", err)
	}
	if err = p.prog.Attach(on.IfIndex); err != nil {
		p.prog.Close()
		return nil, fmt.Errorf("asavie: attach to %s: %w", on.Interface, err)
	}
	// The kernel may still hold the queue of the contestant before; the library's error does not tell EBUSY apart.
	for end := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		if p.sock, err = xdp.NewSocket(on.IfIndex, on.Queue, opts); err == nil || time.Now().After(end) {
			break
		}
	}
	if err == nil {
		err = p.prog.Register(on.Queue, p.sock.FD())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("asavie: open queue %d of %s: %w", on.Queue, on.Interface, err), p.close())
	}
	p.sock.Fill(p.sock.GetDescs(p.sock.NumFreeFillSlots()))
	return p, nil
}

func (p *asavie) example() error {
	p.sock.Fill(p.sock.GetDescs(p.sock.NumFreeFillSlots()))
	n, _, err := p.sock.Poll(100) // the example waits for ever, this one must end
	if err != nil {
		return fmt.Errorf("asavie: poll: %w", err)
	}
	if n == 0 {
		return nil
	}
	descs := p.sock.Receive(n)
	p.sum.Received += uint64(len(descs))
	if p.on.Task != Reflect {
		return nil
	}
	for _, d := range descs {
		swapMACs(p.sock.GetFrame(d))
	}
	sent := p.sock.Transmit(descs[:min(len(descs), p.sock.NumFreeTxSlots())])
	p.sum.Returned += uint64(sent)
	p.sum.Lost += uint64(len(descs) - sent)
	return nil
}

func (p *asavie) drop() error {
	n := p.sock.NumReceived()
	if n == 0 {
		return nil
	}
	descs := p.sock.Receive(n)
	p.sum.Received += uint64(len(descs))
	p.sock.Fill(descs)
	return nil
}

func (p *asavie) reflect() error {
	if n := p.sock.NumCompleted(); n > 0 {
		p.sock.Complete(n)
	}
	if n := p.sock.NumFreeFillSlots(); n >= 64 {
		p.sock.Fill(p.sock.GetDescs(n))
	}
	n := p.sock.NumReceived()
	if n == 0 {
		return nil
	}
	descs := p.sock.Receive(n)
	p.sum.Received += uint64(len(descs))
	for _, d := range descs {
		swapMACs(p.sock.GetFrame(d))
	}
	sent := p.sock.Transmit(descs)
	p.sum.Returned += uint64(sent)
	p.sum.Lost += uint64(len(descs) - sent)
	return nil
}

// close takes the program off the netdev; without a socket when opening it failed.
func (p *asavie) close() error {
	var errs []error
	if p.sock != nil {
		errs = append(errs, p.sock.Close())
	}
	return errors.Join(append(errs, p.prog.Detach(p.on.IfIndex), p.prog.Close())...)
}

func (p *asavie) Stop() (Counts, error) {
	err := errors.Join(p.end(), p.close())
	return p.sum, err
}

func swapMACs(f []byte) {
	var m [6]byte
	copy(m[:], f[:6])
	copy(f[:6], f[6:12])
	copy(f[6:12], m[:])
}
