package ringbench

import (
	"context"
	"fmt"
	"time"

	"gradnic/internal/ringlab"
	"gradnic/service/ring"
)

// pattern fills node i's part: i+1 at even places and its negative at odd ones, whose sums are exact in every codec
// that keeps four bits.
func pattern(data []float32, i int) {
	for j := range data {
		data[j] = float32(i+1) * float32(1-2*(j&1))
	}
}

// checkPattern checks the sum of the patterns of n nodes.
func checkPattern(data []float32, n int) error {
	total := float32(n*(n+1)) / 2
	for j, v := range data {
		if want := total * float32(1-2*(j&1)); v != want {
			return fmt.Errorf("element %d is %v, want %v", j, v, want)
		}
	}
	return nil
}

// nicAllReduces runs count requests of length elements one behind the other, up to eight at once, and returns how long
// the slowest node took. The sums are checked.
func nicAllReduces(ctx context.Context, l *ringlab.Lab, codec string, length, count int) (time.Duration, error) {
	n := len(l.Nodes)
	data := make([][][]float32, n)
	for i := range data {
		data[i] = make([][]float32, count)
		for k := range count {
			data[i][k] = make([]float32, length)
			pattern(data[i][k], i)
		}
	}
	if err := nicBarrier(ctx, l); err != nil {
		return 0, err
	}
	elapsed := make([]time.Duration, n)
	err := l.Each(func(i int, node *ringlab.Node) error {
		start := time.Now()
		done := make(chan error, count)
		for k := range count {
			r := ring.Request{Data: data[i][k], Codec: codec, Done: func(c ring.Completion) { done <- c.Err }}
			if err := submit(ctx, node.Ring, r); err != nil {
				return err
			}
		}
		for range count {
			if err := <-done; err != nil {
				return err
			}
		}
		elapsed[i] = time.Since(start)
		return nil
	})
	if err != nil {
		return 0, err
	}
	slowest := time.Duration(0)
	for i := range data {
		slowest = max(slowest, elapsed[i])
		for k := range data[i] {
			if err := checkPattern(data[i][k], n); err != nil {
				return 0, fmt.Errorf("%s: node %d, request %d: %w", codec, i, k, err)
			}
		}
	}
	return slowest, nil
}

// submit hands a request in as soon as there is a place.
func submit(ctx context.Context, n *ring.Node, r ring.Request) error {
	for {
		_, err := n.Submit(r)
		if err != ring.ErrBusy {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Microsecond):
		}
	}
}

// nicBarrier is an all-reduce of nothing: nobody leaves it before everybody has come.
func nicBarrier(ctx context.Context, l *ringlab.Lab) error {
	return l.Each(func(_ int, node *ringlab.Node) error {
		_, err := node.Ring.AllReduce(ctx, ring.Request{Codec: "bfp16"})
		return err
	})
}

// tcpAllReduces is the same over TCP, one after the other.
func tcpAllReduces(l *ringlab.Lab, t *tcpRing, length, count int) (time.Duration, error) {
	n := len(l.Nodes)
	data := make([][]float32, n)
	for i := range data {
		data[i] = make([]float32, length*count)
		pattern(data[i], i)
	}
	elapsed := make([]time.Duration, n)
	err := l.Each(func(i int, _ *ringlab.Node) error {
		if err := t.nodes[i].allReduce(make([]float32, n)); err != nil { // a barrier
			return err
		}
		start := time.Now()
		for k := range count {
			if err := t.nodes[i].allReduce(data[i][k*length : (k+1)*length]); err != nil {
				return err
			}
		}
		elapsed[i] = time.Since(start)
		return nil
	})
	if err != nil {
		return 0, err
	}
	slowest := time.Duration(0)
	for i := range data {
		slowest = max(slowest, elapsed[i])
		if length%2 == 0 {
			if err := checkPattern(data[i], n); err != nil {
				return 0, fmt.Errorf("tcp: node %d: %w", i, err)
			}
		}
	}
	return slowest, nil
}
