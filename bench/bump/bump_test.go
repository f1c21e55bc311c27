package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab/netlabtest"
)

// TestMeasure: a short run on a slow link reaches the goal of the fast one, since nothing but the link bounds it.
func TestMeasure(t *testing.T) {
	netlabtest.NeedRoot(t)
	var log strings.Builder
	r, err := measure(t.Context(), options{rounds: 2, each: 200 * time.Millisecond, cases: []linkCase{{50e6, goal}}, log: io.MultiWriter(&log), pings: 50})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	found := 0
	for _, row := range r.Rows {
		if row.Note != "" {
			t.Errorf("%s: %s", row.Name, row.Note)
		}
		if !strings.HasPrefix(row.Name, "payload/bump") {
			continue
		}
		found++
		// More than the encoding gives would mean that the link, or the count, is not what it should be.
		if row.Ratio < 2.5 || row.Ratio > 3.8 {
			t.Errorf("%s: %.2f times the payload of the bare link\n%s", row.Name, row.Ratio, log.String())
		}
	}
	if found != 1 || len(r.Rows) != 2+6 {
		t.Errorf("%d rows: %+v", len(r.Rows), r.Rows)
	}
}
