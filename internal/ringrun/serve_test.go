package ringrun

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gradnic/host"
	"gradnic/internal/ringlab"
)

// TestHostSocket: two nodes as `gradnic ring --host-socket` runs them serve a process each, until they are interrupted.
func TestHostSocket(t *testing.T) {
	const n = 2
	l, peers := links(t, n)
	serving, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	sockets := [n]string{filepath.Join(t.TempDir(), "0"), filepath.Join(t.TempDir(), "1")}
	ready := make(chan string, 10)
	var log bytes.Buffer // read once both have ended
	logger := slog.New(slog.NewTextHandler(&log, nil))
	ended := make(chan error, 1)
	go func() {
		ended <- l.Each(func(i int, node *ringlab.Node) error {
			return node.NS.Do(func() error {
				o := NodeOptions{Interface: ringlab.Iface, Node: i, Peers: peers, DeadAfter: 5 * time.Second, HostSocket: sockets[i], Logger: logger, Waiting: func(s string) { ready <- s }}
				r, err := RunNode(serving, o)
				if r != nil {
					t.Errorf("node %d has summed: %+v", i, r)
				}
				return err
			})
		})
	}()
	for range n {
		select {
		case <-ready:
		case err := <-ended:
			t.Fatal(err)
		}
	}
	err := l.Each(func(i int, _ *ringlab.Node) error {
		c, err := host.Dial(t.Context(), sockets[i], host.Options{})
		if err != nil {
			return err
		}
		data := make([]float32, 100_000)
		Fill(data, i)
		if _, err := c.AllReduce(t.Context(), host.Request{Data: data}); err != nil {
			return err
		}
		if w := Wrong(data, n, "bfp16"); w != 0 {
			t.Errorf("node %d: %d wrong", i, w)
		}
		return c.Close()
	})
	if err != nil {
		t.Error(err)
	}
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, line := range []string{"a client has the node", "the client has left"} {
		if got := log.String(); strings.Count(got, line) != n {
			t.Errorf("not %d times %q in:\n%s", n, line, got)
		}
	}
}
