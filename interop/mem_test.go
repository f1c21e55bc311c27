package interop

import (
	"context"
	"fmt"
	"testing"

	"gradnic/internal/captures"
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

func TestMem(t *testing.T) {
	for _, name := range Shipped() {
		s := load(t, name)
		for _, elements := range []int{64, 256} {
			t.Run(fmt.Sprintf("%s/%d", name, elements), func(t *testing.T) {
				o := options(t, elements)
				m, err := OpenMem(context.Background(), &o, s)
				if err != nil {
					t.Fatal(err)
				}
				r, err := Run(context.Background(), s, m, "mem", o)
				if err != nil {
					t.Error(err)
				}
				mustPass(t, r)
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
