package ring_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"gradnic/dataplane"
	"gradnic/internal/gradients"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/internal/ringlab"
	. "gradnic/service/ring"
)

func lab(t *testing.T, o ringlab.Options) *ringlab.Lab {
	t.Helper()
	netlabtest.NeedRoot(t)
	l, err := ringlab.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := l.StartAll(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

// load gives each node real gradients, and the sums as the ring computes them without compression: slice by slice, from
// the slice's own node on.
func load(t *testing.T, n, length int) (in [][]float32, sum []float32) {
	t.Helper()
	for i := range n {
		g, err := gradients.Load(i % gradients.Workers)
		if err != nil {
			t.Fatal(err)
		}
		for len(g) < length {
			g = append(g, g...)
		}
		in = append(in, g[:length:length])
	}
	sum = make([]float32, length)
	for j := range sum {
		owner := j / DefaultSlice % n
		v := in[owner][j]
		for k := 1; k < n; k++ {
			v += in[(owner+n-k)%n][j]
		}
		sum[j] = v
	}
	return in, sum
}

// TestVeth: real gradients round a ring of NICs over AF_XDP, at both MTUs, without loss and with 1 % of all frames lost.
// Without compression the result is exact, bit for bit; with it all nodes have the same bits, near the sum.
func TestVeth(t *testing.T) {
	for _, mtu := range []int{1500, 9000} {
		for _, loss := range []float64{0, 0.01} {
			t.Run(fmt.Sprintf("mtu=%d/loss=%v", mtu, loss), func(t *testing.T) {
				const n = 3
				l := lab(t, ringlab.Options{Nodes: n, MTU: mtu, Ring: func(c *Config) { c.DeadAfter = 5 * time.Second }})
				for _, node := range l.Nodes {
					if loss == 0 {
						break
					}
					if err := node.NIC.Impair(ringlab.Iface, dataplane.Impairment{IngressLoss: loss}); err != nil {
						t.Fatal(err)
					}
				}
				in, sum := load(t, n, gradients.Elements)
				for _, codec := range []string{"none", "bfp16"} {
					data := make([][]float32, n)
					err := l.Each(func(i int, node *ringlab.Node) error {
						data[i] = append([]float32(nil), in[i]...)
						_, err := node.Ring.AllReduce(t.Context(), Request{Data: data[i], Codec: codec, Deadline: 30 * time.Second})
						return err
					})
					if err != nil {
						t.Fatal(err)
					}
					for i := range n {
						for j, v := range data[i] {
							if math.Float32bits(v) != math.Float32bits(data[0][j]) {
								t.Fatalf("%s: nodes 0 and %d differ at %d: %v, %v", codec, i, j, data[0][j], v)
							}
							bound := 0.0
							if codec != "none" {
								bound = 0.002 // three roundings of blocks whose largest is 0.2: half of 2^(-3-6) each
							}
							if math.Abs(float64(v)-float64(sum[j])) > bound {
								t.Fatalf("%s: element %d is %v, want %v", codec, j, v, sum[j])
							}
						}
					}
				}
				for i, node := range l.Nodes {
					c := node.Ring.Status().Counters
					if c.Completed != 2 || loss > 0 && mtu == 1500 && c.Resends == 0 { // of 160 jumbo frames there may be none lost
						t.Errorf("node %d: %+v", i, c)
					}
				}
			})
		}
	}
}

// TestVethKilled: a NIC is killed in the middle of a request and started again; the ring forms again, and is right.
func TestVethKilled(t *testing.T) {
	const n, victim = 3, 1
	l := lab(t, ringlab.Options{Nodes: n, Rate: 200e6, Ring: func(c *Config) { c.DeadAfter = 500 * time.Millisecond }})
	in, sum := load(t, n, 2*gradients.Elements)
	var ended [n]error
	done := make(chan error, 1)
	start := time.Now()
	go func() {
		done <- l.Each(func(i int, node *ringlab.Node) error {
			_, ended[i] = node.Ring.AllReduce(t.Context(), Request{Data: append([]float32(nil), in[i]...), Codec: "none", Deadline: 5 * time.Second})
			return nil
		})
	}()
	time.Sleep(20 * time.Millisecond) // of about 80
	if err := l.Kill(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("the error took %v", d)
	}
	for i, err := range ended {
		var e *NodeError
		if i == victim && !errors.Is(err, ErrClosed) || i != victim && (!errors.As(err, &e) || e.Node != victim) {
			t.Errorf("node %d: %v", i, err)
		}
	}
	if err := l.Start(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	all := []uint16{0, 1, 2}
	for i, node := range l.Nodes {
		if i != victim {
			if err := node.Ring.Reform(all); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := l.Each(func(i int, node *ringlab.Node) error {
		data := append([]float32(nil), in[i]...)
		if _, err := node.Ring.AllReduce(t.Context(), Request{Data: data, Codec: "none"}); err != nil {
			return err
		}
		for j := range sum {
			if math.Float32bits(data[j]) != math.Float32bits(sum[j]) {
				return fmt.Errorf("element %d is %v, want %v", j, data[j], sum[j])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
