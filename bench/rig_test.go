package bench

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
	"gradnic/bench/report"
	"gradnic/internal/netlab/netlabtest"
)

// TestMain lets the test binary be the contestants' process too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "contestant" {
		if err := peers.Main(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "contestant:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func newRig(t *testing.T) *Rig {
	t.Helper()
	netlabtest.NeedRoot(t)
	if err := cpus(); err != nil {
		t.Skip(err)
	}
	rig, err := NewRig()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rig.Close(); err != nil {
			t.Error(err)
		}
	})
	return rig
}

func TestPeersSeeTheGeneratorsFrames(t *testing.T) {
	rig := newRig(t)
	c, err := peers.BuildC(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	self := []string{os.Args[0], "contestant"}
	for _, tt := range []struct {
		name     string
		toKernel bool
		start    func(peers.Target) (*peers.Process, error)
	}{
		{"asavie", false, func(on peers.Target) (*peers.Process, error) {
			return peers.Launch(rig.dev, "asavie", append(self, "asavie"), on)
		}},
		{"rings", false, func(on peers.Target) (*peers.Process, error) {
			return peers.Launch(rig.dev, "rings", append(self, "rings"), on)
		}},
		{"lane", false, func(on peers.Target) (*peers.Process, error) {
			return peers.Launch(rig.dev, "lane", append(self, "lane"), on)
		}},
		{"c", false, func(on peers.Target) (*peers.Process, error) { return peers.LaunchC(rig.dev, c, on) }},
		{"udp", true, func(on peers.Target) (*peers.Process, error) {
			return peers.Launch(rig.dev, "udp", append(self, "udp"), on)
		}},
	} {
		for _, task := range []peers.Task{peers.Drop, peers.Reflect} {
			t.Run(tt.name+"/"+task.String(), func(t *testing.T) {
				// A process that gets no processor in its time sees nothing: on a busy machine it is tried again.
				for try := 0; ; try++ {
					p, err := tt.start(rig.target(task))
					if err != nil {
						t.Fatal(err)
					}
					run, err := rig.drive(socket, gen.Options{Frame: rig.Frame(308, tt.toKernel)}, 150*time.Millisecond)
					if err != nil {
						t.Error(err)
					}
					got, err := p.Stop()
					if err != nil {
						t.Error(err)
					}
					t.Logf("offered %.2f, received %.2f, sent back %.2f, back at the generator %.2f Mpps", run.Mpps(run.Offered),
						run.Mpps(got.Received), run.Mpps(got.Returned), run.Mpps(run.Returned))
					if got.Received > run.Offered || task == peers.Reflect && run.Returned > got.Received {
						t.Errorf("of %d offered frames %d were received, and %d came back", run.Offered, got.Received, run.Returned)
					}
					if got.Received > 0 && (task == peers.Drop || run.Returned > 0) {
						break
					}
					if try == 4 {
						t.Errorf("received %d of %d offered frames, %d came back", got.Received, run.Offered, run.Returned)
						break
					}
				}
			})
		}
	}
}

// The CPUs are those that the process may use, wherever they begin.
func TestFirstTwoCPUs(t *testing.T) {
	for _, tt := range []struct{ cpus, want []int }{
		{[]int{0, 1, 2, 3}, []int{0, 1}}, {[]int{5, 900}, []int{5, 900}}, {[]int{1023, 64, 70}, []int{64, 70}}, {[]int{3}, nil}, {nil, nil},
	} {
		var set unix.CPUSet
		for _, c := range tt.cpus {
			set.Set(c)
		}
		if got := firstTwo(&set); !slices.Equal(got, tt.want) {
			t.Errorf("of %v: %v, want %v", tt.cpus, got, tt.want)
		}
	}
}

// A contestant that got nothing in a round is not slow: its row says that something was wrong.
func TestNothingCameThrough(t *testing.T) {
	row := (&series{mpps: []float64{1, 0, 2, 0}}).costs(report.Row{Note: "7 taken and not sent back"})
	if row.Note != "7 taken and not sent back; INVALID: nothing came through in 2 of 4 rounds" || !row.Invalid() {
		t.Errorf("%q", row.Note)
	}
	if row := (&series{mpps: []float64{1, 2}}).costs(report.Row{}); row.Note != "" {
		t.Errorf("%q", row.Note)
	}
}
