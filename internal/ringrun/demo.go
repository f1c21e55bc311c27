package ringrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"gradnic/codec"
	"gradnic/dataplane"
	"gradnic/internal/gradients"
	"gradnic/internal/ringlab"
	"gradnic/service/ring"
)

// DemoOptions are those of the demonstration.
type DemoOptions struct {
	Nodes      int
	Rate       uint64 // bit/s of each link; 0: no limit
	MTU        int
	Codecs     []string
	Bytes      int64 // of float32 a node
	Iterations int
	Loss       float64 // of every frame that a node receives
	Kill       bool    // then kill a NIC in the middle of a request, and go on without it
}

// DemoRow is one codec.
type DemoRow struct {
	Codec   string  `json:"codec"`
	Ms      float64 `json:"ms"`       // median
	OfBound float64 `json:"of_bound"` // 2(N-1)/N * encoded bytes / rate over the time; 0 without a limit
	Error   float64 `json:"error"`    // largest, over the largest sum
	Same    bool    `json:"same"`     // all nodes have the same bits
	Resends uint64  `json:"resends"`
}

// DemoReport is what came out.
type DemoReport struct {
	Nodes    int       `json:"nodes"`
	RateBits uint64    `json:"rate_bits"`
	MTU      int       `json:"mtu"`
	Bytes    int64     `json:"bytes"`
	Rows     []DemoRow `json:"rows"`
	Killed   *Killed   `json:"killed,omitempty"`
}

// Killed is what became of the ring when a NIC was killed.
type Killed struct {
	Node        int     `json:"node"`
	Errors      int     `json:"errors"`         // nodes whose request ended with an error that names the node
	NoticedMs   float64 `json:"noticed_ms"`     // until the last of them knew
	Error       string  `json:"error"`          // of one
	ReformedMs  float64 `json:"reformed_ms"`    // until the ring without it had done a request
	ReformedSum bool    `json:"reformed_right"` // and that was exact
}

// Check refuses what cannot be run.
func (o *DemoOptions) Check() error {
	switch {
	case o.Nodes < 2 || o.Nodes > 16:
		return fmt.Errorf("--nodes %d: from 2 to 16 in a demonstration", o.Nodes)
	case o.Bytes < 4 || o.Bytes%4 != 0:
		return fmt.Errorf("--size %d: bytes of float32", o.Bytes)
	case o.Iterations < 1:
		return fmt.Errorf("--iters %d: at least 1", o.Iterations)
	case o.Loss < 0 || o.Loss > 0.5:
		return fmt.Errorf("--loss %g: from 0 to 0.5", o.Loss)
	case o.Kill && o.Nodes < 3:
		return errors.New("--kill: at least 3 nodes")
	}
	for _, c := range o.Codecs {
		if err := checkCodec(c); err != nil {
			return err
		}
	}
	return nil
}

// Demo runs it.
func Demo(ctx context.Context, o DemoOptions) (_ *DemoReport, err error) {
	l, err := ringlab.New(ringlab.Options{Prefix: "gnringdemo", Nodes: o.Nodes, Rate: o.Rate, MTU: o.MTU})
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(interrupted(ctx, err, "interrupted; everything that was made is removed"), l.Close())
	}()
	starting, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := l.StartAll(starting); err != nil {
		return nil, err
	}
	var nodes []*ring.Node
	for _, n := range l.Nodes {
		nodes = append(nodes, n.Ring)
	}
	defer closeOn(ctx, nodes...)()
	if o.Loss > 0 {
		for _, n := range l.Nodes {
			if err := n.NIC.Impair(ringlab.Iface, dataplane.Impairment{IngressLoss: o.Loss}); err != nil {
				return nil, err
			}
		}
	}
	d := &demo{o: o, lab: l}
	if err := d.load(); err != nil {
		return nil, err
	}
	r := &DemoReport{Nodes: o.Nodes, RateBits: o.Rate, MTU: o.MTU, Bytes: o.Bytes}
	for _, c := range o.Codecs {
		row, err := d.run(ctx, c)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, row)
	}
	if o.Kill {
		r.Killed, err = d.kill(ctx)
	}
	return r, err
}

type demo struct {
	o    DemoOptions
	lab  *ringlab.Lab
	in   [][]float32
	data [][]float32
	sum  []float64
	most float64
}

// load gives each node real gradients.
func (d *demo) load() error {
	n := int(d.o.Bytes / 4)
	d.sum = make([]float64, n)
	for i := range d.o.Nodes {
		g, err := gradients.Load(i % gradients.Workers)
		if err != nil {
			return err
		}
		in := make([]float32, n)
		for j := range in {
			in[j] = g[(j+i*977)%len(g)]
			d.sum[j] += float64(in[j])
			d.most = max(d.most, math.Abs(d.sum[j]))
		}
		d.in, d.data = append(d.in, in), append(d.data, make([]float32, n))
	}
	if d.most == 0 {
		d.most = 1 // a few gradients may all be zeros: errors are as they are then
	}
	return nil
}

// reduce does one all-reduce on all nodes that are there and returns how long the slowest took.
func (d *demo) reduce(ctx context.Context, codec string) (time.Duration, error) {
	times := make([]time.Duration, d.o.Nodes)
	err := d.lab.Each(func(i int, n *ringlab.Node) error {
		if n.Ring == nil {
			return nil
		}
		copy(d.data[i], d.in[i])
		if _, err := n.Ring.AllReduce(ctx, ring.Request{Codec: codec}); err != nil {
			return err
		}
		c, err := n.Ring.AllReduce(ctx, ring.Request{Data: d.data[i], Codec: codec})
		times[i] = c.Stats.Elapsed
		return err
	})
	return slices.Max(times), err
}

func (d *demo) resends() (n uint64) {
	for _, x := range d.lab.Nodes {
		n += x.Ring.Status().Counters.Resends
	}
	return n
}

func (d *demo) run(ctx context.Context, name string) (row DemoRow, err error) {
	row = DemoRow{Codec: name, Same: true}
	before := d.resends()
	var times []time.Duration
	for range d.o.Iterations {
		t, err := d.reduce(ctx, name)
		if err != nil {
			return row, fmt.Errorf("%s: %w", name, err)
		}
		times = append(times, t)
	}
	t := median(times)
	row.Ms = t.Seconds() * 1e3
	row.Resends = d.resends() - before
	c, err := codec.ByName(name)
	if err != nil {
		return row, err
	}
	if d.o.Rate > 0 {
		n := float64(d.o.Nodes)
		row.OfBound = 2 * (n - 1) / n * float64(d.o.Bytes) * c.Info().Bits / 32 / (float64(d.o.Rate) / 8) / t.Seconds()
	}
	for i := range d.data {
		for j, v := range d.data[i] {
			row.Error = max(row.Error, math.Abs(float64(v)-d.sum[j])/d.most)
			row.Same = row.Same && math.Float32bits(v) == math.Float32bits(d.data[0][j])
		}
	}
	limit := float64(d.o.Nodes) / 64
	if name == "none" {
		limit = float64(d.o.Nodes*d.o.Nodes) * 1e-7
	}
	if !(row.Error <= limit) {
		return row, fmt.Errorf("%s: an error of %g of the largest sum, at most %g is right", name, row.Error, limit)
	}
	return row, nil
}

// kill takes the power of a NIC away while a request is on its way, and forms the ring without it.
func (d *demo) kill(ctx context.Context) (*Killed, error) {
	k := &Killed{Node: d.o.Nodes / 2}
	var nodes []uint16
	for i, n := range d.lab.Nodes {
		if i != k.Node {
			nodes = append(nodes, uint16(i))
		}
		// Enough requests to be in the middle of one.
		for range ring.Outstanding {
			_, err := n.Ring.Submit(ring.Request{Data: slices.Clone(d.in[i]), Codec: "none", Deadline: 30 * time.Second})
			if err != nil {
				return k, err
			}
		}
	}
	time.Sleep(10 * time.Millisecond)
	start := time.Now()
	if err := d.lab.Kill(ctx, k.Node); err != nil {
		return k, err
	}
	for _, i := range nodes {
		d.lab.Nodes[i].Ring.Wait()
		// Short requests may have been done before: then it is the silence that ends the generation.
		for d.lab.Nodes[i].Ring.Status().Phase != ring.Failed && ctx.Err() == nil && time.Since(start) < 20*time.Second {
			time.Sleep(time.Millisecond)
		}
		var e *ring.NodeError
		if err := d.lab.Nodes[i].Ring.Status().Failure; errors.As(err, &e) && int(e.Node) == k.Node {
			k.Errors++
			k.Error = e.Error()
		}
	}
	k.NoticedMs = time.Since(start).Seconds() * 1e3
	if k.Errors != len(nodes) {
		return k, fmt.Errorf("NIC %d was killed, and %d of %d nodes say so", k.Node, k.Errors, len(nodes))
	}
	start = time.Now()
	for _, i := range nodes {
		if err := d.lab.Nodes[i].Ring.Reform(nodes); err != nil {
			return k, err
		}
	}
	if _, err := d.reduce(ctx, "none"); err != nil {
		return k, fmt.Errorf("the ring without node %d: %w", k.Node, err)
	}
	k.ReformedMs = time.Since(start).Seconds() * 1e3
	k.ReformedSum = true
	for _, i := range nodes {
		for j, v := range d.data[i] {
			if d := float64(v) - (d.sum[j] - float64(d.in[k.Node][j])); math.Abs(d) > 1e-5 {
				k.ReformedSum = false
			}
		}
	}
	if !k.ReformedSum {
		return k, errors.New("the ring without the node has a wrong sum")
	}
	return k, nil
}

// Write prints the report.
func (r *DemoReport) Write(w io.Writer) error {
	rate := "no limit"
	if r.RateBits > 0 {
		rate = fmt.Sprintf("%d Mbit/s", r.RateBits/1e6)
	}
	fmt.Fprintf(w, "%d nodes in a ring over AF_XDP, links: %s, MTU %d; %d bytes of real gradients a node\n\n", r.Nodes, rate, r.MTU, r.Bytes)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "CODEC\tTIME\tOF THE LINKS' BOUND\tLARGEST ERROR\tALL NODES ALIKE\tSENT AGAIN")
	for _, x := range r.Rows {
		bound := "-"
		if x.OfBound > 0 {
			bound = fmt.Sprintf("%.2f", x.OfBound)
		}
		fmt.Fprintf(t, "%s\t%.1f ms\t%s\t%.2g\t%v\t%d\n", x.Codec, x.Ms, bound, x.Error, x.Same, x.Resends)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if k := r.Killed; k != nil {
		_, err := fmt.Fprintf(w, "\nNIC %d killed: after %.0f ms all %d others had\n  %s\nformed again without it: the next sum, right, %.0f ms later\n",
			k.Node, k.NoticedMs, k.Errors, k.Error, k.ReformedMs)
		return err
	}
	return nil
}

func median(t []time.Duration) time.Duration {
	t = slices.Clone(t)
	slices.Sort(t)
	return t[len(t)/2]
}
