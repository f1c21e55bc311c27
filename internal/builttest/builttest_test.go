package builttest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var built Command

// Run is judged by what it leaves: nothing.
func TestMain(m *testing.M) {
	status := built.Run(m)
	if built.dir == "" && built.err == nil {
		os.Exit(status) // no test asked for it
	}
	if _, err := os.Stat(built.dir); !errors.Is(err, fs.ErrNotExist) {
		os.Stderr.WriteString("the built command is left in " + built.dir + "\n")
		status = 1
	}
	os.Exit(status)
}

// A command of this checkout is built once, without cgo, and for any user to run. A smaller one than gradnic shows that as well.
func TestCommand(t *testing.T) {
	const small = "gradnic/internal/ci/leftovers"
	built.once.Do(func() { built.err = built.build(small) })
	path := built.Path(t)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := os.Stat(filepath.Dir(path)); err != nil || dir.Mode().Perm() != 0o755 || before.Mode().Perm()&0o005 != 0o005 {
		t.Errorf("directory %v, command %v, %v", dir.Mode(), before.Mode(), err)
	}
	if again := built.Path(t); again != path {
		t.Errorf("built in %s, then in %s", path, again)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("built twice: %v", err)
	}
	var none Command
	if err := none.build("gradnic/none"); err == nil || !strings.Contains(err.Error(), "gradnic/none") {
		t.Errorf("what does not build: %v", err)
	}
	if err := os.RemoveAll(none.dir); err != nil {
		t.Error(err)
	}
	out, err := exec.Command("go", "version", "-m", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"path\t" + small + "\n", "build\tCGO_ENABLED=0\n", "build\t-trimpath=true\n"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("built without %q:\n%s", want, out)
		}
	}
}
