package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gradnic/internal/builttest"
	"gradnic/internal/netlab/netlabtest"
)

// built is the command, for all tests that run it.
var built builttest.Command

func TestMain(m *testing.M) { os.Exit(built.Run(m)) }

// runBinary runs the binary to its end.
func runBinary(t *testing.T, setup func(*exec.Cmd), args ...string) (stdout, stderr string, status int) {
	t.Helper()
	path := built.Path(t) // building is not part of the time
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/"
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if setup != nil {
		setup(cmd)
	}
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left := leftOf(t, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("%v left %v", args, left)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// namespacesOf lists the namespaces that a process's demo has made.
func namespacesOf(t *testing.T, pid int) []string {
	t.Helper()
	names, err := filepath.Glob(fmt.Sprintf("/run/netns/%s-%d-*", labPrefix, pid))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// leftOf lists everything that a process's demo has made and that is still there.
func leftOf(t *testing.T, pid int) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("%s%d-*", socketDir, pid)))
	if err != nil {
		t.Fatal(err)
	}
	return append(namespacesOf(t, pid), dirs...)
}

// hostLinks lists the interfaces of the test's own namespace.
func hostLinks(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "-o", "-br", "link").Output()
	if err != nil {
		t.Fatalf("ip link: %v", err)
	}
	return string(out)
}

// demoJSON runs the demo with --json and returns its document.
func demoJSON(t *testing.T, args ...string) (r Report) {
	t.Helper()
	out, errs, status := runBinary(t, nil, append([]string{"demo", "--json"}, args...)...)
	dec := json.NewDecoder(strings.NewReader(out))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("standard output is no document: %v\n%s%s", err, out, errs)
	}
	if dec.More() {
		t.Errorf("more than one document on standard output: %s", out)
	}
	if status != 0 || !r.OK || errs != "" {
		t.Fatalf("status %d, report %+v, standard error %q", status, r, errs)
	}
	return r
}

func TestBinaryOverXDP(t *testing.T) {
	netlabtest.NeedRoot(t)
	before := hostLinks(t)
	for _, c := range []struct {
		args []string
		mode string
	}{
		{nil, "xdp-native"},
		{[]string{"--mode", "native", "--elements", "64"}, "xdp-native"},
		{[]string{"--mode", "generic", "--workers", "3", "--iters", "2"}, "xdp-generic"},
		{[]string{"--loss", "0.02", "--iters", "1"}, "xdp-native"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := demoJSON(t, c.args...)
			if r.Transport != c.mode || r.Wrong != 0 || r.MaxAbsErr > r.Bound || r.MaxAbsErr == 0 {
				t.Errorf("report %+v", r)
			}
			if r.Loss > 0 && r.Resent == 0 {
				t.Errorf("nothing was sent again with loss %g", r.Loss)
			}
			t.Logf("AF_XDP %s mode: demo with %d workers, %d results, %.3f GB/s", strings.TrimPrefix(r.Transport, "xdp-"), r.Workers, r.NIC.Results, r.AlgBW)
		})
	}
	if after := hostLinks(t); after != before {
		t.Errorf("links before:\n%safter:\n%s", before, after)
	}
}

// startEndless starts a demo that does not end by itself, and waits until all-reduces run.
func startEndless(t *testing.T) (cmd *exec.Cmd, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(built.Path(t), "demo", "--iters", fmt.Sprint(MaxIterations))
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	deadline := time.Now().Add(20 * time.Second)
	for len(namespacesOf(t, cmd.Process.Pid)) < 9 {
		if time.Now().After(deadline) {
			cmd.Process.Kill()
			cmd.Wait()
			t.Fatalf("no namespaces after 20 s: %s", stderr)
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)
	return cmd, stderr
}

func TestBinaryRemovesAllOnSignals(t *testing.T) {
	netlabtest.NeedRoot(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			before := hostLinks(t)
			cmd, stderr := startEndless(t)
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			select {
			case <-ended:
			case <-time.After(15 * time.Second):
				cmd.Process.Kill()
				t.Fatalf("still runs 15 s after the signal: %s", stderr)
			}
			if code := cmd.ProcessState.ExitCode(); code != 1 || stderr.String() != "gradnic demo: interrupted; everything that was made is removed\n" {
				t.Errorf("status %d, standard error %q", code, stderr)
			}
			if left := leftOf(t, cmd.Process.Pid); len(left) > 0 {
				t.Errorf("left %v", left)
			}
			if after := hostLinks(t); after != before {
				t.Errorf("links before:\n%safter:\n%s", before, after)
			}
		})
	}
}

func TestBinaryRunsAfterKill(t *testing.T) {
	netlabtest.NeedRoot(t)
	cmd, _ := startEndless(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	r := demoJSON(t, "--iters", "1")
	if r.Transport != "xdp-native" {
		t.Errorf("report %+v", r)
	}
	if left := leftOf(t, cmd.Process.Pid); len(left) > 0 {
		t.Errorf("of the killed run the next left %v", left)
	}
}

// TestBinaryWithoutRoot runs as nobody where the test has the right to become nobody, else as who it is.
func TestBinaryWithoutRoot(t *testing.T) {
	nobody := func(cmd *exec.Cmd) {
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	}
	out, errs, status := runBinary(t, nobody, "demo", "--iters", "1")
	if status != 0 || !strings.Contains(out, "no AF_XDP (that needs root)") || !strings.Contains(out, "Out of bounds values : 0 OK") {
		t.Errorf("status %d\n%s%s", status, out, errs)
	}
	// Nothing is registered with the kernel without AF_XDP, so that no limit on locked memory is met.
	limited := func(cmd *exec.Cmd) {
		nobody(cmd)
		cmd.Args = append([]string{"sh", "-c", `ulimit -l 64 && exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}
	out, errs, status = runBinary(t, limited, "demo", "--iters", "1", "--workers", "32", "--json")
	if status != 0 || !strings.Contains(out, `"transport":"mem"`) {
		t.Errorf("with a small limit on locked memory: status %d\n%s%s", status, out, errs)
	}
	out, errs, status = runBinary(t, nobody, "demo", "--transport", "xdp")
	if status != 2 || out != "" || !strings.Contains(errs, "needs root") || strings.Count(errs, "\n") != 1 {
		t.Errorf("status %d, standard output %q, standard error %q", status, out, errs)
	}
}

func TestBinaryRefusesBadFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--elements", "100"}, {"--workers", "40"}, {"--transport", "carrier-pigeon"}, {"--mode", "fast"}, {"--loss", "2"}, {"surplus"},
	} {
		out, errs, status := runBinary(t, nil, append([]string{"demo"}, args...)...)
		if status != 2 || out != "" || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: status %d, standard output %q, standard error %q", args, status, out, errs)
		}
	}
}
