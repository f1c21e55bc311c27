package interop

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// A command that puts each frame out at once, more than the pipes hold, is read while it is written to.
func TestExecBothWays(t *testing.T) {
	e, err := StartExec(context.Background(), "cat", 0, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte{0x5a}, 1066)
	for range 2 {
		for range 2000 {
			if err := e.Send(frame); err != nil {
				t.Fatal(err)
			}
		}
		got, err := e.Collect(0)
		if err != nil || len(got) != 2000 || !bytes.Equal(got[1999], frame) {
			t.Fatalf("%d frames, %v", len(got), err)
		}
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// What a command does wrong is said: it ends, it takes nothing in, it does not answer, it sends what is no frame.
func TestExecErrors(t *testing.T) {
	for _, x := range []struct{ command, want string }{
		{"sh -c 'echo no such core >&2; exit 3'", "the command ended without an answer, exit status 3; it says: no such core"},
		{"sleep 30", "no answer within 300ms"},
		{"yes", "a frame of 2030729482 bytes"},
	} {
		e, err := StartExec(context.Background(), x.command, 0, 300*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if x.command != "sleep 30" {
			e.timeout = 20 * time.Second // a busy machine
		}
		if _, err = e.Collect(0); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.command, err, x.want)
		}
		_ = e.Close()
	}
	e, err := StartExec(context.Background(), "sleep 30", 0, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	frame := make([]byte, 9014)
	for range 100 { // more than a pipe holds
		if err = e.Send(frame); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "no answer within") {
		t.Errorf("a command that takes nothing in: %v", err)
	}
}
