package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// real runs the tests of testdata/module, of which some fail the first time only.
func real(t *testing.T, most int) (Counts, string) {
	t.Helper()
	t.Setenv("FAILS_DIR", t.TempDir())
	t.Setenv("GOFLAGS", "")
	t.Chdir(filepath.Join("testdata", "module"))
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s := newSummary(false)
	if err := s.run([]string{"go", "test", "-json", "-count=1", "-vet=off", "./..."}, out); err != nil {
		t.Fatal(err)
	}
	s.runAgain(most, out)
	s.finish(out, false)
	text, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	return s.Counts, string(text)
}

// A test that passes the second time is counted once, as passed and as flaky, with what it wrote; one that does not pass
// then, and those of packages that ended by a panic or after their tests, stay failed.
func TestRunAgain(t *testing.T) {
	counts, text := real(t, 6)
	// Passed: TestFlaky and three of its subtests, TestFlakyBeside. Failed: TestAlways, TestSkippedThen, panics' two
	// and late's one.
	if want := (Counts{Passed: 5, Failed: 5, Skipped: 1, Flaky: 1}); counts != want {
		t.Errorf("counts %+v, want %+v", counts, want)
	}
	for _, line := range []string{
		"once more, alone: fails/flaky TestAlways\n",
		"FLAKY: fails/flaky TestFlaky failed, and passed alone. When it failed it wrote:\n",
		"FLAKY:         flaky_test.go:24: the first time I fail\n",
		"not run again, for its package did not fail by tests alone: fails/late TestFails\n",
		"not run again, for its package did not fail by tests alone: fails/panics TestFails\n",
		"not run again, for its package did not fail by tests alone: fails/panics TestPanics\n",
		"5 passed, 5 failed, 1 FLAKY, 1 skipped in",
	} {
		if strings.Count(text, line) != 1 {
			t.Errorf("%q is not once in the output", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// Nothing runs again when more have failed than may, after a data race, and when it was not asked for.
func TestNotRunAgain(t *testing.T) {
	const (
		a    = `{"Action":"fail","Package":"p","Test":"TestA"}`
		b    = `{"Action":"fail","Package":"p","Test":"TestB"}`
		race = `{"Action":"output","Package":"p","Test":"TestA","Output":"    testing.go:1712: race detected during execution of test\n"}`
		over = `{"Action":"output","Package":"p","Output":"FAIL\n"}`
		end  = `{"Action":"fail","Package":"p"}`
	)
	for _, c := range []struct {
		name   string
		most   int
		lines  []string
		want   Counts
		prints string
	}{
		{"more than may", 1, []string{a, b, over, end}, Counts{Failed: 2}, "2 tests failed: more than 1 are not run again"},
		{"data race", 3, []string{race, a, over, end}, Counts{Failed: 1}, "not run again, for its package did not fail by tests alone: p TestA"},
		{"exit within a test", 3, []string{a, end}, Counts{Failed: 1}, "not run again, for its package did not fail by tests alone: p TestA"},
		{"not asked for", 0, []string{a, over, end}, Counts{Failed: 1}, "0 passed, 1 failed, 0 skipped in 1 packages"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir()) // where go test, if it ran, would find nothing
			out, err := os.Create("out")
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			s := newSummary(false)
			if err := s.read(strings.NewReader(strings.Join(c.lines, "\n")), out); err != nil {
				t.Fatal(err)
			}
			s.runAgain(c.most, out)
			s.finish(out, false)
			text, err := os.ReadFile("out")
			if err != nil {
				t.Fatal(err)
			}
			if s.Counts != c.want || !strings.Contains(string(text), c.prints) || strings.Contains(string(text), "once more") {
				t.Errorf("counts %+v, want %+v; printed %q, want %q in it", s.Counts, c.want, text, c.prints)
			}
		})
	}
}

// A command that fails though no test did is a failure; one that cannot be started is an error.
func TestCommandFails(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	s := newSummary(false)
	if err := s.run([]string{"sh", "-c", `echo '{"Action":"pass","Package":"p","Test":"TestA"}'; exit 3`}, out); err != nil {
		t.Fatal(err)
	}
	if want := (Counts{Passed: 1, Failed: 1}); s.Counts != want {
		t.Errorf("counts %+v, want %+v", s.Counts, want)
	}
	if err := s.run([]string{"no-such-command"}, out); err == nil {
		t.Error("a command that does not exist was run")
	}
}
