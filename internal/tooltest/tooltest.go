// Package tooltest finds the programs that tests run beside the Go toolchain, and looks at pages with one of them.
package tooltest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Need returns the path of a program. Where it is not installed the test is skipped; but it fails if CI=true says that all must
// be there.
func Need(t testing.TB, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed", program)
		}
		t.Skipf("NOT RUN: %s is not installed", program)
	}
	return path
}

// Browse opens a page in Chromium, without a window, and returns what Chromium prints with the flags, such as --dump-dom.
func Browse(t testing.TB, url string, flags ...string) string {
	t.Helper()
	chromium := Need(t, "chromium")
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir=" + filepath.Join(t.TempDir(), "profile")}, flags...)
	cmd := exec.CommandContext(ctx, chromium, append(args, url)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	return string(out)
}
