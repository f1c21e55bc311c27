package tooltest

import (
	"path/filepath"
	"runtime"
	"testing"
)

// outcome is how a test that needs something ends.
type outcome struct {
	testing.TB
	skipped, failed bool
}

func (*outcome) Helper() {}

func (o *outcome) Skipf(string, ...any) {
	o.skipped = true
	runtime.Goexit()
}

func (o *outcome) Fatalf(string, ...any) {
	o.failed = true
	runtime.Goexit()
}

func TestNeed(t *testing.T) {
	if path := Need(t, "go"); !filepath.IsAbs(path) {
		t.Errorf("go is at %q", path)
	}
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		o := &outcome{TB: t}
		done := make(chan bool)
		go func() {
			defer close(done)
			Need(o, "no-program-of-this-name")
		}()
		<-done
		if o.failed != (ci == "true") || o.skipped == o.failed {
			t.Errorf("CI=%q: skipped %v, failed %v", ci, o.skipped, o.failed)
		}
	}
}
