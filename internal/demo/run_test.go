package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gradnic/internal/gradients"
)

func TestRunOverMemory(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, c := range []struct {
		name string
		Options
	}{
		{"as it comes", Options{}},
		{"small packets", Options{Elements: 64, Iterations: 2}},
		{"one worker", Options{Workers: 1, Iterations: 2}},
		{"more workers than gradients", Options{Workers: 11, Iterations: 1}},
		{"lossy", Options{Workers: 3, Iterations: 1, Loss: 0.01}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.Transport = Mem
			r, err := Run(context.Background(), c.Options)
			if err != nil {
				t.Fatal(err)
			}
			want := c.Options
			if err := want.setDefaults(); err != nil {
				t.Fatal(err)
			}
			if !r.OK || r.Wrong != 0 || r.Transport != "mem" || r.Elements != gradients.Elements || r.Workers != want.Workers ||
				r.Iterations != want.Iterations || r.PacketElements != want.Elements {
				t.Errorf("report %+v", r)
			}
			if !(r.MaxAbsErr > 0 && r.MaxAbsErr <= r.Bound && r.Bound < 1e-6) {
				t.Errorf("largest error %g, bound %g", r.MaxAbsErr, r.Bound)
			}
			if r.TimeUs <= 0 || r.AlgBW <= 0 || (r.BusBW <= 0) != (want.Workers == 1) {
				t.Errorf("time %g us, algbw %g, busbw %g", r.TimeUs, r.AlgBW, r.BusBW)
			}
			// Each all-reduce takes a slot for each block, and for each block of the exponent batch.
			blocks := (gradients.Elements + want.Elements - 1) / want.Elements
			reduces := 1 + want.Iterations
			if r.NIC.Results < uint64(reduces*blocks) || r.NIC.Contributed != r.NIC.Results*uint64(want.Workers) || r.NIC.Wrapped != 0 {
				t.Errorf("%d results, %d contributions, %d wrapped of %d workers in %d all-reduces of %d blocks",
					r.NIC.Results, r.NIC.Contributed, r.NIC.Wrapped, want.Workers, reduces, blocks)
			}
			if want.Loss > 0 && (r.Resent == 0 || r.NIC.Dropped() == 0) {
				t.Errorf("with loss %g: %d resent, drops %v", want.Loss, r.Resent, r.NIC.Drops)
			}
		})
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	begin := time.Now()
	r, err := Run(ctx, Options{Transport: Mem, Iterations: MaxIterations})
	if err == nil || !strings.Contains(err.Error(), "interrupted") || r == nil || r.OK || r.Error == "" {
		t.Errorf("report %+v, error %v", r, err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("ended after %v", took)
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name string
		Options
		want string // in the error; "" means legal
	}{
		{"nothing", Options{}, ""},
		{"workers", Options{Workers: 33}, "33 workers"},
		{"negative", Options{Workers: -1}, "-1 workers"},
		{"elements", Options{Elements: 128}, "128 elements"},
		{"mode", Options{Mode: "fast", Root: true}, `mode "fast"`},
		{"mode over memory", Options{Mode: "native"}, "over memory"},
		{"xdp without root", Options{Transport: XDP}, "needs root"},
		{"xdp", Options{Transport: XDP, Root: true, Mode: "generic"}, ""},
		{"iterations", Options{Iterations: -1}, "-1 iterations"},
		{"loss", Options{Loss: 0.6}, "loss 0.6"},
	} {
		err := c.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := ParseTransport("tcp"); err == nil {
		t.Error("transport tcp accepted")
	}
}

func TestReport(t *testing.T) {
	r := &Report{Workers: 8, Elements: 1000, PacketElements: 256, Transport: "xdp-native", Loss: 0.01, MaxAbsErr: 1e-9, Bound: 2e-9}
	r.NIC.Received, r.NIC.Contributed, r.NIC.Drops = 11, 8, map[string]uint64{"impaired-ingress": 3}
	r.rows = []row{{elapsed: time.Second, warmup: true, wrong: 1}}
	for i := range 2 * maxRows {
		r.rows = append(r.rows, row{elapsed: time.Duration(i+1) * time.Microsecond, resent: 1})
	}
	r.summarise()
	// The median of 1 us to 40 us; a wrong result of the warm-up counts, its time does not.
	if r.Wrong != 1 || r.Resent != 2*maxRows || r.Iterations != 2*maxRows || r.TimeUs != 20.5 {
		t.Errorf("summary %+v", r)
	}
	if want := 4000.0 / 20500; r.AlgBW != want || r.BusBW != want*2*7/8 {
		t.Errorf("algbw %g, busbw %g, want %g and %g", r.AlgBW, r.BusBW, want, want*2*7/8)
	}
	var table bytes.Buffer
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AF_XDP native mode, 8 veth pairs", "Out of bounds values : 1 FAILED", "impaired-ingress", "(20 more)",
		"received             11  = contributed 8 + duplicates 0 + answered 0 + dropped 3\n"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("table lacks %q:\n%s", want, table.String())
		}
	}
	doc, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(doc, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"ok", "workers", "elements", "packet_elements", "iterations", "transport", "wrong", "max_abs_err",
		"bound", "time_us", "algbw_gbps", "busbw_gbps", "loss", "resent", "nic"} {
		if _, ok := keys[key]; !ok {
			t.Errorf("JSON lacks %q", key)
		}
	}
}
