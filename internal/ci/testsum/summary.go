package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is a line of `go test -json` (see `go doc test2json`), or of the build's JSON output mixed into it.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	ImportPath  string // of build-output and build-fail
	FailedBuild string
}

// Counts are tests and subtests. A package that fails outside of any test (it does not build, it panics, a goroutine
// leaks at its end) counts as one failure.
type Counts struct {
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	// Flaky is how many top-level tests failed first and passed alone. They are among Passed, with their subtests.
	Flaky int `json:"flaky"`
}

type testID struct{ pkg, test string }

type summary struct {
	Counts
	root bool

	output   map[testID][]string // of tests that have not ended
	failedIn map[string]int      // tests that failed, by package
	tops     map[testID]*topTest // top-level tests that have begun
	broken   map[string]bool     // packages that ended otherwise than by failed tests
	skips    []skip
	modes    []string // lines that say how AF_XDP ran, without repetition
	native   bool
	packages int
	empty    bool // no event yet
}

// topTest is a top-level test with its subtests.
type topTest struct {
	Counts
	wrote []string // by those that failed
}

// skip is a test that was skipped.
type skip struct {
	id     testID
	reason string
}

var (
	// lackOfRights matches the reasons of skips that cannot be right for root.
	lackOfRights = regexp.MustCompile(`(?i)\broot\b|privilege|permission|not permitted|\bCAP_|AF_XDP|namespace`)
	// modeLine is what tests log to say how AF_XDP ran.
	modeLine = regexp.MustCompile(`AF_XDP (native|generic) mode.*`)
	logPlace = regexp.MustCompile(`^\s*[\w.-]+\.go:\d+: `)
)

func newSummary(root bool) *summary {
	return &summary{root: root, output: map[testID][]string{}, failedIn: map[string]int{}, tops: map[testID]*topTest{},
		broken: map[string]bool{}, empty: true}
}

// read consumes events. Lines that are no JSON (the go command's own errors) are printed as they are.
func (s *summary) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprint(out, line)
			} else {
				s.empty = false
				s.event(&e, out)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (s *summary) event(e *event, out io.Writer) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.output[id] = append(s.output[id], e.Output)
		s.broken[e.Package] = s.broken[e.Package] || breaks.MatchString(e.Output)
		if m := modeLine.FindString(e.Output); m != "" {
			m = strings.TrimSpace(m)
			if !slices.Contains(s.modes, m) {
				s.modes = append(s.modes, m)
			}
			s.native = s.native || strings.HasPrefix(m, "AF_XDP native")
		}
	case "build-output":
		fmt.Fprint(out, e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			s.test(e, id, out)
		} else {
			s.pkg(e, id, out)
		}
		delete(s.output, id)
	}
}

// top is the top-level test that a test is or belongs to.
func (s *summary) top(id testID) *topTest {
	id.test, _, _ = strings.Cut(id.test, "/")
	if s.tops[id] == nil {
		s.tops[id] = &topTest{}
	}
	return s.tops[id]
}

func (s *summary) test(e *event, id testID, out io.Writer) {
	top := s.top(id)
	switch e.Action {
	case "pass":
		s.Passed++
		top.Passed++
	case "fail":
		s.fail(id, out)
	case "skip":
		reason := skipReason(s.output[id])
		if s.root && lackOfRights.MatchString(reason) {
			fmt.Fprintf(out, "--- SKIPPED UNDER ROOT, counted as failed: %s %s: %s\n", e.Package, e.Test, reason)
			s.Failed++
			top.Failed++
			s.failedIn[e.Package]++
			return
		}
		s.Skipped++
		top.Skipped++
		s.skips = append(s.skips, skip{id, reason})
	}
}

func (s *summary) fail(id testID, out io.Writer) {
	s.Failed++
	s.failedIn[id.pkg]++
	top := s.top(id)
	top.Failed++
	fmt.Fprintf(out, "--- FAIL: %s %s\n", id.pkg, id.test)
	for _, o := range s.output[id] {
		if !strings.HasPrefix(o, "=== ") {
			fmt.Fprint(out, "    ", o)
			top.wrote = append(top.wrote, o)
		}
	}
}

func (s *summary) pkg(e *event, id testID, out io.Writer) {
	switch e.Action {
	case "pass":
		s.packages++
		fmt.Fprintf(out, "ok    %-44s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		s.packages++
		fmt.Fprintf(out, "FAIL  %-44s %6.1fs\n", e.Package, e.Elapsed)
		s.broken[e.Package] = s.broken[e.Package] || !endsByTests(s.output[id])
		if s.failedIn[e.Package] == 0 {
			s.Failed++
			s.failedIn[e.Package]++
			for _, o := range s.output[id] {
				fmt.Fprint(out, "    ", o)
			}
			// What a test wrote that never ended: a panic or a time-out.
			for other, lines := range s.output {
				if other.pkg == e.Package && other.test != "" {
					fmt.Fprintf(out, "--- DID NOT END: %s %s\n", other.pkg, other.test)
					for _, o := range lines {
						fmt.Fprint(out, "    ", o)
					}
				}
			}
		}
	}
	for other := range s.output {
		if other.pkg == e.Package {
			delete(s.output, other)
		}
	}
}

// skipReason is what the test gave to Skip: the last line that a test logged.
func skipReason(output []string) string {
	reason := "no reason given"
	for _, o := range output {
		if logPlace.MatchString(o) {
			reason = strings.TrimSpace(logPlace.ReplaceAllString(o, ""))
		}
	}
	return reason
}

// finish prints what the whole run says, and adds the failures that only the whole run shows.
func (s *summary) finish(out io.Writer, needNative bool) {
	for _, sk := range s.skips {
		fmt.Fprintf(out, "skip  %s %s: %s\n", sk.id.pkg, sk.id.test, sk.reason)
	}
	for _, m := range s.modes {
		fmt.Fprintln(out, m)
	}
	if s.empty {
		fmt.Fprintln(out, "no test ran")
		s.Failed++
	}
	if !s.native {
		switch {
		case s.root && needNative:
			fmt.Fprintln(out, "AF_XDP: root, but no test used native mode")
			s.Failed++
		case !s.root:
			fmt.Fprintln(out, "AF_XDP: not tested, that needs root")
		}
	}
	flaky := ""
	if s.Flaky > 0 {
		flaky = fmt.Sprintf(", %d FLAKY", s.Flaky)
	}
	fmt.Fprintf(out, "%d passed, %d failed%s, %d skipped in %d packages\n", s.Passed, s.Failed, flaky, s.Skipped, s.packages)
}
