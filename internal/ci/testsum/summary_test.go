package main

import (
	"strings"
	"testing"
)

func TestSummary(t *testing.T) {
	const (
		pass    = `{"Action":"pass","Package":"p","Test":"TestA"}`
		sub     = `{"Action":"pass","Package":"p","Test":"TestA/sub"}`
		failOut = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: broken\n"}`
		fail    = `{"Action":"fail","Package":"p","Test":"TestB"}`
		pkgFail = `{"Action":"fail","Package":"p","Elapsed":1}`
		pkgPass = `{"Action":"pass","Package":"p","Elapsed":1}`
		rootOut = `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: needs root: x\n"}`
		simdOut = `{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:7: needs AVX-512\n"}`
		skip    = `{"Action":"skip","Package":"p","Test":"TestC"}`
		native  = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: AF_XDP native mode: demo\n"}`
		generic = `{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: AF_XDP generic mode: demo\n"}`
		build   = `{"ImportPath":"p","Action":"build-output","Output":"p.go:1:1: syntax error\n"}`
		hang    = `{"Action":"output","Package":"p","Test":"TestH","Output":"panic: test timed out\n"}`
	)
	for _, c := range []struct {
		name   string
		root   bool
		need   bool
		lines  []string
		want   Counts
		prints string
	}{
		{"all pass", true, true, []string{native, pass, sub, pkgPass}, Counts{Passed: 2}, "AF_XDP native mode: demo"},
		{"one fails", false, false, []string{pass, failOut, fail, pkgFail}, Counts{Passed: 1, Failed: 1}, "b_test.go:7: broken"},
		{"skip without root", false, true, []string{rootOut, skip, pkgPass}, Counts{Skipped: 1}, "TestC: needs root: x"},
		{"skip under root", true, false, []string{rootOut, skip, pkgPass}, Counts{Failed: 1}, "SKIPPED UNDER ROOT"},
		{"hardware skip under root", true, false, []string{simdOut, skip, pkgPass}, Counts{Skipped: 1}, "needs AVX-512"},
		{"only generic", true, true, []string{generic, pass, pkgPass}, Counts{Passed: 1, Failed: 1}, "no test used native mode"},
		{"build fails", false, false, []string{build, pkgFail}, Counts{Failed: 1}, "syntax error"},
		{"a test hangs", false, false, []string{pass, hang, pkgFail}, Counts{Passed: 1, Failed: 1}, "timed out"},
		{"not JSON", false, false, []string{"go: no such module", pass, pkgPass}, Counts{Passed: 1}, "no such module"},
		{"nothing", false, false, nil, Counts{Failed: 1}, "no test ran"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			s := newSummary(c.root)
			if err := s.read(strings.NewReader(strings.Join(c.lines, "\n")), &out); err != nil {
				t.Fatal(err)
			}
			s.finish(&out, c.need)
			if s.Counts != c.want {
				t.Errorf("counts %+v, want %+v", s.Counts, c.want)
			}
			if !strings.Contains(out.String(), c.prints) {
				t.Errorf("printed %q, want %q in it", out.String(), c.prints)
			}
		})
	}
}
