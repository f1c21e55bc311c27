package peers

import (
	"errors"
	"fmt"
	"time"

	"github.com/gopacket/gopacket/afpacket"
)

// packet receives by AF_PACKET, version 3 of its ring, as gopacket/afpacket sets it up.
type packet struct {
	loop
	ring *afpacket.TPacket
	on   Target
	sum  Counts
}

func startPacket(on Target) (Peer, error) {
	ring, err := afpacket.NewTPacket(
		afpacket.OptInterface(on.Interface), afpacket.TPacketVersion3, afpacket.OptFrameSize(2048), afpacket.OptBlockSize(1<<20), afpacket.OptNumBlocks(16),
		afpacket.OptBlockTimeout(time.Millisecond), afpacket.OptPollTimeout(10*time.Millisecond),
	)
	if err != nil {
		return nil, fmt.Errorf("packet: open %s: %w", on.Interface, err)
	}
	p := &packet{ring: ring, on: on}
	p.start(on.CPU, p.step)
	return p, nil
}

func (p *packet) step() error {
	// In batches, so that the loop's own look at its end costs little.
	for range 64 {
		frame, info, err := p.ring.ZeroCopyReadPacketData()
		if errors.Is(err, afpacket.ErrTimeout) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("packet: receive: %w", err)
		}
		// What it sends itself comes past it as well; only the NIC's MAC is for it.
		if info.InterfaceIndex != p.on.IfIndex || len(frame) < 14 || [6]byte(frame) != nicMAC {
			continue
		}
		p.sum.Received++
		if p.on.Task != Reflect {
			continue
		}
		swapMACs(frame)
		if err := p.ring.WritePacketData(frame); err != nil {
			p.sum.Lost++
			continue
		}
		p.sum.Returned++
	}
	return nil
}

func (p *packet) Stop() (Counts, error) {
	err := p.end()
	p.ring.Close()
	return p.sum, err
}
