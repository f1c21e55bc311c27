package ring

import (
	"errors"
	"fmt"
	"time"

	wire "gradnic/wire/ring"
)

// Outstanding is how many requests a node takes that are not done.
const Outstanding = 8

// DefaultSlice is the card's slice: 512 cache lines of 64 bytes.
const DefaultSlice = 8192

// Peer is one node that may be in the ring, by the address of its NIC.
type Peer struct {
	Node uint16 // its number, below 65535
	wire.Endpoint
}

// Config is what a node is. All nodes of a ring have the same Ring, MTU, SliceElements and Window.
type Config struct {
	// Ring tells several rings on the same NICs apart.
	Ring uint16
	// Node is this node's number; Peers has it too.
	Node uint16
	// Peers are the nodes in the order of the ring, 1 to 64; Reform may leave some out later.
	Peers []Peer
	// MTU is the largest IPv4 packet between the nodes, from 640 to 9216 bytes; 0: 1500.
	MTU int
	// SliceElements is the length of a slice in float32, a multiple of 512 up to 65024; 0: DefaultSlice.
	SliceElements int
	// Window is how many blocks may be on their way at once in each half, 1 to 64; 0: 16, less with more than 8 nodes, but
	// at least 4. More hides longer round trips and takes more memory: about 3 (N-1) slices each.
	Window int
	// DeadAfter is how long a neighbour may be silent, from 10 ms to 24 h; 0: 1 s.
	DeadAfter time.Duration
	// Deadline is that of requests that have none; 0: 1 minute.
	Deadline time.Duration
	// Boot numbers the starts of this node: larger after each start, never 0; 0: the time in nanoseconds since 1970.
	Boot uint64
}

// Request is one buffer to be summed over all nodes. All nodes hand in the same requests, by length and codec, in the
// same order.
type Request struct {
	// Data is the gradient, replaced in place by the sum over all nodes, or with Weights by the new weights. It is the
	// node's until the request is done, and undefined when it fails. Any length up to 2^32-1, and any alignment.
	Data []float32
	// Weights, if not nil, are the NIC's copy of the weights, as long as Data: the NIC computes w + (-LearningRate) * g
	// with one rounding for the summed gradient g, gives it to the host in Data, and when the request succeeds puts it
	// here as well. A request that fails leaves Weights as they were.
	Weights      []float32
	LearningRate float32
	// Codec is the format between NICs: "none", "bfp16", "bfp16-intel", "fp16" or "bf16"; "": "bfp16".
	Codec string
	// Deadline is how long the request may take; 0: Config.Deadline.
	Deadline time.Duration
	// Done, if not nil, is called once when the request is done. It runs on the lane: it must not block, and may Submit.
	Done func(Completion)
}

// Completion is how a request ended.
type Completion struct {
	ID    uint64 // as Submit returned it; ID modulo Outstanding is the card's done id
	Err   error  // nil: Data hold the result
	Stats Stats
}

// Stats is what one request took.
type Stats struct {
	Elapsed   time.Duration // from when the node took it up to its end
	Waited    time.Duration // of that, until its first slice was ready to send
	Blocks    int           // blocks of N slices, with padding
	NonFinite uint64        // sums computed at this node that were infinite or NaN, a hop and element each
}

// The errors of Submit. A request that was accepted ends with nil, ErrClosed or a *NodeError.
var (
	ErrBusy   = fmt.Errorf("ring: %d requests are outstanding, no more are possible", Outstanding)
	ErrClosed = errors.New("ring: the node is closed")
)

// NodeError says for which node a generation of the ring ended. All its outstanding requests end with it, and new ones
// are refused with it until Reform.
type NodeError struct {
	Node       uint16 // that failed; At itself, when a deadline has passed and no node is known to hold the request up
	At         uint16 // node that noticed
	Reason     wire.Reason
	Generation uint32
}

func (e *NodeError) Error() string {
	if e.Reason == wire.Deadline && e.Node == e.At {
		return fmt.Sprintf("ring, generation %d: a deadline has passed at node %d, which knows of no node that holds the request up; form the ring again",
			e.Generation, e.Node)
	}
	remedy := "form it again without the node, or with it when it is back"
	switch e.Reason {
	case wire.Mismatch:
		remedy = "all nodes must hand in the same requests, of one length, codec and piece, and have the same settings; then form it again"
	case wire.Superseded:
		remedy = "form it again here too, of the same nodes"
	}
	return fmt.Sprintf("ring, generation %d: node %d %v (noticed by node %d); %s", e.Generation, e.Node, e.Reason, e.At, remedy)
}

// Phase is where a generation of the ring is.
type Phase uint8

// The phases.
const (
	Forming Phase = iota // nodes learn of each other; requests wait
	Formed               // requests are served
	Failed               // over, until Reform
)

// String is the phase's name.
func (p Phase) String() string { return [...]string{"forming", "formed", "failed"}[p] }

// Status is what a node knows of the ring and of itself.
type Status struct {
	Phase       Phase
	Generation  uint32
	Epoch       uint32
	Nodes       []uint16 // of this generation, in the order of the ring
	Missing     []uint16 // that have not been heard of, while forming
	Failure     error    // the *NodeError, when Failed
	Refused     error    // a *NodeError, while forming: why a neighbour takes no part; nil: none has said so
	Outstanding int      // requests
	Counters    Counters
}

// Counters are a node's, since it was made. The stalls are those that the card counts.
type Counters struct {
	Requests, Completed, Failed uint64
	Blocks                      uint64 // finished
	DataSent, DataReceived      uint64 // frames, with those sent again
	BytesSent, BytesReceived    uint64 // payload of data, encoded, with what was sent again
	Resends                     uint64 // frames sent again
	Timeouts                    uint64 // of the retransmission timer
	Duplicates                  uint64 // frames that were here already
	AcksSent, AcksReceived      uint64
	Latency                     time.Duration // sum over completed requests of Stats.Elapsed
	HostStallIn                 time.Duration // frames were here for a request that the host had not handed in
	HostStallOut                time.Duration // in the hosts' Done
	EthernetStallIn             time.Duration // requests were open and nothing was here to work on or to send
	EthernetStallOut            time.Duration // frames were ready but credit, window or port did not let them out
	RoundTrip                   time.Duration // smoothed, to the next node downstream
	CongestionWindow            int           // frames
}

// check fills in defaults and refuses what cannot be.
func (c *Config) check() error {
	if c.MTU == 0 {
		c.MTU = 1500
	}
	if c.SliceElements == 0 {
		c.SliceElements = DefaultSlice
	}
	if c.Window == 0 {
		c.Window = min(max(128/max(len(c.Peers), 1), 4), 16)
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = time.Second
	}
	if c.Deadline == 0 {
		c.Deadline = time.Minute
	}
	if c.Boot == 0 {
		c.Boot = uint64(time.Now().UnixNano())
	}
	switch {
	case c.MTU < 640 || c.MTU > 9216:
		return fmt.Errorf("MTU %d: from 640 to 9216", c.MTU)
	case c.SliceElements < 512 || c.SliceElements > 65024 || c.SliceElements%512 != 0:
		return fmt.Errorf("slices of %d elements: a multiple of 512 up to 65024", c.SliceElements)
	case c.Window < 1 || c.Window > 64:
		return fmt.Errorf("window of %d blocks: from 1 to 64", c.Window)
	case c.DeadAfter < 10*time.Millisecond || c.DeadAfter > 24*time.Hour:
		return fmt.Errorf("dead after %v: from 10 ms to 24 h", c.DeadAfter)
	case c.Deadline < 0:
		return fmt.Errorf("deadline %v: above 0", c.Deadline)
	}
	nodes := make([]uint16, len(c.Peers))
	for i, p := range c.Peers {
		nodes[i] = p.Node
	}
	return c.checkNodes(nodes)
}

// checkNodes refuses what is no ring of this node.
func (c *Config) checkNodes(nodes []uint16) error {
	if len(nodes) < 1 || len(nodes) > wire.MaxNodes {
		return fmt.Errorf("%d nodes: from 1 to %d", len(nodes), wire.MaxNodes)
	}
	self := false
	for i, n := range nodes {
		known := false
		for _, p := range c.Peers {
			known = known || p.Node == n
		}
		if n == wire.NoNode || !known {
			return fmt.Errorf("node %d: it is not among the peers", n)
		}
		for _, m := range nodes[:i] {
			if n == m {
				return fmt.Errorf("node %d is there twice", n)
			}
		}
		self = self || n == c.Node
	}
	if !self {
		return fmt.Errorf("node %d, this one, is not among the nodes", c.Node)
	}
	return nil
}
