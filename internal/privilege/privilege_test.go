package privilege

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const childEnv = "GRADNIC_TEST_DROP"

// TestMain drops in a process of its own when it is told to, and tells what all its threads have then.
func TestMain(m *testing.M) {
	if level := os.Getenv(childEnv); level != "" {
		if err := child(level); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func child(level string) error {
	var l Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return err
	}
	// Threads in system calls, and threads that spin.
	var stop sync.WaitGroup
	quit := make(chan struct{})
	for i := range 8 {
		stop.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for {
				select {
				case <-quit:
					return
				default:
				}
				if i%2 == 0 {
					_, _ = unix.Poll(nil, 20)
				}
			}
		})
	}
	time.Sleep(20 * time.Millisecond)
	if err := Drop(l); err != nil {
		return err
	}
	if err := Drop(l); err != nil { // idempotent
		return fmt.Errorf("again: %w", err)
	}
	later := make(chan error)
	go func() { // a thread that is started later
		runtime.LockOSThread()
		b, err := os.ReadFile("/proc/thread-self/status")
		os.Stdout.Write(b)
		later <- err
	}()
	if err := <-later; err != nil {
		return err
	}
	statuses, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		return err
	}
	for _, s := range statuses {
		b, err := os.ReadFile(s)
		if err != nil {
			return err
		}
		os.Stdout.Write(b)
	}
	out, err := exec.Command("/bin/cat", "/proc/self/status").Output() // a program that is executed
	if err != nil {
		return err
	}
	os.Stdout.Write(out)
	close(quit)
	stop.Wait()
	return nil
}

// build makes the test binary without cgo: the one that runs may be the race detector's.
func build(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "privilege.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", name, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return name
}

// TestDrop: every thread, those started later and programs that are executed have what the level keeps and no more.
func TestDrop(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: drops capabilities")
	}
	have, err := Current()
	if err != nil {
		t.Fatal(err)
	}
	binary := build(t)
	for l, want := range map[Level]Set{Healing: Healing.kept() & have, All: 0} {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), childEnv+"="+l.String())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", l, err, out)
		}
		threads := 0
		for line := range strings.Lines(string(out)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
			wanted := fmt.Sprintf("%016x", uint64(want))
			switch key {
			case "CapEff", "CapPrm":
				threads++
			case "CapBnd":
			case "CapInh", "CapAmb":
				wanted = strings.Repeat("0", 16)
			case "NoNewPrivs":
				wanted = "1"
			default:
				continue
			}
			if value != wanted {
				t.Errorf("%v: %s is %s, want %s", l, key, value, wanted)
			}
		}
		if threads < 2*10 {
			t.Fatalf("%v: %d threads looked at:\n%s", l, threads/2, out)
		}
	}
}

// TestDropNone keeps all, in any binary.
func TestDropNone(t *testing.T) {
	before, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	if err := Drop(None); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		t.Fatal(err)
	}
	caps := func(b []byte) (lines []byte) {
		for line := range bytes.Lines(b) {
			if bytes.HasPrefix(line, []byte("Cap")) || bytes.HasPrefix(line, []byte("NoNew")) {
				lines = append(lines, line...)
			}
		}
		return lines
	}
	if !bytes.Equal(caps(before), caps(after)) {
		t.Fatalf("%s, was %s", caps(after), caps(before))
	}
}

func TestLevels(t *testing.T) {
	for _, l := range []Level{Healing, All, None} {
		var got Level
		if err := got.UnmarshalText([]byte(l.String())); err != nil || got != l {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	var l Level
	if err := l.UnmarshalText([]byte("some")); err == nil || !strings.Contains(err.Error(), "none, healing, all") {
		t.Error(err)
	}
	if err := named("x", unix.ENOTSUP); !errors.Is(err, ErrCgo) {
		t.Error(err)
	}
}
