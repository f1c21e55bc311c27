package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The targets of bench.mk run all their parts, one after the other, though one of them is INVALID, and fail then.
func TestMakeRunsEveryPart(t *testing.T) {
	maker, err := exec.LookPath("make")
	if err != nil {
		t.Skip("make is not installed: ", err)
	}
	mk, err := filepath.Abs("bench.mk")
	if err != nil {
		t.Fatal(err)
	}
	// In gradnic's place is a program that writes what it was asked to write, and whose search is INVALID.
	const gradnic = `#!/bin/sh
echo "$@" >>log
[ "$2" = ndr ] && status=3
verb=$2
while [ $# -gt 0 ]; do
	case $1 in --json|--html) mkdir -p "${2%/*}" && echo "$verb" >>"$2";; esac
	shift
done
exit ${status:-0}
`
	run := func(t *testing.T, args ...string) (dir string, calls []string, err error) {
		dir = t.TempDir()
		for name, text := range map[string]string{
			"Makefile":    "SHELL := /bin/bash\n.PHONY: build\nbuild:\n\t@true\ninclude " + mk + "\n",
			"bin/gradnic": gradnic, "docs/bench/old": "",
		} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.CommandContext(t.Context(), maker, args...)
		cmd.Dir = dir
		// A make that runs the tests would hand its own options down.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS") })
		out, err := cmd.CombinedOutput()
		t.Logf("make %q:\n%s", args, out)
		log, err2 := os.ReadFile(filepath.Join(dir, "log"))
		if err2 != nil {
			t.Fatal(err2)
		}
		for call := range strings.Lines(string(log)) {
			calls = append(calls, strings.Join(strings.Fields(call)[1:], " "))
		}
		return dir, calls, err
	}
	verbs := func(calls []string) (verbs []string) {
		for _, c := range calls {
			verb, _, _ := strings.Cut(c, " ")
			verbs = append(verbs, verb)
		}
		return verbs
	}

	t.Run("bench", func(t *testing.T) {
		dir, calls, err := run(t, "-j4", "bench", "BENCH_MORE=--strict")
		if err == nil {
			t.Error("one part is INVALID, and make bench is content")
		}
		if got := verbs(calls); !slices.Equal(got, []string{"engine", "ndr", "allreduce"}) {
			t.Errorf("it ran %q", got)
		}
		for _, c := range calls {
			if !strings.Contains(c, "--page docs/performance.md") || !strings.HasSuffix(c, "--strict") {
				t.Errorf("%q", c)
			}
		}
		for _, name := range []string{"engine", "reflect", "allreduce"} {
			for _, end := range []string{".json", ".html"} {
				if _, err := os.Stat(filepath.Join(dir, "docs/bench", name+end)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	t.Run("bench-full", func(t *testing.T) {
		_, calls, err := run(t, "bench-full")
		if err == nil {
			t.Error("two parts are INVALID, and make bench-full is content")
		}
		if got := verbs(calls); !slices.Equal(got, []string{"engine", "ndr", "allreduce", "ndr", "compare", "scale", "allreduce"}) {
			t.Errorf("it ran %q", got)
		}
	})
	t.Run("bench-twice", func(t *testing.T) {
		dir, calls, err := run(t, "bench-twice")
		if err != nil {
			t.Error(err)
		}
		if got := verbs(calls); !slices.Equal(got, []string{"engine", "ndr", "allreduce", "engine", "ndr", "allreduce", "agree"}) {
			t.Fatalf("it ran %q", got)
		}
		if strings.Contains(calls[0], "--page") || !strings.Contains(calls[3], "--page docs/performance.md") ||
			calls[6] != "agree build/bench/first build/bench/second --page docs/performance.md" {
			t.Errorf("%q", calls)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "docs/bench/reflect.json")); err != nil || string(b) != "ndr\n" {
			t.Errorf("the second run's report is not in docs/bench: %q, %v", b, err)
		}
	})
}
