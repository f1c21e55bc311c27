package dataplane

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gradnic/multicast"
	"gradnic/wire/inet"
	"gradnic/wire/layout"
	"gradnic/wire/native"
	"gradnic/wire/switchml"
	"gradnic/xdp"
)

// A layout is a card's own header for the rules of switchml or native. Of frames that come in by one, the header is turned
// into the rules' own where it lies, and the packet is filled in as if it had been parsed; what leaves for a job that names
// the layout is turned back when it is queued for transmit. Everything between (match, slots, traces) knows the rules' own
// messages only. The Ethernet, IPv4 and UDP headers before such a message are written when somebody reads them: another
// lane, or a capture of what is dropped. A NIC without layouts pays a nil check a frame.

// maxLayouts is the most layouts of a NIC.
const maxLayouts = 16

// checkLayouts refuses layouts that cannot run side by side, and those behind Ethernet on netdevs that do not give all
// their frames.
func checkLayouts(layouts []*layout.Layout, ports []PortSpec) error {
	if len(layouts) > maxLayouts {
		return fmt.Errorf("%d layouts: at most %d", len(layouts), maxLayouts)
	}
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

// layoutOf is the layout that a job names, and its index plus one; nil and 0 when it names none.
func (n *NIC) layoutOf(s *JobSpec) (x *layout.Layout, via uint8, err error) {
	if s.Layout == "" {
		return nil, 0, nil
	}
	for k, x := range n.cfg.Layouts {
		if x.Name == s.Layout {
			return x, uint8(k + 1), n.fitsLayout(s, x)
		}
	}
	return nil, 0, fmt.Errorf("the NIC has no layout %q (gradnic run --layout FILE)", s.Layout)
}

// fitsLayout refuses a job whose messages a layout cannot carry, so that none of them is found out on its way.
func (n *NIC) fitsLayout(s *JobSpec, x *layout.Layout) error {
	if x.Rules.String() != s.Protocol {
		return fmt.Errorf("layout %s has rules %s, the job protocol %s", x.Name, x.Rules, s.Protocol)
	}
	limits := layout.Limits{Workers: s.Workers, Slots: s.Slots, Payload: 4 * s.Elements, Elements: s.Elements}
	if s.Native != nil {
		spec := n.poolSpec(s)
		limits.Payload, limits.Job, limits.Type = spec.WireBytes(), s.Native.ID, native.Type(s.Native.Type)
		if spec.HasCodec() {
			return fmt.Errorf("layout %s: compressed values go in native frames only", x.Name)
		}
	} else if s.Multicast != nil {
		return fmt.Errorf("layout %s: results of rules switchml go to each worker alone; leave multicast out", x.Name)
	}
	if err := x.Carries(limits); err != nil {
		return err
	}
	frame := max(x.Base()+x.Header, inet.PayloadOffset+native.HeaderLen) + limits.Payload
	if room := n.cfg.ChunkSize - xdp.KernelHeadroom; frame > room {
		return fmt.Errorf("layout %s: frames of %d bytes: %d fit into a chunk (fewer elements, or larger chunks)", x.Name, frame, room)
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

// enterLayout reads frame i of the batch by the layout that claims it, if one does, and remembers which. ok is false when
// the frame was dropped.
func (l *lane) enterLayout(i int) (ok bool) {
	b := &l.batch
	d := &b.desc[i]
	if d.Options != 0 { // frames of layouts fit into a chunk
		return true
	}
	frame := l.frame(*d)
	for k, x := range l.cfg.Layouts {
		if !x.Claims(frame) {
			continue
		}
		base := d.Addr &^ (l.chunk - 1)
		at, n, f := x.Enter(l.area[base:base+l.chunk], int(d.Addr-base), int(d.Len), l.cfg.IP, &b.pkt[i])
		switch f {
		case layout.OK:
			d.Addr, d.Len = base+uint64(at), uint32(n)
			b.via[i] = uint8(k + 1)
			return true
		case layout.Foreign: // parse says what is wrong with it
			return true
		}
		l.drop(i, reasonLayout+Reason(f))
		return false
	}
	return true
}

// lowerLayout writes the headers below the message of frame i, if it came by a layout.
func (l *lane) lowerLayout(i int) {
	b := &l.batch
	if l.cfg.Layouts != nil && b.via[i] != 0 {
		layout.Lower(l.frame(b.desc[i]), &b.pkt[i])
	}
}

// checkLayouts drops the messages of the batch that came in another form than their job's. Frames that another lane has
// handed over were looked at there.
func (l *lane) checkLayouts() {
	b := &l.batch
	nsel := 0
	for _, s := range b.sel[:b.nsel] {
		if b.job[s].via != b.via[s] {
			l.drop(int(s), WrongLayout)
			continue
		}
		b.sel[nsel] = s
		nsel++
	}
	b.nsel = nsel
	nnat := 0
	for _, s := range b.nat[:b.nnat] {
		if j := l.nativeJob(b.msg[s].Job()); j != nil && j.via != b.via[s] {
			l.drop(int(s), WrongLayout)
			continue
		}
		b.nat[nnat] = s
		nnat++
	}
	b.nnat = nnat
}

// broadcastLayout is broadcast's end for a job with a layout: copies of the result that frame i of the batch completed.
func (l *lane) broadcastLayout(j *laneJob, i int, copies []multicast.Copy) {
	t, ok := l.layoutTemplate(j, i)
	for k := range copies {
		c := &copies[k]
		port := c.UDPPort
		if port == 0 {
			port = l.batch.pkt[i].SrcPort
		}
		l.replicateLayout(j, &t, ok, l.values[:j.frameLen-switchml.ValuesOffset], c.Port, c.MAC, c.IP, port, c.Rank)
	}
}

// resendLayout is resend's end for a job with a layout.
func (l *lane) resendLayout(j *laneJob, i, ingress int) {
	t, ok := l.layoutTemplate(j, i)
	p := &l.batch.pkt[i]
	l.replicateLayout(j, &t, ok, l.values[:j.frameLen-switchml.ValuesOffset], ingress, p.Src, p.SrcIP, p.SrcPort, int(l.batch.rank[i]))
}

// layoutTemplate is replyTemplate by a layout, and brings the result's values to its byte order. ok is false when a value
// does not fit into the layout, which Carries rules out.
func (l *lane) layoutTemplate(j *laneJob, i int) (t layout.Template, ok bool) {
	r := l.reply(j, i)
	j.layout.Order(l.values[:j.frameLen-switchml.ValuesOffset], 4)
	return j.layout.NewTemplate(&r)
}

// spreadLayout is spreadResult's end for a job with a layout, whose frames are of one chunk: the card's header is made once for
// all copies. The last one goes in frame i when the values lie there and there is room for the headers before them.
func (l *lane) spreadLayout(j *laneJob, i int, h *native.Header, values []byte, copies []multicast.Copy, skip func(k int) bool) {
	b := &l.batch
	from := native.Endpoint{MAC: l.cfg.MAC, IP: l.cfg.IP, Port: native.Port}
	t, ok := j.layout.NewResult(&from, h, len(values))
	j.layout.Order(values, h.Type.Size())
	last := len(copies) - 1
	for last >= 0 && skip(last) {
		last--
	}
	at := b.desc[i].Addr + native.ValuesOffset // of the values, if they are the frame's
	inPlace := ok && last >= 0 && len(values) > 0 && &values[0] == &l.area[at] && at&(l.chunk-1) >= uint64(t.Len())
	for k := 0; k <= last; k++ {
		c := &copies[k]
		switch {
		case skip(k):
		case k == last && inPlace:
			d := Desc{Addr: at - uint64(t.Len()), Len: uint32(t.Len() + len(values))}
			t.PutHeaders(l.frame(d), c.MAC, c.IP, c.UDPPort)
			l.sendReplica(c.Port, d, nil, sentFormed, j.receiver(c.Rank))
		default:
			l.replicateLayout(j, &t, ok, values, c.Port, c.MAC, c.IP, c.UDPPort, c.Rank)
		}
	}
	if !inPlace {
		l.freeFrame(i)
	}
}

// replicateLayout is replicate for a job with a layout.
func (l *lane) replicateLayout(j *laneJob, t *layout.Template, fits bool, values []byte, port int, mac inet.MAC, ip inet.Addr, udp uint16, rank int) {
	if !fits {
		l.lostReplica(port, WrongLayout)
		return
	}
	addr, ok := l.take()
	if !ok {
		l.lostReplica(port, NoFrame)
		return
	}
	d := Desc{Addr: addr, Len: uint32(t.Len() + len(values))}
	t.Put(l.frame(d), mac, ip, udp, values)
	l.sendReplica(port, d, nil, sentFormed, j.receiver(rank))
}

// leaveLayout turns a frame that the NIC has made into a layout's form. ok is false when it does not fit, which Carries
// rules out.
func (l *lane) leaveLayout(x *layout.Layout, d *Desc) (ok bool) {
	base := d.Addr &^ (l.chunk - 1)
	at, n, ok := x.Leave(l.area[base:base+l.chunk], int(d.Addr-base), int(d.Len))
	d.Addr, d.Len = base+uint64(at), uint32(n)
	return ok
}

// leaveNative is leaveLayout for a frame that may be a native message of a job with a layout; ARP, echo replies and answers
// of SwitchML's rules are not.
func (l *lane) leaveNative(d *Desc) (ok bool) {
	f := l.frame(*d)
	if len(f) < native.ValuesOffset || binary.BigEndian.Uint16(f[12:]) != inet.EtherTypeIPv4 || f[23] != inet.ProtoUDP || binary.BigEndian.Uint16(f[34:]) != native.Port {
		return true
	}
	j := l.nativeJob(binary.BigEndian.Uint16(f[inet.PayloadOffset+4:]))
	if j == nil || j.layout == nil {
		return true
	}
	return l.leaveLayout(j.layout, d)
}
