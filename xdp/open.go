package xdp

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Open opens a socket on one queue of one netdev and binds it. The calling thread
// must be in the netdev's network namespace. Sockets of one UMEM may be on any
// queues, netdevs and namespaces, but each (netdev, queue) once.
//
// The first socket decides for all: copy or zero-copy, need-wakeup, multi-buffer.
// Errors of a later socket that asks for something else name both.
func (u *UMEM) Open(o SocketOptions) (*Socket, error) {
	if err := o.check(u.chunks); err != nil {
		return nil, fmt.Errorf("open queue %d of interface %d: %w", o.Queue, o.IfIndex, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return nil, fmt.Errorf("open queue %d of interface %d: the umem is closed", o.Queue, o.IfIndex)
	}
	s, err := u.open(&o)
	if err != nil {
		return nil, fmt.Errorf("open queue %d of %s: %w", o.Queue, interfaceName(o.IfIndex), err)
	}
	u.sockets[s] = struct{}{}
	return s, nil
}

func (u *UMEM) open(o *SocketOptions) (*Socket, error) {
	if u.shared.fixed && len(u.sockets) == 0 && u.anchor < 0 {
		u.shared = sharedMode{} // the registration went with its last socket
	}
	if !u.shared.fixed {
		if err := u.decide(o); err != nil {
			return nil, err
		}
	}
	if err := u.shared.agrees(o); err != nil {
		return nil, err
	}
	s := &Socket{
		fd: -1, umem: u, mask: u.mask, ifindex: o.IfIndex, queue: o.Queue,
		needWakeup: !o.NoNeedWakeup, multi: o.MultiBuffer,
		wakeTx: sendWake, wakeRx: receiveWake,
	}
	s.forgetRings()
	if err := s.setUp(o); err != nil {
		return nil, errors.Join(err, s.release())
	}
	u.shared = sharedMode{fixed: true, zeroCopy: s.zeroCopy, needWakeup: !o.NoNeedWakeup, multi: s.multi}
	return s, nil
}

// decide chooses, before the first socket of a UMEM, whether an anchor holds the
// registration.
func (u *UMEM) decide(o *SocketOptions) error {
	if u.noAnchor || o.ForceZeroCopy {
		return nil
	}
	if !o.ForceCopy {
		zc, err := probe(*o)
		if err != nil {
			return err
		}
		if zc {
			return nil
		}
	}
	fd, err := u.openAnchor(!o.NoNeedWakeup, o.MultiBuffer)
	switch {
	case err == nil:
		u.anchor, u.noAnchorBecause = fd, nil
		u.shared = sharedMode{fixed: true, needWakeup: !o.NoNeedWakeup, multi: o.MultiBuffer}
	case errors.Is(err, unix.EPERM):
		// A namespace takes CAP_SYS_ADMIN. Without it the first socket holds the
		// registration, and the rest share it as long as one of them is bound.
		u.noAnchorBecause = err
	case o.MultiBuffer && errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%w (multi-buffer sockets need Linux 6.6)", err)
	default:
		return err
	}
	return nil
}

// agrees refuses options that the kernel would silently replace by the first socket's.
func (m sharedMode) agrees(o *SocketOptions) error {
	if !m.fixed {
		return nil
	}
	mode := map[bool]string{true: "zero-copy", false: "copy"}[m.zeroCopy]
	switch {
	case o.ForceZeroCopy && !m.zeroCopy, o.ForceCopy && m.zeroCopy:
		return fmt.Errorf("the umem's first socket is bound in %s mode, which all its sockets share: open the forced mode first, on a umem of its own", mode)
	case o.NoNeedWakeup == m.needWakeup:
		return fmt.Errorf("need-wakeup %t: the umem's first socket has %t, which all its sockets share", !o.NoNeedWakeup, m.needWakeup)
	case o.MultiBuffer != m.multi:
		return fmt.Errorf("multi-buffer %t: the umem's first socket has %t, which all its sockets share", o.MultiBuffer, m.multi)
	}
	return nil
}

// setUp makes the rings, binds, and reads back what the kernel made of it.
func (s *Socket) setUp(o *SocketOptions) error {
	var err error
	s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.fd = -1
		return fmt.Errorf("AF_XDP socket: %w", err)
	}
	if !s.umem.shared.fixed {
		if err := s.umem.register(s.fd); err != nil {
			return err
		}
	}
	for _, r := range []struct {
		option, n int
	}{
		{unix.XDP_UMEM_FILL_RING, o.FillSize},
		{unix.XDP_UMEM_COMPLETION_RING, o.CompletionSize},
		{unix.XDP_RX_RING, o.RxSize},
		{unix.XDP_TX_RING, o.TxSize},
	} {
		if r.n == 0 {
			continue
		}
		if err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, r.option, r.n); err != nil {
			return fmt.Errorf("ring of %d entries: %w", r.n, err)
		}
	}
	if err := s.mapRings(o); err != nil {
		return err
	}
	if err := s.setOptions(o); err != nil {
		return err
	}
	if err := s.bind(o); err != nil {
		return err
	}
	flags, err := socketFlags(s.fd)
	if err != nil {
		return fmt.Errorf("read XDP_OPTIONS: %w", err)
	}
	s.zeroCopy = optionsZeroCopy(flags)
	// In copy mode the kernel sets the TX ring's flag at bind and leaves it set. Before
	// Linux 6.1 a socket that shares another's registration did not inherit
	// need-wakeup: its flag is never set, and each transmit must ask.
	if s.needWakeup && !s.zeroCopy && o.TxSize != 0 && !s.tx.needsWakeup() {
		s.needWakeup = false
	}
	return nil
}

func (s *Socket) mapRings(o *SocketOptions) error {
	off, err := mmapOffsets(s.fd)
	if err != nil {
		return fmt.Errorf("read XDP_MMAP_OFFSETS: %w", err)
	}
	for i, r := range []struct {
		page int64
		off  unix.XDPRingOffset
		n    int
		size uint32
	}{
		{unix.XDP_UMEM_PGOFF_FILL_RING, off.Fr, o.FillSize, 8},
		{unix.XDP_UMEM_PGOFF_COMPLETION_RING, off.Cr, o.CompletionSize, 8},
		{unix.XDP_PGOFF_RX_RING, off.Rx, o.RxSize, 16},
		{unix.XDP_PGOFF_TX_RING, off.Tx, o.TxSize, 16},
	} {
		if r.n == 0 {
			continue
		}
		if s.maps[i], err = mapRing(s.fd, r.page, r.off, uint32(r.n), r.size); err != nil {
			return err
		}
	}
	s.fill = fillRing{s.maps[0].producer(), s.maps[0].addrs()}
	s.comp = completionRing{s.maps[1].consumer(), s.maps[1].addrs()}
	if o.RxSize != 0 {
		s.rx = rxRing{s.maps[2].consumer(), s.maps[2].descs()}
	}
	if o.TxSize != 0 {
		s.tx = txRing{s.maps[3].producer(), s.maps[3].descs()}
	}
	return nil
}

// sendBuffer is room for the frames of a full TX ring, each with the kernel's own overhead.
const sendBuffer = 16 << 20

// setOptions sets what is to be set before bind.
func (s *Socket) setOptions(o *SocketOptions) error {
	s.txBudget = kernelTxBudget
	// The kernel's own budget is set too: it changes nothing, and a kernel without the option (before 6.17) is one that
	// moves the consumer index late. A smaller ring never gets to the end of a budget.
	if budget := max(o.TxBudget, kernelTxBudget); o.TxSize >= kernelTxBudget {
		err := unix.SetsockoptInt(s.fd, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, budget)
		switch {
		case err == nil:
			s.txBudget = budget
		case errors.Is(err, unix.ENOPROTOOPT):
			s.lateConsumer = true
		default:
			return fmt.Errorf("XDP_MAX_TX_SKB_BUDGET %d: %w", budget, err)
		}
	}
	// In copy mode what was sent and waits in a queue counts against the socket's buffer; what is full makes every call
	// fail until some of it left. The completion ring bounds it as well.
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer) // as much as is allowed
	}
	if o.BusyPoll.Microseconds > 0 {
		for _, opt := range []struct {
			name     string
			opt, val int
		}{
			{"SO_PREFER_BUSY_POLL", unix.SO_PREFER_BUSY_POLL, 1},
			{"SO_BUSY_POLL", unix.SO_BUSY_POLL, o.BusyPoll.Microseconds},
			{"SO_BUSY_POLL_BUDGET", unix.SO_BUSY_POLL_BUDGET, o.BusyPoll.Budget},
		} {
			if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, opt.opt, opt.val); err != nil {
				return fmt.Errorf("%s %d: %w", opt.name, opt.val, err)
			}
		}
		s.busyPoll = true
	}
	return nil
}

// bind binds, waiting for a queue that is just being let go.
func (s *Socket) bind(o *SocketOptions) error {
	err := whenLetGo(o.BindTimeout, o.letGo, func() error { return s.bindOnce(o) }, func() (bool, error) { return queueHeld(o.IfIndex, o.Queue) })
	switch {
	case err == nil:
		return nil
	case o.ForceZeroCopy && errors.Is(err, unix.EOPNOTSUPP):
		return fmt.Errorf("bind: the driver has no zero-copy: %w", err)
	case errors.Is(err, unix.EINVAL) && o.MultiBuffer && !s.umem.shared.fixed:
		return fmt.Errorf("bind: %w (multi-buffer sockets need Linux 6.6; or no such queue? see ethtool -l)", err)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("bind: %w (no such queue? see ethtool -l)", err)
	default:
		return fmt.Errorf("bind: %w", err)
	}
}

// bindOnce binds to the registration: our own when this is the first socket, else
// that of the anchor or of any sibling that is still bound.
func (s *Socket) bindOnce(o *SocketOptions) error {
	sa := unix.SockaddrXDP{Ifindex: uint32(o.IfIndex), QueueID: uint32(o.Queue)}
	u := s.umem
	if !u.shared.fixed {
		sa.Flags = modeFlags(s.needWakeup, s.multi)
		switch {
		case o.ForceZeroCopy:
			sa.Flags |= unix.XDP_ZEROCOPY
		case o.ForceCopy:
			sa.Flags |= unix.XDP_COPY
		}
		return unix.Bind(s.fd, &sa)
	}
	sa.Flags = unix.XDP_SHARED_UMEM
	if u.anchor >= 0 {
		sa.SharedUmemFD = uint32(u.anchor)
		return unix.Bind(s.fd, &sa)
	}
	err := error(unix.EBADF)
	for sibling := range u.sockets {
		sa.SharedUmemFD = uint32(sibling.fd)
		// EBADF: that sibling's netdev is gone, and the sibling with it.
		if err = unix.Bind(s.fd, &sa); !errors.Is(err, unix.EBADF) {
			return err
		}
	}
	return err
}

// ProbeZeroCopy tells whether a queue can be bound in zero-copy mode, by doing so for
// a moment with a UMEM of its own. A driver without zero-copy refuses at once, and
// nothing was touched; a driver with it sets up the queue twice. A queue that is
// held by another socket is an error after BindTimeout's default.
func ProbeZeroCopy(ifindex, queue int) (bool, error) {
	zc, err := probe(SocketOptions{IfIndex: ifindex, Queue: queue})
	if err != nil {
		return false, fmt.Errorf("probe zero-copy of queue %d of %s: %w", queue, interfaceName(ifindex), err)
	}
	return zc, nil
}

func probe(o SocketOptions) (bool, error) {
	o = SocketOptions{
		IfIndex: o.IfIndex, Queue: o.Queue, BindTimeout: o.BindTimeout, letGo: o.letGo, ForceZeroCopy: true,
		FillSize: MinRing, RxSize: MinRing, TxSize: MinRing, CompletionSize: MinRing, TxBudget: -1,
	}
	if err := o.check(2); err != nil {
		return false, err
	}
	u, err := NewUMEM(UMEMOptions{Chunks: 2, ChunkSize: 2048, NoAnchor: true})
	if err != nil {
		return false, err
	}
	s, err := u.open(&o)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return false, u.Close()
	}
	if err != nil {
		return false, errors.Join(err, u.Close())
	}
	return true, errors.Join(s.Close(), u.Close())
}

// Close unbinds the socket and gives its rings back. Chunks that the kernel held
// are the UMEM's again. The kernel finishes the unbinding a moment later; Open waits
// for that. Close is idempotent and belongs to the owner: the batch calls of a
// closed socket find empty rings.
func (s *Socket) Close() error {
	s.umem.mu.Lock()
	defer s.umem.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	delete(s.umem.sockets, s)
	s.steering = nil
	if err := s.release(); err != nil {
		return fmt.Errorf("close queue %d of interface %d: %w", s.queue, s.ifindex, err)
	}
	return nil
}

// release unmaps the rings before it closes the descriptor: a mapping keeps the
// socket alive, its XSKMAP entry would go on to swallow frames.
func (s *Socket) release() error {
	s.forgetRings()
	var errs []error
	for i, m := range s.maps {
		if m.mem == nil {
			continue
		}
		if err := unix.Munmap(m.mem); err != nil {
			errs = append(errs, fmt.Errorf("munmap ring: %w", err))
		}
		s.maps[i] = ringMap{}
	}
	if s.fd >= 0 {
		if err := unix.Close(s.fd); err != nil {
			errs = append(errs, err)
		}
		s.fd = -1
	}
	return errors.Join(errs...)
}

// forgetRings points the rings to words of our own: rings of size 0, on which all
// batch calls return 0.
func (s *Socket) forgetRings() {
	s.gone = [3]uint32{}
	p := producer{prod: &s.gone[0], cons: &s.gone[1], flags: &s.gone[2]}
	c := consumer{prod: &s.gone[0], cons: &s.gone[1]}
	s.fill, s.tx = fillRing{producer: p}, txRing{producer: p}
	s.comp, s.rx = completionRing{consumer: c}, rxRing{consumer: c}
}

func interfaceName(ifindex int) string {
	ifi, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return fmt.Sprintf("interface %d (%v)", ifindex, err)
	}
	return ifi.Name
}
