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
		if row.Note != "" && !strings.HasPrefix(row.Note, "INVALID: the bare link") { // a machine with other work
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
