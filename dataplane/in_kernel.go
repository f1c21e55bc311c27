package dataplane

import (
	"fmt"

	"gradnic/xdp"
)

// setKernelFunction lets the steering program of a port do what its new function asks of it, and sets the function. n.mu is
// held.
func (n *NIC) setKernelFunction(p *port, f Function) error {
	if f.InKernel {
		if _, ok := p.spec.(XDPPort); !ok {
			return fmt.Errorf("port %s: %v: it is no netdev, and no steering program sees its frames", p.name, f)
		}
		if p.impair != nil {
			return conflictf("port %s: %v: its frames would come to no lane that could impair them", p.name, f)
		}
	}
	old := p.function
	p.function = f
	err := n.givePortSums(p)
	if err == nil && (f.InKernel || old.InKernel) {
		err = n.giveAnswer(p)
	}
	if err != nil {
		p.function = old
	}
	return err
}

// giveAnswer tells the steering program of an open port what to do by itself. A port that is made again gets it again,
// with a new account. n.mu is held.
func (n *NIC) giveAnswer(p *port) error {
	if p.open == nil || p.open.answer == nil {
		return nil
	}
	a := xdp.ToSocket
	if p.function.InKernel {
		switch p.function.Kind {
		case Sink:
			a = xdp.SinkHere
		case Reflect:
			a = xdp.ReflectHere
		}
	}
	if err := p.open.answer(a, a != xdp.ToSocket && p.function.Pktgen); err != nil {
		return fmt.Errorf("port %s: %v: %w", p.name, p.function, err)
	}
	return nil
}
