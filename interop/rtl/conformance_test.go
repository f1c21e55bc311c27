package rtl

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/internal/tooltest"
	"gradnic/interop"
)

// runSuite runs a suite of the conformance kit against a test bench. Nothing of it may fail, and what is unsupported is
// named here: everything else must pass.
func runSuite(t *testing.T, simulator, suite, command string, elements []int, o interop.Options, unsupported ...string) {
	t.Helper()
	tooltest.Need(t, simulator)
	path, err := filepath.Abs("run.sh")
	if err != nil {
		t.Fatal(err)
	}
	o.Timeout = 5 * time.Minute // the first answer waits for the compiler
	target := "exec:env SIM=" + simulator + " RTL_BUILD=" + build + " " + strings.Replace(command, "run.sh", path, 1)
	reports, err := interop.RunAll(context.Background(), []string{suite}, target, elements, o)
	if err != nil {
		t.Fatal(err)
	}
	passed := 0
	for _, r := range reports {
		for i := range r.Results {
			x := &r.Results[i]
			want := interop.Passed
			for _, name := range unsupported {
				if x.Case == name {
					want = interop.Unsupported
				}
			}
			if x.Verdict != want {
				t.Errorf("%s of %d elements: %v, want %v: %s", x.Case, r.Elements, x.Verdict, want, x.Detail)
			}
			if x.Verdict == interop.Passed {
				passed++
			}
		}
	}
	if len(reports) != len(elements) || passed < 10*len(elements) {
		t.Errorf("%d runs, %d cases passed", len(reports), passed)
	}
}

// The kit's suite for SwitchML, as for any card. The recorded packets, which TestCaptures plays, and most cases of long
// packets, which take the simulator four times as long, are left to make rtl.
func TestSwitchMLConformance(t *testing.T) {
	dir, err := captures.Dir()
	if err != nil {
		t.Fatal(err)
	}
	for _, sim := range simulators() {
		t.Run(sim, func(t *testing.T) {
			t.Parallel()
			if all() {
				runSuite(t, sim, "switchml", "run.sh", []int{64, 256}, interop.Options{Captures: dir})
				return
			}
			runSuite(t, sim, "switchml", "run.sh", []int{64}, interop.Options{}, "recorded-64")
			some := []string{"sum", "sets-overlap", "duplicate-changed", "result-lost-last", "wraps", "exponents", "reply-headers", "vlan", "padded", "arp"}
			runSuite(t, sim, "switchml", "run.sh", []int{256}, interop.Options{Only: some})
		})
	}
}

// The kit's suite for the native protocol. There is no clock in the hardware, and so no word about slow workers.
func TestNativeConformance(t *testing.T) {
	for _, sim := range simulators() {
		t.Run(sim, func(t *testing.T) {
			t.Parallel()
			elements := []int{64}
			if all() {
				elements = []int{64, 65, 256}
			}
			for _, n := range elements {
				command := fmt.Sprintf("env PROTOCOL=native run.sh +slots=128 +elements=%d", n)
				runSuite(t, sim, "native", command, []int{n}, interop.Options{}, "collecting")
			}
		})
	}
}
