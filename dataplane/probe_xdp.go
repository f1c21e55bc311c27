package dataplane

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// AddressProbe asks a network who has an address (RFC 5227), before a NIC there has it.
type AddressProbe struct {
	Interface string

	ip     inet.Addr
	socket int
}

// Probe sends the question out of the port's netdev. Close ends it.
func (p XDPPort) Probe(ip inet.Addr) (*AddressProbe, error) {
	a := &AddressProbe{Interface: p.Interface, ip: ip, socket: -1}
	err := p.inNamespace(func() error {
		ifi, err := net.InterfaceByName(p.Interface)
		if err != nil {
			return err
		}
		if len(ifi.HardwareAddr) != len(inet.MAC{}) {
			return errors.New("it has no Ethernet address")
		}
		const arp = uint16(inet.EtherTypeARP>>8 | inet.EtherTypeARP&0xff<<8) // network order
		if a.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(arp)); err != nil {
			return fmt.Errorf("packet socket: %w", err)
		}
		at := &unix.SockaddrLinklayer{Protocol: arp, Ifindex: ifi.Index}
		frame := make([]byte, 60)
		inet.PutARP(frame, inet.ARP{Op: inet.ARPRequest, SenderMAC: inet.MAC(ifi.HardwareAddr), TargetIP: ip})
		return errors.Join(unix.Bind(a.socket, at), unix.Sendto(a.socket, frame, 0, at))
	})
	if err != nil {
		_ = a.Close()
		return nil, fmt.Errorf("interface %s: who has %v: %w", p.Interface, ip, err)
	}
	return a, nil
}

// Answers are the stations that have said so far that the address is theirs.
func (a *AddressProbe) Answers() (all []inet.MAC) {
	buf := make([]byte, 2048)
	for {
		n, _, err := unix.Recvfrom(a.socket, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil { // nothing more, or the netdev has gone
			return all
		}
		var m inet.ARP
		if inet.ParseARP(buf[:n], &m) == inet.OK && m.SenderIP == a.ip && !slices.Contains(all, m.SenderMAC) {
			all = append(all, m.SenderMAC)
		}
	}
}

// Close ends the probe.
func (a *AddressProbe) Close() error {
	if a.socket < 0 {
		return nil
	}
	return unix.Close(a.socket)
}
