package native

import (
	"fmt"
	"net"
	"time"

	"gradnic/codec"
	"gradnic/wire/inet"
	wire "gradnic/wire/native"
	"gradnic/worker/datagram"
	"gradnic/worker/rtt"
)

// Defaults of [Config].
const (
	DefaultJob        = 1
	DefaultTimeout    = 40 * time.Millisecond
	DefaultMinTimeout = 20 * time.Millisecond
	DefaultMaxTimeout = 320 * time.Millisecond
	// DefaultFeedbackBytes is a gibibyte: the residuals of 268 million parameters.
	DefaultFeedbackBytes = 1 << 30
)

// Config describes one worker. What the job is (element type, operation, slots, number of workers) it learns from the NIC.
type Config struct {
	// Rank is the worker's, 0 to workers-1; no other has it.
	Rank int
	// Job is the job's number at the NIC; 0 means 1.
	Job uint16
	// Workers, if not 0, is how many the job must have.
	Workers int
	// Codec, if not "", is what the job's contributions must be compressed by, as package codec names it; "none" is no
	// codec.
	Codec string
	// Seed is that of codecs that round at random; the rank and the number of the packet count beside it.
	Seed uint64
	// FeedbackBytes is the most memory of all [Feedback] that a worker has at a time; 0 means DefaultFeedbackBytes.
	FeedbackBytes int64

	// Key, if the job has keys, is the one of this rank, which was handed out when the job was installed: all messages are
	// tagged by it, and what the NIC has not tagged by it is not looked at. The worker's clock must not be set back before
	// it starts again.
	Key *wire.Key

	// NIC is the NIC's address. NICMAC is needed with Link only.
	NIC    inet.Addr
	NICMAC inet.MAC
	// IP is the worker's address, and Port its UDP port; 0 lets the kernel choose (with Link: 4000+rank). MAC is
	// needed with Link only.
	IP   inet.Addr
	MAC  inet.MAC
	Port int

	// Full has ReduceScatter, AllGather and Broadcast move whole arrays both ways, as AllReduce does, for networks that do
	// not take contributions without values. All workers of a job must have the same.
	Full bool

	// Window is the most packets in flight; 0 means as many as the job has slots.
	Window int
	// Timeout is how long the first packets wait for their result before they are sent again; 0 means 40 ms. From
	// then on the round trips measured decide, within MinTimeout (0: 20 ms) and MaxTimeout (0: 320 ms). What many later
	// packets overtook goes sooner, and when nothing came for two round trips, and a quarter of MinTimeout, eight packets do.
	Timeout, MinTimeout, MaxTimeout time.Duration

	// Link carries frames instead of a UDP socket.
	Link datagram.Link
	// Conn is a UDP socket that is already open, in another network namespace for example; it is closed with the
	// worker.
	Conn *net.UDPConn
	// Segments hands packets to the kernel several at a time, for less CPU time a packet; the frames on the wire are the
	// same. Not for a NIC that has generic XDP on the other end of the worker's veth or tap: it would lose them. See
	// datagram.UDP.Segment.
	Segments bool
	// Group opens the socket for a job that sends results to a multicast group; nil joins on the interface that has
	// IP, in the process's network namespace.
	Group func(group datagram.Endpoint) (datagram.Transport, error)

	// Waiting is told, from another goroutine, what Join waits for when it has taken 2 s: the NIC, of which nothing has come,
	// or the ranks that it waits for; nil: nobody is. Join waits until its context ends.
	Waiting func(what string)
}

func (c *Config) timeouts() rtt.Bounds {
	return rtt.Bounds{First: c.Timeout, Least: c.MinTimeout, Most: c.MaxTimeout}
}

func (c *Config) setDefaults() error {
	workers := wire.MaxWorkers
	if c.Workers > 0 {
		workers = min(workers, c.Workers)
	}
	if c.Rank < 0 || c.Rank >= workers {
		return fmt.Errorf("rank %d: legal are 0 to %d", c.Rank, workers-1)
	}
	if c.Job == 0 {
		c.Job = DefaultJob
	}
	if c.Codec != "" {
		if _, err := codec.ByName(c.Codec); err != nil {
			return err
		}
	}
	if c.FeedbackBytes == 0 {
		c.FeedbackBytes = DefaultFeedbackBytes
	}
	if !c.NIC.IsUnicast() {
		return fmt.Errorf("the NIC's address %v: not a host's", c.NIC)
	}
	if c.Window < 0 {
		return fmt.Errorf("window %d: legal are 1 and up", c.Window)
	}
	t, err := c.timeouts().Defaulted(rtt.Bounds{First: DefaultTimeout, Least: DefaultMinTimeout, Most: DefaultMaxTimeout})
	if err != nil {
		return err
	}
	c.Timeout, c.MinTimeout, c.MaxTimeout = t.First, t.Least, t.Most
	if c.Link != nil {
		if c.Conn != nil {
			return fmt.Errorf("a frame link needs no socket")
		}
		if c.MAC.IsZero() || c.NICMAC.IsZero() || !c.IP.IsUnicast() {
			return fmt.Errorf("a frame link needs both ends' addresses: worker %v %v, NIC %v", c.MAC, c.IP, c.NICMAC)
		}
		if c.Port == 0 {
			c.Port = 4000 + c.Rank
		}
	}
	if c.Port < 0 || c.Port > 65535 {
		return fmt.Errorf("UDP port %d: legal are 1 to 65535", c.Port)
	}
	return nil
}

// Job is what a worker has learned of its job.
type Job struct {
	Workers  int           `json:"workers"`
	Slots    int           `json:"slots"`
	Elements int           `json:"elements"` // of a packet
	Type     wire.Type     `json:"type"`
	Op       Op            `json:"op"`
	Ranked   bool          `json:"ranked"`
	Saturate bool          `json:"saturate"`
	Deadline time.Duration `json:"deadline"` // 0: none
	// Codec and Result are what contributions and results are compressed by; "none" is no codec.
	Codec  string `json:"codec"`
	Result string `json:"result_codec"`

	group     inet.Addr
	groupPort uint16
	sparse    bool // the codec leaves elements out
}

// Op is what a job computes.
type Op uint8

// The operations.
const (
	Sum Op = iota
	Mean
	Min
	Max
)

var opNames = [...]string{"sum", "mean", "min", "max"}

// String is the operation's name.
func (o Op) String() string {
	if int(o) < len(opNames) {
		return opNames[o]
	}
	return fmt.Sprintf("operation %d", uint8(o))
}
