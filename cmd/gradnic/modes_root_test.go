package main

import (
	"bytes"
	"strings"
	"testing"
)

// testModes: copy, zero-copy and busy polling are forced by flags, and shown; what the driver does not have ends the start.
func (f *field) testModes(t *testing.T) {
	cmd, _ := f.start(t, "--zero-copy", "off", "--busy-poll", "20us")
	f.gradnic(t, "show", "ports").want(t, exitOK, "copy need-wakeup busy-poll tx-budget=")
	f.gradnic(t, "show", "ports", "-j").want(t, exitOK, `"sockets":"copy need-wakeup busy-poll tx-budget=`)
	f.installOne(t)
	f.send(t, 0, 1, 9)
	if got := f.result(t, 0, 1); got != 9 {
		t.Errorf("got %d", got)
	}
	terminate(t, cmd)

	for flags, c := range map[string]struct {
		code int
		says string
	}{
		"--zero-copy on":     {exitFailed, "the driver has no zero-copy: operation not supported: start with --zero-copy auto or off, which copy (gradnic doctor port0: "},
		"--zero-copy maybe":  {exitUsage, "legal are auto, on, off"},
		"--busy-poll 1500ns": {exitUsage, "whole microseconds"},
		"--busy-poll -1us":   {exitUsage, "whole microseconds"},
	} {
		run := f.nic.Command(t.Context(), f.binary, append([]string{"run", "--ip", "10.50.0.254", "--port", "port0", "--api", f.api}, strings.Fields(flags)...)...)
		var out bytes.Buffer
		run.Stderr = &out
		if err := f.nic.Start(run); err != nil {
			t.Fatal(err)
		}
		_ = run.Wait()
		if code := run.ProcessState.ExitCode(); code != c.code || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: status %d, %s", flags, code, out.String())
		}
	}
}
