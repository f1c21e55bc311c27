package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
	"gradnic/xdp"
)

// A layout is a card's own header for the rules of switchml or native. Frames that come in by one are turned into frames
// of the rules' protocol before they are parsed, and what leaves for a job that names it is turned back when it is queued
// for transmit. Everything between (match, hand-off, slots, traces) knows the rules' own frames only. A NIC without
// layouts pays a nil check a batch and one a transmitted frame.

// checkLayouts refuses layouts that cannot run side by side, and those behind Ethernet on netdevs that do not give all
// their frames.
func checkLayouts(layouts []*layout.Layout, ports []PortSpec) error {
	for i, x := range layouts {
		if x.Rules == layout.ShowOnly {
			return fmt.Errorf("layout %s has rules none: it decodes frames and cannot run (rules: switchml or native)", x.Name)
		}
		for _, o := range layouts[:i] {
			same := x.EtherType != 0 && x.EtherType == o.EtherType ||
				x.EtherType == 0 && o.EtherType == 0 && x.FirstPort <= o.LastPort && o.FirstPort <= x.LastPort
			if o.Name == x.Name || same {
				return fmt.Errorf("layouts %s (%s) and %s (%s) cannot be told apart: give one another name, port or EtherType", o.Name, o.Where(), x.Name, x.Where())
			}
		}
		for _, p := range ports {
			if p, ok := p.(XDPPort); ok && x.EtherType != 0 && !p.WholePort {
				return fmt.Errorf("layout %s (%s): port %s takes IPv4 only, unless it is opened as a whole (WholePort)", x.Name, x.Where(), p.portName())
			}
		}
	}
	return nil
}

// layoutOf is the layout that a job names; nil when it names none.
func (n *NIC) layoutOf(s *JobSpec) (*layout.Layout, error) {
	if s.Layout == "" {
		return nil, nil
	}
	for _, x := range n.cfg.Layouts {
		if x.Name == s.Layout {
			return x, n.fitsLayout(s, x)
		}
	}
	return nil, fmt.Errorf("job %s: the NIC has no layout %q (gradnic run --layout FILE)", s.Name, s.Layout)
}

// fitsLayout refuses a job whose messages a layout cannot carry, so that none of them is found out on its way.
func (n *NIC) fitsLayout(s *JobSpec, x *layout.Layout) error {
	if x.Rules.String() != s.Protocol {
		return fmt.Errorf("job %s: layout %s has rules %s, the job protocol %s", s.Name, x.Name, x.Rules, s.Protocol)
	}
	limits := layout.Limits{Workers: s.Workers, Slots: s.Slots, Payload: 4 * s.Elements, Elements: s.Elements}
	if s.Native != nil {
		spec := n.poolSpec(s)
		limits.Payload, limits.Job, limits.Type = spec.WireBytes(), s.Native.ID, native.Type(s.Native.Type)
		if spec.HasCodec() {
			return fmt.Errorf("job %s: layout %s: compressed values go in native frames only", s.Name, x.Name)
		}
	} else if s.Multicast != nil {
		return fmt.Errorf("job %s: layout %s: results of rules switchml go to each worker alone; leave multicast out", s.Name, x.Name)
	}
	if err := x.Carries(limits); err != nil {
		return fmt.Errorf("job %s: %w", s.Name, err)
	}
	frame := max(x.Base()+x.Header, inet.PayloadOffset+native.HeaderLen) + limits.Payload
	if room := n.cfg.ChunkSize - xdp.KernelHeadroom; frame > room {
		return fmt.Errorf("job %s: layout %s: frames of %d bytes: %d fit into a chunk (fewer elements, or larger chunks)", s.Name, x.Name, frame, room)
	}
	return nil
}

// layoutUDP is the UDP ports of layouts.
func (n *NIC) layoutUDP() (udp []uint16) {
	for _, x := range n.cfg.Layouts {
		if x.EtherType == 0 {
			udp = append(udp, xdp.Ports(x.FirstPort, x.LastPort)...)
		}
	}
	return udp
}

// errLayoutPort is why a service cannot have a UDP port.
var errLayoutPort = errors.New("it is a layout's")

// enterLayouts turns the frames of layouts in the batch of one port into frames of their rules' protocol.
func (l *lane) enterLayouts() {
	b := &l.batch
	k := 0
	for i := range b.n {
		d := b.desc[i]
		if d.Options == 0 { // frames of layouts fit into a chunk
			r, ok := l.enterLayout(&d)
			if !ok {
				l.drop(i, r)
				continue
			}
		}
		b.desc[k], b.tailAt[k], b.tailN[k] = d, b.tailAt[i], b.tailN[i]
		k++
	}
	b.n = k
}

// enterLayout turns one frame, if it is a layout's, and refuses one that comes to a job in another form than the job's.
func (l *lane) enterLayout(d *Desc) (Reason, bool) {
	frame := l.frame(*d)
	for _, x := range l.cfg.Layouts {
		if !x.Claims(frame) {
			continue
		}
		base := d.Addr &^ (l.chunk - 1)
		at, n, f := x.Enter(l.area[base:base+l.chunk], int(d.Addr-base), int(d.Len), l.cfg.IP)
		if f == layout.Foreign {
			return 0, true // parse says what is wrong with it
		}
		if f != layout.OK {
			return reasonLayout + Reason(f), false
		}
		d.Addr, d.Len = base+uint64(at), uint32(n)
		return l.speaks(l.frame(*d), x)
	}
	return l.speaks(frame, nil)
}

// speaks checks that the job of a frame, in its rules' form, has this layout.
func (l *lane) speaks(f []byte, x *layout.Layout) (Reason, bool) {
	if j, r := l.jobOfFrame(f, 36, 6, 26); j != nil && j.layout != x {
		return r, false
	}
	return 0, true
}

// jobOfFrame is the job of a frame in its rules' form, nil when it is none's. port, mac and ip are where the NIC's UDP port and
// the worker's addresses stand. r is the reason to refuse it by.
func (l *lane) jobOfFrame(f []byte, port, mac, ip int) (j *laneJob, r Reason) {
	if len(f) < inet.PayloadOffset+switchml.HeaderLen || binary.BigEndian.Uint16(f[12:]) != inet.EtherTypeIPv4 || f[14] != 0x45 || f[23] != inet.ProtoUDP {
		return nil, 0
	}
	switch udp := binary.BigEndian.Uint16(f[port:]); {
	case udp == native.Port:
		return l.nativeJob(binary.BigEndian.Uint16(f[inet.PayloadOffset+4:])), UnknownJob
	case switchml.IsPort(udp):
		if e := l.table.find(inet.MAC(f[mac:mac+6]).Uint64(), inet.Addr(f[ip:ip+4]).Uint32()); e != nil {
			return e.job, UnknownWorker
		}
	}
	return nil, 0
}

// leaveLayout turns a frame that the NIC has made into the form of its job's layout. ok is false when it has none that it
// fits into, which Carries rules out.
func (l *lane) leaveLayout(d *Desc) (ok bool) {
	f := l.frame(*d)
	j, _ := l.jobOfFrame(f, 34, 0, 30)
	if j == nil || j.layout == nil {
		return true
	}
	base := d.Addr &^ (l.chunk - 1)
	at, n, ok := j.layout.Leave(l.area[base:base+l.chunk], int(d.Addr-base), int(d.Len))
	d.Addr, d.Len = base+uint64(at), uint32(n)
	return ok
}
