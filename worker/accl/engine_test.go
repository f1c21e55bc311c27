package accl_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"gradnic/internal/acclcheck"
	wire "gradnic/wire/accl"
	"gradnic/wire/inet"
	. "gradnic/worker/accl"
)

// engines are ranks that hand each other datagrams without anything in between.
type engines struct {
	es  []*Engine
	buf []byte
}

func newEngines(t testing.TB, ranks int, change func(*Config)) *engines {
	t.Helper()
	x := &engines{buf: make([]byte, wire.MaxDatagram)}
	for r := range ranks {
		cfg := memConfig(ranks, r)
		if change != nil {
			change(&cfg)
		}
		e, err := NewEngine(cfg)
		if err != nil {
			t.Fatal(err)
		}
		x.es = append(x.es, e)
	}
	return x
}

// do makes calls by all ranks to their end.
func (x *engines) do(calls []Call) error {
	for r, e := range x.es {
		if err := e.Begin(calls[r], 0); err != nil {
			return err
		}
	}
	for {
		moved := false
		for r, e := range x.es {
			for to, n, ok := e.Pending(); ok; to, n, ok = e.Pending() {
				e.Put(x.buf[:n], 0)
				x.es[to].Receive(r, x.buf[:n], 0)
				moved = true
			}
		}
		if !moved {
			break
		}
	}
	for _, e := range x.es {
		if done, err := e.Done(); !done || err != nil {
			return errors.Join(errors.New("not done"), err)
		}
	}
	return nil
}

// TestNoAllocation: once buffers exist, calls allocate nothing, however many datagrams they take.
func TestNoAllocation(t *testing.T) {
	if underRace {
		t.Skip("the race detector allocates")
	}
	for _, c := range []Call{
		{Collective: AllReduce, Type: Float32, Count: 20000}, {Collective: AllReduce, Type: Float32, Count: 20000, Half: true},
		{Collective: ReduceScatter, Type: Float16, Count: 20000}, {Collective: AllGather, Type: Int64, Count: 2000},
		{Collective: Bcast, Type: Int32, Count: 20000}, {Collective: Gather, Type: Float64, Count: 3000}, {Collective: Reduce, Type: Int32, Count: 3000},
	} {
		j := acclcheck.New(c, 3, DefaultSegment, 1)
		x := newEngines(t, 3, nil)
		if n := testing.AllocsPerRun(5, func() {
			if err := x.do(j.Calls); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", c.Collective, n)
		}
		for r := range 3 {
			if _, err := j.Wrong(r); err != nil {
				t.Error(err)
			}
		}
	}
}

// BenchmarkAllReduce is three ranks on one core without a network: what the engine itself costs.
func BenchmarkAllReduce(b *testing.B) {
	for _, t := range []Type{Float32, Float16, Int64} {
		b.Run(t.String(), func(b *testing.B) {
			j := acclcheck.New(Call{Collective: AllReduce, Type: t, Count: 100_000}, 3, DefaultSegment, 1)
			x := newEngines(b, 3, nil)
			b.SetBytes(int64(3 * 100_000 * t.Size()))
			for b.Loop() {
				if err := x.do(j.Calls); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRare: infinities, NaN and integers that wrap come out by the rules that the package states, and are counted.
func TestRare(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		call Call
		a, b []float64
		want []float64
	}{
		{Call{Type: Float32}, []float64{inf, inf, nan, 1}, []float64{1, -inf, 1, 2}, []float64{inf, nan, nan, 3}},
		{Call{Type: Float32, Op: Max}, []float64{inf, -inf, nan, -1}, []float64{1, -1, 1, 2}, []float64{inf, -1, nan, 2}},
		{Call{Type: Float16}, []float64{65504, -65504, 1, 2048}, []float64{65504, -65504, 0x1p-24, 1}, []float64{inf, -inf, 1, 2048}},
		{Call{Type: Float32, Half: true}, []float64{70000, 1e-9, 2049, 5}, []float64{1, 0, 0, 5}, []float64{inf, 0, 2048, 10}},
		{Call{Type: Float64}, []float64{1e308, 1}, []float64{1e308, 1}, []float64{inf, 2}},
		{Call{Type: Int32}, []float64{math.MaxInt32, math.MinInt32}, []float64{1, -1}, []float64{math.MinInt32, math.MaxInt32}},
	} {
		c.call.Collective, c.call.Count = AllReduce, len(c.a)
		x := newEngines(t, 2, nil)
		calls := []Call{c.call, c.call}
		for r, v := range [][]float64{c.a, c.b} {
			calls[r].Src, calls[r].Dst = acclcheck.Encode(c.call.Type, v), make([]byte, len(v)*c.call.Type.Size())
		}
		if err := x.do(calls); err != nil {
			t.Fatal(err)
		}
		flagged := uint64(0)
		for r := range 2 {
			got := acclcheck.Decode(c.call.Type, calls[r].Dst)
			if !slices.EqualFunc(got, c.want, func(a, b float64) bool { return a == b || a != a && b != b }) {
				t.Errorf("%v %v half %v, rank %d: %v, want %v", c.call.Type, c.call.Op, c.call.Half, r, got, c.want)
			}
			flagged += x.es[r].Stats().Flagged
		}
		if flagged == 0 {
			t.Errorf("%v %v: nothing was flagged", c.call.Type, c.call.Op)
		}
	}
}

// TestMismatch: ranks that make calls which do not fit together are told, as far as lengths and tags can tell.
func TestMismatch(t *testing.T) {
	one := make([]byte, 4)
	for _, c := range []struct {
		name string
		a, b Call
		why  string
	}{
		{"longer", Call{Collective: Send, Root: 1, Count: 2, Src: make([]byte, 8)}, Call{Collective: Recv, Count: 1, Dst: one}, "8 bytes, and this call wants 4"},
		{"half an element", Call{Collective: Send, Root: 1, Type: Float16, Count: 1, Src: one[:2]}, Call{Collective: Recv, Count: 1, Dst: one}, "2 bytes, and this call wants 4 in elements of 4"},
		{"another tag", Call{Collective: Send, Root: 1, Tag: 5, Count: 1, Src: one}, Call{Collective: Recv, Tag: 6, Count: 1, Dst: one}, "tag 5, and this call takes tag 6"},
		{"any tag takes no certain one", Call{Collective: Send, Root: 1, Tag: 5, Count: 1, Src: one}, Call{Collective: Recv, Tag: wire.TagAny, Count: 1, Dst: one}, "tag 5, and"},
		{"any tag is taken", Call{Collective: Send, Root: 1, Tag: wire.TagAny, Count: 1, Src: one}, Call{Collective: Recv, Tag: 3, Count: 1, Dst: one}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newEngines(t, 2, nil).do([]Call{c.a, c.b})
			if c.why == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.why) {
				t.Fatalf("%v, want %s", err, c.why)
			}
		})
	}
}

// TestPool: a peer that sends more messages than there are buffers loses one, by name, and the call that needs it ends.
func TestPool(t *testing.T) {
	x := newEngines(t, 2, func(c *Config) { c.Buffers = 3 })
	send := Call{Collective: Send, Root: 1, Type: Int32, Count: 1, Src: make([]byte, 4)}
	for i := range 4 {
		if err := x.es[0].Begin(send, 0); err != nil {
			t.Fatal(err)
		}
		_, n, ok := x.es[0].Pending()
		if !ok {
			t.Fatal("nothing to send")
		}
		x.es[0].Put(x.buf[:n], 0)
		want := wire.OK
		if i == 3 {
			want = wire.PoolFull
		}
		if f := x.es[1].Receive(0, x.buf[:n], 0); f != want {
			t.Fatalf("message %d: %v", i, f)
		}
	}
	recv := Call{Collective: Recv, Type: Int32, Count: 1, Dst: make([]byte, 4)}
	for i := range 4 {
		if err := x.es[1].Begin(recv, 0); err != nil {
			t.Fatal(err)
		}
		done, err := x.es[1].Done()
		if i < 3 && (!done || err != nil) {
			t.Fatalf("message %d: %v", i, err)
		}
		if i == 3 && (!errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "message 3 from rank 0: a datagram is missing (accl-pool-full)")) {
			t.Fatalf("the lost one: %v", err)
		}
	}
}

func TestConfig(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"0 ranks":                    func(c *Config) { c.Ranks = nil },
		"17 ranks":                   func(c *Config) { c.Ranks = memConfig(17, 0).Ranks },
		"rank 3 of 3":                func(c *Config) { c.Rank = 3 },
		"is not a host's":            func(c *Config) { c.Ranks[1].IP = inet.Addr{224, 0, 0, 1} },
		"ranks 0 and 1 are both at":  func(c *Config) { c.Ranks[1] = Peer{IP: c.Ranks[0].IP, Port: wire.BasePort} },
		"multiples of 64 up to 4032": func(c *Config) { c.Segment = 4096 },
		"segment of 100":             func(c *Config) { c.Segment = 100 },
		"-1 buffers":                 func(c *Config) { c.Buffers = -1 },
		"eager limit":                func(c *Config) { c.MaxEager = -1 },
		"timeout":                    func(c *Config) { c.Timeout = -1 },
	} {
		cfg := memConfig(3, 0)
		change(&cfg)
		if _, err := NewEngine(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	e, err := NewEngine(memConfig(3, 1))
	if err != nil {
		t.Fatal(err)
	}
	c := e.Config()
	if c.Segment != 4032 || c.MaxEager != 1<<20 || c.Timeout != 10*time.Second || c.Ranks[2].Port != 5502 {
		t.Errorf("defaults %+v", c)
	}
}

// TestParse: names are read as they are written.
func TestParse(t *testing.T) {
	for c := range AllToAll + 1 {
		if got, err := ParseCollective(c.String()); err != nil || got != c {
			t.Errorf("%v: %v, %v", c, got, err)
		}
	}
	for _, x := range Types() {
		if got, err := ParseType(x.String()); err != nil || got != x {
			t.Errorf("%v: %v, %v", x, got, err)
		}
	}
	if _, err := ParseOp("min"); err == nil || !strings.Contains(err.Error(), "sum, max") {
		t.Errorf("%v", err)
	}
	if Collective(99).String() != "collective 99" {
		t.Error(Collective(99))
	}
}

// TestResponderFrames: a rank in memory answers ARP and echo requests as a card does, and says why it drops a frame.
func TestResponderFrames(t *testing.T) {
	cfg := memConfig(2, 0)
	j := acclcheck.New(Call{Collective: AllReduce, Type: Float32, Count: 17}, 2, DefaultSegment, 1)
	r, err := NewResponder(cfg, j.Of(0)...)
	if err != nil {
		t.Fatal(err)
	}
	peer, err := NewResponder(memConfig(2, 1), j.Of(1)...)
	if err != nil {
		t.Fatal(err)
	}
	own, other := cfg.Ranks[0], cfg.Ranks[1]
	ask := make([]byte, 60)
	inet.PutARP(ask, inet.ARP{Op: inet.ARPRequest, SenderMAC: other.MAC, SenderIP: other.IP, TargetIP: own.IP})
	out, err := r.Frame(ask)
	var a inet.ARP
	if err != nil || len(out) != 1 || inet.ParseARP(out[0], &a) != inet.OK || a.Op != inet.ARPReply || a.SenderMAC != own.MAC {
		t.Fatalf("ARP: %v, %x", err, out)
	}
	frames := r.Frames(r.Start())
	if len(frames) != 1 {
		t.Fatalf("%d frames at the start", len(frames))
	}
	reply := peer.Frames(peer.Start())
	change := func(at int, v byte) []byte {
		f := slices.Clone(reply[0])
		f[at] = v
		return f
	}
	for want, f := range map[string][]byte{
		"not for 02:":        change(5, 9),
		"not for 10.10.10.1": change(33, 9),
		"port 5509":          change(37, byte(5509&0xff)),
		"accl-unknown-peer":  change(35, 0),
		"ip-fragment":        change(20, 0x20),
	} {
		if out, err := r.Frame(f); err == nil || !strings.Contains(err.Error(), want) || len(out) != 0 {
			t.Errorf("want %q, got %v and %d frames", want, err, len(out))
		}
	}
	for len(frames)+len(reply) > 0 {
		var toPeer, toUs [][]byte
		for _, f := range frames {
			out, err := peer.Frame(f)
			if err != nil {
				t.Fatal(err)
			}
			toUs = append(toUs, out...)
		}
		for _, f := range reply {
			out, err := r.Frame(f)
			if err != nil {
				t.Fatal(err)
			}
			toPeer = append(toPeer, out...)
		}
		frames, reply = toPeer, toUs
	}
	for k := range 2 {
		if _, err := j.Wrong(k); err != nil {
			t.Error(err)
		}
	}
}
