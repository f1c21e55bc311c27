package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// built is the command as it is shipped, for all tests that run it: to build it takes longer than most of them.
var built struct {
	sync.Once
	dir string
	err error
}

// builtBinary returns the path of the built command.
func builtBinary(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "gradnictest-cli-"); built.err != nil {
			return
		}
		build := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(built.dir, "gradnic"), ".") // as make build, which finds it in the cache then
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build the command: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "gradnic")
}

func TestMain(m *testing.M) {
	status := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(status)
}
