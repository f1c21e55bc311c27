// Command testsum reads the output of `go test -json` and prints what a person wants to know: packages as they finish,
// the output of tests that failed, which tests were skipped and why, and the lines by which tests say how they ran
// ("AF_XDP native mode").
//
//	go test -json ./... | go run ./internal/ci/testsum -out build/test.json
//
// Run as root, where every test has its rights, a test that was skipped for want of rights is counted as failed, and a
// run of which no test used AF_XDP in native mode fails when -need-native is given. Exit status 1 when anything failed.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
)

func main() {
	out := flag.String("out", "", "write the counts to this file as JSON")
	needNative := flag.Bool("need-native", false, "as root, fail when no test said that it used AF_XDP native mode")
	flag.Parse()

	s := newSummary(os.Geteuid() == 0)
	if err := s.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testsum: standard input:", err)
		os.Exit(1)
	}
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
