package host

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/host/nic"
	"gradnic/internal/ringlab"
	"gradnic/service/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a ring in memory with a server at each node.
type rig struct {
	t       testing.TB
	ring    *ringlab.Memory
	servers []*nic.Server
	paths   []string
}

func newRig(t testing.TB, n int, o nic.Options, change func(*ring.Config)) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := ringlab.NewMemory(ctx, n, change)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, ring: m}
	for i, node := range m.Nodes {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("nic%d", i))
		s, err := nic.Listen(path, node.Ring, o)
		if err != nil {
			t.Fatal(err)
		}
		r.servers, r.paths = append(r.servers, s), append(r.paths, path)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil { // first: what is under way ends
			t.Error(err)
		}
		for _, s := range r.servers {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// dial connects a client to each node.
func (r *rig) dial(o Options) []*Client {
	r.t.Helper()
	var clients []*Client
	for i := range r.paths {
		clients = append(clients, r.dialOne(i, o))
	}
	return clients
}

func (r *rig) dialOne(i int, o Options) *Client {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	c, err := Dial(ctx, r.paths[i], o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := c.Abort(); err != nil {
			r.t.Error(err)
		}
	})
	return c
}

// each runs f for all at once.
func each[T any](all []T, f func(i int, v T) error) error {
	errs := make([]error, len(all))
	var g sync.WaitGroup
	for i, v := range all {
		g.Go(func() { errs[i] = f(i, v) })
	}
	g.Wait()
	return errors.Join(errs...)
}

func gradient(node, n int) []float32 {
	r := rand.New(rand.NewPCG(uint64(node), 7))
	g := make([]float32, n)
	for i := range g {
		g[i] = float32(r.NormFloat64()) * float32(math.Exp2(float64(r.IntN(20)-10)))
	}
	return g
}

// ordered is the sum of all nodes' gradients in the ring's order: slice s of each block begins at node s and goes to the
// node before. Pieces begin blocks of their own.
func ordered(nodes, n, piece int) []float32 {
	in := make([][]float32, nodes)
	for i := range in {
		in[i] = gradient(i, n)
	}
	sum := make([]float32, n)
	for j := range sum {
		owner := j % piece / ring.DefaultSlice % nodes
		v := in[owner][j]
		for k := 1; k < nodes; k++ {
			v += in[(owner+nodes-k)%nodes][j]
		}
		sum[j] = v
	}
	return sum
}

func same(got, want []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			return fmt.Errorf("element %d is %v, want %v", i, got[i], want[i])
		}
	}
	return nil
}
