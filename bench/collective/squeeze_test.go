package collective

import (
	"os"
	"strings"
	"testing"

	"gradnic/internal/netlab/netlabtest"
)

// A step over a slow link is faster with compression than without, and the run says how much of it is communication.
func TestSqueeze(t *testing.T) {
	netlabtest.NeedRoot(t)
	r, err := Squeeze(t.Context(), SqueezeOptions{Rounds: 3, Log: os.Stderr, Command: "test", Cases: []SqueezeCase{
		{Link: Link{Rate: 100e6, MTU: 1500}, Workers: 2, Bytes: mib, Codecs: []string{"bfp16"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Rows) != 3 {
		t.Fatalf("%+v", r.Rows)
	}
	for _, row := range r.Rows {
		if strings.HasPrefix(row.Name, "steps/bfp16/") && row.Ratio < 1.21 {
			t.Errorf("%s: %.2fx", row.Name, row.Ratio)
		}
		if strings.HasPrefix(row.Name, "communication/") && (row.Value < 0.3 || row.Value > 0.7) {
			t.Errorf("%s: %.2f", row.Name, row.Value)
		}
	}
}
