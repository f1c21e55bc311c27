package dataplane

import (
	"errors"
	"fmt"
	"slices"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// attachedMulti is the kernel's XDP_ATTACHED_MULTI: programs in several modes. Then it does not say which.
const attachedMulti = 4

// xdpWatch looks at an XDPPort's netdev. Its sockets were made in the netdev's namespace and stay there, so that a look
// is three system calls, without a change of namespace.
type xdpWatch struct {
	spec    XDPPort
	link    *netlink.Handle
	ethtool *ethtool.Ethtool
}

func (p XDPPort) watch() (linkWatch, error) {
	w := &xdpWatch{spec: p}
	err := p.inNamespace(func() error {
		var err error
		if w.link, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		if w.ethtool, err = ethtool.NewEthtool(); err != nil {
			return fmt.Errorf("ethtool: %w", err)
		}
		return nil
	})
	if err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *xdpWatch) close() error {
	if w.link != nil {
		w.link.Close()
	}
	if w.ethtool != nil {
		w.ethtool.Close()
	}
	return nil
}

func (w *xdpWatch) look(was netdev) (facts, error) {
	name := w.spec.Interface
	ours := was.programs(0)
	link, err := w.link.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return facts{why: fmt.Sprintf("interface %s does not exist%s", name, w.renamed(was.index))}, nil
	}
	if err != nil {
		return facts{}, err
	}
	have, err := receiveQueues(w.ethtool, name)
	if errors.Is(err, unix.ENODEV) { // it went between the two looks
		return facts{why: fmt.Sprintf("interface %s does not exist", name)}, nil
	}
	if err != nil {
		return facts{}, err
	}
	ours = was.programs(ours[0])
	a := link.Attrs()
	f := facts{exists: true}
	switch {
	case a.RawFlags&unix.IFF_UP == 0:
		f.why = fmt.Sprintf("interface %s is down (ip link set %s up)", name, name)
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		f.why = fmt.Sprintf("interface %s has no carrier", name)
	case a.MTU+inet.EthernetLen > was.room:
		f.note = fmt.Sprintf("interface %s: MTU %d makes frames of %d bytes, the sockets take %d", name, a.MTU, a.MTU+inet.EthernetLen, was.room)
	case a.MTU+inet.EthernetLen < was.needs: // they get lost before they are counted
		f.note = fmt.Sprintf("interface %s: MTU %d makes frames of %d bytes, job %s has longer ones, of %d (ip link set %s mtu %d, or install it with fewer elements)",
			name, a.MTU, a.MTU+inet.EthernetLen, was.needsIt, was.needs, name, was.needs-inet.EthernetLen)
	}
	want, err := w.spec.queuesOf(have)
	switch {
	case a.Index != was.index:
		f.rebuild = fmt.Sprintf("interface %s is another one: index %d, was %d", name, a.Index, was.index)
	case err != nil:
		f.rebuild = err.Error()
	case want != was.queues:
		f.rebuild = fmt.Sprintf("interface %s has %d queues, had %d", name, want, was.queues)
	case ours[0] != 0 && (a.Xdp == nil || !a.Xdp.Attached):
		f.rebuild = fmt.Sprintf("interface %s has lost its XDP program", name)
	case ours[0] != 0 && a.Xdp.AttachMode != attachedMulti && !slices.Contains(ours[:], a.Xdp.ProgId):
		f.rebuild = fmt.Sprintf("interface %s has another XDP program: id %d, was %d", name, a.Xdp.ProgId, ours[0])
	}
	return f, nil
}

// renamed says what a netdev is called that had the port's name before; "" when there is none.
func (w *xdpWatch) renamed(index int) string {
	link, err := w.link.LinkByIndex(index)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(": it is called %s now", link.Attrs().Name)
}

// programs is the id of the steering program now, and the one that it had before the look: it may have been replaced by
// another of ours meanwhile (xdp.Steering.SetAnswer).
func (d *netdev) programs(before uint32) [2]uint32 {
	if d.program == nil {
		return [2]uint32{}
	}
	return [2]uint32{d.program(), before}
}
