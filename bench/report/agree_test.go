package report

import (
	"math"
	"strings"
	"testing"
)

// Every cause is told for the figure that has it, and a figure that agrees is in no list.
func TestAgree(t *testing.T) {
	first, second := New("make bench-x"), New("make bench-x")
	first.Title, second.Title = "Engine", "Engine"
	first.Machine.CPUs = 2
	first.Machine.Load, second.Machine.Load = 0.5, 0.5
	first.Machine.Time, second.Machine.Time = "2026-01-01T00:00:00Z", "2026-01-01T00:10:00Z"
	add := func(row Row, x, y []float64, base [2][]float64) {
		first.Add(row, x, base[0])
		second.Add(row, y, base[1])
	}
	none := [2][]float64{}
	add(Row{Name: "same", Unit: "us"}, []float64{1, 1.01, 0.99, 1, 1}, []float64{1.05, 1.04, 1.06, 1.05, 1.05}, none)
	add(Row{Name: "edge", Unit: "us"}, []float64{10}, []float64{11}, none) // a tenth is still within
	add(Row{Name: "wide", Unit: "us"}, []float64{1, 2, 1.2, 1, 1}, []float64{1.2, 1.2, 1.3, 1.2, 1.2}, none)
	add(Row{Name: "single", Unit: "us"}, []float64{1}, []float64{2}, none)
	add(Row{Name: "stable", Unit: "us"}, []float64{1, 1, 1.01, 1, 1}, []float64{2, 2, 2.01, 2, 2}, none)
	add(Row{Name: "bad", Unit: "us"}, []float64{1, 1.01}, []float64{1, 1.01}, none)
	second.Rows[len(second.Rows)-1].Note = "INVALID: the link"
	add(Row{Name: "dead", Unit: "us"}, []float64{1, 1}, []float64{0, 0}, none)
	// The machine was half as fast in the second run: values beyond, the ratio not.
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		add(Row{Name: n, Unit: "Mpps", Against: "y"}, []float64{4, 4.01, 4.02}, []float64{2, 2.01, 2.02}, [2][]float64{{2, 2, 2}, {1, 1, 1}})
	}
	first.Add(Row{Name: "busy", Unit: "us", Load: 3}, []float64{1, 1.01, 1}, nil)
	second.Add(Row{Name: "busy", Unit: "us", Load: 0.4}, []float64{2, 2.01, 2}, nil)
	first.Add(Row{Name: "crowd", Unit: "us", Load: 7.9}, []float64{1, 1.01, 1}, nil)
	second.Add(Row{Name: "crowd", Unit: "us", Load: 7.2}, []float64{2, 2.01, 2}, nil)
	first.Add(Row{Name: "old", Unit: "us"}, []float64{1}, nil)
	second.Add(Row{Name: "new", Unit: "us"}, []float64{1}, nil)

	a, err := Agree(first, second, 0.1)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"wide us": "rounds of one run are as far apart (100 %)", "single us": "its spread is not known", "stable us": "neither spread nor load tells (p=0.0",
		"bad us": "the second run's is INVALID: the link", "dead us": "neither spread", "busy us": "3 and 3 rounds are too few to tell it from chance; load 3.0, then 0.4",
		"crowd us": "load 7.9 on 2 CPUs: other work ran",
	}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		want[n+" Mpps"] = "the figures in Mpps changed alike, by -50 % in the median"
	}
	for _, f := range a.Figures {
		key := f.Name + " " + f.Unit
		if text, ok := want[key]; ok != f.Beyond || !strings.Contains(f.Why, text) {
			t.Errorf("%s: beyond %v, %q; want %v, %q", key, f.Beyond, f.Why, ok, text)
		}
		delete(want, key)
	}
	if len(want) > 0 || a.Beyond() != 12 || len(a.Figures) != 7+2*5+2 {
		t.Errorf("%d of %d beyond, not seen: %v", a.Beyond(), len(a.Figures), want)
	}
	var text strings.Builder
	if err := WriteAgreements(&text, []*Agreement{a}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| Engine (`make bench-x`) | 2026-01-01T00:00:00Z, load 0.5 | 2026-01-01T00:10:00Z, load 0.5 | 19 | 7, 10 % | 12 |",
		"Engine: only the first run has old.", "Engine: only the second run has new.", "| wide, us | 1 | 1.2 | 20 % | 100 % | 8 % | 0.5, 0.5 |", "| dead, us | 1 | 0 |  |",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "| same") || strings.Contains(text.String(), "a over y, x") {
		t.Errorf("a figure that agrees is listed:\n%s", text.String())
	}
}

func TestAgreeRefuses(t *testing.T) {
	for _, tt := range []struct {
		second    string
		tolerance float64
		want      string
	}{{"make bench-y", 0.1, "not runs of the same measurement"}, {"make bench-x", 0, "must be above 0"}, {"make bench-x", math.NaN(), "must be above 0"}} {
		if _, err := Agree(New("make bench-x"), New(tt.second), tt.tolerance); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

func TestStolen(t *testing.T) {
	if _, all := processorTime(); all == 0 {
		t.Error("no processor time in /proc/stat")
	}
	if s := Stolen()(); s < 0 || s > 1 {
		t.Errorf("a share of %v", s)
	}
	m := Machine{Stolen: 0.02}
	if !strings.Contains(m.String(), "2.0 % of the processors taken by the hypervisor") {
		t.Error(m)
	}
}
