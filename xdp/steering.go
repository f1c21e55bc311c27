package xdp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"gradnic/xdp/bpf"
)

// Flags of the steering program's configuration, as in bpf/steer.c.
const (
	flagWholePort  = 1
	flagHasAddress = 2
	flagHasBudgets = 4
)

// MaxQueues is how many receive queues of a netdev can have a socket.
const MaxQueues = 1024

// Steering is the steering program on one netdev. Its methods may be called by
// several goroutines, at any time beside running traffic. A socket that is bound to
// it keeps it alive: as long as either is referenced, neither the program nor its
// maps are closed by the collector.
type Steering struct {
	mu        sync.Mutex
	coll      *ebpf.Collection
	program   *ebpf.Program
	ability   ability       // of program
	learned   *ebpf.Program // program, once it is another than coll's; the link's then
	sums      *Sums         // nil: none
	memory    *Sums         // of program, when it can sum up
	multi     bool
	config    *ebpf.Map
	ports     *ebpf.Map
	sockets   *ebpf.Map
	verdicts  *ebpf.Map
	accounts  *ebpf.Map
	streams   *ebpf.Map
	day       *ebpf.Map
	link      link.Link
	mode      Mode
	ifindex   int
	programID uint32
	nativeErr error

	settings bpf.SteerAddress
	words    [1024]uint64 // what the ports map holds
	closed   bool
	last     Counters // as read by Close

	budgets   budgets
	lastSpent []Spent // as read by Close
}

// ErrClosed is what a closed Steering returns.
var ErrClosed = errors.New("the steering program is detached")

// SetAddress sets the MAC and IPv4 address that are the NIC's own. The kernel must
// not have that IP on this netdev, or both would answer.
func (st *Steering) SetAddress(mac [6]byte, ip [4]byte) error {
	return st.change(func(c *bpf.SteerAddress) {
		c.Mac, c.Ip = mac, ip
		c.Flags |= flagHasAddress
	})
}

// SetWholePort makes every frame of the netdev the NIC's, whatever it is addressed
// to: for a bump in the wire, and for benchmarks. The host then cannot be reached
// over this netdev.
func (st *Steering) SetWholePort(on bool) error {
	return st.change(func(c *bpf.SteerAddress) {
		c.Flags &^= flagWholePort
		if on {
			c.Flags |= flagWholePort
		}
	})
}

func (st *Steering) change(f func(*bpf.SteerAddress)) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return ErrClosed
	}
	return st.configure(f)
}

// configure is change with st.mu held, of a Steering that is open.
func (st *Steering) configure(f func(*bpf.SteerAddress)) error {
	next := st.settings
	f(&next)
	// The program comes before what it is to do. One that could do more than it has to is left where it is.
	need := steers
	switch {
	case next.Flags&(flagSink|flagReflect) != 0:
		need = answers
	case next.Flags&flagSums != 0:
		need = sums
	}
	if need != steers {
		if err := st.learn(need); err != nil {
			return err
		}
	}
	if err := st.config.Put(uint32(0), next); err != nil {
		return fmt.Errorf("steering: configure: %w", err)
	}
	st.settings = next
	return nil
}

// SetPorts sets the UDP destination ports that are served, instead of those set
// before. None stops serving. Ports that stay are served without a gap.
func (st *Steering) SetPorts(ports []uint16) error {
	var want [1024]uint64
	for _, p := range ports {
		want[p>>6] |= 1 << (p & 63)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return ErrClosed
	}
	for i, w := range want {
		if w == st.words[i] {
			continue
		}
		if err := st.ports.Put(uint32(i), w); err != nil {
			return fmt.Errorf("steering: ports %d to %d: %w", i<<6, i<<6+63, err)
		}
		st.words[i] = w
	}
	return nil
}

// Ports is SetPorts' counterpart for ranges: the ports first to last, both included.
func Ports(first, last uint16) []uint16 {
	var ports []uint16
	for p := int(first); p <= int(last); p++ {
		ports = append(ports, uint16(p))
	}
	return ports
}

// Bind sends what is taken on a receive queue to a socket. A socket receives what
// arrives on the queue that it is bound to, so queue is the socket's own.
func (st *Steering) Bind(queue int, s *Socket) error {
	if queue < 0 || queue >= MaxQueues {
		return fmt.Errorf("steering: queue %d: legal are 0 to %d", queue, MaxQueues-1)
	}
	if s.queue != queue || st.ifindex != 0 && s.ifindex != st.ifindex {
		return fmt.Errorf("steering: socket of queue %d of interface %d cannot receive from queue %d of interface %d", s.queue, s.ifindex, queue, st.ifindex)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return ErrClosed
	}
	if s.fd < 0 {
		return fmt.Errorf("steering: bind queue %d: the socket is closed", queue)
	}
	if err := st.sockets.Put(uint32(queue), uint32(s.fd)); err != nil {
		return fmt.Errorf("steering: bind queue %d: %w", queue, err)
	}
	s.steering = st
	return nil
}

// Unbind leaves the frames of a queue to the kernel. It is idempotent, and not needed
// before the socket is closed: the kernel then removes it by itself.
func (st *Steering) Unbind(queue int) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil
	}
	if err := st.sockets.Delete(uint32(queue)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("steering: unbind queue %d: %w", queue, err)
	}
	return nil
}

// Mode tells where the program runs, Native or Generic.
func (st *Steering) Mode() Mode { return st.mode }

// NativeError tells why a program attached in Auto mode does not run in the driver;
// nil when it does or was not asked to.
func (st *Steering) NativeError() error { return st.nativeErr }

// ProgramID is the program's id in the kernel, as `ip link` shows it; 0 when the kernel does not say. SetAnswer and
// SetSums may change it.
func (st *Steering) ProgramID() uint32 {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.programID
}

// IfIndex is the netdev's index.
func (st *Steering) IfIndex() int { return st.ifindex }

// Counters reads the verdicts so far. After Close it gives the last ones.
func (st *Steering) Counters() (Counters, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return st.last, nil
	}
	return st.read()
}

func (st *Steering) read() (Counters, error) {
	var c Counters
	var perCPU []uint64
	for v := range c {
		if err := st.verdicts.Lookup(uint32(v), &perCPU); err != nil {
			return c, fmt.Errorf("steering: counter %s: %w", Verdict(v), err)
		}
		for _, n := range perCPU {
			c[v] += n
		}
	}
	return c, nil
}

// Close detaches the program and frees its maps. The netdev is then as it was before
// Attach. It is idempotent; the sockets stay open.
func (st *Steering) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return nil
	}
	st.closed = true
	var errs []error
	if st.link != nil {
		if err := st.link.Close(); err != nil {
			errs = append(errs, fmt.Errorf("steering: detach: %w", err))
		}
	}
	// Nothing counts any more once the program is off the netdev.
	last, err := st.read()
	if err != nil {
		errs = append(errs, err)
	}
	st.last = last
	if st.lastSpent, err = st.budgets.read(); err != nil {
		errs = append(errs, err)
	}
	if st.learned != nil {
		if err := st.learned.Close(); err != nil {
			errs = append(errs, fmt.Errorf("steering: close program %s: %w", st.ability.program(st.multi), err))
		}
	}
	st.coll.Close()
	return errors.Join(errs...)
}
