package datagram

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"gradnic/wire/inet"
)

// UDP is a Transport over a UDP socket that is connected to the NIC, so that the kernel passes nothing from anyone else.
type UDP struct {
	conn  *net.UDPConn
	batch *ipv4.PacketConn
	in    []ipv4.Message
	out   packer
	got   [][]byte
	woken atomic.Bool

	sendFaults, recvFaults atomic.Uint64
	last                   atomic.Pointer[error]
}

// anonymous hides a socket's peer addresses from x/net: to a connected socket they say nothing, and parsing them
// allocates for every packet. SetLinger is what makes x/net treat the socket as one without addresses, like TCP.
type anonymous struct{ *net.UDPConn }

func (anonymous) SetLinger(int) error { return errors.ErrUnsupported }

// socketBuffer is asked for both ways: a burst of results must fit, each with the kernel's own overhead.
const socketBuffer = 4 << 20

// ipUDPLen is what the kernel puts in front of a payload, and an MTU has to have room for.
const ipUDPLen = inet.IPv4Len + inet.UDPLen

// NewUDP connects a socket to the NIC and takes it over. room is the longest payload that may come; a longer one is cut
// to one byte more.
func NewUDP(conn *net.UDPConn, nic Endpoint, room int) (*UDP, error) {
	t := &UDP{conn: conn, batch: ipv4.NewPacketConn(anonymous{conn})}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	var opErr error
	if err := raw.Control(func(fd uintptr) {
		opErr = unix.Connect(int(fd), &unix.SockaddrInet4{Addr: nic.IP, Port: int(nic.Port)})
		// A NIC puts no fragments together: what is longer than the interface takes is an error of Send.
		if err := unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_INTERFACE); opErr == nil {
			opErr = err
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer) // as much as is allowed
		}
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, socketBuffer) != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, socketBuffer)
		}
		drain(int(fd))
	}); err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	if opErr != nil {
		return nil, fmt.Errorf("connect UDP socket to the NIC at %v port %d: %w", nic.IP, nic.Port, opErr)
	}
	t.in, t.out = make([]ipv4.Message, Burst), newPacker()
	t.got = make([][]byte, 0, Burst)
	buf := make([]byte, Burst*(room+1))
	for i := range Burst {
		t.in[i].Buffers = [][]byte{buf[i*(room+1) : (i+1)*(room+1)]}
	}
	return t, nil
}

// drain throws away what a socket has received. Nothing of it is for this worker, which has sent nothing: it is late from
// who had the port before, and SwitchML's results would be taken for this session's.
func drain(fd int) {
	var b [1]byte
	for range socketBuffer { // each takes a byte of the buffer at least
		if _, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT); err != nil && err != unix.EINTR {
			return
		}
	}
}

// Segment makes Send hand over datagrams of one length together, as far as the kernel and the way to the NIC take that
// (UDP_SEGMENT), which spares CPU time for each of them. It reports whether the kernel knows it; call it before the first
// Send. It is only for a NIC that is behind a device which cuts the datagrams: hardware, or a veth whose other end has
// native XDP. Generic XDP, or a packet socket, on the other end of a veth or tap would see them uncut, and lose them.
func (t *UDP) Segment() (bool, error) {
	raw, err := t.conn.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("UDP socket: %w", err)
	}
	if err := raw.Control(func(fd uintptr) {
		_, unknown := unix.GetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT)
		t.out.segments = unknown == nil
	}); err != nil {
		return false, fmt.Errorf("UDP socket: %w", err)
	}
	return t.out.segments, nil
}

// Send implements Transport.
func (t *UDP) Send(frames [][]byte) error {
	for len(frames) > 0 {
		ms := t.out.pack(frames[:min(len(frames), Burst)])
		sent, err := t.batch.WriteBatch(ms, 0)
		sent = max(sent, 0)
		if err != nil {
			switch {
			case len(ms[sent].OOB) > 0 && unsegmentable(err):
				t.out.segments = false // the same again, as single datagrams
			case mendable(err):
				t.sendFaults.Add(1)
				t.note(err)
				sent++ // the one that failed counts as lost
			case errors.Is(err, unix.EMSGSIZE):
				return fmt.Errorf("send to the NIC: %w: it takes an MTU of %d here, at the NIC and in between, or a job of fewer elements a packet",
					err, len(ms[sent].Buffers[0])+ipUDPLen)
			default:
				return fmt.Errorf("send to the NIC: %w", err)
			}
		}
		for i := range ms[:sent] {
			frames = frames[len(ms[i].Buffers):]
		}
	}
	return nil
}

// glance is how long a socket is looked at when the time is over already.
const glance = 200 * time.Microsecond

// Recv implements Transport.
func (t *UDP) Recv(until time.Time) ([][]byte, error) {
	// With a deadline in the past a read fails without looking: results that came while this thread did not run
	// would stay unread, and their packets be resent.
	if soon := time.Now().Add(glance); until.Before(soon) {
		until = soon
	}
	// The deadline first, then the flag: Wake sets the flag first and the deadline then, so one of the two is seen.
	if err := t.conn.SetReadDeadline(until); err != nil {
		return nil, fmt.Errorf("UDP socket: %w", err)
	}
	if t.woken.Swap(false) {
		return nil, nil
	}
	n, err := t.batch.ReadBatch(t.in, 0)
	if err != nil {
		t.woken.Store(false)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, nil
		case mendable(err):
			t.recvFaults.Add(1)
			t.note(err)
			return nil, nil
		}
		return nil, fmt.Errorf("receive from the NIC: %w", err)
	}
	t.got = t.got[:0]
	for i := range t.in[:n] {
		t.got = append(t.got, t.in[i].Buffers[0][:t.in[i].N])
	}
	return t.got, nil
}

// Wake implements Transport.
func (t *UDP) Wake() {
	t.woken.Store(true)
	_ = t.conn.SetReadDeadline(longAgo) // fails on a closed socket only, which does not wait
}

// Faults implements Transport.
func (t *UDP) Faults() Faults {
	f := Faults{Socket: t.sendFaults.Load() + t.recvFaults.Load()}
	if e := t.last.Load(); e != nil {
		f.Last = *e
	}
	return f
}

// Close implements Transport.
func (t *UDP) Close() error { return t.conn.Close() }

// note keeps the last error. err escapes here, and not in every call that succeeds.
func (t *UDP) note(err error) { t.last.Store(&err) }
