package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// breaks matches lines after which a failed test is not just a test that failed, and what else failed beside it is not
// to be believed.
var breaks = regexp.MustCompile(`^(panic: |fatal error: |unexpected fault address|WARNING: DATA RACE)|race detected during execution of test`)

// endsByTests tells from what a package that failed wrote outside of its tests whether the tests came to their end
// ("FAIL", of testing itself) and nothing failed after them.
func endsByTests(wrote []string) bool {
	at := slices.Index(wrote, "FAIL\n")
	if at < 0 {
		return false
	}
	for _, line := range wrote[at+1:] {
		if !strings.HasPrefix(line, "FAIL\t") && line != "exit status 1\n" {
			return false
		}
	}
	return true
}

// ended takes how the command ended: when it failed, something must have been counted for it.
func (s *summary) ended(err error, out io.Writer) {
	if err != nil && s.Failed == 0 && !s.empty {
		fmt.Fprintln(out, "no test failed, but go test did:", err)
		s.Failed++
	}
}

// runAgain runs tests that failed once more, each alone, if they are no more than most and their packages ended well
// but for them. What they counted before is replaced.
func (s *summary) runAgain(most int, out *os.File) {
	if most == 0 {
		return
	}
	var failed []testID
	for id, top := range s.tops {
		if top.Failed > 0 {
			failed = append(failed, id)
		}
	}
	if len(failed) > most {
		fmt.Fprintf(out, "%d tests failed: more than %d are not run again\n", len(failed), most)
		return
	}
	slices.SortFunc(failed, func(a, b testID) int { return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.test, b.test)) })
	for _, id := range failed {
		if s.broken[id.pkg] {
			fmt.Fprintf(out, "not run again, for its package did not fail by tests alone: %s %s\n", id.pkg, id.test)
			continue
		}
		fmt.Fprintf(out, "once more, alone: %s %s\n", id.pkg, id.test)
		second := newSummary(s.root)
		if err := second.run([]string{"go", "test", "-json", "-count=1", "-timeout=4m", "-run=^" + id.test + "$", id.pkg}, out); err != nil {
			fmt.Fprintln(out, "once more:", err)
			continue
		}
		s.replace(id, second, out)
	}
}

// replace takes a test's second run for its first if it passed.
func (s *summary) replace(id testID, second *summary, out io.Writer) {
	if second.Failed > 0 || second.Passed == 0 {
		return
	}
	top := s.tops[id]
	s.Passed += second.Passed - top.Passed
	s.Failed -= top.Failed
	s.Skipped += second.Skipped - top.Skipped
	s.Flaky++
	s.skips = slices.DeleteFunc(s.skips, func(sk skip) bool {
		return sk.id.pkg == id.pkg && (sk.id.test == id.test || strings.HasPrefix(sk.id.test, id.test+"/"))
	})
	s.skips = append(s.skips, second.skips...)
	for _, m := range second.modes {
		if !slices.Contains(s.modes, m) {
			s.modes = append(s.modes, m)
		}
	}
	s.native = s.native || second.native
	fmt.Fprintf(out, "FLAKY: %s %s failed, and passed alone. When it failed it wrote:\n", id.pkg, id.test)
	for _, o := range top.wrote {
		fmt.Fprint(out, "FLAKY:     ", o)
	}
}
