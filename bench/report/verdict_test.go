package report

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestVerdict(t *testing.T) {
	r := New("make bench-x")
	r.Rows = []Row{
		{Name: "no goal", Ratio: 0.1},
		{Name: "met", Goal: 1.2, Ratio: 1.2},
		{Name: "twice", Against: "c", Goal: 1.2, Ratio: 1.19},
		{Name: "twice", Against: "d", Goal: 1.2, Ratio: 1.3},
		{Name: "time", Goal: 1.1, Ratio: 1.09, Bound: "at most the goal; and more"},
		{Name: "late", Goal: 1.1, Ratio: 1.11, Bound: "at most the goal; and more"},
		{Name: "unknown", Goal: 1, Ratio: 5, Note: "no ratio; INVALID: the generator sent 3 of 4"},
		{Name: "nothing", Goal: 1, Ratio: math.NaN()},
		{Name: "bound", Ratio: 1, Note: "tester-bound: INVALID: the generator sent 3 of 4"},
	}
	want := Verdict{Rows: 9, Goals: 7, Missed: []string{"twice against c", "late", "nothing"}, Invalid: []string{"unknown"}}
	v := r.Verdict()
	if d := cmp.Diff(want, v); d != "" {
		t.Error(d)
	}
	if got := v.MissedLine(); got != "3 of 7 goals missed: twice against c, late, nothing" {
		t.Error(got)
	}
	if got := v.InvalidLine(); got != "1 of 9 rows are INVALID: unknown" {
		t.Error(got)
	}
	if v = New("x").Verdict(); v.MissedLine() != "" || v.InvalidLine() != "" {
		t.Errorf("%+v", v)
	}
	v.Missed = strings.Split("abcdefghij", "")
	if got := v.MissedLine(); !strings.HasSuffix(got, ": a, b, c, d, e, f, and 4 more") {
		t.Error(got)
	}
}
