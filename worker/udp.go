package worker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
)

// udpTransport speaks over a UDP socket that is connected to the NIC, so that
// the kernel passes nothing from anyone else, in bursts (sendmmsg, recvmmsg).
type udpTransport struct {
	conn    *net.UDPConn
	batch   *ipv4.PacketConn
	route   route
	in, out []ipv4.Message
	views   [burst]switchml.View
	stopped atomic.Bool
	last    error
}

// anonymous hides a socket's peer addresses from x/net: to a connected socket
// they say nothing, and parsing them allocates for every packet. SetLinger is
// what makes x/net treat the socket as one without addresses, like TCP.
type anonymous struct{ *net.UDPConn }

func (anonymous) SetLinger(int) error { return errors.ErrUnsupported }

// socketBuffer is asked for both ways: a burst of results must fit, each with
// the kernel's own overhead.
const socketBuffer = 4 << 20

func newUDPTransport(conn *net.UDPConn, r route) (*udpTransport, error) {
	t := &udpTransport{conn: conn, batch: ipv4.NewPacketConn(anonymous{conn}), route: r}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	var opErr error
	if err := raw.Control(func(fd uintptr) {
		opErr = unix.Connect(int(fd), &unix.SockaddrInet4{Addr: r.nic.IP, Port: int(r.nic.Port)})
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer) // as much as is allowed
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
	}); err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	if opErr != nil {
		return nil, fmt.Errorf("connect UDP socket to the NIC at %v port %d: %w", r.nic.IP, r.nic.Port, opErr)
	}
	// One byte more than a result, so that a longer datagram is seen as such.
	room := switchml.HeaderLen + 4*r.elements + 1
	t.in = make([]ipv4.Message, burst)
	t.out = make([]ipv4.Message, burst)
	buf := make([]byte, burst*room)
	for i := range burst {
		t.in[i].Buffers = [][]byte{buf[i*room : (i+1)*room]}
		t.out[i].Buffers = make([][]byte, 1)
	}
	return t, nil
}

func (t *udpTransport) send(frames [][]byte, c *counts) error {
	for len(frames) > 0 {
		n := min(len(frames), burst)
		for i, f := range frames[:n] {
			t.out[i].Buffers[0] = f[inet.PayloadOffset:]
		}
		sent, err := t.batch.WriteBatch(t.out[:n], 0)
		if err != nil {
			if t.stopped.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
				return nil // interrupted; the caller looks why
			}
			if !mendable(err) {
				return fmt.Errorf("send to the NIC at %v: %w", t.route.nic.IP, err)
			}
			c.sockErrs++
			t.last = err
			sent = max(sent, 0) + 1 // the one that failed counts as lost
		}
		frames = frames[min(sent, n):]
	}
	return nil
}

// mendable reports whether a resend may succeed where this failed: the error is
// about the way to the NIC at the moment (or an earlier packet's fate, which
// ICMP reported), not about the packet or the socket.
func mendable(err error) bool {
	for _, e := range [...]syscall.Errno{
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EHOSTDOWN, unix.ENETDOWN,
		unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EINTR, unix.EAGAIN,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// glance is how long a socket is looked at when the time is over already.
const glance = 200 * time.Microsecond

func (t *udpTransport) recv(until time.Time, c *counts) (int, error) {
	// With a deadline in the past a read fails without looking: results that
	// came while this thread did not run would stay unread, and their packets be resent.
	if soon := time.Now().Add(glance); until.Before(soon) {
		until = soon
	}
	// The deadline first, then the flag: an interrupt sets the flag first and
	// the deadline then, so one of the two is seen.
	if err := t.conn.SetReadDeadline(until); err != nil {
		return 0, fmt.Errorf("UDP socket: %w", err)
	}
	if t.stopped.Load() {
		return 0, nil
	}
	n, err := t.batch.ReadBatch(t.in, 0)
	if err != nil {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, nil
		case mendable(err):
			c.sockErrs++
			t.last = err
			return 0, nil
		}
		return 0, fmt.Errorf("receive from the NIC at %v: %w", t.route.nic.IP, err)
	}
	kept := 0
	for i := range t.in[:n] {
		if v, ok := checkPayload(t.in[i].Buffers[0][:t.in[i].N], t.route.elements); ok {
			t.views[kept] = v
			kept++
		} else {
			c.foreign++
		}
	}
	return kept, nil
}

func (t *udpTransport) result(i int) switchml.View { return t.views[i] }

func (t *udpTransport) interrupt() {
	t.stopped.Store(true)
	_ = t.conn.SetDeadline(longAgo) // fails on a closed socket only, which does not wait
}

func (t *udpTransport) resume() {
	t.stopped.Store(false)
	_ = t.conn.SetDeadline(time.Time{})
}

func (t *udpTransport) close() error { return t.conn.Close() }
func (t *udpTransport) fault() error { return t.last }
