// Command testsum runs `go test -json`, given as its arguments, and prints what a person wants to know: packages as they
// finish, the output of tests that failed, which tests were skipped and why, and the lines by which tests say how they ran
// ("AF_XDP native mode").
//
//	go run ./internal/ci/testsum -out build/test.json -again 3 go test -json ./...
//
// Run as root, where every test has its rights, a test that was skipped for want of rights is counted as failed, and a
// run of which no test used AF_XDP in native mode fails when -need-native is given.
//
// With -again N, at most N top-level tests that failed run once more at the end, each alone. One that passes then is
// flaky: it is printed with what it wrote when it failed, counted as flaky and as passed, and does not fail the run. When
// more than N have failed, none runs again; nor does any of a package that ended otherwise than by failed tests: by a
// panic, a data race, a time-out, a failure outside of tests.
//
// Exit status 1 when anything failed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
)

func main() {
	out := flag.String("out", "", "write the counts to this file as JSON")
	needNative := flag.Bool("need-native", false, "as root, fail when no test said that it used AF_XDP native mode")
	again := flag.Int("again", 0, "run failed tests once more, if there are no more than this")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: testsum [-out FILE] [-need-native] [-again N] go test -json ...")
		os.Exit(2)
	}

	s := newSummary(os.Geteuid() == 0)
	if err := s.run(flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
	s.runAgain(*again, os.Stdout)
	s.finish(os.Stdout, *needNative)
	if *out != "" {
		doc, err := json.Marshal(s.Counts)
		if err == nil {
			err = os.WriteFile(*out, append(doc, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "testsum: write counts:", err)
			os.Exit(1)
		}
	}
	if s.Failed > 0 {
		os.Exit(1)
	}
}

// run starts a `go test -json` and reads what it writes. The error is of starting and reading; tests that fail are in the
// counts.
func (s *summary) run(argv []string, out *os.File) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := s.read(events, out); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("read what %s writes: %w", argv[0], err)
	}
	s.ended(cmd.Wait(), out)
	return nil
}
