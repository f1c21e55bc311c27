package ringbench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"gradnic/internal/gradients"
	"gradnic/internal/ringlab"
	"gradnic/plan"
	"gradnic/service/ring"
)

// The MLP of the paper, 20 layers of 2048 x 2048, scaled to what two cores carry: as many layers, of a size that is a
// whole number of blocks at 2, 3, 4 and 6 nodes.
const (
	layers   = 20
	elements = 12 * ring.DefaultSlice
)

// mode is how a step sums its gradients.
type mode struct {
	name  string
	codec string // "": software over TCP
	after bool   // after the backward pass, instead of during it
}

var modes = []mode{
	{name: "naive", after: true},
	{name: "overlapped"},
	{name: "nic", codec: "none"},
	{name: "nic+bfp16", codec: "bfp16"},
}

// trainer runs steps on a rig.
type trainer struct {
	*rig
	forward time.Duration // compute of a layer; its backward pass takes twice that
	grads   [][]float32   // of each node, layer after layer
	work    [][]float32
	sums    []float64
	most    []float64 // of each 16 elements, a block of bfp16: the largest sum of magnitudes
}

const blockElements = 16

// newTrainer loads real gradients: node i has those of worker i, from a place of its own on, again and again.
func newTrainer(r *rig) (*trainer, error) {
	t := &trainer{rig: r, sums: make([]float64, layers*elements), most: make([]float64, layers*elements/blockElements)}
	magnitudes := make([]float64, layers*elements)
	for i := range r.Nodes {
		g, err := gradients.Load(i % gradients.Workers)
		if err != nil {
			return nil, err
		}
		all := make([]float32, layers*elements)
		for j := range all {
			all[j] = g[(j+i*977)%len(g)]
			t.sums[j] += float64(all[j])
			magnitudes[j] += math.Abs(float64(all[j]))
		}
		t.grads = append(t.grads, all)
		t.work = append(t.work, make([]float32, len(all)))
	}
	for j, v := range magnitudes {
		t.most[j/blockElements] = max(t.most[j/blockElements], v)
	}
	return t, nil
}

// layer is the working copy of node i's gradients of a layer.
func (t *trainer) layer(i, l int) []float32 { return t.work[i][l*elements : (l+1)*elements] }

// step runs one training step and returns how long the slowest node took. The sums are checked afterwards.
func (t *trainer) step(ctx context.Context, m mode) (time.Duration, error) {
	for i := range t.work {
		copy(t.work[i], t.grads[i])
	}
	if err := nicBarrier(ctx, t.Lab); err != nil {
		return 0, err
	}
	start := time.Now().Add(5 * time.Millisecond)
	elapsed := make([]time.Duration, len(t.Nodes))
	err := t.Each(func(i int, n *ringlab.Node) error {
		var sum func(layer int) error // starts the all-reduce of a layer
		var wait func() error
		if m.codec != "" {
			sum, wait = t.overNIC(ctx, i, n.Ring, m.codec)
		} else {
			sum, wait = t.overTCP(i)
		}
		// The accelerator does not wait for the host: its phases follow each other on its own clock.
		end := start.Add(layers * t.forward)
		for l := layers - 1; l >= 0; l-- {
			end = end.Add(2 * t.forward)
			if m.after {
				continue
			}
			time.Sleep(time.Until(end))
			if err := sum(l); err != nil {
				return errors.Join(err, wait())
			}
		}
		if m.after {
			time.Sleep(time.Until(end))
			for l := layers - 1; l >= 0; l-- {
				if err := sum(l); err != nil {
					return errors.Join(err, wait())
				}
			}
		}
		err := wait()
		elapsed[i] = time.Since(start)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("%s: %w", m.name, err)
	}
	slowest := time.Duration(0)
	for _, d := range elapsed {
		slowest = max(slowest, d)
	}
	return slowest, t.check(m)
}

// overNIC hands layers to the node's NIC.
func (t *trainer) overNIC(ctx context.Context, i int, n *ring.Node, codec string) (sum func(int) error, wait func() error) {
	places := make(chan error, ring.Outstanding)
	for range ring.Outstanding {
		places <- nil
	}
	sum = func(l int) error {
		if err := <-places; err != nil {
			return err
		}
		return submit(ctx, n, ring.Request{Data: t.layer(i, l), Codec: codec, Done: func(c ring.Completion) { places <- c.Err }})
	}
	return sum, func() error {
		var errs []error
		for range ring.Outstanding {
			select {
			case err := <-places:
				errs = append(errs, err)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return errors.Join(errs...)
	}
}

// overTCP sums layers one after the other beside the caller.
func (t *trainer) overTCP(i int) (sum func(int) error, wait func() error) {
	todo := make(chan int, layers)
	done := make(chan error, 1)
	go func() {
		var errs []error
		for l := range todo {
			errs = append(errs, t.tcp.nodes[i].allReduce(t.layer(i, l)))
		}
		done <- errors.Join(errs...)
	}()
	return func(l int) error { todo <- l; return nil }, func() error { close(todo); return <-done }
}

// check compares every node's sums with those computed in float64, within what the mode may lose: a rounding of float32,
// 2^-24 of a partial sum, at each node, and with bfp16 half a step of the codec, 2^-7 of the block's largest, at each as well;
// partial sums with such errors are up to a tenth above the magnitudes'.
func (t *trainer) check(m mode) error {
	n := float64(len(t.Nodes))
	for i := range t.work {
		for j, v := range t.work[i] {
			bound := 1.1 * n * 0x1p-24 * t.most[j/blockElements]
			if m.codec == "bfp16" {
				bound = 1.1 * n * 0x1p-7 * t.most[j/blockElements]
			}
			if d := math.Abs(float64(v) - t.sums[j]); !(d <= bound) {
				return fmt.Errorf("%s: node %d, layer %d: element %d is %v, want %v within %.2g", m.name, i, j/elements, j%elements, v, t.sums[j], bound)
			}
			if m.codec != "" && math.Float32bits(v) != math.Float32bits(t.work[0][j]) {
				return fmt.Errorf("%s: nodes 0 and %d have different sums at %d", m.name, i, j)
			}
		}
	}
	return nil
}

// table is the step as the model takes it.
func (t *trainer) table() *plan.Table { return scaledTable(t.forward) }

func scaledTable(forward time.Duration) *plan.Table {
	tab := &plan.Table{
		Name: "mlp-20-scaled", Source: "the measured step: compute is a timed wait", Sample: "steps", Batch: 1, GradientBytes: 4,
		BackwardRatio: 2, MeasuredBatch: 1,
	}
	for l := range layers {
		ms := forward.Seconds() * 1e3
		tab.Layers = append(tab.Layers, plan.Layer{Name: fmt.Sprint("layer-", l+1), Parameters: elements, ForwardMs: ms, BackwardMs: 2 * ms})
	}
	return tab
}
