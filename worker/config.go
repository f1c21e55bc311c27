package worker

import (
	"fmt"
	"net"
	"time"

	"gradnic/wire/inet"
	"gradnic/wire/switchml"
	"gradnic/worker/datagram"
	"gradnic/worker/rtt"
)

// Defaults of [Config], and limits.
const (
	DefaultPort        = 4000
	DefaultElements    = 256
	DefaultOutstanding = 64
	DefaultTimeout     = 10 * time.Millisecond
	DefaultMinTimeout  = 10 * time.Millisecond
	DefaultMaxTimeout  = 320 * time.Millisecond

	// MaxWorkers is the number of workers that a SwitchML switch can tell apart.
	MaxWorkers = 32
)

// NonFinite says what AllReduceFloat32 does with a block that holds a NaN, an
// infinity or a magnitude of 2^126 or more, which SwitchML's format cannot carry.
type NonFinite uint8

const (
	// Refuse sends a poison exponent for the block (codec.PoisonExponent), which
	// survives the switch's maximum: the block becomes NaN at every worker, the
	// rest of the array is summed, and AllReduceFloat32 returns a
	// *[NonFiniteError] at every worker. The session stays usable.
	Refuse NonFinite = iota
	// Saturate clamps magnitudes to the largest float32 below 2^126, turns NaN
	// into 0, and flags the block by the second exponent ([FlagExponent]). Workers that
	// saturate count flagged blocks in [Stats]; those that refuse return an error.
	Saturate
)

// FlagExponent in a block's second exponent says that some worker saturated
// values of it. The public client leaves that byte as it finds it in its buffer,
// so a job shared with it may see a flag that nobody raised, never miss one.
const FlagExponent int8 = 127

// FrameLink carries whole Ethernet frames, without the frame check sequence: the
// wire end of a port in memory, for example.
//
// Send may drop a frame when the link is full, as a wire does, silently or with an
// error that is os.ErrDeadlineExceeded; any other error ends the all-reduce. Recv waits for one frame until the deadline, copies it to buf and
// returns its length; when none comes it returns an error that is
// os.ErrDeadlineExceeded. With a deadline in the past it returns a frame that is
// there already, or that error. Frames must be kept in order.
// Send and Recv are called by one goroutine.
type FrameLink interface {
	Send(frame []byte) error
	Recv(buf []byte, deadline time.Time) (int, error)
}

// Config describes one worker. All workers of a job must agree on Workers,
// Elements, Threads, Outstanding and Port, and submit the same jobs in the same
// order with arrays of the same length: the protocol cannot find out otherwise,
// and the job then waits for ever.
type Config struct {
	// Rank is 0 to Workers-1. Workers is 1 to 32.
	Rank, Workers int

	// Controller is the address of SwitchML's controller, "host:port" or
	// "unix:///path". When it is empty no session is made: the job must be
	// installed in the NIC by other means, and NICIP must be set, with Link NICMAC too.
	Controller string
	NICMAC     inet.MAC
	NICIP      inet.Addr

	// IP is the worker's address. MAC is that of its interface; zero looks for
	// the interface that has IP, in this process's network namespace. UDP
	// packets leave from Port, with threads from Port+t; 0 means 4000.
	IP   inet.Addr
	MAC  inet.MAC
	Port int

	// Elements a packet: 64 or 256; 0 means 256.
	Elements int
	// Threads is the number of threads that share a job, each with its own slots
	// and socket; 0 means 1. The public client's default is 4.
	Threads int
	// Outstanding is the number of packets in flight, over all threads; 0 means
	// 64 a thread. It must be a multiple of Threads. The job needs
	// 2*(Outstanding/Threads)*(Threads-1) + Outstanding/Threads slots.
	Outstanding int

	// Timeout is how long the first packets wait for their result before they
	// are sent again; 0 means 10 ms. From then on the round trips measured
	// decide, within MinTimeout (0: 10 ms) and MaxTimeout (0: 320 ms). While
	// nothing at all comes in, the timeout doubles up to MaxTimeout. A packet that
	// is overtaken by the results of later ones does not wait for it.
	Timeout, MinTimeout, MaxTimeout time.Duration

	// NonFinite is the policy for floats that cannot be carried.
	NonFinite NonFinite

	// Link carries frames instead of UDP sockets. Threads must be 1.
	Link FrameLink
	// Conn is a UDP socket that is already open, in another network namespace
	// for example. It will be connected to the NIC, and closed with the worker.
	// Threads must be 1, and MAC must be set.
	Conn *net.UDPConn
	// Listen opens the socket of a thread; nil means net.ListenUDP. Not used
	// with Link or Conn.
	Listen func(addr *net.UDPAddr) (*net.UDPConn, error)

	// Group is the IPv4 multicast group that the job's results go to; zero: each worker gets its own. All workers must
	// have the job's: one that does not listen gets each result only when it asks again. All must have the same Port then.
	Group inet.Addr
	// ListenGroup opens what a thread hears the group by; room is the longest payload that may come. Nil joins it on
	// the interface that has IP, in the calling thread's network namespace. Not used with Link.
	ListenGroup func(group, nic datagram.Endpoint, room int) (datagram.Transport, error)

	// Waiting is told, from another goroutine, what Join waits for when a step of
	// it has taken 2 s; nil: nobody is. Join waits until its context ends.
	Waiting func(what string)
}

// Slots returns how many slots a job of this configuration needs.
func (c Config) Slots() int {
	t := max(c.Threads, 1)
	m := c.Outstanding / t
	if c.Outstanding == 0 {
		m = DefaultOutstanding
	}
	return 2*m*(t-1) + m
}

// Validate says whether [Join] would take the configuration.
func (c Config) Validate() error { return c.setDefaults() }

func (c *Config) timeouts() rtt.Bounds {
	return rtt.Bounds{First: c.Timeout, Least: c.MinTimeout, Most: c.MaxTimeout}
}

func (c *Config) setDefaults() error {
	if c.Workers < 1 || c.Workers > MaxWorkers {
		return fmt.Errorf("%d workers: legal are 1 to %d", c.Workers, MaxWorkers)
	}
	if c.Rank < 0 || c.Rank >= c.Workers {
		return fmt.Errorf("rank %d of %d workers: legal are 0 to %d", c.Rank, c.Workers, c.Workers-1)
	}
	if c.Elements == 0 {
		c.Elements = DefaultElements
	}
	if _, ok := switchml.SizeOf(c.Elements); !ok {
		return fmt.Errorf("%d elements a packet: legal are 64 and 256", c.Elements)
	}
	if c.Threads == 0 {
		c.Threads = 1
	}
	if c.Threads < 1 {
		return fmt.Errorf("%d threads: at least 1", c.Threads)
	}
	if c.Outstanding == 0 {
		c.Outstanding = DefaultOutstanding * c.Threads
	}
	if c.Outstanding < c.Threads || c.Outstanding%c.Threads != 0 {
		return fmt.Errorf("%d packets outstanding over %d threads: as many for each thread, at least 1", c.Outstanding, c.Threads)
	}
	if n := c.Slots(); n > switchml.Slots {
		return fmt.Errorf("%d packets outstanding over %d threads need %d slots: the protocol has %d",
			c.Outstanding, c.Threads, n, switchml.Slots)
	}
	if c.Port == 0 {
		c.Port = DefaultPort
	}
	if c.Port < 1 || c.Port+c.Threads-1 > 65535 {
		return fmt.Errorf("UDP port %d: legal are 1 to %d", c.Port, 65536-c.Threads)
	}
	t, err := c.timeouts().Defaulted(rtt.Bounds{First: DefaultTimeout, Least: DefaultMinTimeout, Most: DefaultMaxTimeout})
	if err != nil {
		return err
	}
	c.Timeout, c.MinTimeout, c.MaxTimeout = t.First, t.Least, t.Most
	if c.NonFinite > Saturate {
		return fmt.Errorf("policy %d for non-finite values: legal are Refuse and Saturate", c.NonFinite)
	}
	if c.Link != nil && (c.Threads != 1 || c.Conn != nil) {
		return fmt.Errorf("a frame link serves one thread and needs no socket: %d threads", c.Threads)
	}
	if c.Conn != nil && c.Threads != 1 {
		return fmt.Errorf("an open socket serves one thread, not %d: use Listen", c.Threads)
	}
	if !c.IP.IsUnicast() {
		return fmt.Errorf("worker's IP %v: not an address of a host", c.IP)
	}
	if c.Controller == "" && (c.NICMAC.IsZero() && c.Link != nil || !c.NICIP.IsUnicast()) {
		return fmt.Errorf("no controller, and no address of the NIC: give one of them")
	}
	if !c.Group.IsZero() && c.Group[0]>>4 != 14 {
		return fmt.Errorf("group %v: legal are 224.0.0.0 to 239.255.255.255", c.Group)
	}
	return nil
}

// findMAC returns the hardware address of the interface that has ip.
func findMAC(ip inet.Addr) (inet.MAC, error) {
	ifs, err := net.Interfaces()
	if err != nil {
		return inet.MAC{}, fmt.Errorf("list interfaces: %w", err)
	}
	for _, i := range ifs {
		addrs, err := i.Addrs()
		if err != nil {
			continue // gone in the meantime
		}
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if !ok || n.IP.To4() == nil || inet.Addr(n.IP.To4()) != ip {
				continue
			}
			if len(i.HardwareAddr) != 6 || inet.MAC(i.HardwareAddr).IsZero() {
				return inet.MAC{}, fmt.Errorf("interface %s, which has %v, has no Ethernet address: give the worker's MAC", i.Name, ip)
			}
			return inet.MAC(i.HardwareAddr), nil
		}
	}
	return inet.MAC{}, fmt.Errorf("no interface has the worker's address %v", ip)
}
