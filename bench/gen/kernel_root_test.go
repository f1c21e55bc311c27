package gen

import (
	"math"
	"testing"
	"time"

	"gradnic/bench/flow"
	"gradnic/internal/netlab"
	"gradnic/internal/netlab/netlabtest"
	"gradnic/wire/inet"
)

// rig is a veth pair: the generator's end and the device's.
func rig(t *testing.T) (from, to *netlab.NS, fromIndex, toIndex int, frame []byte) {
	t.Helper()
	lab := netlabtest.New(t, "gngen")
	from, to = netlabtest.Namespace(t, lab, "from"), netlabtest.Namespace(t, lab, "to")
	netlabtest.Veth(t, lab, netlab.End{NS: from, Name: "a0"}, netlab.End{NS: to, Name: "b0"})
	fromIndex, _, err := from.Interface("a0")
	if err != nil {
		t.Fatal(err)
	}
	toIndex, _, err = to.Interface("b0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := flow.New(flow.Options{To: inet.MAC{6, 0, 0, 0, 0, 0xfe}, ToIP: inet.Addr{10, 50, 0, 254}, Sizes: []int{100}})
	if err != nil {
		t.Fatal(err)
	}
	frame = make([]byte, 100)
	s.Next(frame, 0)
	return from, to, fromIndex, toIndex, frame
}

// A paced run sends what was asked, to the frame, in the time that was asked; the device counts all of it, and what it
// sends back comes home.
func TestRunPaced(t *testing.T) {
	from, to, fromIndex, toIndex, frame := rig(t)
	for _, pps := range []float64{1000, 30_000, 200_000} {
		var d *Program
		if err := to.Do(func() (err error) { d, err = OpenBounce(toIndex); return }); err != nil {
			t.Fatal(err)
		}
		var (
			r        *Result
			returned uint64
		)
		err := from.Do(func() error {
			g, err := Open(Options{IfIndex: fromIndex, Frame: frame, Rate: pps})
			if err != nil {
				return err
			}
			defer g.Close()
			if r, err = g.RunPaced(t.Context(), 100*time.Millisecond); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			returned, err = g.Returned()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		received, err := d.Received()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%.0f asked, %.0f sent a second; %d frames, %d received, %d back %s", pps, r.PPS(), r.Frames, received, returned, r.Invalid())
		if r.Invalid() == "" && (r.Frames != r.Asked || math.Abs(r.PPS()/pps-1) > 0.011) {
			t.Errorf("%d of %d frames, %.0f a second, want %.0f", r.Frames, r.Asked, r.PPS(), pps)
		}
		if r.Frames == 0 || received != r.Frames || returned != received {
			t.Errorf("sent %d, received %d, back %d", r.Frames, received, returned)
		}
	}
}

// Only counts frames of the run's own port; NoReceiver leaves the netdev's program to somebody else.
func TestReturnedOnly(t *testing.T) {
	from, to, fromIndex, toIndex, frame := rig(t)
	var d *Program
	if err := to.Do(func() (err error) { d, err = OpenBounce(toIndex); return }); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, tt := range []struct {
		port uint16
		all  bool
	}{{4000, true}, {4001, false}} { // the frame's source port is 4000
		err := from.Do(func() error {
			g, err := Open(Options{IfIndex: fromIndex, Frame: frame, Rate: 10_000, Only: tt.port})
			if err != nil {
				return err
			}
			defer g.Close()
			r, err := g.RunPaced(t.Context(), 20*time.Millisecond)
			if err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			n, err := g.Returned()
			if (n == r.Frames) != tt.all || (n == 0) == tt.all {
				t.Errorf("port %d: %d of %d came back", tt.port, n, r.Frames)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := from.Do(func() error {
		a, err := Open(Options{IfIndex: fromIndex, Frame: frame})
		if err != nil {
			return err
		}
		defer a.Close()
		if b, err := Open(Options{IfIndex: fromIndex, Frame: frame}); err == nil {
			b.Close()
			t.Error("two receivers on one netdev")
		}
		b, err := Open(Options{IfIndex: fromIndex, Frame: frame, NoReceiver: true})
		if err != nil {
			return err
		}
		return b.Close()
	})
	if err != nil {
		t.Error(err)
	}
}
