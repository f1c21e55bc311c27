package accl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// ask is how long an ARP request waits for its answer before it is sent again, at first and at most.
const (
	ask     = 100 * time.Millisecond
	askMost = time.Second
)

// Resolve finds the MAC addresses of all ranks that have none, by ARP from an interface in the calling thread's network
// namespace, and returns the ranks with them. own is who asks: the NIC's address, which the interface's kernel need not
// have. It asks until all have answered or ctx ends, so that it also waits for ranks that are not up yet. The answers go to
// own's MAC, past a NIC that runs on the interface, which takes only the questions.
func Resolve(ctx context.Context, ifname string, own accl.Peer, ranks []accl.Peer) ([]accl.Peer, error) {
	ranks = slices.Clone(ranks)
	ifi, err := net.InterfaceByName(ifname)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", ifname, err)
	}
	const arp = uint16(inet.EtherTypeARP>>8 | inet.EtherTypeARP&0xff<<8) // network order
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(arp))
	if err != nil {
		return nil, fmt.Errorf("packet socket on %s: %w", ifname, err)
	}
	defer unix.Close(s)
	at := &unix.SockaddrLinklayer{Protocol: arp, Ifindex: ifi.Index}
	promiscuous := unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}
	step := unix.NsecToTimeval(int64(10 * time.Millisecond))
	if err := errors.Join(unix.Bind(s, at),
		unix.SetsockoptPacketMreq(s, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous),
		unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &step)); err != nil {
		return nil, fmt.Errorf("packet socket on %s: %w", ifname, err)
	}
	missing := func() (ips []inet.Addr) {
		for _, p := range ranks {
			if p.MAC.IsZero() && p.IP != own.IP {
				ips = append(ips, p.IP)
			}
		}
		return ips
	}
	buf := make([]byte, 2048)
	var next time.Time
	for wait := ask; ; {
		open := missing()
		if len(open) == 0 {
			return ranks, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("no answer by ARP on %s from %v: %w", ifname, open, context.Cause(ctx))
		}
		if now := time.Now(); now.After(next) {
			for _, ip := range open {
				frame := make([]byte, 60)
				inet.PutARP(frame, inet.ARP{Op: inet.ARPRequest, SenderMAC: own.MAC, SenderIP: own.IP, TargetIP: ip})
				if err := unix.Sendto(s, frame, 0, at); err != nil {
					return nil, fmt.Errorf("ARP on %s: %w", ifname, err)
				}
			}
			next, wait = now.Add(wait), min(2*wait, askMost)
		}
		n, _, err := unix.Recvfrom(s, buf, 0)
		if err != nil {
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				continue
			}
			return nil, fmt.Errorf("ARP on %s: %w", ifname, err)
		}
		var a inet.ARP
		if inet.ParseARP(buf[:n], &a) != inet.OK || a.Op != inet.ARPReply || a.SenderMAC.IsMulticast() || a.SenderMAC.IsZero() {
			continue
		}
		for i := range ranks {
			if p := &ranks[i]; p.IP == a.SenderIP && p.MAC.IsZero() && p.IP != own.IP {
				p.MAC = a.SenderMAC
			}
		}
	}
}
