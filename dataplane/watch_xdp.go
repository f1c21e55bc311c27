package dataplane

import (
	"errors"
	"fmt"

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
	link, err := w.link.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return facts{why: fmt.Sprintf("interface %s does not exist", name)}, nil
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
	a := link.Attrs()
	f := facts{exists: true}
	switch {
	case a.RawFlags&unix.IFF_UP == 0:
		f.why = fmt.Sprintf("interface %s is down (ip link set %s up)", name, name)
	case a.RawFlags&unix.IFF_LOWER_UP == 0:
		f.why = fmt.Sprintf("interface %s has no carrier", name)
	case a.MTU+inet.EthernetLen > was.room:
		f.note = fmt.Sprintf("interface %s: MTU %d makes frames of %d bytes, the sockets take %d", name, a.MTU, a.MTU+inet.EthernetLen, was.room)
	}
	want, err := w.spec.queuesOf(have)
	switch {
	case a.Index != was.index:
		f.rebuild = fmt.Sprintf("interface %s is another one: index %d, was %d", name, a.Index, was.index)
	case err != nil:
		f.rebuild = err.Error()
	case want != was.queues:
		f.rebuild = fmt.Sprintf("interface %s has %d queues, had %d", name, want, was.queues)
	case was.program != 0 && (a.Xdp == nil || !a.Xdp.Attached):
		f.rebuild = fmt.Sprintf("interface %s has lost its XDP program", name)
	case was.program != 0 && a.Xdp.AttachMode != attachedMulti && a.Xdp.ProgId != was.program:
		f.rebuild = fmt.Sprintf("interface %s has another XDP program: id %d, was %d", name, a.Xdp.ProgId, was.program)
	}
	return f, nil
}
