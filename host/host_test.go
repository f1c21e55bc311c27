package host

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gradnic/host/nic"
	"gradnic/host/shm"
	"gradnic/service/ring"
)

// TestAllReduce: memory of the arena and other memory, in one piece and in many, give what the ring gives, bit for bit.
func TestAllReduce(t *testing.T) {
	for _, nodes := range []int{2, 3} {
		r := newRig(t, nodes, nic.Options{}, nil)
		for _, piece := range []int{0, 10_000} {
			clients := r.dial(Options{Arena: 2 << 20, Piece: piece})
			if piece == 0 {
				piece = DefaultPiece
			}
			for _, n := range []int{1, 8191, 100_001} {
				want := ordered(nodes, n, piece)
				err := each(clients, func(i int, c *Client) error {
					inside, err := c.Alloc(n)
					if err != nil {
						return err
					}
					copy(inside, gradient(i, n))
					outside := gradient(i, n)
					a, err := c.Start(Request{Data: inside, Codec: "none"})
					if err != nil {
						return err
					}
					s, err := c.AllReduce(t.Context(), Request{Data: outside, Codec: "none"})
					if err != nil {
						return err
					}
					if s.Blocks < 1 || s.Elapsed <= 0 {
						t.Errorf("stats %+v", s)
					}
					if _, err := a.Wait(t.Context()); err != nil {
						return err
					}
					return errors.Join(same(inside, want), same(outside, want), c.Free(inside))
				})
				if err != nil {
					t.Fatalf("%d nodes, pieces of %d, %d elements: %v", nodes, piece, n, err)
				}
			}
			if err := each(clients, func(_ int, c *Client) error { return c.Close() }); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestAsTheRing: with compression too, a client gets what the ring gives a caller in the NIC's own process.
func TestAsTheRing(t *testing.T) {
	const nodes, n = 3, 50_000
	r := newRig(t, nodes, nic.Options{}, nil)
	clients := r.dial(Options{})
	for _, codec := range []string{"", "bfp16-intel", "fp16"} {
		err := each(clients, func(i int, c *Client) error {
			want, got := gradient(i, n), gradient(i, n)
			if _, err := r.ring.Nodes[i].Ring.AllReduce(t.Context(), ring.Request{Data: want, Codec: codec}); err != nil {
				return err
			}
			if _, err := c.AllReduce(t.Context(), Request{Data: got, Codec: codec}); err != nil {
				return err
			}
			return same(got, want)
		})
		if err != nil {
			t.Fatalf("%q: %v", codec, err)
		}
	}
}

// TestManyAndWeights: more operations than places, started at once, some with weights, and one of no elements.
func TestManyAndWeights(t *testing.T) {
	const nodes, n, count = 2, 3000, 30
	r := newRig(t, nodes, nic.Options{}, nil)
	clients := r.dial(Options{Piece: 1000, Arena: 40_000}) // the arena is short: staging buffers must come back
	sum := ordered(nodes, n, 1000)
	err := each(clients, func(i int, c *Client) error {
		var ops []*Op
		var data, weights [][]float32
		for k := range count {
			q := Request{Data: gradient(i, n), Codec: "none"}
			if k%3 == 1 {
				q.Weights, q.LearningRate = gradient(100, n), 0.5
			}
			if k%7 == 6 {
				q = Request{Codec: "none"}
			}
			op, err := c.Start(q)
			if err != nil {
				return err
			}
			ops, data, weights = append(ops, op), append(data, q.Data), append(weights, q.Weights)
		}
		for k, op := range ops {
			if _, err := op.Wait(t.Context()); err != nil {
				return err
			}
			switch {
			case k%7 == 6:
			case k%3 == 1:
				old := gradient(100, n)
				for j := range old {
					old[j] -= 0.5 * sum[j] // one rounding: a half is exact
				}
				if err := errors.Join(same(data[k], old), same(weights[k], old)); err != nil {
					return err
				}
			default:
				if err := same(data[k], sum); err != nil {
					return err
				}
			}
		}
		if len(c.arena.used) != 0 {
			t.Errorf("%d staging buffers are left", len(c.arena.used))
		}
		return c.Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestErrors: what a client cannot ask for.
func TestErrors(t *testing.T) {
	r := newRig(t, 2, nic.Options{MaxBytes: 1 << 20}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for want, o := range map[string]Options{"at least 4096": {Arena: 100}, "bytes of memory": {Arena: 2 << 20}, "pieces of -1": {Piece: -1}} {
		if _, err := Dial(ctx, r.paths[0], o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Dial(ctx, r.paths[0]+"x", Options{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "--host-socket running") {
		t.Error(err)
	}
	other, err := net.Listen("unix", filepath.Join(t.TempDir(), "other"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for path, want := range map[string]string{t.TempDir(): "no NIC's socket", other.Addr().String(): "no NIC's socket", "/" + strings.Repeat("x", 107): "107 bytes at most, this one 108"} {
		if _, err := Dial(ctx, path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := nic.Listen("/"+strings.Repeat("x", 104), r.ring.Nodes[0].Ring, nic.Options{}); err == nil || !strings.Contains(err.Error(), "too long for a socket") {
		t.Error(err)
	}
	if _, err := nic.Listen(r.paths[0], r.ring.Nodes[0].Ring, nic.Options{}); err == nil || !strings.Contains(err.Error(), "listens") {
		t.Error(err)
	}
	c := r.dial(Options{Arena: 4096})[0]
	if _, err := c.Alloc(2000); err == nil {
		t.Error("too much was allocated")
	}
	if _, err := c.Alloc(-1); err == nil {
		t.Error("-1 elements")
	}
	if f, err := c.Alloc(0); err != nil || f != nil {
		t.Error(f, err)
	}
	if _, err := c.AllReduce(t.Context(), Request{Data: make([]float32, 2000)}); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "a larger arena, or smaller pieces") {
		t.Error(err)
	}
	f, err := c.Alloc(10)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Free(f), c.Free(nil)); err != nil {
		t.Error(err)
	}
	if c.Free(f) == nil || c.Free(make([]float32, 3)) == nil {
		t.Error("freed what was not allocated")
	}
	if _, err := c.Start(Request{Data: make([]float32, 2), Weights: make([]float32, 1)}); err == nil {
		t.Error("fewer weights than gradients")
	}
	if _, err := c.Start(Request{Codec: strings.Repeat("x", 100)}); err == nil {
		t.Error("a codec's name of 100 bytes")
	}
	var re *RequestError
	if _, err := c.AllReduce(t.Context(), Request{Data: make([]float32, 7), Codec: "x"}); !errors.As(err, &re) || re.Hi != 7 || !strings.Contains(re.Text, "x") {
		t.Error(err)
	}
	if _, err := c.AllReduce(t.Context(), Request{Codec: "x"}); !errors.As(err, &re) || strings.Contains(err.Error(), "elements") {
		t.Error(err) // of none
	}
	if _, err := c.AllReduce(t.Context(), Request{Data: make([]float32, 7), Deadline: -1}); !errors.As(err, &re) || !strings.Contains(re.Text, "deadline") {
		t.Error(err)
	}
}

// TestDialSaysItsWait: the NIC learns for how long it may let the client wait.
func TestDialSaysItsWait(t *testing.T) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "nic"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan shm.Hello, 1)
	go func() {
		defer close(got)
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		var h shm.Hello
		fds, err := shm.Receive(c, &h)
		shm.CloseAll(fds)
		if err == nil && shm.Send(c, &shm.Answer{Error: "not now"}, nil) == nil {
			got <- h
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := Dial(ctx, l.Addr().String(), Options{Arena: 4096}); err == nil || !strings.Contains(err.Error(), "not now") {
		t.Error(err)
	}
	if h := <-got; h.WaitMS < 1 || h.WaitMS > 20_000 {
		t.Errorf("%+v", h)
	}
}

// TestStatusAndReform: a ring that has failed says so; formed again it goes on, without one and with all.
func TestStatusAndReform(t *testing.T) {
	r := newRig(t, 3, nic.Options{}, nil)
	clients := r.dial(Options{})
	s, err := clients[1].Status()
	if err != nil || s.Node != 1 || len(s.Nodes) != 3 || s.Phase != "formed" || s.Outstanding != 0 || s.Failure != "" {
		t.Fatalf("%+v, %v", s, err)
	}
	// Node 2 hands nothing in: all fail at the deadline, with its number.
	err = each(clients[:2], func(i int, c *Client) error {
		_, err := c.AllReduce(t.Context(), Request{Data: gradient(i, 1000), Codec: "none", Deadline: 100 * time.Millisecond})
		var re *RequestError
		if !errors.As(err, &re) || !strings.Contains(re.Text, "node 2") {
			t.Errorf("node %d: %v", i, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = clients[0].Status(); err != nil || s.Phase != "failed" || s.Failure == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := clients[0].Reform([]uint16{1, 2}); err == nil || !strings.Contains(err.Error(), "reform") {
		t.Error(err)
	}
	for _, members := range [][]uint16{{0, 1}, {0, 1, 2}} {
		some := clients[:len(members)]
		err = each(some, func(i int, c *Client) error {
			if _, err := c.Reform(members); err != nil {
				return err
			}
			got := gradient(i, 1000)
			if _, err := c.AllReduce(t.Context(), Request{Data: got, Codec: "none"}); err != nil {
				return err
			}
			return same(got, ordered(len(members), 1000, DefaultPiece))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestClose: Close waits, Abort does not; memory that was allocated stays until it is freed.
func TestClose(t *testing.T) {
	r := newRig(t, 2, nic.Options{}, nil)
	clients := r.dial(Options{})
	f, err := clients[0].Alloc(5000)
	if err != nil {
		t.Fatal(err)
	}
	copy(f, gradient(0, 5000))
	op, err := clients[0].Start(Request{Data: f, Codec: "none"})
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	go func() { closed <- clients[0].Close() }()
	select {
	case <-closed:
		t.Fatal("closed while an operation is under way")
	case <-time.After(50 * time.Millisecond):
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := op.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	got := gradient(1, 5000)
	if _, err := clients[1].AllReduce(t.Context(), Request{Data: got, Codec: "none"}); err != nil {
		t.Fatal(err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := op.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if err := same(f, got); err != nil { // still mapped
		t.Error(err)
	}
	if n := clients[0].Lent(); n != 1 {
		t.Errorf("%d allocations", n)
	}
	if err := errors.Join(clients[0].Free(f), clients[0].Close(), clients[0].Abort()); err != nil {
		t.Error(err)
	}
	if clients[0].memory.Arena != nil {
		t.Error("still mapped after the last was freed")
	}
	for name, err := range map[string]error{"start": second(clients[0].Start(Request{})), "alloc": second(clients[0].Alloc(1)), "status": second(clients[0].Status())} {
		if err == nil {
			t.Errorf("%s works on a closed client", name)
		}
	}
	op, err = clients[1].Start(Request{Data: got, Codec: "none", Deadline: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if err := clients[1].Abort(); err != nil {
		t.Error(err)
	}
	if _, err := op.Wait(t.Context()); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestGone: a NIC that is closed in the middle of operations.
func TestGone(t *testing.T) {
	r := newRig(t, 2, nic.Options{}, nil)
	clients := r.dial(Options{})
	var ops []*Op
	for range 12 {
		op, err := clients[0].Start(Request{Data: gradient(0, 5000), Codec: "none"})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op)
	}
	time.Sleep(20 * time.Millisecond)
	if err := r.ring.Nodes[0].Ring.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.servers[0].Close(); err != nil {
		t.Fatal(err)
	}
	for _, op := range ops {
		if _, err := op.Wait(t.Context()); !errors.Is(err, ErrGone) {
			t.Error(err)
		}
	}
	if _, err := clients[0].Start(Request{}); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := clients[0].Status(); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
	if _, err := os.Stat(r.paths[0]); !errors.Is(err, os.ErrNotExist) {
		t.Error("the socket is still there:", err)
	}
	if err := clients[0].Close(); err != nil {
		t.Error(err)
	}
}
