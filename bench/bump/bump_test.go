package main

import (
	"strings"
	"testing"
	"time"

	"gradnic/internal/netlab/netlabtest"
)

// TestMeasure: a short run on a slow link reaches the goal of the fast one, since nothing but the link bounds it. On a busy machine
// a run is INVALID, or has too little time for the bump: then it is made again.
func TestMeasure(t *testing.T) {
	netlabtest.NeedRoot(t)
	for try := range 4 {
		var log strings.Builder
		r, err := measure(t.Context(), options{rounds: 2, each: 200 * time.Millisecond, cases: []linkCase{{50e6, goal}}, log: &log, pings: 50})
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		if len(r.Rows) != 2+6 || r.Rows[1].Name != "payload/bump-bfp16/50Mbit" {
			t.Fatalf("%d rows: %+v", len(r.Rows), r.Rows)
		}
		for _, row := range r.Rows {
			if row.Note != "" && !row.Invalid() {
				t.Errorf("%s: %s", row.Name, row.Note)
			}
		}
		row := r.Rows[1]
		t.Logf("try %d: %.2f times the payload of the bare link, %q, %q\n%s", try, row.Ratio, row.Bound, row.Note, log.String())
		if row.Invalid() {
			continue
		}
		// More than the encoding gives would mean that the link, or the count, is not what it should be.
		if row.Ratio > 3.8 {
			t.Errorf("%.2f times the payload of the bare link", row.Ratio)
		}
		if row.Ratio >= 2.5 {
			return
		}
		if strings.HasPrefix(row.Bound, "the link") {
			t.Errorf("%.2f times the payload of the bare link, and %s", row.Ratio, row.Bound)
		}
	}
	t.Log("no run was valid: the machine is busy")
}

// A bare link that was not filled makes a ratio worth nothing: the row says so.
func TestUsed(t *testing.T) {
	// 500 Mbit/s are 41282 frames of 1514 bytes a second, with 1472 of payload each.
	if u := used(41282*1472, 500e6); u < 0.9999 || u > 1.0001 {
		t.Errorf("a full link: %v", u)
	}
	if u := used(30e6, 500e6); u > full {
		t.Errorf("half a link: %v", u)
	}
}
