package netlab

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// End describes one end of a veth pair.
type End struct {
	NS     *NS    // the namespace that the end lives in
	Name   string // the interface's name, 1 to 15 characters
	MAC    string // hardware address, "02:00:00:00:00:01"; "": the kernel's choice
	Addr   string // IPv4 address with prefix length, "10.50.0.2/24"; "": none
	MTU    int    // bytes of layer 3; 0: 1500
	Queues int    // receive and transmit queues each; 0: 1

	// NoChecksumOffload makes the kernel finish UDP and TCP checksums before it hands a packet to the link. Otherwise
	// AF_XDP on the other end sees only the pseudo-header's sum in packets of local sockets, as veth passes packets on
	// with the checksum still to do.
	NoChecksumOffload bool
}

func (e End) check() error {
	switch {
	case e.NS == nil:
		return fmt.Errorf("end %q has no namespace", e.Name)
	case len(e.Name) == 0 || len(e.Name) > unix.IFNAMSIZ-1:
		return fmt.Errorf("interface name %q: want 1 to %d characters", e.Name, unix.IFNAMSIZ-1)
	case e.MTU < 0 || e.Queues < 0:
		return fmt.Errorf("end %s: negative MTU or queues", e.Name)
	}
	if e.MAC != "" {
		if mac, err := net.ParseMAC(e.MAC); err != nil || len(mac) != 6 {
			return fmt.Errorf("end %s: hardware address %q", e.Name, e.MAC)
		}
	}
	if e.Addr != "" {
		if _, err := netlink.ParseAddr(e.Addr); err != nil {
			return fmt.Errorf("end %s: address %q: %w", e.Name, e.Addr, err)
		}
	}
	return nil
}

// Veth connects two namespaces of the lab (or one with itself) by a veth pair, both ends up.
func (l *Lab) Veth(a, b End) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("netlab: veth %s - %s: the lab is closed", a.Name, b.Name)
	}
	return veth(a, b)
}

func veth(a, b End) error {
	if err := errors.Join(a.check(), b.check()); err != nil {
		return fmt.Errorf("netlab: veth: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = a.Name
	attrs.MTU = orDefault(a.MTU, 1500)
	attrs.NumTxQueues, attrs.NumRxQueues = orDefault(a.Queues, 1), orDefault(a.Queues, 1)
	attrs.HardwareAddr = hardwareAddr(a.MAC)
	pair := netlink.NewVeth(attrs)
	pair.PeerName = b.Name
	pair.PeerHardwareAddr = hardwareAddr(b.MAC)
	pair.PeerNamespace = netlink.NsFd(b.NS.FD())
	pair.PeerMTU = uint32(orDefault(b.MTU, 1500))
	pair.PeerNumTxQueues, pair.PeerNumRxQueues = uint32(orDefault(b.Queues, 1)), uint32(orDefault(b.Queues, 1))
	if err := a.NS.Netlink().LinkAdd(pair); err != nil {
		return fmt.Errorf("netlab: veth %s in %s - %s in %s: %w", a.Name, a.NS.name, b.Name, b.NS.name, err)
	}
	// GRO is on at both ends before one is up: a veth that comes up looks at its peer then, and sends live and redirected frames
	// to one without GRO only once that has had an XDP program.
	for _, step := range []func(End) error{End.setFeatures, End.bringUp} {
		for _, e := range []End{a, b} {
			if err := step(e); err != nil {
				return fmt.Errorf("netlab: veth %s in %s: %w", e.Name, e.NS.name, err)
			}
		}
	}
	return nil
}

func (e End) setFeatures() error {
	features := map[string]bool{"rx-gro": true}
	if e.NoChecksumOffload {
		features["tx-checksum-ip-generic"] = false
	}
	return e.NS.SetFeatures(e.Name, features)
}

func (e End) bringUp() error {
	link, err := e.NS.Netlink().LinkByName(e.Name)
	if err != nil {
		return fmt.Errorf("find link: %w", err)
	}
	if e.Addr != "" {
		addr, err := netlink.ParseAddr(e.Addr)
		if err != nil {
			return fmt.Errorf("address %q: %w", e.Addr, err)
		}
		if err := e.NS.Netlink().AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", e.Addr, err)
		}
	}
	if err := e.NS.Netlink().LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// SetFeatures turns device features on and off by the names that `ethtool -k` shows in the kernel's spelling, such as
// "rx-gro", "tx-checksum-ip-generic" or "tx-tcp-segmentation".
func (ns *NS) SetFeatures(iface string, features map[string]bool) error {
	return ns.Do(func() error {
		eth, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("open ethtool: %w", err)
		}
		defer eth.Close()
		if err := eth.Change(iface, features); err != nil {
			return fmt.Errorf("set features of %s: %w", iface, err)
		}
		return nil
	})
}

// Features returns the device features of an interface that are on.
func (ns *NS) Features(iface string) (on map[string]bool, err error) {
	err = ns.Do(func() error {
		eth, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("open ethtool: %w", err)
		}
		defer eth.Close()
		on, err = eth.Features(iface)
		return err
	})
	return on, err
}

// LimitedVeth connects two namespaces by a link of rateBits bits per second in each direction: a veth pair, a bridge
// in a namespace of its own, a veth pair. Token bucket filters on the bridge's ports shape what leaves towards a and
// towards b. Their rate counts Ethernet frames without preamble, gap and FCS. The queue before each holds 20 ms at the
// rate, at least 256 KiB, and drops what does not fit.
func (l *Lab) LimitedVeth(a, b End, rateBits uint64) error {
	if rateBits < 8000 {
		return fmt.Errorf("netlab: limited veth %s - %s: rate %d bit/s: want at least 8000", a.Name, b.Name, rateBits)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return fmt.Errorf("netlab: limited veth %s - %s: the lab is closed", a.Name, b.Name)
	}
	mid, err := l.namespace(fmt.Sprintf("bridge%d", l.bridges))
	if err != nil {
		return err
	}
	l.bridges++
	portA := End{NS: mid, Name: "a", MTU: a.MTU, Queues: a.Queues}
	portB := End{NS: mid, Name: "b", MTU: b.MTU, Queues: b.Queues}
	if err := veth(a, portA); err != nil {
		return err
	}
	if err := veth(b, portB); err != nil {
		return err
	}
	if err := mid.Bridge("br0", 0, portA.Name, portB.Name); err != nil {
		return err
	}
	if err := mid.Do(withoutFilters); err != nil {
		return fmt.Errorf("netlab: bridge in %s: %w", mid.name, err)
	}
	for _, p := range []string{portA.Name, portB.Name} {
		if err := shape(mid, p, rateBits); err != nil {
			return fmt.Errorf("netlab: limit port %s in %s to %d bit/s: %w", p, mid.name, rateBits, err)
		}
	}
	return nil
}

// withoutFilters keeps netfilter from looking at what the calling thread's namespace bridges, which costs every packet of a link,
// where the module br_netfilter is loaded and on by default.
func withoutFilters() error {
	for _, what := range []string{"arptables", "iptables", "ip6tables"} {
		if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+what, []byte("0"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("keep netfilter off: %w", err)
		}
	}
	return nil
}

// Bridge makes a bridge of interfaces that are in the namespace, and sets it up: a switch that sends multicast to all ports.
// mtu is the bridge's own; 0 is the kernel's choice.
func (ns *NS) Bridge(name string, mtu int, ports ...string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("netlab: bridge %s in %s: %w", name, ns.name, err)
		}
	}()
	nl := ns.Netlink()
	if nl == nil {
		return errors.New("the lab is closed")
	}
	off := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	br := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}
	if err := nl.LinkAdd(br); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	for _, p := range ports {
		link, err := nl.LinkByName(p)
		if err != nil {
			return fmt.Errorf("find port %s: %w", p, err)
		}
		if err := nl.LinkSetMaster(link, br); err != nil {
			return fmt.Errorf("add port %s: %w", p, err)
		}
	}
	if err := nl.LinkSetUp(br); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// shape puts a token bucket filter on an interface's egress. The bucket holds 1 ms at the rate, at least 16 KiB: long
// enough for the timers of a busy machine, short beside anything that is measured.
func shape(ns *NS, iface string, rateBits uint64) error {
	link, err := ns.Netlink().LinkByName(iface)
	if err != nil {
		return fmt.Errorf("find link: %w", err)
	}
	rate := rateBits / 8
	bucket := max(rate/1000, 16<<10)
	queue := max(rate/50, 256<<10)
	return ns.Netlink().QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: link.Attrs().Index,
			Handle:    netlink.MakeHandle(1, 0),
			Parent:    netlink.HANDLE_ROOT,
		},
		Rate:   rate,
		Limit:  uint32(min(bucket+queue, 1<<31)),
		Buffer: netlink.Xmittime(rate, uint32(min(bucket, 1<<30))),
	})
}

func hardwareAddr(s string) net.HardwareAddr {
	mac, err := net.ParseMAC(s)
	if err != nil {
		return nil // "" is the kernel's choice; anything else was refused by End.check
	}
	return mac
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}
