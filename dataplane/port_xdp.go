package dataplane

import (
	"errors"
	"fmt"
	"math/bits"
	"net"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
	"gradnic/xdp"
	"gradnic/xdp/settings"
)

// XDPPort is a netdev through AF_XDP. Frames to the NIC's own MAC and IP address on a served protocol, ARP requests
// and echo requests for it are taken; everything else goes on to the kernel.
type XDPPort struct {
	// Name is the port's name; empty means Interface.
	Name string
	// Interface is the netdev.
	Interface string
	// Namespace runs a function in the netdev's network namespace, on a locked thread. nil is the process's own.
	Namespace func(func() error) error
	// Mode is native or generic XDP; zero tries native first.
	Mode xdp.Mode
	// Queues is the number of queues to open, from queue 0; 0 means all that the netdev has. Fewer than the
	// netdev has is refused, since the others' traffic would bypass the NIC, unless PartialQueues is set.
	Queues        int
	PartialQueues bool
	// WholePort takes every frame of the netdev, whatever it is addressed to.
	WholePort bool
	// ForceCopy and ForceZeroCopy refuse the other mode. All ports of a NIC share one.
	ForceCopy, ForceZeroCopy bool
	// Settings are how the netdev is to be set while the NIC runs: queues, rings, features. They are set back by Stop, or
	// after a kill by the next start or `gradnic restore` (package xdp/settings). NoSteering leaves out what is set
	// unasked for speed where a netdev of several queues takes it: rules that bring UDP ports to queues, and the ports
	// in the hash of receive-side scaling.
	Settings   settings.Want
	NoSteering bool
	// BusyPoll has the kernel receive inside the lane's own system calls; zero leaves it off.
	BusyPoll xdp.BusyPoll
	// TxBudget is the number of frames that the kernel sends in one call in copy mode; 0 means xdp's default.
	TxBudget int
}

func (p XDPPort) portName() string {
	if p.Name == "" {
		return p.Interface
	}
	return p.Name
}

func (XDPPort) portKind() string { return "xdp" }

func (p XDPPort) inNamespace(f func() error) error {
	if p.Namespace == nil {
		return f()
	}
	return p.Namespace(f)
}

// interfaceByName finds a netdev in the calling thread's namespace.
func interfaceByName(name string) (*net.Interface, error) {
	ifi, err := net.InterfaceByName(name)
	if err == nil {
		return ifi, nil
	}
	if _, lerr := netlink.LinkByName(name); errors.As(lerr, new(netlink.LinkNotFoundError)) {
		return nil, fmt.Errorf("there is no interface %s (ip link lists those that there are): %w", name, unix.ENODEV)
	}
	return nil, fmt.Errorf("interface %s: %w", name, err)
}

// queueCount asks the netdev.
func (p XDPPort) queueCount(int) (int, error) {
	have := 0
	err := p.inNamespace(func() error {
		if _, err := interfaceByName(p.Interface); err != nil {
			return err
		}
		e, err := ethtool.NewEthtool()
		if err != nil {
			return fmt.Errorf("ethtool: %w", err)
		}
		defer e.Close()
		have, err = receiveQueues(e, p.Interface)
		return err
	})
	if err != nil {
		return 0, err
	}
	return p.queuesOf(have)
}

// frameSize is the longest frame that the netdev's MTU allows, and whether it needs more than one buffer in the driver.
func (p XDPPort) frameSize() (frame int, multi bool, err error) {
	err = p.inNamespace(func() error {
		ifi, err := interfaceByName(p.Interface)
		if err != nil {
			return err
		}
		frame, multi = ifi.MTU+inet.EthernetLen, ifi.MTU > onePageMTU()
		return nil
	})
	return frame, multi, err
}

// netdevIndex is the index of the netdev that has the port's name now; 0 for none.
func (p XDPPort) netdevIndex() (index int) {
	_ = p.inNamespace(func() error {
		ifi, err := net.InterfaceByName(p.Interface)
		if err == nil {
			index = ifi.Index
		}
		return nil
	})
	return index
}

// receiveQueues asks a netdev for its receive queues; 0 when the driver does not say.
func receiveQueues(e *ethtool.Ethtool, iface string) (int, error) {
	c, err := e.GetChannels(iface)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return 0, nil
	}
	if errors.Is(err, unix.ENODEV) {
		return 0, fmt.Errorf("interface %s: %w", iface, err)
	}
	if err != nil {
		return 0, fmt.Errorf("ethtool channels of %s: %w", iface, err)
	}
	return int(max(c.RxCount, c.CombinedCount)), nil
}

// queuesOf is how many queues to open of a netdev that has this many. A driver that does not say has one.
func (p XDPPort) queuesOf(have int) (int, error) {
	if have == 0 {
		have = max(1, p.Queues)
	}
	switch {
	case p.Queues == 0:
		return have, nil
	case p.Queues < 0 || p.Queues > have:
		return 0, fmt.Errorf("%d queues: %s has %d", p.Queues, p.Interface, have)
	case p.Queues < have && !p.PartialQueues:
		return 0, fmt.Errorf("%d queues: %s has %d, and the traffic of the others would pass by (ethtool -L %s combined %d, or allow it)", p.Queues, p.Interface, have, p.Interface, p.Queues)
	}
	return p.Queues, nil
}

// xdpQueue is a socket; poll tells all that there is to know.
type xdpQueue struct{ *xdp.Socket }

// Pending implements queue.
func (xdpQueue) Pending() bool { return false }

// xdpOpen is what an open XDPPort holds.
type xdpOpen struct {
	spec     XDPPort
	cfg      *Config
	ifindex  int
	sockets  []*xdp.Socket
	steering *xdp.Steering
	address  int // socket that holds the MAC address in the netdev's filter, -1 when not needed
	closed   KernelStatistics
}

func (p XDPPort) open(e *environment) (*openPort, error) {
	if err := p.refuseKernelAddress(e.cfg.IP); err != nil { // once more: the kernel may have got it since
		return nil, err
	}
	n, err := p.queueCount(0)
	if err != nil {
		return nil, err
	}
	depth, err := depthOf(e, n)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", p.Interface, err)
	}
	o := &xdpOpen{spec: p, cfg: e.cfg, address: -1}
	err = p.inNamespace(func() error {
		ifi, err := interfaceByName(p.Interface)
		if err != nil {
			return err
		}
		o.ifindex = ifi.Index
		if ifi.MTU+inet.EthernetLen > e.longest {
			return fmt.Errorf("interface %s: MTU %d makes frames of %d bytes, the longest are %d (ip link set %s mtu %d, or start again)",
				p.Interface, ifi.MTU, ifi.MTU+inet.EthernetLen, e.longest, p.Interface, e.longest-inet.EthernetLen)
		}
		half := depth / 2
		budget := p.TxBudget
		if budget > half {
			budget = half
		}
		for q := range n {
			s, err := e.umem.Open(xdp.SocketOptions{
				IfIndex: ifi.Index, Queue: q,
				// Receive becomes visible before the fill slots are released: twice the frames it must hold.
				FillSize: 2 * half, RxSize: half, TxSize: half, CompletionSize: half,
				ForceCopy: p.ForceCopy, ForceZeroCopy: p.ForceZeroCopy, TxBudget: budget,
				BindTimeout: e.bindTimeout, MultiBuffer: e.multi, BusyPoll: p.BusyPoll,
			})
			if e.multi && errors.Is(err, unix.EINVAL) {
				one := min(e.umem.MaxFrame()-inet.EthernetLen, onePageMTU())
				return fmt.Errorf("interface %s: MTU %d takes frames of several chunks, which this kernel or driver does not have (ip link set %s mtu %d): %w", p.Interface, ifi.MTU, p.Interface, one, err)
			}
			if p.ForceZeroCopy && errors.Is(err, unix.EOPNOTSUPP) {
				return fmt.Errorf("%w: start with --zero-copy auto or off, which copy (gradnic doctor %s: check zero-copy says whether the driver has it)", err, p.Interface)
			}
			if err != nil {
				return err
			}
			o.sockets = append(o.sockets, s)
		}
		return o.load(e.multi)
	})
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	open := &openPort{
		depth: depth, netdev: netdev{index: o.ifindex, queues: n, program: o.steering.ProgramID, room: e.longest},
		mode: o.steering.Mode().String(), zeroCopy: o.sockets[0].ZeroCopy(), sockets: o.sockets[0].Mode().String(),
		attach: func() error { return o.attach(e.serviceUDP()) }, serve: o.serve, detach: o.detach, close: o.close, statistics: o.statistics, perQueue: o.perQueue, steering: o.steering.Counters,
		budgets: o.steering.SetBudgets, spent: o.steering.Spent, answer: o.steering.SetAnswer, sums: o.steering.SetSums, accounts: o.steering.Accounts,
	}
	if err := o.steering.NativeError(); err != nil {
		open.noNative = err.Error()
		e.cfg.Logger.Warn("native XDP refused, generic is used", "interface", p.Interface, "err", err)
	}
	for _, s := range o.sockets {
		open.queues = append(open.queues, xdpQueue{s})
	}
	return open, nil
}

// depthOf shares a port's chunks among its queues. A netdev that has got more queues than it had when the memory was
// made has shallower ones.
func depthOf(e *environment, queues int) (int, error) {
	if e.budget == 0 {
		return e.cfg.FramesPerQueue, nil
	}
	each := e.budget / ((queues + e.cfg.Lanes - 1) / e.cfg.Lanes)
	depth := min(e.cfg.FramesPerQueue, 1<<(bits.Len(uint(each))-1))
	if depth < MinFramesPerQueue {
		return 0, fmt.Errorf("%d queues: there are frames for %d a queue, %d are needed: start again, or with more frames a queue", queues, each, MinFramesPerQueue)
	}
	return depth, nil
}

// load attaches the program, which takes nothing yet, and binds the sockets to it.
func (o *xdpOpen) load(multi bool) error {
	var err error
	if o.steering, err = xdp.Attach(xdp.AttachOptions{IfIndex: o.ifindex, Mode: o.spec.Mode, MultiBuffer: multi}); err != nil {
		return err
	}
	for q, s := range o.sockets {
		if err := o.steering.Bind(q, s); err != nil {
			return err
		}
	}
	return o.holdAddress()
}

// holdAddress adds the NIC's MAC address to the netdev's unicast filter, where the netdev filters. A packet socket's
// membership does that and goes with the socket, however the process ends.
func (o *xdpOpen) holdAddress() error {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // protocol 0 receives nothing
	if err != nil {
		return fmt.Errorf("packet socket for the MAC filter: %w", err)
	}
	m := unix.PacketMreq{Ifindex: int32(o.ifindex), Type: unix.PACKET_MR_UNICAST, Alen: 6}
	copy(m.Address[:], o.cfg.MAC[:])
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		o.cfg.Logger.Warn("the MAC filter was not extended", "interface", o.spec.Interface, "err", err)
		return unix.Close(fd)
	}
	o.address = fd
	return nil
}

// attach says what is ours: from here on frames come.
func (o *xdpOpen) attach(services []uint16) error {
	if err := o.steering.SetAddress(o.cfg.MAC, o.cfg.IP); err != nil {
		return err
	}
	if o.spec.WholePort {
		return o.steering.SetWholePort(true)
	}
	return o.serve(services)
}

// serve sets the UDP ports that are ours: the protocols' of aggregation, and those of services.
func (o *xdpOpen) serve(services []uint16) error {
	if o.spec.WholePort {
		return nil
	}
	own := append(xdp.Ports(switchml.PortBase, switchml.PortBase|^uint16(switchml.PortMask)), native.Port)
	return o.steering.SetPorts(append(own, services...))
}

func (o *xdpOpen) detach() error {
	var errs []error
	if o.steering != nil {
		errs = append(errs, o.steering.Close())
	}
	if o.address >= 0 {
		errs = append(errs, unix.Close(o.address))
		o.address = -1
	}
	return errors.Join(errs...)
}

func (o *xdpOpen) close() error {
	errs := []error{o.detach()}
	if k, err := o.statistics(); err == nil {
		o.closed = k
	}
	for _, s := range o.sockets {
		errs = append(errs, s.Close())
	}
	o.sockets = nil
	return errors.Join(errs...)
}

func (o *xdpOpen) statistics() (KernelStatistics, error) {
	k := o.closed
	queues, err := o.perQueue()
	for _, q := range queues {
		k.Add(q)
	}
	return k, err
}

func (o *xdpOpen) perQueue() ([]KernelStatistics, error) {
	queues := make([]KernelStatistics, len(o.sockets))
	for q, s := range o.sockets {
		st, err := s.Statistics()
		if err != nil {
			return queues, err
		}
		queues[q].add(st)
	}
	return queues, nil
}
