package doctor

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"gradnic/xdp"
)

// steeringProgram is how the names of the programs begin that gradnic attaches.
const steeringProgram = "steer"

// ethernetHeader and vlanTag are what a frame has beside its payload.
const (
	ethernetHeader = 14
	vlanTag        = 4
)

// netdev is what is known of one interface. Functions that judge take nothing else.
type netdev struct {
	name       string
	driver     string // empty: it does not say
	kind       string // veth, bond, ...; empty for hardware
	master     string
	mtu        int
	up         bool
	carrier    bool
	known      bool   // the kernel tells features
	features   uint64 // XDP
	segments   uint32 // of a zero-copy frame
	channels   int    // receive queues, 0: not told
	most       int    // of them that can be had
	on         map[string]bool
	program    uint32 // XDP program that is there, 0: none
	progName   string
	mode       string // of that program
	ipv6       bool
	deferIRQs  string
	groTimeout string
}

// ethernets lists the Ethernet interfaces of the namespace, without the loopback.
func ethernets() ([]string, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var names []string
	for _, l := range links {
		a := l.Attrs()
		if a.EncapType == "ether" && a.Flags&net.FlagLoopback == 0 && l.Type() != "bridge" && l.Type() != "dummy" {
			names = append(names, a.Name)
		}
	}
	sort.Strings(names)
	return names, nil
}

// examineInterface also returns how many queues the interface has, 0 where that is not told.
func examineInterface(o *Options, k kernel, name string) (checks []Check, queues int) {
	d, err := look(name, len(o.Interfaces) > 0)
	if err != nil {
		return []Check{{name, "interface", Missing, err.Error(), "", "ip -br link"}}, 0
	}
	checks = []Check{
		judgeLink(d), judgeXDP(d), judgeProgram(d), judgeZeroCopy(d), judgeQueues(d, o.Lanes), judgeMTU(d, k, o.ChunkSize),
		judgeIPv6(d), judgeDefer(d),
	}
	if d.kind == "veth" {
		checks = append(checks, judgeGRO(d))
	}
	if d.on["rx-lro"] {
		checks = append(checks, Check{name, "lro", Missing, "on", "a driver that merges frames cannot run XDP", "ethtool -K " + name + " lro off"})
	}
	if d.on["rx-vlan-hw-parse"] && d.kind == "" {
		checks = append(checks, Check{name, "vlan-offload", Advice, "on", "tags that the card takes off are not seen by the steering program", "ethtool -K " + name + " rxvlan off"})
	}
	return checks, d.channels
}

// look asks the kernel about an interface. With try, zero-copy is tried where the kernel does not tell.
func look(name string, try bool) (*netdev, error) {
	l, err := netlink.LinkByName(name)
	if err != nil {
		var none netlink.LinkNotFoundError
		if errors.As(err, &none) {
			return nil, errors.New("there is no such interface here")
		}
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	a := l.Attrs()
	d := &netdev{
		name: name, mtu: a.MTU, up: a.Flags&net.FlagUp != 0, carrier: a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown,
	}
	if l.Type() != "device" {
		d.kind = l.Type()
	}
	if a.MasterIndex != 0 {
		if m, err := netlink.LinkByIndex(a.MasterIndex); err == nil {
			d.master = m.Attrs().Name
		}
	}
	if x := a.Xdp; x != nil && x.Attached {
		d.program = x.ProgId
		d.mode = map[uint32]string{nl.XDP_ATTACHED_DRV: "native", nl.XDP_ATTACHED_SKB: "generic", nl.XDP_ATTACHED_HW: "offloaded"}[x.AttachMode]
		if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(x.ProgId)); err == nil {
			if info, err := p.Info(); err == nil {
				d.progName = info.Name
			}
			p.Close()
		}
	}
	if d.features, d.segments, d.known, err = xdpFeatures(a.Index); err != nil {
		d.known = false
	}
	if e, err := ethtool.NewEthtool(); err == nil {
		defer e.Close()
		if s, err := e.DriverName(name); err == nil {
			d.driver = s
		}
		if c, err := e.GetChannels(name); err == nil {
			d.channels, d.most = int(max(c.RxCount, c.CombinedCount)), int(max(c.MaxRx, c.MaxCombined))
		}
		if on, err := e.Features(name); err == nil {
			d.on = on
		}
	}
	d.ipv6 = strings.TrimSpace(readFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6")) == "0"
	d.deferIRQs, d.groTimeout = sysfs(name, a.Index, "napi_defer_hard_irqs"), sysfs(name, a.Index, "gro_flush_timeout")
	if try && !d.known && d.program == 0 && d.kind == "" {
		// The kernel does not tell, and nothing runs on it.
		if zc, err := xdp.ProbeZeroCopy(a.Index, 0); err == nil && zc {
			d.known, d.features = true, xdpBasic|xdpRedirect|xdpZeroCopy
		}
	}
	return d, nil
}

// sysfs reads an attribute of an interface, empty when it cannot be read. /sys may have been mounted in another network
// namespace: the interface there must be the same.
func sysfs(name string, index int, attribute string) string {
	read := func(attribute string) string {
		return strings.TrimSpace(readFile(filepath.Join("/sys/class/net", name, attribute)))
	}
	if read("ifindex") != strconv.Itoa(index) {
		return ""
	}
	return read(attribute)
}

func judgeLink(d *netdev) Check {
	what := d.kind
	if d.driver != "" && d.driver != what {
		what = strings.TrimSpace(what + " driver " + d.driver)
	}
	switch {
	case d.master != "":
		return Check{d.name, "link", Advice, what + ", part of " + d.master, "frames that the NIC takes do not reach " + d.master + "; what it leaves does", "ip link set " + d.name + " nomaster"}
	case !d.up:
		return Check{d.name, "link", Missing, what + ", down", "nothing is received", "ip link set " + d.name + " up"}
	case !d.carrier:
		return Check{d.name, "link", Missing, what + ", no carrier", "the other end is down, or no cable is in", "ip -d link show " + d.name}
	}
	return Check{d.name, "link", OK, what + ", up", "", ""}
}

func judgeXDP(d *netdev) Check {
	switch {
	case !d.known:
		return Check{d.name, "xdp-mode", Advice, "unknown", "the kernel does not tell before 6.3; the ready line of gradnic run does", ""}
	case d.features&xdpBasic == 0:
		return Check{d.name, "xdp-mode", Advice, "generic only", "its driver has no native XDP: every frame becomes a socket buffer first, which is several times slower", ""}
	case d.features&xdpRedirect == 0:
		return Check{d.name, "xdp-mode", Advice, "native without redirect", "native XDP cannot hand frames to AF_XDP here", "gradnic run --mode generic"}
	}
	return Check{d.name, "xdp-mode", OK, "native", "", ""}
}

func judgeProgram(d *netdev) Check {
	if d.program == 0 {
		return Check{d.name, "xdp-program", OK, "none is there", "", ""}
	}
	found := fmt.Sprintf("%q, id %d, %s", d.progName, d.program, d.mode)
	if strings.HasPrefix(d.progName, steeringProgram) {
		return Check{d.name, "xdp-program", OK, found + ": a gradnic runs on it", "", ""}
	}
	mend := "end the process that holds it (bpftool link show), or: ip link set dev " + d.name + " xdp" + map[string]string{"native": "drv", "generic": "generic", "offloaded": "offload"}[d.mode] + " off"
	return Check{d.name, "xdp-program", Missing, found, "an interface takes one program, and somebody else's is never removed", mend}
}

func judgeZeroCopy(d *netdev) Check {
	switch {
	case !d.known:
		return Check{d.name, "zero-copy", OK, "unknown", "", ""}
	case d.features&xdpZeroCopy == 0:
		return Check{d.name, "zero-copy", OK, "the driver has none: frames are copied", "", ""}
	}
	return Check{d.name, "zero-copy", OK, fmt.Sprintf("the driver has it (%d segments)", max(1, d.segments)), "", ""}
}

func judgeQueues(d *netdev, lanes int) Check {
	n := max(1, d.channels)
	found := fmt.Sprintf("%d for %d lanes", n, lanes)
	switch {
	case n < lanes && d.most >= lanes:
		return Check{d.name, "queues", Missing, found, "each lane needs a queue of every port", fmt.Sprintf("ethtool -L %s %s %d", d.name, channelWord(d), lanes)}
	case n < lanes:
		return Check{d.name, "queues", Missing, found, fmt.Sprintf("each lane needs a queue of every port, and it can have %d", max(1, d.most)), fmt.Sprintf("gradnic run --lanes %d", n)}
	case n%lanes != 0:
		return Check{d.name, "queues", Advice, found, "some lanes have more queues than others", fmt.Sprintf("ethtool -L %s %s %d", d.name, channelWord(d), n-n%lanes)}
	}
	return Check{d.name, "queues", OK, found, "", ""}
}

// channelWord is how ethtool calls the queues: veth's are separate ones.
func channelWord(d *netdev) string {
	if d.kind == "veth" {
		return "rx"
	}
	return "combined"
}

func judgeMTU(d *netdev, k kernel, chunk int) Check {
	room := chunk - xdp.KernelHeadroom
	frame := d.mtu + ethernetHeader
	found := fmt.Sprintf("%d, frames of up to %d bytes in chunks of %d", d.mtu, frame, chunk)
	fits := fmt.Sprintf("ip link set %s mtu %d", d.name, room-ethernetHeader)
	if chunk == 2048 && frame <= 4096-xdp.KernelHeadroom {
		fits = "gradnic run --chunk 4096, or: " + fits
	}
	switch {
	case frame <= room && frame+vlanTag > room:
		return Check{d.name, "mtu", Advice, found, "a tagged frame of full length does not fit", fits}
	case frame <= room:
		return Check{d.name, "mtu", OK, found, "", ""}
	case !k.atLeast(6, 6):
		return Check{d.name, "mtu", Missing, found, "a frame that takes several chunks needs Linux 6.6", fits}
	case d.known && d.features&xdpBasic != 0 && d.features&xdpRxSG == 0:
		return Check{d.name, "mtu", Missing, found, "a frame takes several chunks, and the driver has no multi-buffer XDP", fits}
	}
	return Check{d.name, "mtu", Advice, found, "a frame of full length takes several chunks, which is slower", fits}
}

func judgeIPv6(d *netdev) Check {
	if !d.ipv6 {
		return Check{d.name, "ipv6", OK, "off", "", ""}
	}
	return Check{d.name, "ipv6", Advice, "on", "neighbour discovery and multicast reports are frames of their own on a port that only the NIC uses", "sysctl -w net.ipv6.conf." + d.name + ".disable_ipv6=1"}
}

func judgeDefer(d *netdev) Check {
	if d.deferIRQs == "" && d.groTimeout == "" {
		return Check{d.name, "busy-poll", OK, "cannot be seen here", "", ""}
	}
	found := fmt.Sprintf("napi_defer_hard_irqs=%s gro_flush_timeout=%s", d.deferIRQs, d.groTimeout)
	if d.deferIRQs != "" && d.deferIRQs != "0" && (d.groTimeout == "" || d.groTimeout == "0") {
		return Check{d.name, "busy-poll", Advice, found, "interrupts are held back and no timer brings them: a lane that sleeps may wake late", "echo 0 > /sys/class/net/" + d.name + "/napi_defer_hard_irqs"}
	}
	return Check{d.name, "busy-poll", OK, found, "", ""}
}

func judgeGRO(d *netdev) Check {
	if d.on["rx-gro"] {
		return Check{d.name, "gro", OK, "on", "", ""}
	}
	return Check{d.name, "gro", Advice, "off", "a veth without GRO may stall when a program comes and goes under traffic, and loses redirected frames while none is there; the same holds for its other end", "ethtool -K " + d.name + " gro on"}
}
