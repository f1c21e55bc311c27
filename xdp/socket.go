package xdp

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MinRing and MaxRing bound the entries of a ring; between them each power of
	// two is legal.
	MinRing = 2
	MaxRing = 1 << 20
	// NoRing leaves the RX or the TX ring out.
	NoRing = -1

	defaultRing     = 2048
	maxDefaultFill  = 1 << 16
	defaultTxBudget = 256
	kernelTxBudget  = 32 // TX_BATCH_SIZE, what the kernel has without the option
)

// BusyPoll asks the kernel to run the netdev's receive work inside our own system
// calls (SO_PREFER_BUSY_POLL) instead of in softirq. It is made for real NICs with
// gro_flush_timeout and napi_defer_hard_irqs set; on veth it makes things slower.
// The zero value leaves it off.
type BusyPoll struct {
	// Microseconds is SO_BUSY_POLL: how long a call may poll, above 0 to turn it on.
	Microseconds int
	// Budget is SO_BUSY_POLL_BUDGET, frames a call. Zero means 64.
	Budget int
}

// SocketOptions describes one socket: one queue of one netdev.
type SocketOptions struct {
	// IfIndex names the netdev, in the network namespace of the calling thread.
	IfIndex int
	// Queue is the hardware queue, from 0.
	Queue int

	// Entries of the rings, each a power of two from MinRing to MaxRing. Zero
	// means 2048 for RX, TX and completion, and for the fill ring twice the
	// UMEM's chunks rounded up to a power of two, at most 65536. RxSize or TxSize may be
	// NoRing, not both.
	FillSize, RxSize, TxSize, CompletionSize int

	// ForceCopy and ForceZeroCopy make Open fail when the mode cannot be had.
	// With neither, the first socket of a UMEM finds out whether its netdev does
	// zero-copy and uses it, else copy mode. All sockets of a UMEM have the same mode.
	ForceCopy, ForceZeroCopy bool
	// NoNeedWakeup binds without XDP_USE_NEED_WAKEUP: each transmit then asks for
	// a system call. All sockets of a UMEM agree in this.
	NoNeedWakeup bool
	// MultiBuffer binds with XDP_USE_SG (Linux 6.6): a frame may span several
	// descriptors. All sockets of a UMEM agree in this.
	MultiBuffer bool

	// TxBudget is XDP_MAX_TX_SKB_BUDGET: how many frames one wake-up may send in
	// copy mode, 32 to TxSize. Zero means 256 (less with a smaller TX ring), -1
	// leaves the kernel's 32. A kernel without the option has 32 (Mode says which).
	TxBudget int
	BusyPoll BusyPoll

	// BindTimeout bounds the wait for a queue that another socket holds (EBUSY):
	// the kernel lets go of a closed socket's queue some milliseconds late, on a
	// busy machine seconds. Zero means 2 s where a living socket of the namespace is
	// seen to have the queue, else 15 s (5 s on kernels that do not list such sockets); negative means not to wait.
	BindTimeout time.Duration
	letGo       time.Duration // BindTimeout where no living socket is seen to have the queue; set by check
}

// Socket is one AF_XDP socket with its four rings. All methods but Close,
// Statistics and FD belong to one goroutine, the owner; none of the batch calls blocks,
// locks or allocates.
type Socket struct {
	rx     rxRing
	fill   fillRing
	tx     txRing
	comp   completionRing
	mask   uint64
	fd     int
	filled uint64
	recvd  uint64
	posted uint64
	done   uint64

	dropped atomic.Uint64 // the most that Statistics has told as RxDropped in copy mode

	zeroCopy   bool
	needWakeup bool
	multi      bool
	busyPoll   bool
	txBudget   int
	// lateConsumer: a call that ended at the budget may have sent although the TX ring's consumer index has not moved.
	lateConsumer bool
	wakeTx       func(fd int) unix.Errno // sendWake
	wakeRx       func(fd int) unix.Errno // receiveWake

	umem     *UMEM
	steering *Steering // keeps the steering program's link and maps from the collector
	maps     [4]ringMap
	ifindex  int
	queue    int
	gone     [3]uint32 // what the ring indices point to once the rings are unmapped
}

// checkRing validates one ring's size; nothing has been asked of the kernel yet.
func checkRing(name string, n int) error {
	if n < MinRing || n > MaxRing || bits.OnesCount(uint(n)) != 1 {
		return fmt.Errorf("%s ring of %d entries: legal are powers of two from %d to %d", name, n, MinRing, MaxRing)
	}
	return nil
}

// check fills in the defaults and validates before any system call.
func (o *SocketOptions) check(chunks int) error {
	if o.IfIndex < 1 {
		return fmt.Errorf("interface index %d: legal are 1 and up", o.IfIndex)
	}
	if o.Queue < 0 || o.Queue > 1<<16 {
		return fmt.Errorf("queue %d: legal are 0 to %d", o.Queue, 1<<16)
	}
	if o.ForceCopy && o.ForceZeroCopy {
		return errors.New("copy and zero-copy are both forced: choose one")
	}
	for _, r := range []struct {
		name string
		n    *int
		def  int
		none bool
	}{
		{"fill", &o.FillSize, defaultFill(chunks), false},
		{"rx", &o.RxSize, defaultRing, true},
		{"tx", &o.TxSize, defaultRing, true},
		{"completion", &o.CompletionSize, defaultRing, false},
	} {
		if *r.n == 0 {
			*r.n = r.def
		}
		if r.none && *r.n == NoRing {
			*r.n = 0
			continue
		}
		if err := checkRing(r.name, *r.n); err != nil {
			return err
		}
	}
	if o.RxSize == 0 && o.TxSize == 0 {
		return errors.New("neither an rx nor a tx ring: a socket needs one")
	}
	switch {
	case o.TxBudget == 0:
		o.TxBudget = min(defaultTxBudget, o.TxSize)
		if o.TxBudget < kernelTxBudget {
			o.TxBudget = -1 // the option takes nothing below the kernel's own
		}
	case o.TxBudget == -1:
	case o.TxBudget < kernelTxBudget || o.TxBudget > o.TxSize:
		return fmt.Errorf("tx budget %d: legal are %d to the tx ring's %d entries", o.TxBudget, kernelTxBudget, o.TxSize)
	}
	if o.BusyPoll.Microseconds < 0 || o.BusyPoll.Budget < 0 || o.BusyPoll.Budget > 1<<16-1 {
		return fmt.Errorf("busy poll %d us, budget %d: legal are 0 and up, budget to 65535", o.BusyPoll.Microseconds, o.BusyPoll.Budget)
	}
	if o.BusyPoll.Budget == 0 {
		o.BusyPoll.Budget = 64
	}
	switch {
	case o.BindTimeout == 0:
		o.BindTimeout, o.letGo = defaultBind, letGoBind
	case o.letGo == 0:
		o.letGo = o.BindTimeout
	}
	return nil
}

func defaultFill(chunks int) int {
	n := min(uint(chunks), maxDefaultFill/2)
	return max(MinRing, 1<<bits.Len(2*n-1))
}

// Fill offers empty chunks to the kernel and returns how many it took, from the
// front. An address anywhere in a chunk stands for the chunk.
func (s *Socket) Fill(addrs []uint64) int {
	n := s.fill.put(addrs, s.mask)
	s.filled += uint64(n)
	return n
}

// FillDescs is Fill for the chunks of descriptors: what was received goes back as it is.
func (s *Socket) FillDescs(d []Desc) int {
	n := s.fill.putDesc(d, s.mask)
	s.filled += uint64(n)
	return n
}

// Receive copies up to len(out) received descriptors and returns how many. With
// MultiBuffer the pieces of one frame follow each other, and may be split over two calls.
func (s *Socket) Receive(out []Desc) int {
	n := s.rx.take(out)
	s.recvd += uint64(n)
	return n
}

// Transmit posts descriptors and returns how many were taken, from the front. Kick
// tells the kernel. The kernel drops a descriptor of no length, out of the area or
// across a chunk's end, counts Statistics.TxInvalidDescs, and never completes it.
func (s *Socket) Transmit(d []Desc) int {
	n := s.tx.put(d)
	s.posted += uint64(n)
	return n
}

// Complete returns chunks that were transmitted, by their start address, one for
// each descriptor posted: a chunk posted k times comes back k times.
func (s *Socket) Complete(out []uint64) int {
	n := s.comp.take(out, s.mask)
	s.done += uint64(n)
	return n
}

// TxPending returns how many posted descriptors the kernel has not taken yet: while
// it is not zero the owner keeps completing and kicking.
func (s *Socket) TxPending() int { return int(s.tx.pending()) }

// FillPosted counts the chunks given to the kernel by Fill. With Received, TxPosted
// and Completed it makes the socket's side of the frame ledger: the kernel holds
// FillPosted - Received + TxPosted - Completed. Owner's goroutine only.
func (s *Socket) FillPosted() uint64 { return s.filled }

// Received counts the descriptors given out by Receive.
func (s *Socket) Received() uint64 { return s.recvd }

// TxPosted counts the descriptors taken by Transmit.
func (s *Socket) TxPosted() uint64 { return s.posted }

// Completed counts the chunks given out by Complete.
func (s *Socket) Completed() uint64 { return s.done }

// FD is the socket's file descriptor, for poll and epoll; -1 once closed.
func (s *Socket) FD() int { return s.fd }

// IfIndex and Queue say where the socket is bound.
func (s *Socket) IfIndex() int { return s.ifindex }

// Queue is the hardware queue.
func (s *Socket) Queue() int { return s.queue }

// UMEM is the memory that the socket's descriptors point into.
func (s *Socket) UMEM() *UMEM { return s.umem }

// ZeroCopy tells whether the driver itself reads and writes the UMEM.
func (s *Socket) ZeroCopy() bool { return s.zeroCopy }
