package ringrun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/ncclstyle"
	"gradnic/service/ring"
	wire "gradnic/wire/ring"
)

// NodeOptions are those of one node.
type NodeOptions struct {
	Interface  string
	Node       int
	Peers      []ring.Peer
	MTU        int // 0: the interface's
	Window     int
	Codec      string
	Bytes      int64 // of float32
	Iterations int   // after one that is not timed
	DeadAfter  time.Duration
	Deadline   time.Duration
	Join       time.Duration // how long the ring may take to form
	// Logger takes what happens to host processes (HostSocket); nil discards.
	Logger  *slog.Logger
	Waiting func(string) // progress
	// HostSocket, if not "", is a Unix socket where processes of this host hand the node their arrays (package host), until
	// the context is done; nothing is summed and timed then, and Bytes and Iterations do not count.
	HostSocket string
}

// Result is what one node has measured.
type Result struct {
	Codec    string        `json:"codec"`
	Row      ncclstyle.Row `json:"row"` // the median of the iterations
	Times    []float64     `json:"times_ms"`
	Counters ring.Counters `json:"counters"`
}

// ParsePeers reads a ring's nodes: IPv4 addresses separated by commas, or the name of a file with a line for each, "IP" or
// "IP MAC", in the order of the ring. Nodes are numbered from 0 on. A MAC that is not given is 02:67 and the address, as
// `gradnic run` has it.
func ParsePeers(s string) ([]ring.Peer, error) {
	lines := strings.Split(s, ",")
	if _, err := netip.ParseAddr(strings.TrimSpace(lines[0])); err != nil {
		b, err := os.ReadFile(s)
		if err != nil {
			return nil, fmt.Errorf("nodes %q: neither addresses nor a file: %w", s, err)
		}
		lines = strings.Split(string(b), "\n")
	}
	var peers []ring.Peer
	for _, line := range lines {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		p := ring.Peer{Node: uint16(len(peers))}
		if err := p.IP.UnmarshalText([]byte(f[0])); err != nil {
			return nil, fmt.Errorf("node %d: %w", len(peers), err)
		}
		p.MAC = dataplane.DefaultMAC(p.IP)
		switch {
		case len(f) > 2:
			return nil, fmt.Errorf("node %d: %q: an address and perhaps a MAC", len(peers), line)
		case len(f) == 2:
			if err := p.MAC.UnmarshalText([]byte(f[1])); err != nil {
				return nil, fmt.Errorf("node %d: %w", len(peers), err)
			}
		}
		for _, other := range peers {
			if other.IP == p.IP || other.MAC == p.MAC {
				return nil, fmt.Errorf("nodes %d and %d have the same address: %v, %v", other.Node, p.Node, p.IP, p.MAC)
			}
		}
		peers = append(peers, p)
	}
	if len(peers) < 2 || len(peers) > wire.MaxNodes {
		return nil, fmt.Errorf("%d nodes: from 2 to %d", len(peers), wire.MaxNodes)
	}
	return peers, nil
}

// Check refuses what cannot be run.
func (o *NodeOptions) Check() error {
	switch {
	case o.Interface == "":
		return errors.New("--interface is missing: the netdev that the NIC has")
	case o.Node < 0 || o.Node >= len(o.Peers):
		return fmt.Errorf("--node %d: from 0 to %d", o.Node, len(o.Peers)-1)
	case o.Bytes < 0 || o.Bytes%4 != 0 || o.Bytes/4 > math.MaxUint32:
		return fmt.Errorf("--size %d: bytes of float32, at most 16 GiB", o.Bytes)
	case o.Iterations < 1:
		return fmt.Errorf("--iters %d: at least 1", o.Iterations)
	}
	if o.HostSocket == "" {
		if err := checkCodec(o.Codec); err != nil {
			return err
		}
	}
	_, err := ring.New(o.config(cmp.Or(o.MTU, 1500)))
	return err
}

// checkCodec refuses what a ring does not have.
func checkCodec(name string) error {
	if !slices.Contains(ring.Codecs(), name) {
		return fmt.Errorf("--codec %q: a ring has %s", name, strings.Join(ring.Codecs(), ", "))
	}
	return nil
}

func (o *NodeOptions) config(mtu int) ring.Config {
	return ring.Config{Node: uint16(o.Node), Peers: o.Peers, MTU: mtu, Window: o.Window, DeadAfter: o.DeadAfter, Deadline: o.Deadline}
}

// RunNode runs one node: a NIC on the interface, the ring, and the all-reduces.
func RunNode(ctx context.Context, o NodeOptions) (_ *Result, err error) {
	if o.MTU == 0 {
		ifc, err := net.InterfaceByName(o.Interface)
		if err != nil {
			return nil, fmt.Errorf("interface %s: %w", o.Interface, err)
		}
		o.MTU = min(ifc.MTU, 9000)
	}
	self := o.Peers[o.Node]
	cfg := dataplane.Config{MAC: self.MAC, IP: self.IP}
	if o.MTU > 1500 {
		cfg.ChunkSize = 4096
	}
	nic, err := dataplane.New(cfg, dataplane.XDPPort{Interface: o.Interface})
	if err != nil {
		return nil, err
	}
	if err := nic.Start(ctx); err != nil {
		return nil, err
	}
	defer func() {
		stop, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err = errors.Join(err, nic.Stop(stop))
	}()
	n, err := ring.New(o.config(o.MTU))
	if err != nil {
		return nil, err
	}
	if err := n.Attach(nic, 0, o.Interface); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	if o.HostSocket != "" {
		return nil, o.serve(ctx, n)
	}
	defer closeOn(ctx, n)()
	if err := awaitFormed(ctx, n, o.Join, o.Waiting); err != nil {
		return nil, interrupted(ctx, err, "interrupted")
	}
	r, err := o.measure(ctx, n)
	return r, interrupted(ctx, err, "interrupted")
}

// awaitFormed waits until the ring has formed.
func awaitFormed(ctx context.Context, n *ring.Node, patience time.Duration, waiting func(string)) error {
	end := time.Now().Add(patience)
	told := ""
	for {
		s := n.Status()
		switch {
		case s.Failure != nil:
			return s.Failure
		case s.Phase == ring.Formed:
			return nil
		case time.Now().After(end):
			if s.Refused != nil {
				return fmt.Errorf("the ring has not formed within %v: a neighbour takes no part: %w", patience, s.Refused)
			}
			return fmt.Errorf("the ring has not formed within %v: nothing heard of nodes %v; are they started, with the same --nodes and MTU?", patience, s.Missing)
		}
		if now := fmt.Sprintf("for nodes %v", s.Missing); waiting != nil && now != told {
			waiting(now)
			told = now
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Fill writes node i's part: -1, 0 and 1 in a pattern of its own, so that sums over up to 64 nodes are exact in every
// codec of the ring, but for the card's, which has no zero.
func Fill(data []float32, i int) {
	for j := range data {
		data[j] = part(i, j)
	}
}

func part(i, j int) float32 { return float32((j*(1+i%2)+i)%3 - 1) }

// Wrong counts the elements that are not the sum over n nodes.
func Wrong(data []float32, n int, codec string) (wrong int64) {
	slack := float32(0)
	if codec == "bfp16-intel" {
		slack = 1e-2
	}
	for j, v := range data {
		want := float32(0)
		for i := range n {
			want += part(i, j)
		}
		if d := v - want; !(d <= slack && d >= -slack) {
			wrong++
		}
	}
	return wrong
}

func (o *NodeOptions) measure(ctx context.Context, n *ring.Node) (*Result, error) {
	data := make([]float32, o.Bytes/4)
	r := &Result{Codec: o.Codec, Row: ncclstyle.Row{Bytes: o.Bytes, Elements: o.Bytes / 4, Type: "float", RedOp: "sum", Ranks: len(o.Peers)}}
	var times []time.Duration
	for k := range o.Iterations + 1 {
		Fill(data, o.Node)
		if _, err := n.AllReduce(ctx, ring.Request{Codec: o.Codec}); err != nil { // all begin together
			return nil, err
		}
		c, err := n.AllReduce(ctx, ring.Request{Data: data, Codec: o.Codec})
		if err != nil {
			return nil, err
		}
		r.Row.Wrong += Wrong(data, len(o.Peers), o.Codec)
		if k > 0 {
			times = append(times, c.Stats.Elapsed)
			r.Times = append(r.Times, c.Stats.Elapsed.Seconds()*1e3)
		}
	}
	r.Row.Time = median(times)
	r.Counters = n.Status().Counters
	if r.Row.Wrong > 0 {
		return r, fmt.Errorf("%d elements are wrong", r.Row.Wrong)
	}
	return r, nil
}

// Write prints the result as nccl-tests would, and what the card counts.
func (r *Result) Write(w io.Writer) error {
	if err := ncclstyle.WriteHeader(w); err != nil {
		return err
	}
	if err := r.Row.Write(w); err != nil {
		return err
	}
	c := r.Counters
	_, err := fmt.Fprintf(w, "codec %s; %d requests, %d frames sent, %d of them again, round trip %v\nstalls: host in %v, host out %v, ethernet in %v, ethernet out %v\n",
		r.Codec, c.Completed, c.DataSent, c.Resends, c.RoundTrip.Round(time.Microsecond), c.HostStallIn.Round(time.Microsecond),
		c.HostStallOut.Round(time.Microsecond), c.EthernetStallIn.Round(time.Microsecond), c.EthernetStallOut.Round(time.Microsecond))
	return err
}
