package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gradnic/internal/captures"
	"gradnic/wire/layout"
)

// options are those of a test, with the recorded packets.
func options(t testing.TB, elements int) Options {
	t.Helper()
	dir, err := captures.Dir()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Elements: elements, Captures: dir}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	return o
}

func load(t testing.TB, name string) *Suite {
	t.Helper()
	s, err := Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mustPass fails on what did not pass.
func mustPass(t *testing.T, r *Report) {
	t.Helper()
	for _, x := range r.Results {
		if x.Verdict != Passed {
			t.Errorf("%s/%d/%s: %v: %s", r.Suite, r.Elements, x.Case, x.Verdict, x.Detail)
		}
	}
	if r.Count(Passed) == 0 {
		t.Error("nothing passed")
	}
}

// runMem runs a suite against the data plane in memory.
func runMem(t *testing.T, s *Suite, o Options) *Report {
	t.Helper()
	m, err := OpenTarget(context.Background(), "mem", &o, s)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.Background(), s, m, "mem", o)
	if err != nil {
		t.Error(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	return r
}

func TestMem(t *testing.T) {
	for _, name := range Shipped() {
		s := load(t, name)
		for _, elements := range []int{64, 256} {
			t.Run(fmt.Sprintf("%s/%d", name, elements), func(t *testing.T) {
				t.Parallel()
				if s.OneSize && elements != 64 {
					return // its cases say how many elements they have
				}
				o := options(t, elements)
				if name == "ring" {
					o.Quiet = 5 * time.Millisecond
				}
				mustPass(t, runMem(t, s, o))
			})
		}
	}
}

// A suite passes again on a card that keeps its memory: SwitchML's has no message that begins anew. The recorded packets,
// which end in the middle of a window, leave nothing behind that a later run trips over.
func TestAgain(t *testing.T) {
	for _, name := range []string{"switchml", "native"} {
		s := load(t, name)
		for _, elements := range []int{64, 256} {
			t.Run(fmt.Sprintf("%s/%d", name, elements), func(t *testing.T) {
				t.Parallel()
				o := options(t, elements)
				m, err := OpenTarget(context.Background(), "mem", &o, s)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				for range 3 {
					r, err := Run(context.Background(), s, m, "mem", o)
					if err != nil {
						t.Fatal(err)
					}
					mustPass(t, r)
				}
			})
		}
	}
}

// Layouts go through the data plane: SwitchML as a file is SwitchML, recorded packets included; the native rules answer
// an in-house header on bare Ethernet.
func TestLayouts(t *testing.T) {
	for _, x := range []struct{ suite, layout string }{{"switchml", "switchml"}, {"native", "native"}, {"native", "inhouse"}} {
		l, err := layout.Load(x.layout)
		if err != nil {
			t.Fatal(err)
		}
		s, err := load(t, x.suite).With(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, elements := range []int{64, 256} {
			t.Run(fmt.Sprintf("%s/%s/%d", x.suite, x.layout, elements), func(t *testing.T) {
				r := runMem(t, s, options(t, elements))
				for _, c := range r.Results {
					if c.Verdict != Passed && !(c.Verdict == Unsupported && c.Case == "not-messages") {
						t.Errorf("%s: %v: %s", c.Case, c.Verdict, c.Detail)
					}
				}
				if r.Count(Passed) < len(s.Cases)-3 {
					t.Errorf("%d passed", r.Count(Passed))
				}
			})
		}
	}
}
