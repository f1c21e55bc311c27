// Package builttest builds the command for the tests that run it.
package builttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Command is the command gradnic as it is shipped, built by the first test of a package that asks: that takes longer than
// most of the tests. The zero value is one that is not built yet. A package has one, whose Run its TestMain calls.
type Command struct {
	once sync.Once
	dir  string
	err  error
}

// Path is where the built command is, in a directory that any user may read. A command that does not build fails the test.
func (c *Command) Path(t testing.TB) string {
	t.Helper()
	c.once.Do(func() { c.err = c.build("gradnic/cmd/gradnic") })
	if c.err != nil {
		t.Fatalf("build the command: %v", c.err)
	}
	return c.path()
}

func (c *Command) path() string { return filepath.Join(c.dir, "gradnic") }

func (c *Command) build(pkg string) (err error) {
	if c.dir, err = os.MkdirTemp("", "gradnictest-"); err != nil {
		return err
	}
	if err := os.Chmod(c.dir, 0o755); err != nil {
		return err
	}
	build := exec.Command("go", "build", "-trimpath", "-o", c.path(), pkg) // as make build, which finds it in the cache then
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// Run runs a package's tests, removes what was built for them and returns the exit status.
func (c *Command) Run(m *testing.M) (status int) {
	defer func() {
		if c.dir != "" {
			os.RemoveAll(c.dir)
		}
	}()
	return m.Run()
}
