package flaky

import (
	"os"
	"path/filepath"
	"testing"
)

// first tells whether a test is run for the first time since the directory FAILS_DIR was made.
func first(t *testing.T) bool {
	name := filepath.Join(os.Getenv("FAILS_DIR"), t.Name())
	_, err := os.Stat(name)
	if err := os.WriteFile(name, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return err != nil
}

func TestFlaky(t *testing.T) {
	again := !first(t)
	t.Run("good", func(t *testing.T) {})
	t.Run("first", func(t *testing.T) {
		if !again {
			t.Error("the first time I fail")
		}
	})
	t.Run("skipped", func(t *testing.T) { t.Skip("as ever") })
	if !again {
		t.FailNow()
	}
	t.Run("second", func(t *testing.T) {})
}

// TestFlakyBeside must not be run beside TestFlaky.
func TestFlakyBeside(t *testing.T) {
	if !first(t) {
		t.Error("run again")
	}
}

func TestAlways(t *testing.T) { t.Error("I always fail") }

func TestSkippedThen(t *testing.T) {
	if !first(t) {
		t.Skip("now I skip")
	}
	t.Error("the first time I fail")
}
