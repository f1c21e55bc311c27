package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
)

func TestSweepSockets(t *testing.T) {
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	mk := func(name string, files ...string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.WriteFile(filepath.Join(tmp, name, f), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	dirOf := func(pid int, tail string) string { return socketDir + strconv.Itoa(pid) + "-" + tail }
	mk(dirOf(dead.Process.Pid, "1"), socketName)
	mk(dirOf(dead.Process.Pid, "2"))
	mk(dirOf(os.Getpid(), "1"), socketName)
	mk(socketDir+"0-1", socketName)
	mk(socketDir+"x-1", socketName)
	if err := os.WriteFile(filepath.Join(tmp, dirOf(dead.Process.Pid, "3")), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sweepSockets(tmp); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, err := os.ReadDir(tmp)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		left = append(left, e.Name())
	}
	want := []string{dirOf(os.Getpid(), "1"), socketDir + "0-1", socketDir + "x-1", dirOf(dead.Process.Pid, "3")}
	slices.Sort(left)
	slices.Sort(want)
	if !slices.Equal(left, want) {
		t.Errorf("left %v, want %v", left, want)
	}
	// A directory with anything else in it is not a demo's.
	mk(dirOf(dead.Process.Pid, "4"), "data")
	if err := sweepSockets(tmp); err == nil {
		t.Error("a directory with a stranger's file was swept")
	}
}
