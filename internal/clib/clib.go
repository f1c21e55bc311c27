// Package clib builds libgradnic.so for tests.
package clib

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gradnic/internal/tooltest"
)

// Build builds the library of the checkout below which the test runs, and returns its path; gradnic.h is beside it. Without
// a C compiler the test is skipped, but fails where CI says that all must be there.
func Build(t testing.TB) string {
	t.Helper()
	tooltest.Need(t, "gcc")
	dir := t.TempDir()
	so := filepath.Join(dir, "libgradnic.so")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", so, "gradnic/host/capi")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the library: %v\n%s", err, out)
	}
	root, err := exec.Command("go", "list", "-f", "{{.Dir}}", "gradnic/host/capi").Output()
	if err != nil {
		t.Fatal(err)
	}
	h, err := os.ReadFile(filepath.Join(string(root[:len(root)-1]), "gradnic.h"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "gradnic.h"), h, 0o644); err != nil {
		t.Fatal(err)
	}
	return so
}
