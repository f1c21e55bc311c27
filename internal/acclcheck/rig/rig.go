// Package rig gives tests of ACCL ranks a network: a namespace for each rank, all of them on one switch that takes the
// longest frames.
package rig

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// MTU is that of every interface.
const MTU = 9000

// Net is namespaces on a switch. Each has an interface of the name Interface.
type Net struct {
	Spaces []*netlab.NS
	Peers  []accl.Peer // the addresses of the ranks; MAC is that of the interface
	Switch *netlab.NS  // its ports are p0, p1 and so on
}

// Interface is the name of a rank's interface.
const Interface = "eth0"

// New makes the network for that many ranks. own says which ranks' addresses are the kernel's; the others' are left to
// whoever answers for them. nil is all.
func New(t testing.TB, ranks int, own func(rank int) bool) *Net {
	t.Helper()
	lab := netlabtest.New(t, "accl")
	n := &Net{Switch: netlabtest.Namespace(t, lab, "switch")}
	var ports []string
	for r := range ranks {
		p := accl.Peer{IP: inet.Addr{10, 10, 10, byte(r + 1)}, MAC: inet.MAC{2, 0, 0, 0, 0x55, byte(r + 1)}}
		ns := netlabtest.Namespace(t, lab, fmt.Sprint("r", r))
		end := netlab.End{NS: ns, Name: Interface, MAC: p.MAC.String(), MTU: MTU, NoChecksumOffload: true}
		if own == nil || own(r) {
			end.Addr = p.IP.String() + "/24"
		}
		port := fmt.Sprint("p", r)
		netlabtest.Veth(t, lab, end, netlab.End{NS: n.Switch, Name: port, MTU: MTU})
		ports = append(ports, port)
		n.Spaces, n.Peers = append(n.Spaces, ns), append(n.Peers, p)
	}
	if err := n.Switch.Bridge("br0", MTU, ports...); err != nil {
		t.Fatal(err)
	}
	// The kernel makes links and the bridge's ports ready in the background, and drops what is sent before.
	up(t, n.Switch, "br0")
	for r, ns := range n.Spaces {
		up(t, ns, Interface)
		up(t, n.Switch, fmt.Sprint("p", r))
	}
	return n
}

// up waits until a link carries frames.
func up(t testing.TB, ns *netlab.NS, name string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		link, err := ns.Netlink().LinkByName(name)
		if err != nil {
			t.Fatalf("link %s: %v", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("link %s is %v", name, link.Attrs().OperState)
		}
	}
}

// UDP opens a rank on a socket in its namespace.
func (n *Net) UDP(t testing.TB, cfg accl.Config) *accl.UDP {
	t.Helper()
	var u *accl.UDP
	if err := n.Spaces[cfg.Rank].Do(func() (err error) {
		u, err = accl.Listen(cfg)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	})
	return u
}
