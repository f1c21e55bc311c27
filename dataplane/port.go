package dataplane

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/xdp"
)

// Desc is one frame: its offset in the area, and its length.
type Desc = xdp.Desc

// PortSpec is a port to be opened: an XDPPort, a *MemPort or a PcapPort.
type PortSpec interface {
	portName() string
	portKind() string
	// queueCount is how many queues open will make, for a NIC of this many lanes.
	queueCount(lanes int) (int, error)
	// open makes the port's queues, at least one a lane, in order. It may be called once.
	open(e *environment) (*openPort, error)
}

// environment is what a port is opened in.
type environment struct {
	cfg  *Config
	umem *xdp.UMEM
	// wake wakes the lane of this number when it sleeps.
	wake func(lane int)
	// budget is how many chunks each lane has for the port's queues; 0 is FramesPerQueue for each.
	budget int
	// longest is the longest frame in bytes; multi is true when frames may take several chunks.
	longest int
	multi   bool
	// serviceUDP is the UDP ports of services, asked for when ingress starts.
	serviceUDP func() []uint16
	// bindTimeout bounds the wait for a queue that is being let go; 0 is xdp's default.
	bindTimeout time.Duration
}

// openPort is a port that is open. The functions are called by the NIC's control side, never by a lane.
type openPort struct {
	queues   []queue
	depth    int // chunks a queue, half for each direction; 0 means Config.FramesPerQueue
	mode     string
	zeroCopy bool
	sockets  string // how the sockets are bound, for people; "" for other ports
	noNative string // why the program is not in the driver although it was tried; "" when it is
	// attach starts ingress, detach stops it and leaves the queues alone; close ends the queues. Each may be
	// nil; detach and close are idempotent, and safe when attach was not called.
	attach func() error
	detach func() error
	close  func() error
	// serve adds UDP ports of the NIC's own address to those that are taken, instead of those added before; nil when the
	// port takes everything anyway.
	serve func(udp []uint16) error
	// statistics reads the kernel's counters.
	statistics func() (KernelStatistics, error)
	// perQueue reads them of each queue that is open; nil for ports without.
	perQueue func() ([]KernelStatistics, error)
	// steering reads the steering program's counters; nil when there is none.
	steering func() (xdp.Counters, error)
	// budgets sets the packet budgets, before attach or later; spent reads what was charged. nil when there is no
	// steering program.
	budgets func(*xdp.Budgets) error
	spent   func() ([]xdp.Spent, error)
	// answer tells the steering program what to do by itself, before attach or later; accounts reads what it has seen of
	// pktgen. nil when there is no steering program.
	answer   func(a xdp.Answer, account bool) error
	sums     func(*xdp.Sums) error // has it add up what workers contribute; nil ends that
	accounts func() ([]xdp.Account, error)
	// netdev is what the queues were opened on, for the supervisor; zero for other ports.
	netdev netdev
}

// queue is one queue of a port as its lane sees it, with the meaning of AF_XDP's four rings. Every call takes a
// batch, never blocks and never allocates; one goroutine calls.
type queue interface {
	// Fill gives chunks to receive into and returns how many were taken.
	Fill(addrs []uint64) int
	// Receive takes received frames.
	Receive(out []Desc) int
	// Transmit posts frames and returns how many were taken.
	Transmit(d []Desc) int
	// Complete takes the addresses of frames that were sent.
	Complete(out []uint64) int
	// Kick starts transmission of what was posted. Busy is not an error.
	Kick() error
	// TxPending returns how many posted frames have not been taken yet: Kick again while it is not zero.
	TxPending() int
	// WakeReceive tells the kernel that the fill ring has chunks again, where it wants to be told.
	WakeReceive() error
	// FD is what poll waits on, -1 when there is nothing to wait on.
	FD() int
	// Pending is true when Receive or Complete would give something and poll would not tell.
	Pending() bool
}

// port is the NIC's record of one port.
type port struct {
	index    int
	spec     PortSpec
	name     string
	kind     string
	open     *openPort
	function Function
	impair   *impairState
	budget   int          // chunks that each lane has for the port
	setBack  func() error // how the netdev is set as it was found; nil when there is nothing to do

	state    PortState
	why      string // it is not up
	rebuilds uint64
	// lastIndex is the netdev that was set up last; the supervisor's.
	lastIndex int
	// What closed sockets and steering programs have counted.
	pastKernel   KernelStatistics
	pastSteering xdp.Counters
	pastSpent    map[string][2]uint64 // frames taken and dropped, by budget
}

// failed says of which port an error of opening it is, and what mends it where the error does not.
func (p *port) failed(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: start as root, or grant CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF (gradnic doctor says what is missing)", err)
	}
	return fmt.Errorf("port %s: %w", p.name, err)
}

// impairState is a port's impairment as all lanes share it: the k-th frame counts over all of a port's queues.
type impairState struct {
	Impairment
	ingress, egress atomic.Uint64
}

func checkPorts(specs []PortSpec) error {
	if len(specs) == 0 || len(specs) > MaxPorts {
		return fmt.Errorf("%d ports: legal are 1 to %d", len(specs), MaxPorts)
	}
	seen := map[string]int{}
	for i, s := range specs {
		if s == nil {
			return fmt.Errorf("port %d is nil", i)
		}
		name := s.portName()
		if name == "" {
			return fmt.Errorf("port %d has no name", i)
		}
		if j, ok := seen[name]; ok {
			return fmt.Errorf("ports %d and %d are both named %s", j, i, name)
		}
		seen[name] = i
	}
	return nil
}
