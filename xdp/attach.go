package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"gradnic/xdp/bpf"
)

// Mode is where in the receive path the steering program runs.
type Mode uint8

const (
	// Auto tries Native and falls back to Generic.
	Auto Mode = iota
	// Native runs in the driver, before the kernel makes a packet of the frame.
	Native
	// Generic runs in the kernel's common receive path: any driver, slower.
	Generic
)

// String is "auto", "native" or "generic".
func (m Mode) String() string {
	switch m {
	case Auto:
		return "auto"
	case Native:
		return "native"
	case Generic:
		return "generic"
	}
	return fmt.Sprintf("mode-%d", uint8(m))
}

// AttachOptions says where to attach the steering program.
type AttachOptions struct {
	// IfIndex names the netdev, in the network namespace of the calling thread.
	IfIndex int
	// Mode is Auto when zero.
	Mode Mode
	// MultiBuffer attaches the xdp.frags variant (Linux 5.18), which native mode
	// needs once the MTU is above what one buffer holds.
	MultiBuffer bool
}

// BusyError says that somebody else's XDP program is on the netdev. It is never
// removed: whoever attached it may rely on it.
type BusyError struct {
	Interface   string
	ProgramID   uint32 // 0 when it could not be found out
	ProgramName string // "" when it could not be found out
	LinkID      uint32 // of the bpf_link that holds it, 0 when there is none
	Mode        Mode   // where that program runs
	Err         error  // what the kernel said
}

// Error names the program and how to take it away.
func (e *BusyError) Error() string {
	if e.ProgramID == 0 {
		return fmt.Sprintf("attach to %s: another XDP program is there (ip link show dev %s): %v", e.Interface, e.Interface, e.Err)
	}
	mend := fmt.Sprintf("ip link set dev %s xdp%s off", e.Interface, map[Mode]string{Native: "drv", Generic: "generic"}[e.Mode])
	if e.LinkID != 0 {
		mend = fmt.Sprintf("held by bpf_link %d of a running program", e.LinkID)
	}
	return fmt.Sprintf("attach to %s: XDP program %q (id %d, %s) is there (%s): %v", e.Interface, e.ProgramName, e.ProgramID, e.Mode, mend, e.Err)
}

// Unwrap gives the kernel's error, EBUSY or EEXIST.
func (e *BusyError) Unwrap() error { return e.Err }

// Attach loads the steering program and attaches it to a netdev by a bpf_link: the
// program goes when the link's last descriptor does, at the latest with the process.
// At first nothing is taken: SetAddress and SetPorts say what is ours, Bind where
// it goes. The calling thread must be in the netdev's network namespace.
func Attach(o AttachOptions) (*Steering, error) {
	if o.IfIndex < 1 {
		return nil, fmt.Errorf("attach: interface index %d: legal are 1 and up", o.IfIndex)
	}
	if o.Mode > Generic {
		return nil, fmt.Errorf("attach: mode %d: legal are auto, native and generic", o.Mode)
	}
	st, err := loadSteering(o.MultiBuffer)
	if err != nil {
		return nil, err
	}
	if err := st.attach(&o); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return st, nil
}

func loadSteering(multi bool) (*Steering, error) {
	spec, err := bpf.LoadSteer()
	if err != nil {
		return nil, fmt.Errorf("read steering program: %w", err)
	}
	// An older kernel may refuse the others.
	steers.only(spec, multi)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load steering program: %w", lacking(err, unix.CAP_BPF, unix.CAP_NET_ADMIN))
	}
	return &Steering{
		coll:     coll,
		multi:    multi,
		program:  coll.Programs[steers.program(multi)],
		config:   coll.Maps[bpf.SteerMapConfig],
		ports:    coll.Maps[bpf.SteerMapPorts],
		sockets:  coll.Maps[bpf.SteerMapSockets],
		verdicts: coll.Maps[bpf.SteerMapVerdicts],
		accounts: coll.Maps[bpf.SteerMapAccounts],
		streams:  coll.Maps[bpf.SteerMapStreams],
		day:      coll.Maps[bpf.SteerMapDay],
		budgets:  newBudgets(coll),
	}, nil
}

func (st *Steering) attach(o *AttachOptions) error {
	name := interfaceName(o.IfIndex)
	var native error
	for _, m := range []Mode{Native, Generic} {
		if o.Mode != Auto && o.Mode != m {
			continue
		}
		flags := link.XDPDriverMode
		if m == Generic {
			flags = link.XDPGenericMode
		}
		l, err := link.AttachXDP(link.XDPOptions{Program: st.program, Interface: o.IfIndex, Flags: flags})
		switch {
		case err == nil:
			st.link, st.mode, st.ifindex, st.nativeErr = l, m, o.IfIndex, native
			st.programID = idOf(st.program)
			return nil
		case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EEXIST):
			return whoIsThere(o.IfIndex, name, err)
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, unix.ENODEV):
			return fmt.Errorf("attach to %s: %w", name, err)
		case m == Native && errors.Is(err, unix.ERANGE) && !o.MultiBuffer:
			// Generic mode would take the program and then lose long frames.
			return fmt.Errorf("attach to %s: the MTU is above what one buffer holds, multi-buffer is needed: %w", name, err)
		case m == Native && o.Mode == Auto:
			native = err
		default:
			return fmt.Errorf("attach to %s in %s mode: %w", name, m, errors.Join(err, native))
		}
	}
	return native // not reached: Generic returns
}

// idOf is a program's id in the kernel, 0 when it is not told.
func idOf(p *ebpf.Program) uint32 {
	if info, err := p.Info(); err == nil {
		if id, ok := info.ID(); ok {
			return uint32(id)
		}
	}
	return 0
}

// whoIsThere finds out which program holds the netdev, as far as it may be seen.
func whoIsThere(ifindex int, name string, cause error) error {
	busy := &BusyError{Interface: name, Err: cause}
	l, err := netlink.LinkByIndex(ifindex)
	if err != nil || l.Attrs().Xdp == nil {
		return busy
	}
	x := l.Attrs().Xdp
	busy.ProgramID = x.ProgId
	switch x.AttachMode {
	case nl.XDP_ATTACHED_DRV:
		busy.Mode = Native
	case nl.XDP_ATTACHED_SKB:
		busy.Mode = Generic
	}
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(x.ProgId)); err == nil {
		if info, err := p.Info(); err == nil {
			busy.ProgramName = info.Name
		}
		p.Close()
	}
	it := new(link.Iterator)
	defer it.Close()
	for it.Next() {
		info, err := it.Link.Info()
		if err == nil && info.Program == ebpf.ProgramID(x.ProgId) && info.XDP() != nil && info.XDP().Ifindex == uint32(ifindex) {
			busy.LinkID = uint32(info.ID)
		}
	}
	return busy
}
