package bench

import (
	"fmt"
	"os"
	"testing"
	"time"

	"gradnic/bench/gen"
	"gradnic/bench/peers"
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

func TestPeersSeeTheGeneratorsFrames(t *testing.T) {
	netlabtest.NeedRoot(t)
	if err := cpus(); err != nil {
		t.Skip(err)
	}
	rig, err := NewRig()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := rig.Close(); err != nil {
			t.Error(err)
		}
	}()
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
				p, err := tt.start(rig.target(task))
				if err != nil {
					t.Fatal(err)
				}
				run, err := rig.drive(gen.Options{Frame: rig.Frame(308, tt.toKernel)}, 150*time.Millisecond)
				if err != nil {
					t.Error(err)
				}
				got, err := p.Stop()
				if err != nil {
					t.Error(err)
				}
				t.Logf("offered %.2f, received %.2f, sent back %.2f, back at the generator %.2f Mpps", run.Mpps(run.Offered),
					run.Mpps(got.Received), run.Mpps(got.Returned), run.Mpps(run.Returned))
				if got.Received == 0 || got.Received > run.Offered {
					t.Errorf("received %d of %d offered frames", got.Received, run.Offered)
				}
				if task == peers.Reflect && (run.Returned == 0 || run.Returned > got.Received) {
					t.Errorf("%d frames came back, of %d received", run.Returned, got.Received)
				}
			})
		}
	}
}
