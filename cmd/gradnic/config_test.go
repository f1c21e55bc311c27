package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gradnic/internal/logtest"
)

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfigCheckAndPrint(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gradnic.yaml")
	writeFile(t, file, "port: [eth1, eth2]\nip: 10.50.0.254\nlanes: 2\n")
	gradnic(t, "", "run", "-c", file, "--check").want(t, exitOK, "the configuration is right\n")
	gradnic(t, "", "run", "-c", file, "--lanes", "4", "--print-config").want(t, exitOK, "\nlanes: 4\n")
	gradnic(t, "", "run", "-c", file, "--lanes", "1000", "--check").want(t, exitUsage, "1000 lanes")
	gradnic(t, "", "run", "-c", file, "--switchml", "/x", "--check").want(t, exitFailed, "SwitchML controller: address")
	for _, check := range []string{"--check", "--check=false"} { // it does not start either
		gradnic(t, "", "run", "-c", file, "--pprof", check).want(t, exitFailed, "pprof: it is shown where the metrics are")
	}

	// What is printed is a file that is right, and prints the same.
	printed := gradnic(t, "", "run", "-c", file, "--print-config").want(t, exitOK, "port: [eth1, eth2]\n")
	again := filepath.Join(t.TempDir(), "again.yaml")
	writeFile(t, again, printed.out)
	if r := gradnic(t, "", "run", "-c", again, "--print-config"); r.out != printed.out {
		t.Errorf("printed\n%s\nand again\n%s", printed.out, r.out)
	}

	writeFile(t, file, "port: eth1\nip: 10.50.0.254\nframe: 2\n")
	gradnic(t, "", "run", "-c", file, "--check").want(t, exitFailed, file+`:3:1: "frame" is not a key: did you mean frames?`)
	gradnic(t, "", "run", "-c", file+".none", "--check").want(t, exitFailed, "no such file")
}

// runFile runs a NIC from a file until the test ends, and waits for its ready line.
func runFile(t *testing.T, file string) (out, log *logtest.Lines) {
	t.Helper()
	return runArgs(t, "-c", file)
}

// runArgs does so with flags.
func runArgs(t *testing.T, args ...string) (out, log *logtest.Lines) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, log = new(logtest.Lines), new(logtest.Lines)
	done := make(chan int, 1)
	go func() { done <- run(ctx, append([]string{"run"}, args...), strings.NewReader(""), out, log) }()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != exitOK {
			t.Errorf("status %d, log:\n%s", code, log)
		}
	})
	out.Wait(t, "ready ")
	out.Wait(t, "\n")
	return out, log
}

// SIGHUP changes the log level, says that the number of lanes needs a restart, and
// leaves all as it was when the file is wrong.
func TestReloadOnSIGHUP(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gradnic.yaml")
	text := "port: mem:m0\nip: 10.50.0.254\napi: " + filepath.Join(dir, "api.sock") + "\n"
	writeFile(t, file, text)
	_, log := runFile(t, file)
	hup := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, file, text+"log-level: debug\nlanes: 2\n")
	hup()
	log.Wait(t, `msg="configuration changed" key=log-level was=info is=debug`)
	log.Wait(t, `msg="configuration needs a restart" key=lanes runs=1 file=2`)
	log.Wait(t, "changed=1 need_restart=1")
	writeFile(t, file, text+"log-levl: warn\n")
	hup()
	log.Wait(t, "did you mean log-level?")
	writeFile(t, file, text+"lanes: 1000\n")
	hup()
	log.Wait(t, "1000 lanes")
	writeFile(t, file, text+"log-level: warn\n")
	hup()
	log.Wait(t, "key=log-level was=debug is=warn")
	log.Wait(t, "changed=1 need_restart=0")
	hup() // info is no longer logged
	writeFile(t, file, "")
	hup()
	log.Wait(t, "--port is missing")
	if n := strings.Count(log.String(), "need_restart=0"); n != 1 {
		t.Errorf("read %d times in:\n%s", n, log.String())
	}
}
