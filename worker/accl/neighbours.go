package accl

import (
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"gradnic/wire/inet"
)

// discard is the UDP port that RFC 863 gives to datagrams that nobody wants; a card's socket table has no entry for it.
const discard = 9

// neighbourTime bounds how long a rank waits for the hardware addresses of its peers.
const neighbourTime = 500 * time.Millisecond

// meetNeighbours has the kernel ask for the hardware addresses of the peers and waits until it knows them, for
// neighbourTime at most. While it does not, it keeps a few packets a neighbour and drops the oldest of a longer message,
// which nobody sends again on this wire. A peer that does not answer is not an error here: its rank may come later.
func meetNeighbours(own inet.Addr, peers []Peer) {
	if own[0] == 127 {
		return
	}
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: own[:]})
	if err != nil {
		return
	}
	defer conn.Close()
	wanted := map[inet.Addr]bool{}
	for _, p := range peers {
		if p.IP != own {
			wanted[p.IP] = true
			ip := p.IP
			_, _ = conn.WriteToUDP(nil, &net.UDPAddr{IP: ip[:], Port: discard})
		}
	}
	for until := time.Now().Add(neighbourTime); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		list, err := netlink.NeighList(0, netlink.FAMILY_V4)
		if err != nil {
			return
		}
		waiting := false
		for _, n := range list {
			if ip := n.IP.To4(); ip != nil && wanted[inet.Addr(ip)] && n.State&netlink.NUD_INCOMPLETE != 0 {
				waiting = true
			}
		}
		if !waiting {
			return
		}
	}
}
