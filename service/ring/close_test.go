package ring_test

import (
	"errors"
	"testing"

	"gradnic/internal/ringlab"
	. "gradnic/service/ring"
)

// TestCloseAtOnce: each host closes its node as soon as its own request is done. Nobody's request fails for that.
func TestCloseAtOnce(t *testing.T) {
	for range 4 {
		m, err := ringlab.NewMemory(t.Context(), 4, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = (&ringlab.Lab{Nodes: m.Nodes}).Each(func(_ int, n *ringlab.Node) error {
			_, err := n.Ring.AllReduce(t.Context(), Request{Data: make([]float32, 300_000)})
			return errors.Join(err, n.Ring.Close())
		})
		if err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
