package interop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// Interface is a card on the other end of an interface's link, by a packet socket: whole frames, with no network stack
// in between. It needs CAP_NET_RAW. Frames that the card did not send (of another source address) are not shown.
type Interface struct {
	link  *Link
	card  inet.MAC
	wait  time.Duration
	quiet time.Duration
	mtu   int
	buf   []byte
	at    []time.Time // the frames of the last Collect came
}

// OpenInterface opens the target behind an interface of the calling thread's network namespace.
func OpenInterface(name string, o *Options) (*Interface, error) {
	l, err := OpenLink(name)
	if err != nil {
		return nil, err
	}
	t := &Interface{link: l, card: o.NIC.MAC, wait: o.Timeout, quiet: o.Quiet, mtu: l.MTU, buf: make([]byte, 1<<16)}
	if t.wait == 0 {
		t.wait = time.Second
	}
	return t, nil
}

// Send implements Target.
func (t *Interface) Send(frame []byte) error { return t.link.Send(frame) }

// Collect implements Target: it waits for the frames that are expected, then until nothing more comes.
func (t *Interface) Collect(want int) ([][]byte, error) {
	t.at = nil
	return gather(t, want, t.wait, t.quiet)
}

func (t *Interface) now() time.Time    { return time.Now() }
func (t *Interface) came() []time.Time { return t.at }

// Next implements next.
func (t *Interface) Next(deadline time.Time) ([]byte, error) {
	for {
		n, err := t.link.Recv(t.buf, deadline)
		if err != nil {
			return nil, err
		}
		if n >= inet.EthernetLen && inet.MAC(t.buf[6:12]) == t.card {
			t.at = append(t.at, time.Now())
			return append([]byte(nil), t.buf[:n]...), nil
		}
	}
}

// Limits implements Target.
func (t *Interface) Limits() Limits { return Limits{Longest: t.mtu + inet.EthernetLen, Clock: true} }

// Close implements Target.
func (t *Interface) Close() error { return t.link.Close() }

// Link is whole frames over an interface. VLAN tags that the kernel took off are put back.
type Link struct {
	// MTU is the interface's, in bytes.
	MTU  int
	name string
	fd   int
	oob  []byte
}

// OpenLink opens a packet socket on an interface of the calling thread's network namespace.
func OpenLink(name string) (*Link, error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s (ip link lists those that there are): %w", name, err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("interface %s: packet socket (it takes CAP_NET_RAW): %w", name, err)
	}
	l := &Link{MTU: ifi.MTU, name: name, fd: fd, oob: make([]byte, 256)}
	m := unix.PacketMreq{Ifindex: int32(ifi.Index), Type: unix.PACKET_MR_PROMISC}
	err = unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m)
	for _, o := range []struct{ level, opt, v int }{
		{unix.SOL_PACKET, unix.PACKET_AUXDATA, 1}, {unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
		// Past the queueing discipline: nothing of the host's shapes what is sent, and a link that has just come up, which
		// has none yet, loses nothing.
		{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
		{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8 << 20},
	} {
		if e := unix.SetsockoptInt(fd, o.level, o.opt, o.v); e != nil && err == nil && o.opt != unix.SO_RCVBUFFORCE {
			err = e
		}
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: ifi.Index})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("interface %s: packet socket: %w", name, err), unix.Close(fd))
	}
	return l, nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// Send sends a frame; while the interface's queue is full it waits, a second at most.
func (l *Link) Send(frame []byte) error {
	until := time.Now().Add(time.Second)
	for {
		_, err := unix.Write(l.fd, frame)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EINTR):
		case (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOBUFS)) && time.Now().Before(until):
			if err := l.poll(unix.POLLOUT, time.Now().Add(time.Millisecond)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				return err
			}
		default:
			return fmt.Errorf("interface %s: send %d bytes: %w", l.name, len(frame), err)
		}
	}
}

// Recv takes a frame that arrived into buf. The error is os.ErrDeadlineExceeded when none came.
func (l *Link) Recv(buf []byte, deadline time.Time) (int, error) {
	for {
		n, oobn, _, _, err := unix.Recvmsg(l.fd, buf, l.oob, 0)
		switch {
		case err == nil:
			return l.untake(buf, n, l.oob[:oobn]), nil
		case errors.Is(err, unix.EAGAIN):
			if err := l.poll(unix.POLLIN, deadline); err != nil {
				return 0, err
			}
		case errors.Is(err, unix.EINTR):
		default:
			return 0, fmt.Errorf("interface %s: receive: %w", l.name, err)
		}
	}
}

func (l *Link) poll(events int16, deadline time.Time) error {
	left := time.Until(deadline)
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	ts := unix.NsecToTimespec(int64(left))
	fds := []unix.PollFd{{Fd: int32(l.fd), Events: events}}
	if n, err := unix.Ppoll(fds, &ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("interface %s: poll: %w", l.name, err)
	} else if err == nil && n == 0 {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Close closes the socket.
func (l *Link) Close() error { return unix.Close(l.fd) }

// untake puts a VLAN tag back that the kernel delivered beside the frame (struct tpacket_auxdata, linux/if_packet.h).
func (l *Link) untake(buf []byte, n int, oob []byte) int {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || n < 12 || n+4 > len(buf) {
		return n
	}
	for _, m := range msgs {
		if m.Header.Level != unix.SOL_PACKET || m.Header.Type != unix.PACKET_AUXDATA || len(m.Data) < 20 {
			continue
		}
		status := binary.NativeEndian.Uint32(m.Data[0:])
		if status&unix.TP_STATUS_VLAN_VALID == 0 {
			continue
		}
		tpid := uint16(inet.EtherTypeVLAN)
		if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
			tpid = binary.NativeEndian.Uint16(m.Data[18:])
		}
		copy(buf[16:], buf[12:n])
		binary.BigEndian.PutUint16(buf[12:], tpid)
		binary.BigEndian.PutUint16(buf[14:], binary.NativeEndian.Uint16(m.Data[16:]))
		return n + 4
	}
	return n
}
