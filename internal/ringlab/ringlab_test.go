package ringlab

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/service/ring"
	wire "gradnic/wire/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What is no ring is refused before anything is made, with and without root.
func TestNodes(t *testing.T) {
	for _, n := range []int{-1, 0, wire.MaxNodes + 1} {
		if l, err := New(Options{Nodes: n}); err == nil || !strings.Contains(err.Error(), "nodes: from 1 to 64") {
			t.Errorf("%d nodes: %v, %v", n, l, err)
		}
	}
}

// A ring in memory adds up what its nodes have, and is gone when it is closed.
func TestMemory(t *testing.T) {
	changed := 0
	m, err := NewMemory(t.Context(), 3, func(*ring.Config) { changed++ })
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Nodes) != 3 || changed != 3 {
		t.Errorf("%d nodes, %d configurations", len(m.Nodes), changed)
	}
	lab := &Lab{Nodes: m.Nodes}
	data := make([][]float32, 3)
	if err := lab.Each(func(i int, n *Node) error {
		data[i] = []float32{float32(i), 1, -float32(i)}
		done := make(chan ring.Completion, 1)
		if _, err := n.Ring.Submit(ring.Request{Data: data[i], Codec: "none", Done: func(c ring.Completion) { done <- c }}); err != nil {
			return err
		}
		return (<-done).Err
	}); err != nil {
		t.Fatal(err)
	}
	for i, got := range data {
		if !slices.Equal(got, []float32{3, 3, -3}) {
			t.Errorf("node %d: %v", i, got)
		}
	}
	if err := errors.Join(lab.Check(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := m.Nodes[0].Ring.Submit(ring.Request{Data: []float32{1}, Done: func(ring.Completion) {}}); err == nil {
		t.Error("a node that is closed takes a request")
	}
}

// A node that cannot be is named, and those before it are stopped.
func TestMemoryFails(t *testing.T) {
	n := 0
	m, err := NewMemory(t.Context(), 3, func(c *ring.Config) {
		if n++; n == 2 {
			c.MTU = 10
		}
	})
	if err == nil || !strings.Contains(err.Error(), "node 1: ") {
		t.Errorf("%v, %v", m, err)
	}
}

// Who waits for a ring that does not form waits as long as its context lasts.
func TestAwaitFormed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	r, err := ring.New(ring.Config{Node: 0, Peers: []ring.Peer{{Node: 0, Endpoint: NICAddress(0)}, {Node: 1, Endpoint: NICAddress(1)}}})
	if err != nil {
		t.Fatal(err)
	}
	lab := &Lab{Nodes: []*Node{{}, {Ring: r}}}
	if err := lab.AwaitFormed(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	lab.Nodes[1].Ring = nil
	if err := lab.AwaitFormed(ctx); err != nil {
		t.Errorf("no node is started: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Each runs all at once, waits for all and names those that failed.
func TestEach(t *testing.T) {
	bad := errors.New("bad")
	var running atomic.Int32
	all := make(chan struct{})
	lab := &Lab{Nodes: []*Node{{}, {}, {}}}
	err := lab.Each(func(i int, _ *Node) error {
		if running.Add(1) == 3 {
			close(all)
		}
		<-all // or it hangs
		if i == 0 {
			return nil
		}
		return bad
	})
	if !errors.Is(err, bad) || err.Error() != "node 1: bad\nnode 2: bad" {
		t.Errorf("%v", err)
	}
}
